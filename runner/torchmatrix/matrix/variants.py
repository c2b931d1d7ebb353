"""Make a matrix from another: presets, a starter for this machine, one setting changed, the releases between two."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from torchmatrix.core import assets, inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.toml_keys import Place, Problems, nearest, shown
from torchmatrix.machine.host import Host
from torchmatrix.matrix import catalog, matrix_file, own_models
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.matrix_file import Matrix, parse
from torchmatrix.matrix.stacks import Stack, make_stack
from torchmatrix.matrix.workloads import Workload

# The matrices that repeat published benchmarks: runner/presets/NAME.toml.


def preset_names() -> tuple[str, ...]:
    """The names of all presets, sorted."""
    return tuple(sorted(path.stem for path in assets.PRESETS.glob("*.toml")))


def preset_text(name: str) -> str:
    """The matrix file of that preset, comments included. Raises BadInput with the nearest name."""
    if name not in preset_names():
        raise BadInput(f'unknown preset "{name}"', hint=f"{nearest(name, preset_names())}; torchmatrix presets describes them")
    return (assets.PRESETS / f"{name}.toml").read_text(encoding="utf-8")


def load_preset(name: str) -> Matrix:
    """The matrix of that preset. Raises BadInput for an unknown name."""
    return matrix_file.parse(preset_text(name), name=f"preset {name}")


# The matrix file that `init` writes: the default one, with only the rows that this machine can use.

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


# Another matrix file from the text of one: its settings and device sets with one workload, and with other stacks if asked.

_HEADER = re.compile(r"(?m)^(?=\[\[?[A-Za-z_][\w.-]*\]\]?\s*(?:#.*)?$)")


def rewritten(text: str, workload: Mapping[str, Any], stacks: Sequence[Mapping[str, Any]] | None = None) -> str:
    """`text` with one [[workload]] and, if given, these [[stack]] tables, all as keys and values; without its [preset].

    A user's own model may stand in `workload` by its id: the result names its file as `text` does.
    """
    dropped = {"workload", "preset", *(("stack",) if stacks is not None else ())}
    kept = [block for block in _HEADER.split(text) if _name_of(block) not in dropped]
    body = "".join(kept).rstrip("\n")
    named = {**workload, "model": _as_written(text, workload["model"])}
    tables = [*(("stack", stack) for stack in stacks or ()), ("workload", named)]
    return "\n".join((body, *(_table(name, values) for name, values in tables)))


def workload_keys(workload: Workload) -> dict[str, Any]:
    """The keys that describe this workload and no other; without the stacks and the numbers of devices that it is for."""
    said = {"name": workload.name} if workload.name else {}
    own = {factor.name: workload.factors[factor.name] for factor in FACTORS}
    return {**said, "device": workload.device, **{name: value for name, value in own.items() if value is not None}}


def _as_written(text: str, model: str) -> str:
    """How `text` names a model: one of the user's own, whose id has its file's hash, by path and name."""
    return next((said for said in _models_in(text) if own_models.means(said, model)), model)


def _models_in(text: str) -> Iterator[str]:
    for workload in inputs.toml_of(text, "the matrix", hint="it was read before").get("workload", ()):
        said = workload.get("model")
        yield from said if isinstance(said, list) else [said]


def _name_of(block: str) -> str:
    """The first part of a block's header; empty for what stands before the first header."""
    found = re.match(r"\[\[?([\w-]+)", block)
    return found[1] if found else ""


def _table(name: str, values: Mapping[str, Any]) -> str:
    return "".join((f"\n[[{name}]]\n", *(f"{key} = {json.dumps(value)}\n" for key, value in values.items())))


# The catalog's releases from one to another, as [[stack]] tables of one accelerator.


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheels:
    """One release and the variant of its wheels, such as cu124."""

    torch: str
    variant: str

    @property
    def name(self) -> str:
        """Of the stack."""
        return f"torch{self.torch}-{self.variant}"

    @property
    def table(self) -> dict[str, object]:
        """The keys of its [[stack]] table."""
        if self.variant == "cpu":
            return {"torch": self.torch, "cpu": True}
        if self.variant.startswith("rocm"):
            return {"torch": self.torch, "rocm": self.variant.removeprefix("rocm")}
        return {"torch": self.torch, "cuda": catalog.cuda_of(self.variant)}


def named_release(word: str, stacks: Sequence[Stack]) -> tuple[str, str | None]:
    """The release that `word` names, and the variant if it is the name of a stack of the matrix. Raises BadInput."""
    stack = next((stack for stack in stacks if stack.name == word), None)
    known = catalog.load().releases
    if stack is None and word not in known:
        near = ", ".join(catalog.nearest_versions(word, known)) if word[:1].isdigit() else ""
        hint = f"the nearest releases: {near}" if near else nearest(word, [stack.name for stack in stacks])
        raise BadInput(f"{shown(word)} is neither a release of the catalog nor a stack of the matrix", hint=hint)
    if stack is None:
        return word, None
    if stack.torch not in known or stack.variant is None:
        raise BadInput(
            f"stack {stack.name} is not made of a release's wheels, so no releases lie beside it",
            hint="--listed searches the stacks of the matrix instead of the catalog's releases",
        )
    if replace(stack, name="", packages=()) != replace(_plain(stack.torch, stack.variant), name="", packages=()):
        raise BadInput(
            f"stack {stack.name} has settings of its own, which the releases between don't have",
            hint=f"name the release: {stack.torch}, or --listed to search the stacks of the matrix",
        )
    return stack.torch, stack.variant


def releases_between(old: str, new: str, accelerator: str, variants: Sequence[str | None]) -> list[Wheels]:
    """The releases from `old` to `new`, both included, that have wheels for `accelerator` (cuda, rocm or cpu), oldest first.

    `variants`: those that are wanted, None where an end names none; else it is the newest that all releases have. A release
    that lacks it has the variant that PyPI serves or, for ROCm, its newest. Raises BadInput.
    """
    order = sorted(catalog.load().releases, key=catalog.version_key)
    if order.index(old) >= order.index(new):
        raise BadInput(f"{old} is not older than {new}", hint=f"torchmatrix bisect OLD NEW: {new} {old}")
    names = order[order.index(old) : order.index(new) + 1]
    own = {name: _of(accelerator, catalog.load().releases[name].wheels) for name in names}
    missing = [name for name in (old, new) if not own[name]]
    if missing:
        raise BadInput(f"torch {missing[0]} has no wheels for {accelerator}", hint="name a release that has")
    wanted = [variant for variant in variants if variant] or _shared(own)
    return [Wheels(torch=name, variant=_chosen(name, own[name], wanted)) for name in names if own[name]]


def _shared(own: dict[str, list[str]]) -> list[str]:
    """The newest variant that all releases have."""
    every = [set(variants) for variants in own.values() if variants]
    return sorted(set.intersection(*every), key=_order)[-1:]


def _chosen(release: str, own: list[str], wanted: Sequence[str]) -> str:
    usual = catalog.load().releases[release].pypi
    return next((variant for variant in (*wanted, usual) if variant in own), own[-1])


def _of(accelerator: str, wheels: Sequence[str]) -> list[str]:
    return sorted((one for one in wheels if catalog.accelerator_of(one) == accelerator), key=_order)


def _order(variant: str) -> tuple[int, ...]:
    """By the version of CUDA or ROCm."""
    if variant.startswith("cu"):
        return catalog.version_key(catalog.cuda_of(variant))
    return catalog.version_key(variant.removeprefix("rocm"))


def _plain(torch: str, variant: str) -> Stack:
    stack = make_stack(Wheels(torch=torch, variant=variant).table, Place(header="[[stack]]"), Problems(""))
    assert stack is not None
    return stack
