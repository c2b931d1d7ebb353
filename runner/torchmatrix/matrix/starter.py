"""The matrix file that `init` writes: the default one, with only the rows that this machine can use."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from torchmatrix.ground import assets
from torchmatrix.machine.host import Host
from torchmatrix.matrix.matrix_file import parse
from torchmatrix.matrix.stacks import Stack

_GLOBS = re.compile(r"(?m)^stacks = (\[.*\])\n")
_ANY_WORKLOAD = '\n[[workload]]\nmodel = "resnet50"\nbatch = 1\n'


def starter_matrix(
    host: Host,
    containers: bool,
    python: str | None = None,
    suited: Callable[[Stack, Host], Sequence[int]] = lambda stack, host: range(len(host.gpus)),
) -> str:
    """The default matrix's text without the stacks, the workloads and the GPUs that are not for each other.

    `containers`: is there a container engine for vendors' images? `python`: an interpreter with PyTorch that becomes the
    only stack. `suited`: the places of the GPUs that a stack runs on, with this driver. If no stack runs on any, all are kept,
    and `plan` says why.
    """
    blocks = re.split(r"(?m)^(?=\[|# )", assets.DEFAULT_MATRIX.read_text(encoding="utf-8"))
    kept = [block for block in blocks if _is_for(block, host, containers, python)]
    runs_on = {block: set(suited(_stack_in(block), host)) for block in kept if block.startswith("[[stack]]")}
    main, every = _main_gpu(host, runs_on.values()), set(range(len(host.gpus)))
    if main is not None:
        kept = [block for block in kept if main in runs_on.get(block, every)]
    with_code = every.intersection(*(places for places in runs_on.values() if main in places))
    left = {
        "not all stacks below have code for it": every - with_code,
        "a set is of one model": {place for place in with_code if main is not None and not _are_alike(host, place, main)},
    }
    names = [_stack_in(block).name for block in kept if block.startswith("[[stack]]")]
    text = _GLOBS.sub(lambda line: _matching(line, names), "".join(kept))
    if python:
        text = re.sub(r"(?m)^stacks = .*\n", "", text)
        stack = f'[[stack]]\nname = "mine"\npython = "{python}"\n\n'
        text = re.sub(r"(?m)^(?=\[\[workload\]\])", lambda match: stack, text, count=1)
    text = re.sub(r"(?m)^# --- .*\n+(?=#|\Z)", "", text)
    return _on_gpus(text, host, left)


def _main_gpu(host: Host, runs_on: Collection[Collection[int]]) -> int | None:
    """A GPU of the model that the machine is for; None: no stack runs on any.

    That is the most frequent one, but one or two display cards, on which few stacks run, don't outweigh a GPU.
    """

    def worth(place: int) -> tuple[int, int]:
        gpu = host.gpus[place]
        alike, stacks = sum(gpu.name == other.name for other in host.gpus), sum(place in places for places in runs_on)
        return alike**2 * stacks, gpu.memory_bytes or 0

    main = max(range(len(host.gpus)), key=worth, default=None)
    return main if main is not None and worth(main)[0] else None


def _are_alike(host: Host, one: int, other: int) -> bool:
    return host.gpus[one].name == host.gpus[other].name


def _on_gpus(text: str, host: Host, left: Mapping[str, Collection[int]]) -> str:
    """The text with sets of the first 1, 2, 4 and 8 of the GPUs: as counts, or as lists where others lie between.

    `left`: which GPUs are left out, by the reason.
    """
    used = [place for place in range(len(host.gpus)) if not any(place in places for places in left.values())]
    sets = [list(used[:n]) for n in (1, 2, 4, 8) if n <= max(1, len(used))]
    counts = [len(one) for one in sets if one == list(range(len(one)))] if used else [1]
    lists = [one for one in sets if one and len(one) not in counts]
    named = {why: ", ".join(f"{place} ({host.gpus[place].name})" for place in sorted(places)) for why, places in left.items()}
    note = "".join(f"# Left out, since {why}: GPU {gpus}.\n" for why, gpus in named.items() if gpus)
    text = re.sub(r"\[gpus\]\ncounts = \[[^]]*\]", lambda match: f"[gpus]\n{note}counts = {counts}", text)
    text = re.sub(r"(?m)^lists = \[\]", lambda match: f"lists = {lists}", text)
    return text if 1 in counts else re.sub(r"(?m)^counts = \[1\]\n", "", text)


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
