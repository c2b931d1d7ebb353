"""What the facts mean: statistics, ratios, scale factors, comparisons. Definitions stand in glossary.py.

In: launches as the facts tell them. Out: rows, intervals and verdicts. Nothing is printed or drawn here.
Open first: launch_row.py (a launch becomes a row), cells.py (rows become cells), pairs.py (the ratio of two), verdicts.py (many
ratios judged together). Then scaling.py and ratios.py. Of several machines: machines.py, then across.py; two sets of launches:
compare.py. comparable.py says what may be compared. published/ sets vendors' figures beside ours; history.py and levels.py
follow a cell over many runs; facts_cache.py keeps what was read, by several processes where that pays (briefs.py).
"""
