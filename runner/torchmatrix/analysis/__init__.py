"""What the facts mean: statistics, ratios, scale factors, comparisons. glossary.py has the definitions.

In: launches as read from the facts. Out: rows, intervals and verdicts. Nothing is printed or drawn here.
Open first: launch_row.py (a launch becomes a row), cells.py (rows become cells), pairs.py (the ratio of two), verdicts.py (many
ratios judged together). Then scaling.py and speedups.py. Several machines: machines.py, then across.py; two sets of launches:
compare.py. rows.py decides what may be compared. published/ compares vendors' figures with ours; history.py and levels.py
follow a cell over many runs; facts_cache.py keeps what was read of a run, run_index.py what histories and gates read of all;
run_summary.py reads with several processes where that pays.
"""
