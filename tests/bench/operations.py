"""Compares microbenchmarks with bare loops: prints the ratio of the two figures, which should be 1.

    .venv/bin/python tests/bench/operations.py --python P --launches 10 [--only triad]

A: a loop of its own, without torchmatrix: STREAM's triad compiled from C by gcc (one thread, floats, arrays as large), the
same triad by torch.add, torch.mm into one result and into a new one each time, or gloo's all-reduce between two processes.
B: torchmatrix's workload process. Both on the same CPUs, launched in turns, A B B A A B …. Printed: B over A with its 95 %
interval, round by round.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.containers import free_port
from torchmatrix.analysis.pairs import pair_by_rounds
from torchmatrix.core import assets
from torchmatrix.engines.engine import Rendezvous, torchrun, workload_environment
from torchmatrix.facts.lines import PREFIX

BYTES, SIDE, MESSAGE, SECONDS = 2**28, 1024, 2**26, 3.0
TRIAD = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
int main(void) {
    size_t n = (size_t) BYTES / sizeof(float);
    float *a = aligned_alloc(64, BYTES), *b = aligned_alloc(64, BYTES), *c = aligned_alloc(64, BYTES);
    for (size_t i = 0; i < n; i++) { a[i] = -1; b[i] = (float) (i % 1000); c[i] = (float) (i % 777); }
    double begin = 0, end; long steps = 0;
    for (int warm = 0; warm < 2; warm++) {
        steps = 0; begin = now();
        do {
            for (size_t i = 0; i < n; i++) a[i] = b[i] + 3.0f * c[i];
            __asm__ volatile("" : : "r"(a) : "memory");
            steps++; end = now();
        } while (end - begin < (warm ? SECONDS : 0.5));
    }
    printf("%.9g\n", 3.0 * BYTES * steps / (end - begin) / 1e9);
    return a[n / 2] != b[n / 2] + 3.0f * c[n / 2];
}
"""
LOOP = """
import time, torch
torch.set_num_threads(1)
left, right, result = (torch.randn({shape}) for _ in range(3))
for limit in (0.5, {seconds}):
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < limit:
        {step}
        steps += 1
    seconds = time.perf_counter() - begin
print({work} * steps / seconds)
"""
PRODUCT = {"shape": f"{SIDE}, {SIDE}", "seconds": SECONDS, "work": 2 * SIDE**3 / 1e12}
ALL_REDUCE = f"""
import os, time, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
os.sched_setaffinity(0, {{rank}})
torch.set_num_threads(1)
dist.init_process_group("gloo")
tensor = torch.randn({MESSAGE} // 4)
for steps in (3, 30):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        dist.all_reduce(tensor)
    seconds = time.perf_counter() - begin
if rank == 0:
    print({MESSAGE} * steps / seconds / 1e9, flush=True)
dist.barrier()
os._exit(0)
"""
PROGRAMS = {
    "triad-torch": LOOP.format(
        shape=BYTES // 4, seconds=SECONDS, work=3 * BYTES / 1e9, step="torch.add(left, right, alpha=3.0, out=result)"
    ),
    "gemm": LOOP.format(**PRODUCT, step="torch.mm(left, right, out=result)"),
    "gemm-new": LOOP.format(**PRODUCT, step="torch.mm(left, right)"),
    "all-reduce": ALL_REDUCE,
}
_TRIAD = (["--model", "triad", "--bytes", str(BYTES)], 1, 3 * BYTES / 1e9)
_GEMM = (["--model", "gemm", "--shape", f"{SIDE}x{SIDE}x{SIDE}", "--batches", "1"], 1, 2 * SIDE**3 / 1e12)
WORKLOADS = {
    "triad": _TRIAD,
    "triad-torch": _TRIAD,
    "gemm": _GEMM,
    "gemm-new": _GEMM,
    "all-reduce": (["--model", "all-reduce", "--bytes", str(MESSAGE)], 2, MESSAGE / 1e9 / 2),
}


def command(program: str, python: str, processes: int) -> list[str]:
    place = Rendezvous(node=0, nodes=1, address="127.0.0.1", port=free_port())
    ranks = torchrun(str(assets.WORKLOAD / "bench.py"), processes, place) if processes > 1 else []
    return [python, *ranks, program]


def bare(name: str, python: str, folder: Path) -> float:
    if name == "triad":
        done = subprocess.run(["taskset", "-c", "0", str(folder / "triad")], capture_output=True, text=True, check=True)
        return float(done.stdout)
    program = folder / f"{name}.py"
    program.write_text(PROGRAMS[name], encoding="utf-8")
    words = command(str(program), python, WORKLOADS[name][1])
    pinned = ["taskset", "-c", "0", *words] if WORKLOADS[name][1] == 1 else words
    environment = {**os.environ, **workload_environment("cpu"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(pinned, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.split()[-1])


def ours(name: str, python: str) -> float:
    flags, processes, amount = WORKLOADS[name]
    words = command(str(assets.WORKLOAD / "bench.py"), python, processes)
    words += [
        *flags,
        "--mode",
        "micro",
        "--batch",
        "1",
        "--device",
        "cpu",
        "--threads",
        "1",
        "--cpus",
        ":".join("01"[:processes]),
    ]
    words += ["--seconds", str(SECONDS), "--steps", "3", "--warmup-seconds", "0.5", "--warmup-cap", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ, **workload_environment("cpu")})
    events = [
        json.loads(line.removeprefix(PREFIX.decode() if isinstance(PREFIX, bytes) else PREFIX))
        for line in done.stdout.splitlines()
    ]
    (window,) = (event for event in events if event["event"] == "sample" and event["phase"] == "measure")
    return float(window["items"] * amount / max(window["seconds"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", required=True, help="an interpreter with torch")
    parser.add_argument("--launches", type=int, default=10)
    parser.add_argument("--only", choices=tuple(WORKLOADS))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "triad.c").write_text(TRIAD.replace("BYTES", f"{BYTES}L").replace("SECONDS", str(SECONDS)), encoding="utf-8")
        subprocess.run(["gcc", "-O3", "-march=native", "-o", str(folder / "triad"), str(folder / "triad.c")], check=True)
        for operation in [args.only] if args.only else WORKLOADS:
            a, b = [], []
            for number in range(args.launches):
                for turn in (0, 1) if number % 2 else (1, 0):
                    (a if turn else b).append(bare(operation, args.python, folder) if turn else ours(operation, args.python))
            ratio = pair_by_rounds(b, a).interval
            text = f"{operation}: bare {sum(a) / len(a):.4g}, ours {sum(b) / len(b):.4g}; ratio {ratio.value:.4f}"
            print(f"{text} ({ratio.low:.4f} to {ratio.high:.4f}), {args.launches} launches each", flush=True)


if __name__ == "__main__":
    main()
