"""What a profiler saw of a cell's steps: where their time goes, and why those of two cells take different times.

In: the traces that facts/profiles.py keeps. Out: shares of a step, bars that add up to a difference. None of it is a figure of
the cell: profiled steps are slower than measured ones, and no table, report or gate comes here.
Open first: shares.py, then why.py.
"""
