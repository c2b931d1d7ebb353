#!/bin/sh
# torch 2.10.0 and 2.12.1: what torch.compile makes for a CPU holds a number of threads, by which its kept cache is not keyed.
#
# Seen with Python 3.11 on two cores, no GPU, each line a process of its own with one TORCHINDUCTOR_CACHE_DIR. With 2.10.0 (2.7.1, 2.8.0
# and 2.9.1 alike) a process with two threads compiles; a second one calls torch.set_num_threads(1), pins itself to one CPU, finds that
# graph in the cache, and two of its threads compute: passes of a pointwise chain over 256 kB take a hundred times as long as from an empty
# cache and more (median of twenty tens), since each waits for a thread that can't run. torch.get_num_threads() says 1. With 2.12.1 one
# thread computes there. The other way round, in all of them, code for one thread is found by a process with two, and one computes. No
# warning. torch 2.13.0 keys the cache by threads: it compiles again.
# So scaling by cores, and a cell pinned to one core of a machine, are another experiment than they say once another number of threads
# was measured before: ResNet-18 compiled by torch 2.7.1 trained with 10.5 images/s on one core instead of 79.
# Exits with 1 if that has changed. Takes 7 GB below TMPDIR, needs two CPUs and a C++ compiler.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cat >"$folder/try.py" <<'PYTHON'
import os
import sys
import time

import torch
from torch._dynamo.utils import counters

threads = int(sys.argv[1])
torch.set_num_threads(threads)
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def chain(x):
    return torch.sin(x) * torch.cos(x) + torch.exp(-x * x)


def used():
    """Return the CPU time of each thread of this process, in ticks of the clock."""
    spent = {}
    for thread in os.listdir("/proc/self/task"):
        with open("/proc/self/task/%s/stat" % thread) as file:
            spent[thread] = int(file.read().rpartition(")")[2].split()[11])
    return spent


compiled, small, large = torch.compile(chain, dynamic=False), torch.rand(2**16), torch.rand(2**24)
compiled(small), compiled(large)
before = used()
for _ in range(30):
    compiled(large)
busy = sum(ticks - before.get(thread, 0) > 3 for thread, ticks in used().items())
took = []
for _ in range(20):
    begin = time.perf_counter()
    for _ in range(10):
        compiled(small)
    took.append(time.perf_counter() - begin)
seconds = sorted(took)[10]
print(torch.get_num_threads(), busy, counters["inductor"]["fxgraph_cache_hit"], seconds)
PYTHON
cat >"$folder/all.py" <<'PYTHON'
import os
import subprocess
import sys
import tempfile

folder, version = sys.argv[1:]


def process(threads, cache):
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
    environment.pop("OMP_NUM_THREADS", None)
    command = [sys.executable, os.path.join(folder, "try.py"), str(threads)]
    said, busy, hits, seconds = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()
    assert said == str(threads)
    return int(busy), int(hits), float(seconds)


alone = {threads: process(threads, tempfile.mkdtemp(dir=folder)) for threads in (1, 2)}
assert [alone[threads][:2] for threads in (1, 2)] == [(1, 0), (2, 0)], alone
for first, second in ((2, 1), (1, 2)):
    cache = tempfile.mkdtemp(dir=folder)
    process(first, cache)
    busy, hits, seconds = process(second, cache)
    text = "torch %s, cache of %d thread(s), process of %d: %d hit(s), %d thread(s) compute, %.3g times an empty cache's seconds"
    print(text % (version, first, second, hits, busy, seconds / alone[second][2]))
    assert (busy, hits) == {"2.10.0": (first, 2), "2.12.1": (1, 2), "2.13.0": (second, 0)}[version]
    assert (seconds > 10 * alone[second][2]) == (version == "2.10.0" and first == 2)
PYTHON
for version in 2.10.0 2.12.1 2.13.0; do
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/pip" install --quiet --disable-pip-version-check torch==$version numpy setuptools
    "$folder/$version/bin/python" "$folder/all.py" "$folder" $version || { echo "the cache's threads have changed" >&2; exit 1; }
    rm -r "$folder/$version"
done
