"""A run on the nodes of a Slurm cluster: each launch is a job, and each node records its own as a machine of its own.

In: a matrix, and what the settings say of the cluster. Out: a run per node in the results folder, which all nodes share.
Open first: cluster.py, the whole way on the machine that submits; slurm.py has the commands of Slurm, orders.py what a job is
told, on_node.py what it does.
"""
