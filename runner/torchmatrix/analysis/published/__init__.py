"""Published figures: read and checked, audited for impossible values, and compared with ours.

In: CSV files, in the layouts in which people publish (figure_files), and our tables. Between: figures.Figure.
Out: findings (audit), and figures and claims beside ours (claims). Open figures.py first.
"""
