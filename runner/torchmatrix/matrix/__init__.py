"""The user's request: matrix.toml, validated, with every problem reported at once with its line.

In: the text of a matrix file, or a preset's name. Out: an immutable Matrix of stacks, workloads, devices and a method.
Open first: matrix_file.py; stacks.py and workloads.py make stacks and workloads of tables, factors.py lists what a workload can
vary and which modes there are, method.py the methods of measuring, catalog.py facts about releases and models.
"""
