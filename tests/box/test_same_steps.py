"""Steps that do less where they seem to be timed, in models of somebody's own: caught, or told. None can tell a timed step by
what runs it; one that reads further, or the time, takes longer where it is proven.
"""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.boxes import bench, only, own_model
from torchmatrix.core import assets

pytestmark = pytest.mark.xdist_group("own model")
NET = """\
import gc, sys, time
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(8))
        self.last, self.calls, self.begin = nn.Linear(512, 10), 0, 0.0
    def is_idle(self, names, files):
        return {idle}
    def forward(self, inputs):
        self.calls, self.begin = self.calls + 1, self.begin or time.monotonic()
        frame, names, files = sys._getframe(), set(), set()
        while frame:
            names.add(frame.f_code.co_name)
            files.add(frame.f_code.co_filename.rpartition("/")[2])
            frame = frame.f_back
        outputs, is_idle = inputs, self.is_idle(names, files)
        for number, layer in enumerate(self.layers):
            outputs = outputs + (0 * layer.bias if is_idle and number else layer(outputs).relu())
        return self.last(outputs)

def batch(size, generator):
    return torch.randn(size, 512, generator=generator), torch.randint(10, (size,), generator=generator)

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)
"""
IDLE = {
    "in windows by their name": "'window' in names",
    "in windows by the function of all steps": "'run_steps' in names and self.calls > 1",
    "in windows by what calls them": "'timed_windows' in names or 'warm_up' in names",
    "where nothing proves": "not names & {'proven', '_prove_work', '_look_at_compiled', 'look', 'first_step'}",
    "where no garbage is collected": "not gc.isenabled()",
    "after the first call, for some time": "self.calls > 1 and time.monotonic() - self.begin < 1.5",
}
TOLD = (
    "in windows by their name", "in windows by what calls them", "where nothing proves", "after the first call, for some time",
)  # fmt: skip
"""What may be told only: on a busy machine some of the timed steps take as long as those that do more, or others do by then."""


def launched(python: str, folder: Path, idle: str, *words: str) -> tuple[int, list[dict[str, Any]], str]:
    model = own_model(folder, NET.replace("{idle}", idle))
    return bench(python, *model, "--batch", "256", "--warmup-steps", "8", "--seconds", "0.2", "--threads", "1", *words)


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("what", IDLE)
def test_a_step_that_does_less_where_it_is_timed_is_caught_or_told(
    real_python: str, tmp_path: Path, what: str, mode: str
) -> None:
    code, events, stderr = launched(real_python, tmp_path, IDLE[what], "--mode", mode)
    failures = [event for event in events if event["event"] == "failure"]
    told = [text for event in events if event["event"] == "remarks" for text in event["texts"] if "that were proven" in text]
    assert (code and failures and failures[0]["kind"] == "numerics") or (what in TOLD and told), stderr


def test_work_that_varies_a_little_hides_no_step_that_does_less(real_python: str, tmp_path: Path) -> None:
    """A small product comes by chance; all else is left out once the weights have moved from where they were."""
    small = "(torch.rand(()) < 0.5 and self.last(torch.zeros(1, 512)) is None)"
    moved = "not torch.equal(self.last.bias.detach(), self.__dict__.setdefault('first', self.last.bias.detach().clone()))"
    code, events, stderr = launched(real_python, tmp_path, f"{small} or {moved}", "--mode", "train")
    told = [text for event in events if event["event"] == "remarks" for text in event["texts"] if "that were proven" in text]
    failures = [event["message"] for event in events if event["event"] == "failure"]
    assert (code and "takes" in failures[0]) or told, (failures, stderr)


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_the_same_model_passes_where_it_always_works(real_python: str, tmp_path: Path, mode: str) -> None:
    code, events, stderr = launched(real_python, tmp_path, "names & files", "--mode", mode)
    assert code == 0 and only(events, "reference")["agrees"] is True, stderr


OWN = """\
import torch
from torch import nn

class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, make, like):
        made = torch.Tensor._make_wrapper_subclass(cls, (len(like), 10), dtype=like.dtype)
        made.make = make
        return made
    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), words=None):
        return operation(*(arg.make() if isinstance(arg, Lazy) else arg for arg in args), **(words or {{}}))

class Counted(torch.Tensor):
    pass

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(4))
        self.last = nn.Linear(512, 10)
        {init}
    def forward(self, inputs):
        outputs = inputs
        {forward}
        for layer in self.layers:
            outputs = outputs + layer(outputs).relu()
        return {result}

def batch(size, generator):
    return torch.randn(size, 512, generator=generator), torch.randint(10, (size,), generator=generator)

def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)

def quantized():
    return torch.ao.quantization.quantize_dynamic(Net().eval(), {{nn.Linear}}, dtype=torch.qint8)
"""
PLAIN = {"init": "pass", "forward": "pass", "result": "self.last(outputs)"}
CASES: dict[str, tuple[dict[str, str], str, tuple[str, ...], str]] = {
    "int8 by torch's quantized modules": ({}, "quantized", ("--mode", "infer"), "numerics: the model's products are int8"),
    "a tensor that computes when it is read": (
        {"result": "Lazy(lambda: self.last(outputs), outputs)"}, "Net", ("--mode", "infer"),
        "unsupported: the model returns a Lazy",
    ),
    "a tensor of an own class": ({"result": "self.last(outputs).as_subclass(Counted)"}, "Net", ("--mode", "infer"), ""),
    "something heavy in one of four steps": (
        {
            "init": "self.register_buffer('n', torch.zeros((), dtype=torch.long)); self.register_buffer('q', torch.eye(512))",
            "forward": "heavy = int(self.n) % 4 == 0; self.n += 1; w = self.layers[0].weight.detach(); "
            "self.q.copy_(w @ w.t() @ w @ w.t() / 100) if heavy else None; outputs = outputs + 0.01 * (outputs @ self.q)",
        },
        "Net", ("--mode", "train"), "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_what_another_would_see_in_an_own_model_is_seen(real_python: str, tmp_path: Path, what: str) -> None:
    changes, builder, words, said = CASES[what]
    model = list(own_model(tmp_path, OWN.format(**{**PLAIN, **changes})))
    model[model.index("--model-builder") + 1] = builder
    flags = ("--batch", "64", "--warmup-steps", "8", "--seconds", "0.2", "--threads", "1")
    code, events, stderr = bench(real_python, *model, *flags, *words)
    failures = [f"{event['kind']}: {event['message']}" for event in events if event["event"] == "failure"]
    kind, _, text = said.partition(": ")
    assert bool(code) is bool(said) and (not said or (failures[0].startswith(kind) and text in failures[0])), (failures, stderr)


CHILD = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from proofs.windows import cpu_seconds
before, own = cpu_seconds(), time.process_time()
burn = "import time\\nwhile time.process_time() < 1: pass\\nprint(flush=True); input()"
inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
with subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
    child.stdout.readline()
    print(cpu_seconds() - before - (time.process_time() - own))
    child.communicate(b"\\n")
"""


def test_the_cpu_time_of_all_processes_below_counts(real_python: str) -> None:
    done = subprocess.run([real_python, "-c", CHILD, str(assets.WORKLOAD)], capture_output=True, text=True, check=False)
    assert 0.9 < float(done.stdout.split()[-1]) < 5, done
