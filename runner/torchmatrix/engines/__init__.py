"""Building a stack and running one launch in it, in the same way for containers and virtualenvs.

In: a Stack (and its lock), a LaunchSpec. Out: an Image, and the lines and the exit of an Execution.
Open first: engine.py, the seam that every engine implements; docker.py and local.py are the two engines, choose.py picks one,
recipes.py turns a stack into what is built, lockfile.py and locked_stacks.py pin it, supplies.py finds out what there is to
build with.
"""
