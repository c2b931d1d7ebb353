"""Measuring: from a matrix and a machine to launches on disk.

In: a matrix file, the selection of cells, an engine. Out: facts (results/HOST/RUN/…) and news of what happens meanwhile.
Open first: run.py, which reads like the flow: prepare (session.py) -> build_stacks -> rounds -> launch_cell. The other verbs
that measure or prepare to measure are beside it: batch_search, reproduce, bundle, doctor, housekeeping.
"""
