"""Measure by itself, without the host: `python -m workload FLAGS` prints its events as lines of JSON (README.md).

The flags are those of bench.py, whose lines begin with "@matrix " instead, so that a host tells them from what libraries print.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import bench
import channel

if __name__ == "__main__":
    channel.PREFIX = b""
    bench.main(sys.argv[1:])
