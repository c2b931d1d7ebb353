"""Measuring: from a matrix and a machine to launches on disk.

In: a matrix file, the selection of cells, an engine. Out: facts (results/HOST/RUN/…) and progress events.
Open first: run.py, which reads like the flow: prepare (session.py) -> build and measure (rounds.py) -> launch (launch_cell.py).
scheduler.py has what carries a run out: this machine, or a cluster.
The other commands that measure or prepare to measure are beside it: reproduce, bisecting, profiling, deep, bundle, doctor.
"""
