"""What a [[workload]] table means: the product of its axes, each an immutable Workload with an id made from its fields."""

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torchmatrix.ground.toml_keys import NAME, Key, Place, Problems, Table, check, nearest, shown
from torchmatrix.matrix import catalog, factors
from torchmatrix.matrix.factors import BY_NAME, FACTORS, Value

AUTO = "auto"
MOST_DEVICES = 64
"""Of one set: its label is a part of a path."""
MOST_WORKLOADS = 10_000
"""Of one [[workload]] table."""
COUNTS = Key(kind=int, minimum=1, maximum=MOST_DEVICES, plural=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """One job: `factors` has the value of every factor by name, None where it means nothing to this job.

    The batch may be "auto": the largest that fits, found before the first launch. `batch_for`: other batches for GPU models
    or memory sizes. `explain` adds the other values of `parallel`, to find out where the scaling loss comes from.
    """

    id: str
    name: str | None
    unit: str
    device: str
    batch_for: tuple[tuple[str, int], ...]
    explain: bool
    stacks: tuple[str, ...]
    counts: tuple[int, ...]
    factors: Mapping[str, Any] = field(hash=False)

    @property
    def model(self) -> str:
        return str(self.factors["model"])

    @property
    def mode(self) -> str:
        """train or infer."""
        return str(self.factors["mode"])

    @property
    def precision(self) -> str:
        return str(self.factors["precision"])

    @property
    def compile(self) -> bool:
        return bool(self.factors["compile"])

    @property
    def batch(self) -> int | str:
        """Items per device and step, or "auto"."""
        found: int | str = self.factors["batch"]
        return found

    @property
    def optimizer(self) -> str:
        return str(self.factors["optimizer"])

    @property
    def parallel(self) -> str:
        """ddp, no-sync or independent."""
        return str(self.factors["parallel"])

    @property
    def least_seconds(self) -> float:
        """What warm-up and windows take at least, as far as seconds are asked for."""
        return float(self.factors["windows"] * self.factors["seconds"] + self.factors["warmup_seconds"])

    def as_record(self) -> dict[str, Any]:
        """For the facts: one flat dictionary."""
        rest = ("id", "name", "unit", "device", "batch_for", "explain", "stacks", "counts")
        return {**{name: getattr(self, name) for name in rest}, **self.factors}


KEYS: dict[str, Key] = {
    "name": replace(NAME, meaning="A prefix of the id, to tell apart two workloads that differ only in steps."),
    "model": replace(BY_NAME["model"].key(), meaning="A model of `images/workload/families/models.json`. Required."),
    "device": Key(
        kind=str, default="gpu", choices=("gpu", "cpu"), meaning="`gpu` runs on CUDA and ROCm stacks, `cpu` on CPU stacks."
    ),
    **{factor.name: factor.key() for factor in FACTORS if factor.asked and factor.name not in ("model", "batch")},
    "explain": Key(kind=bool, default=False, meaning="Add the launches that show where the scaling loss comes from."),
    "stacks": Key(kind=str, default=("*",), plural=True, meaning="Globs on stack names: run on these stacks only."),
    "counts": replace(COUNTS, meaning="Device counts of this workload, instead of those of `[gpus]` or `[cpus]`."),
}
_BATCH = BY_NAME["batch"].key()


def make_workloads(table: Table, place: Place, problems: Problems) -> list[Workload] | None:
    """The product of one [[workload]] table's axes; axes that mean nothing to a model don't multiply it."""
    before = problems.number
    values = check({k: v for k, v in table.items() if k != "batch"}, KEYS, place, problems)
    values["batch"], batch_for = _batches(table, place, problems)
    for required in ("model", "batch"):
        if required not in table:
            problems.add(place, None, f"needs {required}")
    models = catalog.models()
    for model in values["model"] if "model" in table else ():
        if model not in models:
            problems.add(place, "model", f'unknown model "{shown(model)}"; {nearest(model, models)}')
    axes = [factor.name for factor in FACTORS if factor.asked and factor.axis]
    if (product := math.prod(len(values[axis]) for axis in axes)) > MOST_WORKLOADS:
        problems.add(place, None, f"its lists multiply to {product:,} workloads; at most {MOST_WORKLOADS:,}")
    if problems.number > before:
        return None
    found: dict[str, Workload] = {}
    for combination in itertools.product(*(values[axis] for axis in axes)):
        workload = _workload(values | dict(zip(axes, combination, strict=True)), batch_for)
        found[workload.id] = workload
    return list(found.values())


def changed(workload: Workload, batch_for: tuple[tuple[str, int], ...] | None = None, **values: Value) -> Workload:
    """`workload` with other values of factors (and another `batch_for`), and the matching id."""
    given = workload.batch_for if batch_for is None else batch_for
    return _with_id(replace(workload, factors={**workload.factors, **values}, batch_for=given))


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
        problems.add(
            place, "batch", f'must be a whole number, "auto", or a table {{ default = N, "80GB" = M }}, not "{shown(given)}"'
        )
        return (1,), ()
    if not isinstance(given, dict):
        return check({"batch": given}, {"batch": _BATCH}, place, problems)["batch"], ()
    if "default" not in given:
        problems.add(place, "batch", 'the table needs a default: batch = { default = 64, "80GB" = 256 }')
    for key, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= factors.LARGEST:
            said = f'"{shown(key)}" must be a whole number of at least 1 and at most {factors.LARGEST:,}, not {shown(value)}'
            problems.add(place, "batch", said)
    others = tuple((key, value) for key, value in given.items() if key != "default")
    return (given.get("default", 1),), others


def _workload(values: dict[str, Any], batch_for: tuple[tuple[str, int], ...]) -> Workload:
    """Of one value for each axis; a factor that doesn't apply is None, so that it makes no difference."""
    model = catalog.models()[values["model"]]
    values = values | {"optimizer": values["optimizer"] or model.optimizer, "parallel": BY_NAME["parallel"].default}
    workload = Workload(
        id="",
        name=values["name"],
        unit=model.unit,
        device=values["device"],
        batch_for=batch_for,
        explain=values["explain"],
        stacks=values["stacks"],
        counts=values["counts"] or (),
        factors={
            factor.name: values[factor.name] if factor.applies(model.library, values["mode"], values["device"]) else None
            for factor in FACTORS
        },
    )
    return _with_id(workload)


def _with_id(workload: Workload) -> Workload:
    """The usual optimizer of a library isn't said."""
    values = dict(workload.factors)
    if values["optimizer"] == catalog.models()[workload.model].optimizer:
        values["optimizer"] = None
    return replace(workload, id="-".join(filter(None, (workload.name, factors.id_of(values)))))
