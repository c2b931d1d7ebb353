#!/bin/sh
# torch.utils.benchmark's Timer makes torch.compile compile a warm function again, calibrates itself on that, and in a sweep of num_threads
# measures eager mode from the ninth number on.
#
# Seen with Python 3.11, torch 2.15.0 and 2.13.0 on a CPU, with a backend of torch.compile that counts what it compiles and what of it runs.
# torch.compile guards the number of threads, and Timer sets it to 1 unless num_threads says otherwise: a function that was warm with 2
# threads is compiled for 1 in Timer's first call. blocked_autorange takes that call for the function's time: number_per_run is 1, and
# there were 3,780 to 4,599 blocks in 0.05 s of a function of 9 to 13 us; the second measurement of the same Timer has 1,000 or 10,000 calls
# in a block, and a time from 0 to 14 % shorter. With num_threads from 1 to 12, 100 calls of each: 102 calls of compiled code for the numbers
# up to 8, none for 9 to 12, where eager mode runs. With inductor a chain of four operations took 79 to 247 us for the first eight and 544 to
# 675 us for the others. A line of the log tells of recompile_limit, the measurements don't. Back at 2 threads the compiled code runs again.
# So a sweep finds that torch.compile ceases to help at many threads. torch.compiler.reset() between the numbers mends it (seen); a call
# under the number of threads to come, before blocked_autorange, spares the first. number_per_run of a fast function must not be 1.
# Exits with 1 if any of that has changed. Takes 2 GB below TMPDIR with a torch for CPUs, 6 GB with one for CUDA.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 "numpy<2.4"
cat >"$folder/try.py" <<'PYTHON'
import sys

import torch
from torch.utils.benchmark import Timer

compiled, ran = [], []


def counting(graph, _):
    compiled.append(torch.get_num_threads())

    def run(*inputs):
        ran.append(None)
        return graph(*inputs)

    return run


function, numbers = torch.compile(lambda numbers: numbers * 2 + 1, backend=counting), torch.rand(8)
names = {"function": function, "numbers": numbers}
torch.set_num_threads(2)
function(numbers)
function(numbers)
warm = list(compiled)
timer = Timer("function(numbers)", globals=names)
found = [timer.blocked_autorange(min_run_time=0.05) for _ in range(2)]
blocks = [(one.number_per_run, len(one.raw_times), round(1e6 * one.median, 1)) for one in found]
print("compiled for threads", warm, "then", compiled, "calls per block, blocks and us:", *blocks)
ok = (warm, compiled) == ([2], [2, 1]) and blocks[0][0] == 1 and blocks[1][0] >= 100
calls = {}
for threads in range(1, 13):
    ran.clear()
    Timer("function(numbers)", globals=names, num_threads=threads).timeit(100)
    calls[threads] = len(ran)
torch.set_num_threads(2)
ran.clear()
function(numbers)
print("compiled for threads", compiled, "calls of compiled code by threads", calls, "and again for 2:", len(ran))
ok = ok and sorted(compiled) == list(range(1, 9)) and calls == {threads: 102 if threads < 9 else 0 for threads in range(1, 13)}
sys.exit(not (ok and len(ran) == 1))
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/try.py" 2>"$folder/log" ||
    { cat "$folder/log"; echo "what Timer and torch.compile do to each other has changed" >&2; exit 1; }
