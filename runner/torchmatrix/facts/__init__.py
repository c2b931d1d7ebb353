"""The facts on disk: written while measuring, read once, never rewritten.

In: a results folder. Out: typed runs and launches; a file that can't be read becomes a value with the reason.
Open first: launch.py, one launch and the figures derived from it. wire.py declares each event that the workload process writes,
parts.py those that the host writes. reading.py is the border (lines -> Launch or Unreadable); run_record.py is the same for a
run's own record. store.py lays out the folders and finds runs by a word (last~1), launch_file.py writes one launch; lines.py is
the format of the lines, with their checksums.
"""
