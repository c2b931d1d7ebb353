"""Prints how fast the tool itself is, beside its targets. Run: .venv/bin/python tests/bench/speed.py [--docker] [--runs]

Medians of several runs where a run is short; no assertion, since machines differ. The commands may write bytecode, as they do
for users; the first run of each, which compiles, isn't counted. Reports and sites have a bench of their own, pages.py. Needs a
package index, to lock the CPU stacks; with --docker also a daemon on which torch 2.5.1 for CPUs is built, or can be (minutes,
6 GB).
"""

import argparse
import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from support import REAL_MATRIX
from support.records import launch_lines, nights, write_run
from torchmatrix.analysis import facts_cache
from torchmatrix.core import assets
from torchmatrix.core.errors import ExitCode
from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Exit, Image, LaunchSpec, Log, Recipe
from torchmatrix.facts import lines
from torchmatrix.facts.store import Results
from torchmatrix.machine.host import detect
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.method import Method
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import make_plan
from torchmatrix.running.launch_cell import Job
from torchmatrix.running.launch_order import interleave
from torchmatrix.running.progress import LaunchFinished
from torchmatrix.running.rounds import execute

WORKLOAD = '[[workload]]\ndevice = "cpu"\nmodel = "resnet50"\nbatch = 1\n'


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--docker", action="store_true", help="also rebuild a real image after editing the workload")
    parser.add_argument("--runs", action="store_true", help="only histories and gates of 5 000 runs")
    options = parser.parse_args()
    if options.runs:
        return many_runs()
    tell("torchmatrix --help", "0.25 s", f"{help_seconds():.2f} s")
    tell("plan of 100 000 cells, in the process", "2 s", f"{plan_seconds():.2f} s")
    tell("torchmatrix plan of 100 000 cells, whole command", "2 s", f"{plan_command_seconds():.2f} s")
    tell("torchmatrix plan of the default matrix, locked, offline", "1 s", locked_plan("docker" if options.docker else "local"))
    tell("host cost per cell, no-op engine, 10 000 cells", "5 ms", host_cost())
    for what, target, seconds in gather_seconds():
        tell(f"gather of 10 000 launches, {what}", target, seconds)
    with tempfile.TemporaryDirectory() as folder:
        write_year(Path(folder) / "results")
        cold, warm, newest = index_seconds(Results(Path(folder) / "results"))
        tell("index of 365 nights x 40 cells x 3 launches, built", "20 s", f"{cold:.1f} s")
        tell("the same, read again", "2 s", f"{warm:.2f} s")
        tell("the same, its newest 10 runs", "0.5 s", f"{newest:.3f} s")
        tell("torchmatrix history of it, whole command", "20 s", history_cost(folder))
        tell("torchmatrix gate of it, whole command", "2 s", gate_cost(folder))
    many_runs()
    if options.docker:
        tell("torchmatrix build, all is built", "2 s", cached_build())
        tell("new image after editing the workload, per stack", "2 s", f"{rebuild_seconds():.2f} s")


def tell(what: str, target: str, measured: str) -> None:
    print(f"{what:<56} target {target:<12} measured {measured}", flush=True)


def torchmatrix(folder: str, *words: str, codes: tuple[int, ...] = (ExitCode.OK,), **variables: str) -> str:
    """Run the whole command in `folder`; it ends with one of these exit codes. Return its stderr."""
    command = [str(Path(sys.executable).parent / "torchmatrix"), *words]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, text=True)
    assert done.returncode in codes, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done.stderr


def median_seconds(action: Callable[[], object], runs: int) -> float:
    action()
    return statistics.median(seconds_of(action) for _ in range(runs))


def seconds_of(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def help_seconds() -> float:
    return median_seconds(lambda: torchmatrix(".", "--help"), 7)


def large_matrix() -> str:
    """Return a matrix of 100 stacks x 500 workloads x 2 device sets.

    The stacks share one interpreter, so that all of them are planned.
    """
    stacks = "".join(f'[[stack]]\nname = "s{i}"\npython = "{sys.executable}"\naccelerator = "cpu"\n' for i in range(100))
    batches = ", ".join(str(i + 1) for i in range(125))
    axes = f'batch = [{batches}]\nprecision = ["fp32", "amp-bf16"]\nmode = ["train", "infer"]\n'
    return f'[cpus]\ncounts = [1, 2]\nwhen = "always"\n{stacks}[[workload]]\ndevice = "cpu"\nmodel = "resnet50"\n{axes}'


def plan_seconds() -> float:
    text, host = large_matrix(), detect()

    def plan() -> None:
        made = make_plan(matrix_file.parse(text), host, Prerequisites(containers=True))
        assert len(made.cells) + len(made.skips) == 100_000

    return median_seconds(plan, 3)


def plan_command_seconds() -> float:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "matrix.toml").write_text(large_matrix())
        return median_seconds(lambda: torchmatrix(folder, "plan", "--engine", "local"), 3)


def locked_plan(engine: str) -> str:
    """Return the plan of this checkout's matrix, its CPU stacks locked (few machines can resolve more); no index answers."""
    offline = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(assets.DEFAULT_MATRIX, folder)
        torchmatrix(folder, "lock", "torch*-cpu", "--engine", engine)
        seconds = median_seconds(lambda: torchmatrix(folder, "plan", "--engine", engine, **offline), 5)
    return f"{seconds:.2f} s ({engine})"


class NoOp:
    """An engine whose launches print a recorded stream and end at once."""

    name = "no-op"
    pid = None

    def __init__(self) -> None:
        lines = launch_lines()[1:-1]
        self._stream = [("out", f"@matrix {json.dumps(line)}\n".encode()) for line in lines]
        self.command = "no-op"
        self.started: dict[str, Any] = {}

    def is_ready(self, recipe: Recipe) -> bool:
        return True

    def build(self, recipe: Recipe, log: Log) -> Image:
        return Image(reference="x", environment="x")

    def sizes(self, images: list[Image]) -> None:
        return

    def start(self, image: Image, spec: LaunchSpec) -> "NoOp":
        return self

    def __enter__(self) -> "NoOp":
        return self

    def __exit__(self, *error: object) -> None:
        return

    def lines(self) -> Iterator[tuple[str, bytes]]:
        return iter(self._stream)

    def stop(self) -> None:
        return

    def wait(self) -> Exit:
        return Exit(returncode=0, oom_killed=False)


def host_cost() -> str:
    """Return the milliseconds per cell, and resident memory after 1 000 and after 10 000 cells."""
    text = large_matrix().replace(sys.executable, "/x/python")
    host = detect()
    cells = make_plan(matrix_file.parse(text), host, Prerequisites(containers=True)).cells[:10_000]
    engine = NoOp()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            folder=Results(Path(folder)).new_run("h"), host=host, owner="o", timeout_seconds=60, seed=0, method=Method(),
            engine_for=lambda stack: engine, recipe_for=lambda stack: recipes.recipes(stack)[0],
        )  # fmt: skip
        memory, done, begin = [], 0, time.perf_counter()
        for news in execute(job, recipes.stacks_of(cells), list(cells), [list(interleave(cells, 1, 0))]):
            done += isinstance(news, LaunchFinished)
            if isinstance(news, LaunchFinished) and done in (1000, len(cells)):
                memory.append(resident_megabytes())
        seconds = time.perf_counter() - begin
    return f"{1000 * seconds / done:.2f} ms; resident {memory[0]:.0f} MB after 1 000, {memory[1]:.0f} MB after {done}"


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize() / 1e6


def ten_thousand_launches() -> list[dict[str, Any]]:
    """Return 3 334 cells of 3 launches, in files of 10 KB as real ones are."""
    return [
        {"stack": f"stack-{s}", "workload": f"resnet50-train-fp32-b{w}", "devices": tuple(range(n)),
         "rate": 100.0 * n + s + r, "host": {"padding": "x" * 7000}}
        for s in range(8) for w in range(105) for n in (1, 2, 4, 8) for r in range(3)
    ][:10_000]  # fmt: skip


def gather_seconds() -> Iterator[tuple[str, str, str]]:
    """Yield name, target and seconds of whole commands: gather an archive and a folder, first and where nothing is new."""
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder) / "there", ten_thousand_launches())
        for path in (Path(folder) / "there").rglob("round*.jsonl"):
            path.write_bytes(lines.packed(lines.read(path).events))
        shutil.make_archive(f"{folder}/archive", "gztar", folder, "there")
        for source, first in (("archive.tar.gz", "20 s"), ("there", "20 s")):
            for what, target in (("first", first), ("nothing new", "2 s")):
                begin, cpu = time.perf_counter(), cpu_seconds_of_commands()
                torchmatrix(folder, "gather", source, "--results", f"of {source}")
                wall, cpu = time.perf_counter() - begin, cpu_seconds_of_commands() - cpu
                yield f"{source}, {what}", target, f"{wall:.1f} s, of the CPU {cpu:.1f} s"


def cpu_seconds_of_commands() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write_year(root: Path) -> None:
    """Write 365 nights of 40 cells, 3 launches each, with 1 % of scatter; some cells lose 5 % in spring, some nights fail."""
    random = Random(0)
    for night, run in enumerate(nights(365)):
        launches = []
        for number, launch in itertools.product(range(40), range(3)):
            loss = 0.95 if number % 4 == 0 and night >= 100 else 1.0
            outcome = "crashed" if random.random() < 0.01 else "ok"
            rate = 100.0 * loss * random.gauss(1.0, 0.01)
            names = {"stack": f"stack-{number % 4}", "workload": f"resnet50-train-fp32-b{number // 4}"}
            host = {"name": "testhost", "driver": "570.1" if night < 100 else "575.2", "cores": list(range(64))}
            launches.append({**names, "rate": rate, "outcome": outcome, "host": host, "round": launch + 1})
        write_run(root, launches, run=run)


MANY_RUNS = (
    ("history, first,", "25 s, 220 MB", ("history",)),
    ("history, again,", "4 s, 220 MB", ("history",)),
    ("gate", "2.5 s", ("gate",)),
)


def many_runs() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_many_runs(Path(folder) / "results")
        for what, target, words in MANY_RUNS:
            tell(f"{what} of 5 000 runs x 4 launches", target, spent(folder, *words))


def write_many_runs(root: Path) -> None:
    """Write 5 000 nights of four cells, one launch each, with 1 % of scatter; one cell loses 5 % on the way, some launches
    fail.
    """
    random = Random(0)
    for night, run in enumerate(nights(5000, "2010-01-01")):
        host = {"name": "testhost", "driver": "570.1" if night < 1500 else "575.2", "cores": list(range(64))}
        launches = [
            {
                "stack": f"stack-{cell % 2}", "workload": f"resnet50-train-fp32-b{cell // 2}", "host": host,
                "rate": 100.0 * random.gauss(1.0, 0.01) * (0.95 if cell == 0 and night >= 1500 else 1.0),
                "outcome": "crashed" if random.random() < 0.01 else "ok",
            }
            for cell in range(4)
        ]  # fmt: skip
        write_run(root, launches, run=run)


def spent(folder: str, *words: str) -> str:
    """Run the whole command; return its seconds of the wall and of the CPU, and the peak of its largest process."""
    command = [str(Path(sys.executable).parent / "torchmatrix"), *words]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (ExitCode.OK, ExitCode.REGRESSION), process.returncode
    seconds = time.perf_counter() - begin
    return f"{seconds:.1f} s, of the CPU {used.ru_utime + used.ru_stime:.1f} s, {used.ru_maxrss / 1e3:.0f} MB"


def index_seconds(results: Results) -> tuple[float, float, float]:
    """Return the seconds to read all runs without an index, with it, and the newest 10 with it."""
    runs = results.runs()
    seconds = []
    for wanted in (runs, runs, runs[-10:]):
        begin = time.perf_counter()
        launches = sum(len(run.launches) for run in facts_cache.read(results, wanted))
        seconds.append(time.perf_counter() - begin)
        assert launches == 120 * len(wanted)
    return seconds[0], seconds[1], seconds[2]


def history_cost(folder: str) -> str:
    """Return the seconds with the index warm, and the size of the page."""
    seconds = median_seconds(lambda: torchmatrix(folder, "history"), 3)
    size = (Path(folder) / "reports/history.html").stat().st_size
    return f"{seconds:.1f} s, {size / 1e6:.2f} MB"


def gate_cost(folder: str) -> str:
    """Return the seconds with the index warm, whatever it says: the newest of the year's nights depends on today's date."""
    verdicts = (ExitCode.OK, ExitCode.REGRESSION)
    return f"{median_seconds(lambda: torchmatrix(folder, 'gate', codes=verdicts), 5):.2f} s"


def cached_build() -> str:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "matrix.toml").write_text(REAL_MATRIX + WORKLOAD)
        torchmatrix(folder, "build", "--engine", "docker")
        last = torchmatrix(folder, "build", "--engine", "docker").splitlines()[-1]
        seconds = median_seconds(lambda: torchmatrix(folder, "build", "--engine", "docker"), 3)
    return f'{seconds:.2f} s, and it says "{last}"'


def rebuild_seconds() -> float:
    """Return the seconds of a build where a workload file gets another comment each time; the layers below are cached."""
    from torchmatrix.engines.docker import DockerEngine, connect

    (stack,) = matrix_file.parse(REAL_MATRIX + WORKLOAD).stacks
    client = connect()
    engine = DockerEngine(client)
    usual = recipes.choose_recipe(stack, engine, recipes.unreachable_indexes(recipes.indexes_to_probe([stack])))
    engine.build(usual, lambda line: None)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "images"
        subprocess.run(["cp", "-r", str(assets.IMAGES), str(copy)], check=True)
        assets.IMAGES, assets.WORKLOAD = copy, copy / "workload"

        def once() -> float:
            bench = assets.WORKLOAD / "bench.py"
            bench.write_text(bench.read_text() + f"# {time.time()}\n")
            recipes.workload_hash.cache_clear()
            recipe = next(r for r in recipes.recipes(stack) if r.index == usual.index)
            begin = time.perf_counter()
            image = engine.build(recipe, lambda line: None)
            seconds = time.perf_counter() - begin
            client.images.remove(image.reference)
            return seconds

        return statistics.median(once() for _ in range(3))


if __name__ == "__main__":
    main()
