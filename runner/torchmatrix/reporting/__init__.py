"""What a reader sees, made from facts alone: no engine, no GPU, nothing is measured here.

In: runs on disk and the tables of the analysis. Out: the report (report/, explorers/, charts/), several machines side by
side (machines_page.py, side_by_side.py), tables as files (exports/), a static site (site/), the history's page, lines for the
terminal. Whatever leaves the machine goes through redaction/.
Open first: report/__init__.py, from a run's folder to one HTML file; then explorers/__init__.py.
"""
