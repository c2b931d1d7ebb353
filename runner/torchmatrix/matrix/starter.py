"""The matrix file that `init` writes: the default one, with only the rows that this machine can use."""

import json
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from torchmatrix.ground import assets
from torchmatrix.machine.host import Host
from torchmatrix.matrix.matrix_file import parse
from torchmatrix.matrix.stacks import Stack

_GLOBS = re.compile(r"(?m)^stacks = (\[.*\])\n")
_ANY_WORKLOAD = '\n[[workload]]\nmodel = "resnet50"\nbatch = 1\n'


def starter_matrix(
    host: Host, containers: bool, python: str | None = None, fits: Callable[[Stack], bool] = lambda stack: True
) -> str:
    """The default matrix's text without the stacks and workloads that are not for `host`.

    `containers`: is there a container engine for vendors' images? `python`: an interpreter with PyTorch that becomes the
    only stack. `fits`: do the driver and the GPUs run this stack? If they run none, all are kept, and `plan` says why.
    """
    blocks = re.split(r"(?m)^(?=\[|# )", assets.DEFAULT_MATRIX.read_text())
    kept = [block for block in blocks if _is_for(block, host, containers, python)]
    unfit = [block for block in kept if block.startswith("[[stack]]") and not fits(_stack_in(block))]
    if len(unfit) < sum(block.startswith("[[stack]]") for block in kept):
        kept = [block for block in kept if block not in unfit]
    names = [_stack_in(block).name for block in kept if block.startswith("[[stack]]")]
    text = _GLOBS.sub(lambda line: _matching(line, names), "".join(kept))
    if python:
        text = re.sub(r"(?m)^stacks = .*\n", "", text)
        stack = f'[[stack]]\nname = "mine"\npython = "{python}"\n\n'
        text = re.sub(r"(?m)^(?=\[\[workload\]\])", lambda match: stack, text, count=1)
    text = re.sub(r"(?m)^# --- .*\n+(?=#|\Z)", "", text)
    counts = ", ".join(str(n) for n in (1, 2, 4, 8) if n <= max(1, len(host.gpus)))
    return re.sub(r"(\[gpus\]\ncounts = )\[[^]]*\]", rf"\1[{counts}]", text)


def _matching(line: re.Match[str], names: Sequence[str]) -> str:
    """A workload's line of globs on stacks, without those that match none of `names`."""
    globs = [glob for glob in json.loads(line[1]) if any(fnmatchcase(name, glob) for name in names)]
    return f"stacks = {json.dumps(globs)}\n"


def _is_for(block: str, host: Host, containers: bool, python: str | None) -> bool:
    accelerator = {"nvidia": "cuda", "amd": "rocm", None: "cpu"}[host.vendor]
    if block.startswith("[[stack]]"):
        stack = _stack_in(block)
        return not python and stack.accelerator == accelerator and (containers or stack.source != "image")
    if block.startswith("[[workload]]"):
        return ('device = "cpu"' in block) == (accelerator == "cpu")
    return True


def _stack_in(block: str) -> Stack:
    return parse(block + _ANY_WORKLOAD).stacks[0]
