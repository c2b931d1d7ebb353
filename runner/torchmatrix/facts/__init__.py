"""The facts on disk: written while measuring, read once, never rewritten.

In: a results folder. Out: typed runs and launches; a file that can't be read becomes a value with the reason.
Open first: launch.py, one launch and what follows from it. wire.py declares each event that the workload process writes,
parts.py what the host writes. reading.py is the border (lines -> Launch or Unreadable), and old_facts.py fills in what earlier
versions left out; run_record.py is the same for a run's own record. store.py lays out the folders, launch_file.py writes one
launch; events.py is the format of the lines, lines.py their checksums; run_words.py finds runs by a word (last~1).
"""
