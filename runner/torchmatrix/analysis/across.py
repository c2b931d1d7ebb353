"""Launches of several machines -> throughput relative to a baseline GPU, only where like stands beside like.

Two machines with one GPU model have a row each and one together. What is said of the model is then said of machines: the
interval is over the machines' figures, since a second machine tells more than any number of launches on the first.
"""

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.intervals import UNKNOWN, Interval, Moments, center_interval, mean_of
from torchmatrix.analysis.pairs import ITSELF, Pair, pair, pair_over_sum
from torchmatrix.analysis.pairs import pair as pair_of
from torchmatrix.analysis.rows import (
    BATCH,
    EQUAL,
    EQUIVALENT,
    MOST_DIFFERENCES,
    Difference,
    Refused,
    Row,
    StackUsed,
    counted_difference,
    counted_of_row,
    counted_together,
    name_of,
    nearest_stack,
    refusal_in_words,
    refusals,
    stack_match,
    work_differences,
)
from torchmatrix.analysis.speedups import geometric_means
from torchmatrix.analysis.verdicts import MeanRatio, Significance, as_mean, judged, mean_of_machines, mean_ratio
from torchmatrix.core.errors import BadInput

# Cells of several machines -> those to compare: one for each machine, stack, job and number of devices.

Slot = tuple[Any, ...]
"""Workload settings, batch (None where each GPU may have its own) and number of devices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A cell that a ratio may be of. `chosen_of`: how many cells it stands for. Two GPUs' cells meet in one `slot`."""

    cell: Cell
    slot: Slot
    chosen_of: int = 1

    @property
    def slot_of_any_batch(self) -> Slot:
        job, _, count = self.slot
        return (job, None, count)

    @property
    def ran(self) -> bool:
        return bool(self.cell.samples)


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """What one row is of: cells of several machines with one GPU model, of one work, or a single cell."""

    every: tuple[Candidate, ...]
    of_gpu: bool

    @property
    def ran(self) -> list[Cell]:
        return [one.cell for one in self.every if one.ran]

    @property
    def first(self) -> Candidate:
        return next((one for one in self.every if one.ran), self.every[0])

    @property
    def rate(self) -> Interval:
        """Over launches for one machine, over machines for several: the mean of their figures."""
        if len(self.ran) < 2:
            return self.first.cell.estimate()
        return center_interval([cell.estimate().value for cell in self.ran], "mean")


def candidates_of(cells: CellIndex, batch: str) -> list[Candidate]:
    """One per machine, stack, job and number of devices (and batch, unless each GPU has its own)."""
    found: dict[tuple[Any, ...], list[Candidate]] = {}
    for cell in cells.figures:
        slot = (cell.job, None if batch == "own" else cell.last["batch"], cell["count"])
        found.setdefault((cell.machine, cell.stack.name, slot), []).append(Candidate(cell=cell, slot=slot))
    return [_first(some) for some in found.values()]


def _first(some: Sequence[Candidate]) -> Candidate:
    """Of cells that only one may stand for: one that ran, of those the largest batch, of those the first."""

    def rank(one: Candidate) -> tuple[bool, int]:
        batch = one.cell.last["batch"]
        return one.ran, batch if isinstance(batch, int) else 0

    chosen = max(some, key=rank)
    return Candidate(cell=chosen.cell, slot=chosen.slot, chosen_of=len(some))


def sides_of(some: Iterable[Candidate]) -> list[Side]:
    """Of one GPU: the cells of all machines that did the same work, then each alone. Who failed stands with the first."""
    groups: dict[tuple[Any, ...], dict[str, list[Candidate]]] = {}
    for one in sorted(some, key=lambda one: not one.ran):
        works = groups.setdefault((one.cell.stack.name, one.slot), {})
        work = one.cell.last["work"] if one.ran else next(iter(works), one.cell.last["work"])
        works.setdefault(work, []).append(one)
    found = []
    for group in (group for works in groups.values() for group in works.values()):
        found.append(Side(every=tuple(group), of_gpu=True))
        found += [Side(every=(one,), of_gpu=False) for one in group if len(group) > 1]
    return found


# The figure of one GPU model's machines over that of another's.

LAUNCHES, MACHINES = "launches", "machines"
"""What an interval is over: the launches of these very machines, or machines of this GPU model."""


def over_baseline(own: Sequence[Cell], base: Sequence[Cell]) -> tuple[Pair, str]:
    """The ratio, and what its interval is over; "" where it needs none.

    Both sides with several machines: over their figures (Welch). Otherwise over launches: the mean of the machines' figures
    with the launches' errors only, which says nothing of further machines. One of several baseline machines has no interval,
    since it is on both sides.
    """
    shared = {id(cell) for cell in own} & {id(cell) for cell in base}
    if len(shared) == len(own) == len(base):
        return ITSELF, ""
    if shared:
        return Pair(value=own[0].estimate().value / _mean(base)), ""
    if len(own) > 1 and len(base) > 1:
        above, below = ([cell.estimate().value for cell in side] for side in (own, base))
        return pair(above, below), MACHINES
    if len(base) > 1:
        return _over_mean(own[0], base), LAUNCHES
    if len(own) > 1:
        return _over_mean(base[0], own).inverse, LAUNCHES
    return own[0].over(base[0]), LAUNCHES


def _over_mean(one: Cell, several: Sequence[Cell]) -> Pair:
    """One machine's figure over the mean of several machines' figures."""
    above, parts = one.moments(), [cell.moments() for cell in several]
    if above and all(parts):
        return pair_over_sum(above, [part for part in parts if part]).scaled(len(several))
    return Pair(value=one.estimate().value / _mean(several))


def _mean(cells: Sequence[Cell]) -> float:
    return sum(cell.estimate().value for cell in cells) / len(cells)


NOT_MEASURED = "not measured"


@dataclass(frozen=True, kw_only=True, slots=True)
class Relative:
    """`table`: its rows. `baseline`: the GPU. `batch`: same or own. `refused`: what is not compared, and why.

    `pairs`: the ratios of the rows that stand for their GPUs, without the baseline's own.
    """

    table: list[Row]
    baseline: str
    batch: str
    refused: tuple[Refused, ...]
    pairs: tuple["OfGpu", ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class OfGpu:
    """The ratio of a GPU's figure to the baseline's. `sides`: the cells of both; `moments`: over their launches; `machines`: of
    both the logarithm of each machine's figure."""

    gpu: str
    count: int
    ratio: float
    sides: tuple[Hashable, Hashable]
    moments: tuple[Moments | None, Moments | None]
    machines: tuple[Mapping[str, float], Mapping[str, float]]


def mean_over(pairs: Sequence[OfGpu], level: Significance) -> MeanRatio:
    """The geometric mean of these ratios. Over machines where two or more of both GPUs measured all of them: each machine then
    counts once, by its own mean, since its cells share it. Else over launches of these machines. Raises ValueError without a
    pair."""
    sides = [[pair.machines[side] for pair in pairs] for side in (0, 1)]
    several = [all(each.keys() == side[0].keys() and len(each) > 1 for each in side) for side in sides if side]
    if several and all(several):
        own, base = ([math.exp(mean_of([each[name] for each in side])) for name in side[0]] for side in sides)
        return as_mean(pair_of(own, base), [one.ratio for one in pairs], level)
    known = {side: moments for pair in pairs for side, moments in zip(pair.sides, pair.moments, strict=True)}
    return mean_ratio([(*pair.sides, pair.ratio) for pair in pairs], known, level)


def relative_table(cells: CellIndex, baseline: str | None = None, batch: str = "same") -> Relative:
    """Every GPU over the baseline GPU: same workload, as many devices, an equal or an equivalent stack.

    `cells`: of machines.fleet_rows. `baseline`: a GPU by its short name or a part of it that only one has; without it
    the one that was launched first (gpus.csv), else the first. `batch`: "same", or "own" for each GPU its own: its largest that
    ran. Of several device sets of one size the first that ran is taken; `chosen_of` says of how many cells.

    A row is of one machine (`machine`), or of all `machines` with this GPU together (`machine` is None); `of_gpu` marks the one
    row that stands for its GPU. `ratio` is NaN where there is none, and `why` says why; what only the baseline measured has a
    row too. `level`: what the ratio's interval is over: launches, or machines where both sides have two or more of them. The
    interval of the throughput is over machines if there are several. `verdict`: as of verdicts.judged, corrected for the number
    of rows that stand for their GPU, and separately for that of the others; "" without a ratio and on the baseline's own rows.
    Raises BadInput for a GPU that isn't there.
    """
    some = candidates_of(cells, batch)
    gpus = _gpus(some)
    return _relative(some, gpus, _baseline(gpus, baseline) if baseline else _oldest(cells, gpus), batch)


def relative_to_each(cells: CellIndex, batch: str = "same") -> tuple[Relative, ...]:
    """As relative_table, with each GPU as the baseline."""
    some = candidates_of(cells, batch)
    gpus = _gpus(some)
    return tuple(_relative(some, gpus, gpu, batch) for gpu in gpus)


def _gpus(some: Iterable[Candidate]) -> list[str]:
    return list(dict.fromkeys(str(one.cell["gpu"]) for one in some))


def _relative(some: Sequence[Candidate], gpus: Sequence[str], chosen: str, batch: str) -> Relative:
    base = [one for one in some if one.cell["gpu"] == chosen]
    at: dict[Slot, list[Cell]] = {}
    alike: dict[Slot, list[Cell]] = {}
    for one in base:
        at.setdefault(one.slot, []).append(one.cell)
        alike.setdefault(one.slot_of_any_batch, []).append(one.cell)
    rows: list[Row] = []
    compared: list[_Compared] = []
    refused: list[Refused] = []
    for gpu in gpus:
        own = [one for one in some if one.cell["gpu"] == gpu]
        left = _uncovered(own, base)
        sides = [(side, _counterpart(side.first.cell, at.get(side.first.slot, ()))) for side in sides_of(own)]
        found = [_row(side, other, alike.get(side.first.slot_of_any_batch, ()), left, batch) for side, other in sides]
        rows += [one.row for one in found] + [_absent(gpu, cell, batch) for cell in left]
        compared += found
        refused += refusals(gpu, chosen, [one.differences for one in found if one.row["of_gpu"]])
    for of_gpu in (True, False):
        _judge([one for one in compared if one.row["of_gpu"] == of_gpu and one.row["level"]])
    pairs = tuple(one.of_gpu for one in compared if one.of_gpu and one.row["gpu"] != chosen)
    return Relative(table=rows, baseline=chosen, batch=batch, refused=tuple(refused), pairs=pairs)


def relative_means(relative: Sequence[Row], by: Sequence[str] = ("gpu", "count")) -> list[Row]:
    """Geometric means of the ratios of the rows that stand for their GPUs, one row per combination of the columns `by`.

    `n` ratios are in it; `missing` have none, and `missing_why` says how many for which reason. They have no interval.
    """
    rows = [row for row in relative if row["of_gpu"]]
    whys: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        whys.setdefault(tuple(row[name] for name in by), []).append(row["why"])
    return [
        row | {"missing": row["failed"], "missing_why": _counted(whys[tuple(row[name] for name in by)])}
        for row in geometric_means(rows, by)
    ]


_OF_THE_JOB = ("model", "mode", "precision", "compile", "unit", "count")


def _baseline(gpus: Sequence[str], word: str) -> str:
    """Raises BadInput unless `word` names one of the GPUs."""
    exact = [gpu for gpu in gpus if gpu.casefold() == word.casefold()]
    part = re.compile(rf"(?<![^\W_]){re.escape(word)}" + (r"(?!\d)" if word[-1:].isdigit() else ""), re.IGNORECASE)
    found = exact or [gpu for gpu in gpus if part.search(gpu)]  # A10 is no part of A100, H100 SXM is one of H100 SXM5
    if len(found) != 1:
        what = f"{word} names {len(found)} GPUs" if found else f"no GPU {word}"
        raise BadInput(f"{what} to compare with", hint=f"GPUs: {', '.join(found or gpus) or 'none'}")
    return found[0]


def _oldest(cells: CellIndex, gpus: Sequence[str]) -> str:
    dates: dict[str, str] = {}
    for row in (row for cell in cells.every for row in cell.launches):
        name, memory = row["device_name"] or "", _whole(row["device_memory_bytes"])
        facts = gpu_specs.find(name, memory) if row["gpu"] not in dates else None
        if facts and facts.launch_date:
            dates[row["gpu"]] = facts.launch_date
    return min(gpus, key=lambda gpu: dates.get(gpu, "9999"), default="")


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and value > 0 else None


def _counterpart(own: Cell, there: Sequence[Cell]) -> list[Cell]:
    """Of the baseline's cells in the same slot those to compare with, of one stack and one work; those that ran, if any did."""
    candidates = [cell for cell in there if cell.samples] or list(there)
    nearest = nearest_stack(own.stack, [cell.stack for cell in candidates])
    if nearest is None:
        return []
    named = [cell for cell in candidates if cell.stack.name == nearest[0].name]
    first = next((cell for cell in named if cell.last["work"] == own.last["work"]), named[0])
    return [cell for cell in named if cell.last["work"] == first.last["work"]]


def _uncovered(own: Sequence[Candidate], base: Sequence[Candidate]) -> list[Cell]:
    """What ran on the baseline GPU and is not there on another GPU, once for each release of torch."""
    there = {(one.slot, _stack_class(one.cell.stack)) for one in own}
    left = {(one.slot, _stack_class(one.cell.stack)): one.cell for one in reversed(base) if one.ran}
    return [cell for key, cell in reversed(left.items()) if key not in there]


def _row(side: Side, other: Sequence[Cell], alike: Sequence[Cell], left: Sequence[Cell], batch: str) -> "_Compared":
    """A side's row over `other`.

    Of the baseline, `alike` are the cells with this job and number of devices; `left` are those that no cell of this GPU meets.
    """
    first = side.first.cell
    why, differences = _why_not(side, other, alike, left, batch)
    pair, level = (Pair(why_not=why), "") if why else over_baseline(side.ran, other)
    rate, ratio = side.rate, pair.interval
    row = {
        **_said(first, batch),
        "chosen_of": side.first.chosen_of,
        "machine": first.machine if len(side.every) == 1 else None,
        "machines": len(side.ran),
        "of_gpu": side.of_gpu,
        "n": sum(len(one.cell.samples) for one in side.every),
        "failed": sum(one.cell.failed for one in side.every),
        **{"throughput": rate.value, "low": rate.low, "high": rate.high},
        **_said_of_baseline(other),
        "stack_match": _match(side, other),
        **{"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high},
        "level": level,
        "verdict": "",
        "adjusted_p_value": math.nan,
        "why": why,
    }
    of_gpu = None
    if side.of_gpu and not why:
        sides = side.ran, [cell for cell in other if cell.samples]
        of_gpu = OfGpu(
            gpu=first["gpu"], count=int(first["count"]), ratio=pair.value,
            sides=(_names(sides[0]), _names(sides[1])), moments=(_moments(sides[0]), _moments(sides[1])),
            machines=(_by_machine(sides[0]), _by_machine(sides[1])),
        )  # fmt: skip
    return _Compared(row=row, differences=differences, pair=pair, of_gpu=of_gpu)


def _names(cells: Sequence[Cell]) -> Hashable:
    return tuple(sorted((cell.machine, cell["cell"]) for cell in cells))


def _by_machine(cells: Sequence[Cell]) -> dict[str, float]:
    return {cell.machine: mean_of([math.log(rate) for rate in cell.samples]) for cell in cells}


def _moments(cells: Sequence[Cell]) -> Moments | None:
    """Of the mean of several machines' figures, with the fewest degrees of freedom of any of them."""
    each = [one for cell in cells if (one := cell.moments())]
    return mean_of_machines(each) if len(each) == len(cells) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Compared:
    """A row, the fields for which it can't be compared, and its ratio; `of_gpu`: where it stands for its GPU."""

    row: Row
    differences: Sequence[Difference]
    pair: Pair
    of_gpu: OfGpu | None


def _judge(compared: Sequence[_Compared]) -> None:
    """Complete rows by their verdicts, corrected for their number."""
    for one, verdict in zip(compared, judged([one.pair for one in compared]), strict=True):
        one.row.update(verdict=verdict.verdict, adjusted_p_value=verdict.adjusted_p_value)


def _absent(gpu: str, base: Cell, batch: str) -> Row:
    """The row of a GPU for what only the baseline measured."""
    figures = ("throughput", "low", "high", "ratio", "ratio_low", "ratio_high", "adjusted_p_value")
    unknown = dict.fromkeys(figures, math.nan)
    said = _said(base, batch) | {"gpu": gpu, "stack": None, "devices": None, "chosen_of": 0}
    counts = {"machines": 0, "n": 0, "failed": 0, "of_gpu": True, "machine": None}
    left = {"stack_match": None, "level": "", "verdict": "", "why": NOT_MEASURED}
    return said | counts | unknown | _said_of_baseline([base]) | left


def _said(cell: Cell, batch: str) -> Row:
    return {
        "gpu": cell["gpu"],
        "workload": name_of(cell.work, None if batch == "own" else cell.last["batch"]),
        **{name: cell.last[name] for name in (*_OF_THE_JOB, "devices", "batch")},
        "stack": cell.stack.name,
        "stack_class": _stack_class(cell.stack),
    }


def _said_of_baseline(cells: Sequence[Cell]) -> Row:
    rate = _side(cells).rate if cells else UNKNOWN
    return {
        "baseline_stack": cells[0].stack.name if cells else None,
        "baseline_batch": cells[0].last["batch"] if cells else None,
        "baseline_machines": sum(bool(cell.samples) for cell in cells),
        "baseline_n": sum(len(cell.samples) for cell in cells),
        "baseline_throughput": rate.value,
    }


def _side(cells: Sequence[Cell]) -> Side:
    return Side(every=tuple(Candidate(cell=cell, slot=()) for cell in cells), of_gpu=True)


def _stack_class(stack: StackUsed) -> str:
    """Stacks that may stand for each other bear one name here."""
    return f"torch {stack.release}" if stack.release else stack.name


def _match(side: Side, other: Sequence[Cell]) -> str | None:
    """The weakest match of any two machines of both sides."""
    found = {stack_match(a.stack, b.stack) for a in (one.cell for one in side.every) for b in other}
    return next((match for match in (None, EQUIVALENT, EQUAL) if match in found), None)


def _why_not(
    side: Side, other: Sequence[Cell], alike: Sequence[Cell], left: Sequence[Cell], batch: str
) -> tuple[str, Sequence[Difference]]:
    """Why a side has no ratio, "" if it has one; and the fields, if that is the reason."""
    own = side.first.cell
    if not own.samples:
        return str(own.last["outcome"]), ()
    if not other:
        return _why_none(own, alike, left)
    if not other[0].samples:
        return f"baseline: {other[0].last['outcome']}", ()
    found = work_differences(own.work, other[0].work, batch)
    counts = [counted_together(counted_of_row(cell.last) for cell in cells) for cells in (side.ran, other)]
    return refusal_in_words(found) or counted_difference(*counts) or "", found


def _why_none(own: Cell, alike: Sequence[Cell], left: Sequence[Cell]) -> tuple[str, Sequence[Difference]]:
    """Why the baseline GPU has no cell for this one: in which field the nearest differ, where there are such."""
    stacks = [cell for cell in alike if stack_match(own.stack, cell.stack)]
    if stacks:
        ran = [cell.last["batch"] for cell in stacks if cell.samples] or [cell.last["batch"] for cell in stacks]
        batches = ", ".join(map(str, sorted(set(ran), key=lambda batch: (isinstance(batch, str), batch))))
        return f"batch {own.last['batch']}, baseline {batches}", [(BATCH, str(own.last["batch"]), batches)]
    if alike:
        return f"baseline: no stack with {_stack_class(own.stack)}", ()
    near = [work_differences(own.work, cell.work, "own") for cell in left if _is_near(own, cell)]
    found = min((fields for fields in near if len(fields) <= MOST_DIFFERENCES), key=len, default=[])
    return refusal_in_words(found) or f"baseline: {NOT_MEASURED}", found


def _is_near(own: Cell, other: Cell) -> bool:
    """Of one model, mode and number of devices, on stacks of one release."""
    same = all(own.last[name] == other.last[name] for name in ("model", "mode", "count"))
    return same and stack_match(own.stack, other.stack) is not None


def _counted(whys: Iterable[str]) -> str:
    """Such as "3 not measured, 1 oom"."""
    counts: dict[str, int] = {}
    for why in filter(None, whys):
        counts[why] = counts.get(why, 0) + 1
    return ", ".join(f"{number} {why}" for why, number in counts.items())
