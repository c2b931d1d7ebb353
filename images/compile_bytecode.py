"""Compile the Python files of FOLDER, or of this Python's own library, that are not compiled yet: compile_bytecode.py [FOLDER]

A container's file system is read-only, so each process in it would compile all that it imports: four seconds for torch 2.15.
Two builds give the same bytes. The files name their sources by hash, not by time (PEP 552); before Python 3.11 they depend on
what the process has compiled before: each PART of the files, in the order of their paths, has a process of its own. Start it
with `python -B`: without, Python compiles what it imports itself at its start, by time.
"""

import importlib.util
import multiprocessing
import os
import py_compile
import sys
import sysconfig

PART = 200
HASH_SEED = "0"
"""Before Python 3.11 the order of a set in a file depends on it."""


def main(folder):
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-B", "-W", "ignore", *sys.argv])
    with multiprocessing.Pool(len(os.sched_getaffinity(0)), maxtasksperchild=1) as pool:
        pool.map(compile_one, sorted(sources(folder)), chunksize=PART)


def sources(folder):
    """Yield the paths of Python files below `folder` that have no bytecode."""
    for place, _, names in os.walk(folder):
        paths = (os.path.join(place, name) for name in names if name.endswith(".py"))
        yield from (path for path in paths if not os.path.exists(importlib.util.cache_from_source(path)))


def compile_one(path):
    """Compile one file. Templates and files for another Python can't be compiled, which matters only if they are imported."""
    py_compile.compile(path, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sysconfig.get_path("stdlib"))
