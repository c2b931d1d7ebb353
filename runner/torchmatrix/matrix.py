"""matrix.toml -> Matrix: what the user wrote, validated and immutable. Every problem is reported at once."""

import hashlib
import itertools
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmatrix import catalog
from torchmatrix.errors import BadInput
from torchmatrix.schema import NAME, Key, Place, Problems, Table, check, nearest
from torchmatrix.stacks import Stack, make_stack

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PRECISIONS = ("fp32", "tf32", "amp", "amp-bf16")


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """One job: `batch` is items per device and step; sizes in pixels and tokens; steps per window.

    `image_size` is None for language models; `sequence_length` and `attention` are None for vision models.
    """

    id: str
    model: str
    unit: str
    mode: str
    device: str
    precision: str
    compile: bool
    channels_last: bool
    batch: int
    optimizer: str
    image_size: int | None
    sequence_length: int | None
    attention: str | None
    steps: int
    windows: int
    warmup_steps: int
    warmup_cap: int
    stacks: tuple[str, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Devices:
    """Which device sets to use: explicit `lists` of indices, `counts` (the first N), `each` alone."""

    lists: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]
    each: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """Everything the user asked for. `cpus_when`: "no-gpu" or "always". `digest`: SHA-256 of the file's text."""

    stacks: tuple[Stack, ...]
    workloads: tuple[Workload, ...]
    gpus: Devices
    cpus: Devices
    cpus_when: str
    launches: int
    seed: int
    timeout_seconds: float
    digest: str
    text: str


_COUNTS = Key(kind=int, minimum=1, plural=True)
_SECTIONS: dict[str, dict[str, Key]] = {
    "run": {
        "launches": Key(kind=int, default=3, minimum=1),
        "seed": Key(kind=int, default=0, minimum=0),
        "timeout_minutes": Key(kind=float, default=30.0, minimum=0.01, maximum=10_080),
    },
    "gpus": {
        "lists": Key(kind=list, default=(), plural=True),
        "counts": Key(kind=int, default=(1, 2, 4, 8), minimum=1, plural=True),
        "each": Key(kind=bool, default=False),
    },
    "cpus": {
        "counts": Key(kind=int, default=(1, 2), minimum=1, plural=True),
        "when": Key(kind=str, default="no-gpu", choices=("no-gpu", "always")),
    },
}
_WORKLOAD: dict[str, Key] = {
    "name": NAME,
    "model": Key(kind=str, axis=True),
    "device": Key(kind=str, default="gpu", choices=("gpu", "cpu")),
    "mode": Key(kind=str, default="train", choices=("train", "infer"), axis=True),
    "precision": Key(kind=str, default="fp32", choices=PRECISIONS, axis=True),
    "compile": Key(kind=bool, default=False, axis=True),
    "channels_last": Key(kind=bool, default=False, axis=True),
    "attention": Key(kind=str, default="eager", choices=("eager", "sdpa"), axis=True),
    "batch": Key(kind=int, minimum=1, axis=True),
    "image_size": Key(kind=int, default=224, minimum=32, axis=True),
    "sequence_length": Key(kind=int, default=128, minimum=2, axis=True),
    "optimizer": Key(kind=str, choices=("sgd", "adamw")),
    "steps": Key(kind=int, default=50, minimum=1),
    "windows": Key(kind=int, default=1, minimum=1),
    "warmup_steps": Key(kind=int, default=10, minimum=1),
    "warmup_cap": Key(kind=int, default=100, minimum=1),
    "stacks": Key(kind=str, default=("*",), plural=True),
    "counts": _COUNTS,
}
_AXES = ("mode", "precision", "compile", "channels_last", "attention", "batch", "image_size", "sequence_length")


def load(path: Path) -> Matrix:
    """Read and validate a matrix file. Raises BadInput listing every problem with its place."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise BadInput(
            f"no matrix file at {path}", hint="make one for this machine: torchmatrix init, or name one: --matrix FILE"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"can't read {path}: {error}", hint="name a readable matrix file: --matrix FILE") from None
    return parse(text, name=str(path))


def parse(text: str, *, name: str = "matrix.toml") -> Matrix:
    """Validate the text of a matrix file; `name` is used in messages. Raises BadInput."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{name} is not valid TOML: {error}", hint="mend that line and try again") from None
    problems = Problems(text)
    matrix = _matrix(data, text, problems)
    if matrix is None or problems.messages:
        count = len(problems.messages)
        listing = "\n".join(f"  {message}" for message in problems.messages)
        raise BadInput(
            f"{name} has {count} problem{'s' if count > 1 else ''}:\n{listing}",
            hint="nothing was run; the keys are explained in the README and in `torchmatrix init`'s file",
        )
    return matrix


def _matrix(data: Table, text: str, problems: Problems) -> Matrix | None:
    known = [*_SECTIONS, "stack", "workload"]
    for key in data:
        if key not in known:
            problems.add(Place(header=f"[{key}]"), None, f'unknown table "{key}"; {nearest(key, known)}')
    sections = {
        name: check(_table(data, name, problems), keys, Place(header=f"[{name}]"), problems) for name, keys in _SECTIONS.items()
    }
    stacks = _each(data, "stack", problems, make_stack)
    workloads = [w for found in _each(data, "workload", problems, _workloads) for w in found]
    _check_unique("stack", [s.name for s in stacks], problems)
    _check_unique("workload", [w.id for w in workloads], problems)
    if problems.messages:
        return None
    _check_globs(data, stacks, problems)
    run, gpus, cpus = (sections[name] for name in ("run", "gpus", "cpus"))
    return Matrix(
        stacks=tuple(stacks),
        workloads=tuple(workloads),
        gpus=Devices(lists=_lists(gpus["lists"], problems), counts=gpus["counts"], each=gpus["each"]),
        cpus=Devices(lists=(), counts=cpus["counts"], each=False),
        cpus_when=cpus["when"],
        launches=run["launches"],
        seed=run["seed"],
        timeout_seconds=60.0 * run["timeout_minutes"],
        digest=hashlib.sha256(text.encode()).hexdigest(),
        text=text,
    )


def _table(data: Table, name: str, problems: Problems) -> Table:
    value = data.get(name, {})
    if not isinstance(value, dict):
        problems.add(Place(header=f"[{name}]"), None, f"must be one table [{name}]")
        return {}
    return value


def _each(data: Table, name: str, problems: Problems, make: Callable[[Table, Place, Problems], Any]) -> list[Any]:
    """`make` over every [[name]] table; those with problems are left out."""
    tables = data.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        problems.add(Place(header=f"[{name}]"), None, f"must be a list of tables: write [[{name}]]")
        return []
    if not tables:
        problems.add(Place(header=f"[[{name}]]"), None, f"there must be at least one [[{name}]]")
    made = [make(table, Place(header=f"[[{name}]]", number=i), problems) for i, table in enumerate(tables)]
    return [thing for thing in made if thing is not None]


def _check_unique(noun: str, names: list[str], problems: Problems) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            problems.add(Place(header=f"[[{noun}]]"), None, f'{times} {noun}s are called "{name}"; give all but one a `name`')


def _check_globs(data: Table, stacks: list[Stack], problems: Problems) -> None:
    from fnmatch import fnmatchcase

    names = [stack.name for stack in stacks]
    for number, table in enumerate(data.get("workload", [])):
        for glob in table.get("stacks", ()):
            if not any(fnmatchcase(name, glob) for name in names):
                problems.add(
                    Place(header="[[workload]]", number=number),
                    "stacks",
                    f'"{glob}" matches no stack; {nearest(glob, names)}',
                )


def _lists(lists: tuple[Any, ...], problems: Problems) -> tuple[tuple[int, ...], ...]:
    for entry in lists:
        whole = all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in entry)
        if not entry or not whole or len(set(entry)) < len(entry):
            problems.add(Place(header="[gpus]"), "lists", f"each list holds different GPU indices, not {entry!r}")
    return tuple(tuple(entry) for entry in lists)


def _workloads(table: Table, place: Place, problems: Problems) -> list[Workload] | None:
    """The product of one [[workload]] table's axes; axes that mean nothing to a model don't multiply it."""
    before = len(problems.messages)
    values = check(table, _WORKLOAD, place, problems)
    for required in ("model", "batch"):
        if required not in table:
            problems.add(place, None, f"needs {required}")
    models = catalog.models()
    for model in values["model"] if "model" in table else ():
        if model not in models:
            problems.add(place, "model", f'unknown model "{model}"; {nearest(model, models)}')
    if len(problems.messages) > before:
        return None
    found: dict[str, Workload] = {}
    for model in values["model"]:
        for combination in itertools.product(*(values[axis] for axis in _AXES)):
            workload = _workload(models[model], values, dict(zip(_AXES, combination, strict=True)))
            found[workload.id] = workload
    return list(found.values())


def _workload(model: catalog.Model, values: dict[str, Any], axes: dict[str, Any]) -> Workload:
    vision = model.library == "torchvision"
    axes = axes | ({"sequence_length": None, "attention": None} if vision else {"image_size": None})
    usual = "sgd" if vision else "adamw"
    optimizer = values["optimizer"] or usual
    parts = [
        *([values["name"]] if values["name"] else []),
        model.name,
        axes["mode"],
        axes["precision"],
        f"b{axes['batch']}",
        f"{axes['image_size']}px" if vision else f"s{axes['sequence_length']}",
        *([] if vision else [axes["attention"]]),
        *(["nhwc"] if axes["channels_last"] else []),
        *(["compile"] if axes["compile"] else []),
        *([optimizer] if optimizer != usual else []),
    ]
    rest = {key: values[key] for key in ("device", "steps", "windows", "warmup_steps", "warmup_cap", "stacks")}
    return Workload(
        id="-".join(parts),
        model=model.name,
        unit=model.unit,
        optimizer=optimizer,
        counts=values["counts"] or (),
        **axes,
        **rest,
    )
