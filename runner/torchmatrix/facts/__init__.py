"""The facts on disk: written while measuring, read once, never rewritten.

In: a results folder. Out: typed runs and launches; what can't be read is a value with its reason.
Open first: launch.py, one launch as its file tells it; store.py lays out the folders and writes; events.py is the format of
the lines; run_words.py finds runs by a word such as last~1.
"""
