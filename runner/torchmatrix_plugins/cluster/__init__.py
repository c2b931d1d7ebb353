"""A run on the nodes of a cluster: each launch is a job, and each node records its own as a machine of its own.

In: a matrix, and the settings of the cluster. Out: a run per node in the results folder, which all nodes share.
Open first: cluster.py, the planning on the machine that submits. jobs.py submits and watches jobs, job_system.py says what a
scheduler is asked, slurm.py and kubernetes.py ask it, orders.py has the files that jobs read and write, on_node.py the work of
a job.
"""
