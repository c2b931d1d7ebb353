"""Build a stack and run one launch in it, in the same way for containers and virtualenvs.

In: a Stack (and its lock), a LaunchSpec. Out: an Image, and the lines and the exit of an Execution.
Open first: engine.py, the interface that every engine implements; docker.py, file_engine.py and local.py are the engines,
choose.py picks one and finds out what there is to build with, recipes.py turns a stack into what is built, lockfile.py pins it.
"""
