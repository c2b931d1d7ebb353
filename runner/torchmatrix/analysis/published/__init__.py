"""Other people's figures: read and checked, audited for impossible values, and set beside ours.

In: CSV files, in the layouts in which people publish (layouts), and our tables. Between: figures.Figure, read by figure_files.
Out: findings (audit, scaling_checks), and figures and claims beside ours (beside, claims). Open figures first.
"""
