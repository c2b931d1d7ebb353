"""What the facts mean: statistics, ratios, scale factors, comparisons. Definitions stand in glossary.py.

In: launches as the facts tell them. Out: tables (pandas), intervals and verdicts. Nothing is printed or drawn here.
Open first: tables.py (one row per launch, one per cell), then intervals.py, ratios.py and scaling.py. Of several machines:
machines.py, then across.py; two sets of launches: compare.py. comparable.py says what may be compared. published/ sets
vendors' figures beside ours; history.py and levels.py follow a cell over many runs; facts_cache.py keeps what was read,
by several processes where that pays (briefs.py).
"""
