"""Everything that a reader sees, made from facts alone: no engine, no GPU, nothing is measured here.
In: runs on disk and the tables of the analysis. Out: the report (report/, explorers/, charts/), machines compared
(machines_page.py, gpus/), tables as files (exports/), a static site (site/), the history's page, lines for the terminal.
Everything that leaves the machine goes through redaction/.
Open first: report/__init__.py, from a run's folder to one HTML file; then explorers/__init__.py.
"""
