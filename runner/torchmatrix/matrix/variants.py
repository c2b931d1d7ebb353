"""Derive a matrix from another: presets, a starter for this machine, one setting changed, the releases between two."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from torchmatrix.core import assets, inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import printable
from torchmatrix.core.toml_keys import Place, Problems, nearest, shown
from torchmatrix.machine.host import Host
from torchmatrix.machine.vendors import accelerator_of
from torchmatrix.matrix import catalog, matrix_file, own_models
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.matrix_file import Matrix, parse
from torchmatrix.matrix.stacks import Stack, make_stack
from torchmatrix.matrix.workloads import Workload

# Presets, which repeat published benchmarks: runner/presets/NAME.toml


def preset_names() -> tuple[str, ...]:
    """Return the names of all presets, sorted."""
    return tuple(sorted(path.stem for path in assets.PRESETS.glob("*.toml")))


def preset_text(name: str) -> str:
    """Read the matrix file of a preset, comments included. Raises BadInput with the nearest name."""
    if name not in preset_names():
        raise BadInput(f'unknown preset "{name}"', hint=f"{nearest(name, preset_names())}; torchmatrix presets describes them")
    return (assets.PRESETS / f"{name}.toml").read_text(encoding="utf-8")


def load_preset(name: str) -> Matrix:
    """Read the matrix of a preset. Raises BadInput for an unknown name."""
    return matrix_file.parse(preset_text(name), name=f"preset {name}")


# The matrix file that `init` writes: the default one, with only the rows that this machine can use

_GLOBS = re.compile(r"(?m)^stacks = (\[.*\])\n")
_ANY_WORKLOAD = '\n[[workload]]\nmodel = "resnet50"\nbatch = 1\n'


def starter_matrix(
    host: Host,
    containers: bool,
    python: str | None = None,
    suited: Callable[[Stack, Host], Sequence[int]] = lambda stack, host: range(len(host.gpus)),
) -> str:
    """Return the default matrix's text without the stacks, the workloads and the GPUs that are not for each other.

    `containers`: whether there is a container engine for vendors' images. `python`: an interpreter with PyTorch that becomes
    the only stack. `suited`: the places of the GPUs that a stack runs on, with this driver. If no stack runs on any, all are
    kept, and `plan` says why.
    """
    blocks = re.split(r"(?m)^(?=\[|# )", assets.DEFAULT_MATRIX.read_text(encoding="utf-8"))
    kept = [block for block in blocks if _is_for(block, host, containers, python)]
    runs_on = {block: set(suited(_stack_in(block), host)) for block in kept if block.startswith("[[stack]]")}
    main, all_gpus = _main_gpu(host, runs_on.values()), set(range(len(host.gpus)))
    if main is not None:
        kept = [block for block in kept if main in runs_on.get(block, all_gpus)]
    with_code = all_gpus.intersection(*(places for places in runs_on.values() if main in places))
    unlike = {place for place in with_code if main is not None and host.gpus[place].name != host.gpus[main].name}
    left_out = {"not all stacks below have code for it": all_gpus - with_code, "a set is of one model": unlike}
    names = [_stack_in(block).name for block in kept if block.startswith("[[stack]]")]
    text = _GLOBS.sub(lambda line: _matching_globs(line, names), "".join(kept))
    if python:
        text = re.sub(r"(?m)^stacks = .*\n", "", text)
        stack = f'[[stack]]\nname = "mine"\npython = {json.dumps(python, ensure_ascii=False)}\n\n'
        text = re.sub(r"(?m)^(?=\[\[workload\]\])", lambda match: stack, text, count=1)
    text = re.sub(r"(?m)^# --- .*\n+(?=#|\Z)", "", text)
    return f"{_head(host)}{_for_devices(_on_gpus(text, host, left_out), host)}"


_HEAD = """\
# Measures PyTorch on this machine: {devices}. See it first: torchmatrix plan. Start: torchmatrix run.
# A first look, with one launch of each cell and no intervals: torchmatrix run --fast.
#
# A cell is a stack x a workload x a device set. Stacks are listed one by one; inside a [[workload]], list values
# multiply. docs/matrix.md explains every key.

"""


def _head(host: Host) -> str:
    names = [gpu.name for gpu in host.gpus]
    gpus = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    cores = f"{len(host.cores)} core{'s' * (len(host.cores) != 1)}"
    return _HEAD.format(devices=printable(gpus or f"{cores}, no GPU"))


def _for_devices(text: str, host: Host) -> str:
    """Return the text without its head and, for a machine without a GPU, without what is about GPUs alone."""
    text = text[text.index("[run]") :]
    if host.gpus:
        return text
    text = re.sub(r"(?ms)^\[gpus\]\n.*?(?=^\[)", "", text)
    return re.sub(r"(?m)^# Two hours on .*\n(?:# .*\n)*\n?", "", text)


def _main_gpu(host: Host, runs_on: Collection[Collection[int]]) -> int | None:
    """Return a GPU of the machine's main model; None: no stack runs on any.

    The main model is the most frequent one, but one or two display cards, on which few stacks run, don't outweigh a GPU.
    """

    def worth(place: int) -> tuple[int, int]:
        gpu = host.gpus[place]
        alike, stacks = sum(gpu.name == other.name for other in host.gpus), sum(place in places for places in runs_on)
        return alike**2 * stacks, gpu.memory_bytes or 0

    main = max(range(len(host.gpus)), key=worth, default=None)
    return main if main is not None and worth(main)[0] else None


def _on_gpus(text: str, host: Host, left_out: Mapping[str, Collection[int]]) -> str:
    """Return the text with sets of the first 1, 2, 4 and 8 of the GPUs: as counts, or as lists where others lie between.

    `left_out`: the GPUs that are left out, by the reason.
    """
    used = [place for place in range(len(host.gpus)) if not any(place in places for places in left_out.values())]
    sets = [list(used[:n]) for n in (1, 2, 4, 8) if n <= max(1, len(used))]
    counts = [len(gpus) for gpus in sets if gpus == list(range(len(gpus)))] if used else [1]
    lists = [gpus for gpus in sets if gpus and len(gpus) not in counts]
    note = ""
    for why, places in left_out.items():
        if places:
            gpus = ", ".join(f"{place} ({host.gpus[place].name})" for place in sorted(places))
            note += f"# Left out, since {why}: GPU {gpus}.\n"
    text = re.sub(r"\[gpus\]\ncounts = \[[^]]*\]", lambda match: f"[gpus]\n{note}counts = {counts}", text)
    text = re.sub(r"(?m)^lists = \[\]", lambda match: f"lists = {lists}", text)
    return text if 1 in counts else re.sub(r"(?m)^counts = \[1\]\n", "", text)


def _matching_globs(line: re.Match[str], names: Sequence[str]) -> str:
    """Return a workload's line of globs on stacks, without those that match none of `names`."""
    globs = [glob for glob in json.loads(line[1]) if any(fnmatchcase(name, glob) for name in names)]
    return f"stacks = {json.dumps(globs)}\n"


def _is_for(block: str, host: Host, containers: bool, python: str | None) -> bool:
    accelerator = accelerator_of(host.vendor)
    if block.startswith("[[stack]]"):
        stack = _stack_in(block)
        return not python and stack.accelerator == accelerator and (containers or stack.source != "image")
    if block.startswith("[[workload]]"):
        return ('device = "cpu"' in block) == (accelerator == "cpu")
    return True


def _stack_in(block: str) -> Stack:
    return parse(block + _ANY_WORKLOAD).stacks[0]


# A matrix file from the text of another: its settings and device sets with one workload and, if given, other stacks

_HEADER = re.compile(r"(?m)^(?=\[\[?[A-Za-z_][\w.-]*\]\]?\s*(?:#.*)?$)")


def rewritten(text: str, workload: Mapping[str, Any], stacks: Sequence[Mapping[str, Any]] | None = None) -> str:
    """Return `text` with one [[workload]] and, if given, these [[stack]] tables, all as keys and values; without its [preset].

    `workload` may name a user's own model by its id: the result names its file as `text` does.
    """
    dropped = {"workload", "preset", *(("stack",) if stacks is not None else ())}
    kept = [block for block in _HEADER.split(text) if _header_name(block) not in dropped]
    body = "".join(kept).rstrip("\n")
    model = next((written for written in _models_in(text) if own_models.means(written, workload["model"])), workload["model"])
    tables = [*(("stack", stack) for stack in stacks or ()), ("workload", {**workload, "model": model})]
    texts = ["".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()) for _, values in tables]
    return "\n".join((body, *(f"\n[[{name}]]\n{text}" for (name, _), text in zip(tables, texts, strict=True))))


def workload_keys(workload: Workload) -> dict[str, Any]:
    """Return the keys that describe this workload and no other; without its stacks and numbers of devices."""
    name = {"name": workload.name} if workload.name else {}
    values = {factor.name: value for factor in FACTORS if (value := workload.factors[factor.name]) is not None}
    return {**name, "device": workload.device, **values}


def _models_in(text: str) -> Iterator[str]:
    tables = inputs.toml_of(text, "the matrix", hint="it was read before").get("workload", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadInput("the matrix has no [[workload]] that can be read", hint="name a run of another matrix")
    for table in tables:
        models = table.get("model")
        yield from (model for model in (models if isinstance(models, list) else [models]) if isinstance(model, str))


def _header_name(block: str) -> str:
    """Return the first part of a block's header; empty for text before the first header."""
    match = re.match(r"\[\[?([\w-]+)", block)
    return match[1] if match else ""


# The catalog's releases from one to another, as [[stack]] tables of one accelerator


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheels:
    """One release and the variant of its wheels, such as cu124."""

    torch: str
    variant: str

    @property
    def name(self) -> str:
        """Return the name of the stack."""
        return f"torch{self.torch}-{self.variant}"

    @property
    def table(self) -> dict[str, object]:
        """Return the keys of the [[stack]] table."""
        if self.variant in ("cpu", "xpu"):
            return {"torch": self.torch, self.variant: True}
        if self.variant.startswith("rocm"):
            return {"torch": self.torch, "rocm": self.variant.removeprefix("rocm")}
        return {"torch": self.torch, "cuda": catalog.cuda_of(self.variant)}


def named_release(word: str, stacks: Sequence[Stack]) -> tuple[str, str | None]:
    """Return the release that `word` names, and the variant if it is the name of a stack of the matrix. Raises BadInput."""
    stack = next((stack for stack in stacks if stack.name == word), None)
    releases = catalog.load().releases
    if stack is None and word not in releases:
        near = ", ".join(catalog.nearest_versions(word, releases)) if word[:1].isdigit() else ""
        hint = f"the nearest releases: {near}" if near else nearest(word, [stack.name for stack in stacks])
        raise BadInput(f"{shown(word)} is neither a release of the catalog nor a stack of the matrix", hint=hint)
    if stack is None:
        return word, None
    if stack.torch not in releases or stack.variant is None:
        raise BadInput(
            f"stack {stack.name} is not made of a release's wheels, so no releases lie beside it",
            hint="--listed searches the stacks of the matrix instead of the catalog's releases",
        )
    wheels = Wheels(torch=stack.torch, variant=stack.variant)
    plain = make_stack(wheels.table, Place(header="[[stack]]"), Problems(""))
    assert plain is not None
    if replace(stack, name="", packages=()) != replace(plain, name="", packages=()):
        raise BadInput(
            f"stack {stack.name} has settings of its own, which the releases between don't have",
            hint=f"name the release: {stack.torch}, or --listed to search the stacks of the matrix",
        )
    return stack.torch, stack.variant


def releases_between(old: str, new: str, accelerator: str, variants: Sequence[str | None]) -> list[Wheels]:
    """List the releases from `old` to `new`, both included, with wheels for `accelerator` (cuda, rocm, cpu), oldest first.

    `variants`: the wanted ones, None where an end names none; without any, the newest variant that all releases have. A release
    that lacks it gets the variant that PyPI serves or, for ROCm, its newest. Raises BadInput.
    """
    releases = catalog.load().releases
    order = sorted(releases, key=catalog.version_key)
    if order.index(old) >= order.index(new):
        hint = "name two different releases" if old == new else f"torchmatrix bisect OLD NEW: {new} {old}"
        raise BadInput(f"{old} is not older than {new}", hint=hint)
    names = order[order.index(old) : order.index(new) + 1]
    wheels: dict[str, list[str]] = {}
    for name in names:
        suitable = (variant for variant in releases[name].wheels if catalog.accelerator_of(variant) == accelerator)
        wheels[name] = sorted(suitable, key=_variant_key)
    missing = [name for name in (old, new) if not wheels[name]]
    if missing:
        raise BadInput(f"torch {missing[0]} has no wheels for {accelerator}", hint="name a release that has")
    shared = set.intersection(*(set(available) for available in wheels.values() if available))
    wanted = [variant for variant in variants if variant] or sorted(shared, key=_variant_key)[-1:]
    chosen = []
    for name, available in wheels.items():
        if available:
            preferred = (variant for variant in (*wanted, releases[name].pypi) if variant in available)
            chosen.append(Wheels(torch=name, variant=next(preferred, available[-1])))
    return chosen


def _variant_key(variant: str) -> tuple[int, ...]:
    """Return the sort key of a variant: its version of CUDA or ROCm."""
    return catalog.version_key(catalog.cuda_of(variant) if variant.startswith("cu") else variant.removeprefix("rocm"))
