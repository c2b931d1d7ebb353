"""Launches of several machines -> throughput relative to a baseline GPU, only where like stands beside like.

Two machines with one GPU model have a row each and one together. What is said of the model is then said of machines: the
interval is over the machines' figures, since a second machine tells more than any number of launches on the first.
"""

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torchmatrix.analysis import comparable, gpu_specs, same_work
from torchmatrix.analysis.column import Row
from torchmatrix.analysis.comparable import Difference, Refused, StackUsed
from torchmatrix.analysis.fleet_cells import FleetCell, Side, Slot, cells_of, sides_of
from torchmatrix.analysis.fleet_ratios import over_baseline
from torchmatrix.analysis.intervals import UNKNOWN, Interval, Moments, center_interval, moments
from torchmatrix.analysis.means import MeanRatio, mean_ratio
from torchmatrix.analysis.ratios import geometric_means
from torchmatrix.analysis.verdicts import UNTESTED, Chances, Significance, judged
from torchmatrix.ground.errors import BadInput

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
    pairs: tuple["Pair", ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The ratio of a GPU's figure to the baseline's. `sides`: the cells of both; `moments`: over their launches."""

    gpu: str
    count: int
    ratio: float
    sides: tuple[Hashable, Hashable]
    moments: tuple[Moments | None, Moments | None]


def mean_over(pairs: Sequence[Pair], level: Significance) -> MeanRatio:
    """The geometric mean of these ratios, over launches of these machines. Raises ValueError without a pair."""
    known = {side: moments for pair in pairs for side, moments in zip(pair.sides, pair.moments, strict=True)}
    return mean_ratio([(*pair.sides, pair.ratio) for pair in pairs], known, level)


def relative_table(launches: Sequence[Row], baseline: str | None = None, batch: str = "same") -> Relative:
    """Every GPU over the baseline GPU: same workload, as many devices, an equal or an equivalent stack.

    `launches`: as of machines.fleet_rows. `baseline`: a GPU by its short name or a part of it that only one has; without it
    the one that was launched first (gpus.csv), else the first. `batch`: "same", or "own" for each GPU its own: its largest that
    ran. Of several device sets of one size the first that ran is taken; `chosen_of` says of how many cells.

    A row is of one machine (`machine`), or of all `machines` with this GPU together (`machine` is None); `of_gpu` marks the one
    row that stands for its GPU. `ratio` is NaN where there is none, and `why` says why; what only the baseline measured has a
    row too. `level`: what the ratio's interval is over: launches, or machines where both sides have two or more of them. The
    interval of the throughput is over machines if there are several. `verdict`: as of verdicts.judged, corrected for the number
    of rows that stand for their GPU, and separately for that of the others; "" without a ratio and on the baseline's own rows.
    Raises BadInput for a GPU that isn't there.
    """
    cells = cells_of(launches, batch)
    gpus = list(dict.fromkeys(cell.gpu for cell in cells))
    return _relative(cells, gpus, _baseline(gpus, baseline) if baseline else _oldest(launches, gpus), batch)


def relative_to_each(launches: Sequence[Row], batch: str = "same") -> tuple[Relative, ...]:
    """As relative_table, with each GPU as the baseline."""
    cells = cells_of(launches, batch)
    gpus = list(dict.fromkeys(cell.gpu for cell in cells))
    return tuple(_relative(cells, gpus, gpu, batch) for gpu in gpus)


def _relative(cells: Sequence[FleetCell], gpus: Sequence[str], chosen: str, batch: str) -> Relative:
    base = [cell for cell in cells if cell.gpu == chosen]
    at: dict[Slot, list[FleetCell]] = {}
    alike: dict[Slot, list[FleetCell]] = {}
    for cell in base:
        at.setdefault(cell.slot, []).append(cell)
        alike.setdefault(cell.slot_of_any_batch, []).append(cell)
    rows: list[Row] = []
    compared: list[_Compared] = []
    refused: list[Refused] = []
    for gpu in gpus:
        own = [cell for cell in cells if cell.gpu == gpu]
        left = _uncovered(own, base)
        sides = [(side, _counterpart(side.first, at.get(side.first.slot, ()))) for side in sides_of(own)]
        found = [_row(side, other, alike.get(side.first.slot_of_any_batch, ()), left, batch) for side, other in sides]
        rows += [one.row for one in found] + [_absent(gpu, cell) for cell in left]
        compared += found
        refused += comparable.refusals(gpu, chosen, [one.differences for one in found if one.row["of_gpu"]])
    for of_gpu in (True, False):
        _judge([one for one in compared if one.row["of_gpu"] == of_gpu and one.row["level"]])
    pairs = tuple(one.pair for one in compared if one.pair and one.row["gpu"] != chosen)
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
_OF_THE_CELL = ("devices", "batch", "chosen_of")


def _baseline(gpus: Sequence[str], word: str) -> str:
    """Raises BadInput unless `word` names one of the GPUs."""
    exact = [gpu for gpu in gpus if gpu.casefold() == word.casefold()]
    part = re.compile(rf"(?<![^\W_]){re.escape(word)}" + (r"(?!\d)" if word[-1:].isdigit() else ""), re.IGNORECASE)
    found = exact or [gpu for gpu in gpus if part.search(gpu)]  # A10 is no part of A100, H100 SXM is one of H100 SXM5
    if len(found) != 1:
        what = f"{word} names {len(found)} GPUs" if found else f"no GPU {word}"
        raise BadInput(f"{what} to compare with", hint=f"GPUs: {', '.join(found or gpus) or 'none'}")
    return found[0]


def _oldest(launches: Iterable[Row], gpus: Sequence[str]) -> str:
    dates: dict[str, str] = {}
    for row in launches:
        name, memory = row["device_name"] or "", _whole(row["device_memory_bytes"])
        facts = gpu_specs.find(name, memory) if row["gpu"] not in dates else None
        if facts and facts.launch_date:
            dates[row["gpu"]] = facts.launch_date
    return min(gpus, key=lambda gpu: dates.get(gpu, "9999"), default="")


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and value > 0 else None


def _counterpart(own: FleetCell, there: Sequence[FleetCell]) -> list[FleetCell]:
    """Of the baseline's cells in the same slot those to compare with, of one stack and one work; those that ran, if any did."""
    candidates = [cell for cell in there if cell.samples] or list(there)
    nearest = comparable.nearest_stack(own.stack, [cell.stack for cell in candidates])
    if nearest is None:
        return []
    named = [cell for cell in candidates if cell.stack.name == nearest[0].name]
    first = next((cell for cell in named if cell.row["work"] == own.row["work"]), named[0])
    return [cell for cell in named if cell.row["work"] == first.row["work"]]


def _uncovered(own: Sequence[FleetCell], base: Sequence[FleetCell]) -> list[FleetCell]:
    """What ran on the baseline GPU and is not there on another GPU, once for each release of torch."""
    there = {(cell.slot, _stack_class(cell.stack)) for cell in own}
    left = {(cell.slot, _stack_class(cell.stack)): cell for cell in reversed(base) if cell.samples}
    return [cell for key, cell in reversed(left.items()) if key not in there]


def _row(
    side: Side, other: Sequence[FleetCell], alike: Sequence[FleetCell], left: Sequence[FleetCell], batch: str
) -> "_Compared":
    """A side's row over `other`.

    Of the baseline, `alike` are the cells with this job and number of devices; `left` are those that no cell of this GPU meets.
    """
    first = side.first
    why, differences = _why_not(side, other, alike, left, batch)
    found, level, chances = (UNKNOWN, "", UNTESTED) if why else over_baseline(side.ran, other)
    rate = _rate(side)
    row = {
        **_said(first, batch),
        "machine": first.machine if len(side.cells) == 1 else None,
        "machines": len(side.ran),
        "of_gpu": side.of_gpu,
        "n": sum(len(cell.samples) for cell in side.cells),
        "failed": sum(cell.failed for cell in side.cells),
        **{"throughput": rate.value, "low": rate.low, "high": rate.high},
        **_said_of_baseline(other),
        "stack_match": _match(side, other),
        **{"ratio": found.value, "ratio_low": found.low, "ratio_high": found.high},
        "level": level,
        "verdict": "",
        "adjusted_p_value": math.nan,
        "why": why,
    }
    pair = None
    if side.of_gpu and not why:
        sides = tuple(cell for cell in side.ran), tuple(cell for cell in other if cell.samples)
        pair = Pair(
            gpu=first.gpu, count=int(first.row["count"]), ratio=found.value,
            sides=(_names(sides[0]), _names(sides[1])), moments=(_moments(sides[0]), _moments(sides[1])),
        )  # fmt: skip
    return _Compared(row=row, differences=differences, found=found, chances=chances, pair=pair)


def _names(cells: Sequence[FleetCell]) -> Hashable:
    return tuple(sorted((cell.machine, cell.row["cell"]) for cell in cells))


def _moments(cells: Sequence[FleetCell]) -> Moments | None:
    """Of the mean of several machines' figures: its logarithm, its squared error, and the fewest launches of any of them."""
    if any(len(cell.samples) < 2 for cell in cells):
        return None
    total, each = sum(cell.value for cell in cells), [moments(cell.samples, cell.row["statistic"]) for cell in cells]
    error = sum((cell.value / total) ** 2 * one[1] for cell, one in zip(cells, each, strict=True))
    return math.log(total / len(cells)), error, min(one[2] for one in each)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Compared:
    """A row, the fields for which it can't be compared, and its ratio with what its verdict is found by."""

    row: Row
    differences: Sequence[Difference]
    found: Interval
    chances: Chances
    pair: Pair | None


def _judge(compared: Sequence[_Compared]) -> None:
    """Complete rows by their verdicts, corrected for their number."""
    found = judged([one.found for one in compared], [one.chances for one in compared])
    for one, verdict in zip(compared, found, strict=True):
        one.row.update(verdict=verdict.verdict, adjusted_p_value=verdict.adjusted_p_value)


def _absent(gpu: str, base: FleetCell) -> Row:
    """The row of a GPU for what only the baseline measured."""
    figures = ("throughput", "low", "high", "ratio", "ratio_low", "ratio_high", "adjusted_p_value")
    unknown = dict.fromkeys(figures, math.nan)
    said = _said(base, "same" if base.batch is not None else "own") | {
        "gpu": gpu,
        "stack": None,
        "devices": None,
        "chosen_of": 0,
    }
    counts = {"machines": 0, "n": 0, "failed": 0, "of_gpu": True, "machine": None}
    return {
        **said,
        **counts,
        **unknown,
        **_said_of_baseline([base]),
        "stack_match": None,
        "level": "",
        "verdict": "",
        "why": NOT_MEASURED,
    }


def _said(cell: FleetCell, batch: str) -> Row:
    return {
        "gpu": cell.gpu,
        "workload": comparable.name_of(cell.work, None if batch == "own" else cell.row["batch"]),
        **{name: cell.row[name] for name in (*_OF_THE_JOB, *_OF_THE_CELL)},
        "stack": cell.stack.name,
        "stack_class": _stack_class(cell.stack),
    }


def _said_of_baseline(cells: Sequence[FleetCell]) -> Row:
    rate = _rate(Side(cells=tuple(cells), of_gpu=True)) if cells else UNKNOWN
    return {
        "baseline_stack": cells[0].stack.name if cells else None,
        "baseline_batch": cells[0].row["batch"] if cells else None,
        "baseline_machines": sum(bool(cell.samples) for cell in cells),
        "baseline_n": sum(len(cell.samples) for cell in cells),
        "baseline_throughput": rate.value,
    }


def _stack_class(stack: StackUsed) -> str:
    """Stacks that may stand for each other bear one name here."""
    return f"torch {stack.release}" if stack.release else stack.name


def _match(side: Side, other: Sequence[FleetCell]) -> str | None:
    """The weakest match of any two machines of both sides."""
    found = {comparable.stack_match(a.stack, b.stack) for a in side.cells for b in other}
    return next((match for match in (None, comparable.EQUIVALENT, comparable.EQUAL) if match in found), None)


def _rate(side: Side) -> Interval:
    """Over launches for one machine, over machines for several: the mean of their figures."""
    if len(side.ran) < 2:
        return center_interval(side.first.samples, side.first.row["statistic"])
    return center_interval([cell.value for cell in side.ran], "mean")


def _why_not(
    side: Side, other: Sequence[FleetCell], alike: Sequence[FleetCell], left: Sequence[FleetCell], batch: str
) -> tuple[str, Sequence[Difference]]:
    """Why a side has no ratio, "" if it has one; and the fields, if that is the reason."""
    own = side.first
    if not own.samples:
        return str(own.row["outcome"]), ()
    if not other:
        return _why_none(own, alike, left)
    if not other[0].samples:
        return f"baseline: {other[0].row['outcome']}", ()
    found = comparable.differences(own.work, other[0].work, batch)
    counts = [same_work.together(same_work.of_row(cell.row) for cell in cells if cell.samples) for cells in (side.cells, other)]
    return comparable.in_words(found) or same_work.difference(*counts) or "", found


def _why_none(own: FleetCell, alike: Sequence[FleetCell], left: Sequence[FleetCell]) -> tuple[str, Sequence[Difference]]:
    """Why the baseline GPU has no cell for this one: in which field the nearest differ, where there are such."""
    stacks = [cell for cell in alike if comparable.stack_match(own.stack, cell.stack)]
    if stacks:
        ran = [cell.row["batch"] for cell in stacks if cell.samples] or [cell.row["batch"] for cell in stacks]
        batches = ", ".join(map(str, sorted(set(ran), key=lambda batch: (isinstance(batch, str), batch))))
        return f"batch {own.row['batch']}, baseline {batches}", [(comparable.BATCH, str(own.row["batch"]), batches)]
    if alike:
        return f"baseline: no stack with {_stack_class(own.stack)}", ()
    near = [comparable.differences(own.work, cell.work, "own") for cell in left if _is_near(own, cell)]
    found = min((fields for fields in near if len(fields) <= comparable.MOST_DIFFERENCES), key=len, default=[])
    return comparable.in_words(found) or f"baseline: {NOT_MEASURED}", found


def _is_near(own: FleetCell, other: FleetCell) -> bool:
    """Of one model, mode and number of devices, on stacks of one release."""
    same = all(own.row[name] == other.row[name] for name in ("model", "mode", "count"))
    return same and comparable.stack_match(own.stack, other.stack) is not None


def _counted(whys: Iterable[str]) -> str:
    """Such as "3 not measured, 1 oom"."""
    counts: dict[str, int] = {}
    for why in filter(None, whys):
        counts[why] = counts.get(why, 0) + 1
    return ", ".join(f"{number} {why}" for why, number in counts.items())
