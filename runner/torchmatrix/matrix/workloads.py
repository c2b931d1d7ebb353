"""What a [[workload]] table means: the product of its axes, each an immutable Workload with an id made from its fields."""

import itertools
import re
from dataclasses import dataclass, replace
from typing import Any

from torchmatrix.ground.toml_keys import NAME, Key, Place, Problems, Table, check, nearest
from torchmatrix.matrix import catalog

PRECISIONS = ("fp32", "tf32", "amp", "amp-bf16")
AUTO = "auto"
COUNTS = Key(kind=int, minimum=1, plural=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """One job: `batch` is items per device and step; sizes in pixels and tokens; steps per window.

    `image_size` is None for language models; `sequence_length` and `attention` are None for vision models. `batch` may be
    "auto": the largest that fits, found before the first launch. `batch_for`: other batches for GPU models or memory sizes.
    `parallel`: what several ranks share: ddp, no-sync (DDP without all-reduce) or independent (nothing); `explain`
    adds the last two, to find out where the scaling loss comes from.
    """

    id: str
    name: str | None
    model: str
    unit: str
    mode: str
    device: str
    precision: str
    compile: bool
    channels_last: bool
    batch: int | str
    batch_for: tuple[tuple[str, int], ...]
    optimizer: str
    image_size: int | None
    sequence_length: int | None
    attention: str | None
    parallel: str
    explain: bool
    steps: int
    seconds: float
    windows: int
    warmup_steps: int
    warmup_seconds: float
    warmup_cap: int
    stacks: tuple[str, ...]
    counts: tuple[int, ...]


_KEYS: dict[str, Key] = {
    "name": NAME,
    "model": Key(kind=str, axis=True),
    "device": Key(kind=str, default="gpu", choices=("gpu", "cpu")),
    "mode": Key(kind=str, default="train", choices=("train", "infer"), axis=True),
    "precision": Key(kind=str, default="fp32", choices=PRECISIONS, axis=True),
    "compile": Key(kind=bool, default=False, axis=True),
    "channels_last": Key(kind=bool, default=False, axis=True),
    "attention": Key(kind=str, default="eager", choices=("eager", "sdpa"), axis=True),
    "image_size": Key(kind=int, default=224, minimum=32, axis=True),
    "sequence_length": Key(kind=int, default=128, minimum=2, axis=True),
    "optimizer": Key(kind=str, choices=("sgd", "adamw")),
    "explain": Key(kind=bool, default=False),
    "steps": Key(kind=int, default=50, minimum=1),
    "seconds": Key(kind=float, default=0.0, minimum=0, maximum=86_400),
    "windows": Key(kind=int, default=1, minimum=1),
    "warmup_steps": Key(kind=int, default=10, minimum=1),
    "warmup_seconds": Key(kind=float, default=0.0, minimum=0, maximum=86_400),
    "warmup_cap": Key(kind=int, default=100, minimum=1),
    "stacks": Key(kind=str, default=("*",), plural=True),
    "counts": COUNTS,
}
_AXES = ("mode", "precision", "compile", "channels_last", "attention", "batch", "image_size", "sequence_length")
_PLAIN = ("device", "explain", "steps", "seconds", "windows", "warmup_steps", "warmup_seconds", "warmup_cap", "stacks")
_BATCH = Key(kind=int, minimum=1, axis=True)


def make_workloads(table: Table, place: Place, problems: Problems) -> list[Workload] | None:
    """The product of one [[workload]] table's axes; axes that mean nothing to a model don't multiply it."""
    before = len(problems.messages)
    values = check({k: v for k, v in table.items() if k != "batch"}, _KEYS, place, problems)
    values["batch"], batch_for = _batches(table, place, problems)
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
            workload = _workload(models[model], values, dict(zip(_AXES, combination, strict=True)), batch_for)
            found[workload.id] = workload
    return list(found.values())


def changed(workload: Workload, **changes: Any) -> Workload:
    """`workload` with other values and the matching id."""
    fresh = replace(workload, **changes)
    return replace(fresh, id=_id(fresh))


def ddp_id(workload: Workload) -> str:
    """The id of the workload that this one explains; its own if it explains none."""
    return workload.id if workload.parallel == "ddp" else changed(workload, parallel="ddp").id


def batch_on(workload: Workload, name: str, memory_bytes: int | None) -> int | str:
    """The batch on a GPU of this name and memory: its model's, else its memory size's, else the default.

    A size such as "80GB" is meant as vendors write it: the nearest within 10 % of so many GiB, since ECC takes a part of what
    the driver reports.
    """
    sizes = {int(found.group(1)): batch for key, batch in workload.batch_for if (found := _SIZE.fullmatch(key))}
    by_name = [batch for key, batch in workload.batch_for if not _SIZE.fullmatch(key) and key.lower() in name.lower()]
    gib = (memory_bytes or 0) / 2**30
    by_size = [sizes[size] for size in sorted(sizes, key=lambda size: abs(gib / size - 1)) if abs(gib / size - 1) < 0.1]
    return next(iter(by_name + by_size), workload.batch)


_SIZE = re.compile(r"([1-9]\d*) ?GB", re.IGNORECASE)


def _batches(table: Table, place: Place, problems: Problems) -> tuple[tuple[int | str, ...], tuple[tuple[str, int], ...]]:
    """The values of `batch` (numbers, "auto", or a table's default), and the rest of a table."""
    given = table.get("batch", 1)
    if given == AUTO:
        return (AUTO,), ()
    if isinstance(given, str):
        problems.add(place, "batch", f'must be a whole number, "auto", or a table {{ default = N, "80GB" = M }}, not "{given}"')
        return (1,), ()
    if not isinstance(given, dict):
        return check({"batch": given}, {"batch": _BATCH}, place, problems)["batch"], ()
    if "default" not in given:
        problems.add(place, "batch", 'the table needs a default: batch = { default = 64, "80GB" = 256 }')
    for key, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            problems.add(place, "batch", f'"{key}" must be a whole number of at least 1, not {value!r}')
    others = tuple((key, value) for key, value in given.items() if key != "default")
    return (given.get("default", 1),), others


def _workload(
    model: catalog.Model, values: dict[str, Any], axes: dict[str, Any], batch_for: tuple[tuple[str, int], ...]
) -> Workload:
    vision = model.library == "torchvision"
    axes = axes | ({"sequence_length": None, "attention": None} if vision else {"image_size": None})
    workload = Workload(
        id="",
        name=values["name"],
        model=model.name,
        unit=model.unit,
        optimizer=values["optimizer"] or _usual_optimizer(vision),
        batch_for=batch_for,
        parallel="ddp",
        counts=values["counts"] or (),
        **axes,
        **{key: values[key] for key in _PLAIN},
    )
    return changed(workload)


def _usual_optimizer(vision: bool) -> str:
    return "sgd" if vision else "adamw"


def _id(w: Workload) -> str:
    vision = w.image_size is not None
    parts = [
        w.name,
        w.model,
        w.mode,
        w.precision,
        f"b{w.batch}",
        f"{w.image_size}px" if vision else f"s{w.sequence_length}",
        w.attention,
        "nhwc" if w.channels_last else None,
        "compile" if w.compile else None,
        w.optimizer if w.optimizer != _usual_optimizer(vision) else None,
        w.parallel if w.parallel != "ddp" else None,
    ]
    return "-".join(part for part in parts if part)
