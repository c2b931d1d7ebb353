"""The matrix file that `init` writes: the default one, with only the rows that this machine can use."""

import re

from torchmatrix.ground import assets
from torchmatrix.machine.host import Host
from torchmatrix.matrix.matrix_file import parse
from torchmatrix.matrix.stacks import Stack

_ANY_WORKLOAD = '\n[[workload]]\nmodel = "resnet50"\nbatch = 1\n'


def starter_matrix(host: Host, containers: bool, python: str | None = None) -> str:
    """The default matrix's text without the stacks and workloads that are not for `host`.

    `containers`: is there a container engine for vendors' images? `python`: an interpreter with PyTorch that becomes the
    only stack.
    """
    blocks = re.split(r"(?m)^(?=\[|# )", assets.DEFAULT_MATRIX.read_text())
    text = "".join(block for block in blocks if _is_for(block, host, containers, python))
    if python:
        text = re.sub(r"(?m)^stacks = .*\n", "", text)
        stack = f'[[stack]]\nname = "mine"\npython = "{python}"\n\n'
        text = re.sub(r"(?m)^(?=\[\[workload\]\])", lambda match: stack, text, count=1)
    text = re.sub(r"(?m)^# --- .*\n+(?=#|\Z)", "", text)
    counts = ", ".join(str(n) for n in (1, 2, 4, 8) if n <= max(1, len(host.gpus)))
    return re.sub(r"(\[gpus\]\ncounts = )\[[^]]*\]", rf"\1[{counts}]", text)


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
