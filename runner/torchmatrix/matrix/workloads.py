"""The workloads of a [[workload]] table: the product of its axes, each an immutable Workload with an id of its fields."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchmatrix.core.errors import BadInput
from torchmatrix.core.toml_keys import NAME, Key, Place, Problems, Table, check, nearest, shown
from torchmatrix.facts.launch import ONE_MODEL
from torchmatrix.facts.operations import MICRO
from torchmatrix.machine import host_gpus
from torchmatrix.matrix import catalog, factors, own_models
from torchmatrix.matrix.catalog import Model
from torchmatrix.matrix.factors import BY_NAME, FACTORS, MODES, Value
from torchmatrix.matrix.own_models import OwnModel

AUTO = "auto"
DEFAULT_KEY = "default"
"""The key of a batch table for all GPUs that no other key fits."""
INFERENCE_BATCHES = (1, 8)
"""The batches of a table that only infers and names none."""
MOST_DEVICES = 64
"""The limit of one device set: its label is a part of a path."""
MOST_WORKLOADS = 10_000
"""The limit of one [[workload]] table."""
COUNTS = Key(kind=int, minimum=1, maximum=MOST_DEVICES, plural=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """One job. `factors`: the value of every factor by name, None where it doesn't apply to this job.

    The batch may be "auto": the largest that fits, found before the first launch. `library`: that of the model. `batch_for`:
    other batches for GPU models or memory sizes; `batch_key`: the one of its keys that gave the batch here, "" where there is
    no such table. `explain`: add the other values of `parallel`, to find out where the scaling loss comes from. `own`: the
    user's file, if the model is the user's own.
    """

    id: str
    name: str | None
    library: str
    unit: str
    device: str
    batch_for: tuple[tuple[str, int], ...]
    explain: bool
    stacks: tuple[str, ...]
    counts: tuple[int, ...]
    factors: Mapping[str, Any] = field(hash=False)
    own: OwnModel | None = None
    batch_key: str = field(default="", compare=False)

    @property
    def model(self) -> str:
        return str(self.factors["model"])

    @property
    def mode(self) -> str:
        """Return the mode, a name in modes.MODES."""
        return str(self.factors["mode"])

    @property
    def trains(self) -> bool:
        """Check whether the mode trains the model."""
        return MODES[self.mode].trains

    @property
    def precision(self) -> str:
        return str(self.factors["precision"])

    @property
    def compile(self) -> bool:
        return bool(self.factors["compile"])

    @property
    def makes_figures(self) -> bool:
        """Check whether the devices train or run one model together; all other workloads explain what that costs."""
        return self.parallel in ONE_MODEL

    @property
    def batch(self) -> int | str:
        """Return the items per device and step (tp: per step), or "auto"."""
        batch: int | str = self.factors["batch"]
        return batch

    @property
    def optimizer(self) -> str:
        return str(self.factors["optimizer"])

    @property
    def parallel(self) -> str:
        """Return how processes work together: ddp, fsdp, tp, no-sync or independent."""
        return str(self.factors["parallel"])

    @property
    def request_seconds(self) -> float:
        """Return how long requests that are timed one by one take at most, if more than ten of them fit into that time."""
        return 2 * float(self.factors["request_seconds"]) if self.factors["requests"] else 0.0

    @property
    def least_seconds(self) -> float:
        """Return how long warm-up and windows take at least, as far as seconds are requested."""
        return float((self.factors["windows"] or 1) * self.factors["seconds"] + self.factors["warmup_seconds"])

    def as_record(self) -> dict[str, Any]:
        """Return one flat dictionary for the facts."""
        names = ("id", "name", "unit", "device", "batch_for", "explain", "stacks", "counts")
        own_model = {"own": self.own.as_record()} if self.own else {}
        return {**{name: getattr(self, name) for name in names}, **own_model, **self.factors}


KEYS: dict[str, Key] = {
    "name": replace(NAME, meaning="A prefix of the id, to tell apart two workloads that differ only in steps."),
    "model": replace(
        BY_NAME["model"].key(), meaning='A [known model](models.md), or [your own](own-model.md): `"file.py:NAME"`. Required.'
    ),
    "device": Key(
        kind=str, default="gpu", choices=("gpu", "cpu"), meaning="`gpu` runs on CUDA, ROCm and XPU stacks, `cpu` on CPU stacks."
    ),
    **{factor.name: factor.key() for factor in FACTORS if factor.name not in ("model", "batch")},
    "fraction": Key(
        kind=str,
        default="1",
        choices=("1", "1/2"),
        meaning="1/2: of the combinations of lists with two values every second one, each pair of values as often.",
    ),
    "explain": Key(kind=bool, default=False, meaning="Add the launches that show where the scaling loss comes from."),
    "stacks": Key(kind=str, default=("*",), plural=True, meaning="Globs on stack names: run on these stacks only."),
    "counts": replace(COUNTS, meaning="Device counts of this workload, instead of those of `[gpus]` or `[cpus]`."),
}
_BATCH = BY_NAME["batch"].key()


def make_workloads(table: Table, place: Place, problems: Problems, folder: Path | None) -> list[Workload] | None:
    """Make the product of one [[workload]] table's axes; axes that don't apply to a model don't multiply it.

    `folder`: that of the matrix, to which the paths of users' own models are relative; None if it isn't a file.
    """
    before = problems.number
    values = check({k: v for k, v in table.items() if k != "batch"}, KEYS, place, problems)
    only_infers = bool(values["mode"]) and not any(MODES[mode].trains for mode in values["mode"])
    values["batch"], batch_for = _batches(table, place, problems) if "batch" in table else (INFERENCE_BATCHES, ())
    named = values["model"] if "model" in table else ()
    only_operates = bool(named) and all(name in catalog.operations() for name in named)
    for required in ("model",) if only_infers or only_operates else ("model", "batch"):
        if required not in table:
            problems.add(place, None, f"needs {required}")
    chosen = _models(named, place, problems, folder)
    for name in named if MICRO in values["mode"] else ():
        if name not in catalog.operations():
            problems.add(place, "mode", f"{MICRO} is for {', '.join(catalog.operations())}; {shown(name)} is a model")
    axes = [factor.name for factor in FACTORS if factor.axis]
    if (product := math.prod(len(values[axis]) for axis in axes)) > MOST_WORKLOADS:
        problems.add(place, None, f"its lists multiply to {product:,} workloads; at most {MOST_WORKLOADS:,}")
    if problems.number > before:
        return None
    workloads: dict[str, Workload] = {}
    for combination in itertools.product(*(values[axis] for axis in axes)):
        if values["fraction"] == "1/2" and not _is_in_half(combination, [values[axis] for axis in axes]):
            continue
        combined = values | dict(zip(axes, combination, strict=True))
        idle = [factor.name for factor in FACTORS if factor.axis and combined["mode"] not in (factor.acts_in or MODES)]
        combined |= {name: values[name][0] for name in idle}  # what changes nothing in a mode doesn't multiply it
        workload = _workload(combined, *chosen[combined["model"]], batch_for)
        workloads[workload.id] = workload
    return list(workloads.values())


def _is_in_half(combination: Sequence[Value], axes: Sequence[Sequence[Value]]) -> bool:
    """Check whether a combination is in the half fraction of the largest resolution: an even number of second values (Box,
    Hunter and Hunter, Statistics for Experimenters, 2nd edition, chapter 6). With five lists of two values, each setting alone
    and each two together can be distinguished."""
    return sum(list(axis).index(value) for value, axis in zip(combination, axes, strict=True) if len(axis) == 2) % 2 == 0


def _models(
    names: tuple[str, ...], place: Place, problems: Problems, folder: Path | None
) -> dict[str, tuple[Model, OwnModel | None]]:
    """Find each model that the matrix names, with its file if it is the user's own."""
    models: dict[str, tuple[Model, OwnModel | None]] = {}
    for name in names:
        if own_models.is_own(name):
            try:
                own_model = own_models.read(name, folder)
                models[name] = (own_model.as_model(), own_model)
            except BadInput as wrong:
                problems.add(place, "model", str(wrong))
        elif model := catalog.find(name):
            models[name] = (model, None)
        else:
            problems.add(place, "model", f'unknown model "{shown(name)}"; {nearest(name, catalog.models())}')
    return models


def changed(workload: Workload, batch_for: tuple[tuple[str, int], ...] | None = None, **values: Value) -> Workload:
    """Return `workload` with other values of factors (and another `batch_for`), and the matching id."""
    given = workload.batch_for if batch_for is None else batch_for
    return _with_id(replace(workload, factors={**workload.factors, **values}, batch_for=given))


def ddp_id(workload: Workload) -> str:
    """Return the id of the workload that this one explains; its own if it explains none."""
    return workload.id if workload.makes_figures else changed(workload, parallel="ddp").id


def batch_on(workload: Workload, name: str, memory_bytes: int | None) -> int | str:
    """Return the batch on a GPU of this name and memory, by `batch_key`."""
    return dict(workload.batch_for).get(batch_key(workload, name, memory_bytes), workload.batch)


def batch_key(workload: Workload, name: str, memory_bytes: int | None) -> str:
    """Return the key of the batch table for a GPU of this name and memory; "default" if none fits.

    A name of the whole model comes first, then a memory size, then a name of only a part, such as a family; of two
    names the one of more words. Raises BadInput where two keys fit equally.
    """
    gpu = host_gpus.name_words(name.partition(" GPU ")[0] if name.startswith("unknown ") else name)  # without its UUID
    fits = {key: fit for key, _ in workload.batch_for if (fit := _fit(host_gpus.name_words(key), gpu, memory_bytes))}
    best = [key for key, fit in fits.items() if fit == max(fits.values())]
    if len(best) > 1:
        keys = " and ".join(f'"{shown(key)}"' for key in best)
        raise BadInput(
            f"batch of {workload.model}: the keys {keys} fit {shown(name)} equally", hint="leave one out, or add a word"
        )
    return best[0] if best else DEFAULT_KEY


def _fit(key: tuple[str, ...], gpu: tuple[str, ...], memory_bytes: int | None) -> tuple[int, float] | None:
    """Return how well a key fits, the larger the better; None if it doesn't.

    A size such as "80GB" is read as vendors write it: within 10 % of so many GiB, the nearest first. A key with the whole name
    may contain another size (a GH200 480GB has 96), but not a key with a part of it: a slice of an A100 80GB has less.
    """
    errors = {
        word: host_gpus.memory_error(size, memory_bytes)
        for word in key
        if memory_bytes and (size := host_gpus.gib_of_word(word))
    }
    if len(key) == 1 and host_gpus.gib_of_word(key[0]):
        near = errors.get(key[0], 1.0)
        return (1, -near) if near < host_gpus.MEMORY_TOLERANCE else None
    is_whole = host_gpus.names_model(key, gpu)
    words = gpu if is_whole else tuple(word for word in gpu if word not in errors)
    if any(word not in words and errors.get(word, 1.0) >= host_gpus.MEMORY_TOLERANCE for word in key):
        return None
    return (2 if is_whole else 0, len(set(key)))


def _batches(table: Table, place: Place, problems: Problems) -> tuple[tuple[int | str, ...], tuple[tuple[str, int], ...]]:
    """Return the values of `batch` (numbers, "auto", or a table's default), and the rest of a table."""
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
    if DEFAULT_KEY not in given:
        problems.add(place, "batch", 'the table needs a default: batch = { default = 64, "80GB" = 256 }')
    for key, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= factors.LARGEST:
            problem = f'"{shown(key)}" must be a whole number of at least 1 and at most {factors.LARGEST:,}, not {shown(value)}'
            problems.add(place, "batch", problem)
    others = tuple((key, value) for key, value in given.items() if key != DEFAULT_KEY)
    _check_keys([key for key, _ in others], place, problems)
    return (given.get(DEFAULT_KEY, 1),), others


def _check_keys(keys: Sequence[str], place: Place, problems: Problems) -> None:
    """Check that every key of a batch table names a GPU or a size, and no two the same."""
    first_keys: dict[frozenset[str], str] = {}
    for key in keys:
        words = frozenset(host_gpus.name_words(key))
        if not words:
            problems.add(place, "batch", f'"{shown(key)}" names no GPU and no memory size')
        elif words in first_keys:
            problems.add(place, "batch", f'"{shown(first_keys[words])}" and "{shown(key)}" mean the same')
        first_keys.setdefault(words, key)


def _workload(values: dict[str, Any], model: Model, own: OwnModel | None, batch_for: tuple[tuple[str, int], ...]) -> Workload:
    """Make the workload of one value for each axis; a factor that doesn't apply is None, so that it makes no difference."""
    values = values | {"model": model.name, "optimizer": values["optimizer"] or model.optimizer}
    if model.library == catalog.OPERATIONS:
        values |= {"mode": MICRO, "batch": 1, "parallel": "ddp"}
        values |= {} if "precision" in model.takes else {"precision": "fp32"}
    workload = Workload(
        id="",
        name=values["name"],
        library=model.library,
        unit=model.unit,
        device=values["device"],
        batch_for=batch_for,
        explain=values["explain"],
        stacks=values["stacks"],
        counts=values["counts"] or (),
        factors={
            factor.name: factor.settled(values) if factor.applies(model.takes, values["mode"], values["device"]) else None
            for factor in FACTORS
        },
        own=own,
    )
    return _with_id(workload)


def _with_id(workload: Workload) -> Workload:
    """Return the workload with the id made from its factors: without the model's usual optimizer, and without the batch of a
    microbenchmark.
    """
    values = dict(workload.factors)
    if values["optimizer"] == catalog.usual_optimizer(workload.model):
        values["optimizer"] = None
    if workload.mode == MICRO:
        values["batch"] = None
    return replace(workload, id="-".join(filter(None, (workload.name, factors.id_of(values)))))
