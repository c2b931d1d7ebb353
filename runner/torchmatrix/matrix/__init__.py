"""What the user asked for: matrix.toml, validated, with every problem reported at once with its line.

In: the text of a matrix file, or a preset's name. Out: an immutable Matrix of stacks, workloads, devices and a method.
Open first: matrix_file.py; stacks.py and workloads.py say what a table means, factors.py what a workload can vary, method.py
how one measures, catalog.py what is known of releases and models.
"""
