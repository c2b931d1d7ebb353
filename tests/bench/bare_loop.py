"""Compares torchmatrix with a bare loop: prints the ratio of the two throughputs, which should be 1.

    .venv/bin/python tests/bench/bare_loop.py --model bert-tiny --batch 8 --launches 10

A: `bare_loop` below, plain PyTorch that shares no code with images/workload. B: torchmatrix's own workload process, launched
with the flags that the runner gives it. Both are processes of the same interpreter on the same single CPU with one thread, the
same model, batch, precision, seed and number of steps; they are launched in turns, A B B A A B B A …, so that a drift of the
machine falls on both. Printed: each launch's throughput; then B over A with its 95 % interval, and the verdict.

An idle machine needs some 10 launches of 10 s on each side for an interval of ±1 %; a noisy one more. `--python` names
an interpreter with torch and torchvision or transformers; without it the local engine builds (or finds built) torch 2.5.1.
"""

import argparse
import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from support import REAL_MATRIX
from torchmatrix.analysis.intervals import Interval, center_interval, difference_verdict
from torchmatrix.analysis.pairs import pair_by_rounds
from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Recipe, workload_environment
from torchmatrix.engines.local import LocalEngine
from torchmatrix.facts.launch import throughput
from torchmatrix.facts.store import Results
from torchmatrix.machine.host import detect
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.method import Method
from torchmatrix.planning.plan import Cell, GpuSet
from torchmatrix.running.launch_cell import Attempt, Job, launch
from torchmatrix.running.progress import LaunchFinished

MODELS = ("resnet18", "resnet50", "bert-tiny", "bert-base-cased")
TIMEOUT_SECONDS = 900.0


def bare_loop(model: str, batch: int, size: int, precision: str, warmup: int, steps: int, cpu: int, seed: int) -> float:
    """Return items per second of plain training on one CPU; `size` in pixels or tokens.

    Its source runs in the other interpreter.
    """
    import os
    import time

    import torch

    os.sched_setaffinity(0, {cpu})
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    if model.startswith("resnet"):
        import torchvision

        net = getattr(torchvision.models, model)().train()
        data = [(torch.randn(batch, 3, size, size), torch.randint(1000, (batch,))) for _ in range(4)]
        loss_of = lambda x, y: torch.nn.functional.cross_entropy(net(x), y)  # noqa: E731
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    else:
        import transformers

        tiny = {
            "vocab_size": 30522,
            "hidden_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 512,
        }
        config = transformers.BertConfig(**tiny if model == "bert-tiny" else {"vocab_size": 28996})
        config._attn_implementation = "eager"
        net = transformers.BertForQuestionAnswering(config).train()
        mask = torch.ones(batch, size, dtype=torch.long)
        ends = lambda: torch.randint(size, (batch,))  # noqa: E731
        data = [(torch.randint(config.vocab_size, (batch, size)), ends(), ends()) for _ in range(4)]
        loss_of = lambda x, a, b: net(x, attention_mask=mask, start_positions=a, end_positions=b).loss  # noqa: E731
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5)
    for step in range(-warmup, steps):
        if step == 0:
            begin = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "amp-bf16"):
            loss = loss_of(*data[step % 4])
        loss.backward()
        optimizer.step()
    return batch * steps / (time.perf_counter() - begin)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The work of both sides; `size` in pixels or tokens."""

    python: str
    model: str = "bert-tiny"
    batch: int = 8
    size: int = 64
    precision: str = "fp32"
    warmup: int = 40
    steps: int = 600
    cpu: int = max(os.sched_getaffinity(0))
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Items per second of each launch, in the order of the launches."""

    bare: list[float]
    boxed: list[float]

    @property
    def ratio(self) -> Interval:
        """Return the ratio of torchmatrix to the bare loop, turn by turn."""
        return pair_by_rounds(self.boxed, self.bare).interval

    @property
    def text(self) -> str:
        """Describe both sides and their ratio."""
        ratio = self.ratio
        return "\n".join((
            f"bare loop    {_side(self.bare)}",
            f"torchmatrix  {_side(self.boxed)}",
            f"torchmatrix / bare loop = {ratio.value:.4f} [{ratio.low:.4f}, {ratio.high:.4f}], "
            f"n = {len(self.boxed)} + {len(self.bare)}: {difference_verdict(ratio)}",
        ))  # fmt: skip


def compare(settings: Settings, launches: int, tell: Callable[[str], None] = print) -> Comparison:
    """Launch both sides `launches` times in turns; `tell` hears of each."""
    rates: dict[str, list[float]] = {"bare": [], "boxed": []}
    with boxed(settings) as measure_boxed:
        measures: dict[str, Callable[[], float]] = {"bare": lambda: measure_bare(settings), "boxed": measure_boxed}
        for number in range(launches):
            for side in ("bare", "boxed") if number % 2 == 0 else ("boxed", "bare"):
                rates[side].append(measures[side]())
                tell(f"{number + 1:3d} {side:<6} {rates[side][-1]:.3f}/s")
    return Comparison(**rates)


def measure_bare(settings: Settings) -> float:
    """Launch `bare_loop` once in the other interpreter."""
    s = settings
    call = f"bare_loop({s.model!r}, {s.batch}, {s.size}, {s.precision!r}, {s.warmup}, {s.steps}, {s.cpu}, {s.seed})"
    done = subprocess.run(
        [s.python, "-c", f"{inspect.getsource(bare_loop)}\nprint({call})"],
        env={**os.environ, **workload_environment("cpu"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, text=True, check=True,
        timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    return float(done.stdout.split()[-1])


@contextmanager
def boxed(settings: Settings) -> Iterator[Callable[[], float]]:
    """Yield a function that launches torchmatrix's workload once, by its own code from the matrix to the throughput."""
    parsed = matrix_file.parse(matrix_text(settings))
    workload, stack = parsed.workloads[0], parsed.stacks[0]
    slot = GpuSet(indices=(0,), vendor="cpu", cpus=(str(settings.cpu),), threads=1)
    cell = Cell(id=f"{stack.name}/{workload.id}/{slot.label}", stack=stack, workload=workload, gpus=slot)
    with tempfile.TemporaryDirectory() as folder:
        results = Results(Path(folder))
        engine = LocalEngine(Path(folder) / "cache", results.owner)
        job = Job(
            folder=results.new_run("here"), host=detect(), owner=results.owner, timeout_seconds=TIMEOUT_SECONDS,
            seed=settings.seed, method=Method(), engine_for=lambda _: engine, recipe_for=_recipe,
        )  # fmt: skip
        image = engine.build(_recipe(stack), lambda line: None)

        def measure() -> float:
            batch = settings.batch
            *_, last = launch(job, Attempt(cell=cell, number=1, batch=batch), image)
            assert isinstance(last, LaunchFinished) and last.launch.outcome == "ok", last
            return throughput(last.launch)

        yield measure


def matrix_text(settings: Settings) -> str:
    """Return the matrix of this one cell; it has as many warm-up steps as the bare loop, after the first."""
    s, warmup = settings, settings.warmup - 1
    return f"""
[[stack]]
name = "own"
python = "{s.python}"
accelerator = "cpu"
[[workload]]
device = "cpu"
model = "{s.model}"
precision = "{s.precision}"
batch = {s.batch}
image_size = {s.size if s.model.startswith("resnet") else 224}
sequence_length = {128 if s.model.startswith("resnet") else s.size}
steps = {s.steps}
warmup_steps = {warmup}
warmup_cap = {warmup}
"""


def built_python() -> str:
    """Return the interpreter of the stack that the tests build."""
    from torchmatrix.core.settings import cache_folder

    (stack,) = matrix_file.parse(REAL_MATRIX + '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 1\n').stacks
    engine = LocalEngine(cache_folder(), "bare-loop")
    lost = recipes.unreachable_indexes(recipes.indexes_to_probe([stack]))
    return engine.build(recipes.choose_recipe(stack, engine, lost), lambda line: None).reference


def _recipe(stack: object) -> Recipe:
    return recipes.recipes(stack)[0]


def _side(rates: list[float]) -> str:
    spread = 100 * float(np.std(rates, ddof=1) / np.mean(rates)) if len(rates) > 1 else float("nan")
    center = center_interval(rates)
    return f"{center.value:.3f}/s [{center.low:.3f}, {center.high:.3f}], CV {spread:.2f} %"


def main() -> None:
    defaults = Settings(python="")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="an interpreter with torch; without it torch 2.5.1 is built or found built")
    parser.add_argument("--model", choices=MODELS, default=defaults.model)
    parser.add_argument("--precision", choices=("fp32", "amp-bf16"), default=defaults.precision)
    for name, text in (("batch", "items per step"), ("size", "pixels per side or tokens"), ("steps", "timed steps"),
                       ("warmup", "steps before"), ("cpu", "the CPU to use"), ("seed", "of model and data")):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=getattr(defaults, name), help=f"{text} (%(default)s)")
    parser.add_argument("--launches", type=int, default=10, help="on each side (%(default)s)")
    words = vars(parser.parse_args())
    launches, python = words.pop("launches"), words.pop("python") or built_python()
    settings = Settings(python=python, **words)
    print(settings)
    print(compare(settings, launches).text)


if __name__ == "__main__":
    main()
