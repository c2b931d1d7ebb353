"""Launches of several machines -> throughput relative to a baseline GPU, only where the same work was done.

Two machines with one GPU model have a row each and one together. The joint row's interval is over the machines' figures, since
a second machine tells more about the model than any number of launches on the first.
"""

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import Struct, structs

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.cells import Cell, CellIndex
from torchmatrix.analysis.centers import mean_of, variance_of
from torchmatrix.analysis.intervals import Interval, Moments, center_interval, geometric_mean
from torchmatrix.analysis.pairs import ITSELF, Pair, pair, pair_over_sum
from torchmatrix.analysis.rows import (
    BATCH,
    EQUAL,
    EQUIVALENT,
    MOST_DIFFERENCES,
    Difference,
    FleetRow,
    Refused,
    StackUsed,
    counted_difference,
    counted_of_row,
    counted_together,
    group_by,
    name_of,
    nearest_stack,
    refusal_in_words,
    refusals,
    stack_match,
    task_of,
    work_differences,
)
from torchmatrix.analysis.verdicts import (
    MeanRatio,
    Significance,
    as_mean,
    judged,
    mean_of_machines,
    mean_of_ratios,
    significance_of,
)
from torchmatrix.core.errors import BadInput

# Choose the cells to compare: one for each machine, stack, job and number of devices.

Slot = tuple[Any, ...]
"""Workload settings, batch (None where each GPU may have its own) and number of devices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A cell that may get a ratio. `chosen_of`: how many cells it stands for. Cells of two GPUs are compared by `slot`."""

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
    """What one row is about: cells of several machines with one GPU model that did the same work, or a single cell."""

    every: tuple[Candidate, ...]
    of_gpu: bool

    @property
    def ran(self) -> list[Cell]:
        return [candidate.cell for candidate in self.every if candidate.ran]

    @property
    def first(self) -> Candidate:
        return next((candidate for candidate in self.every if candidate.ran), self.every[0])

    @property
    def rate(self) -> Interval:
        """Return the estimate over launches for one machine; for several, the mean of the machines' figures, over machines."""
        return _rate([candidate.cell for candidate in self.every])


def _rate(cells: Sequence[Cell]) -> Interval:
    """Return the rate of the cells of one side (see Side.rate)."""
    ran = [cell for cell in cells if cell.samples]
    if len(ran) < 2:
        return (ran or cells)[0].estimate()
    return center_interval([cell.estimate().value for cell in ran], "mean")


def candidates_of(cells: CellIndex, batch: str) -> list[Candidate]:
    """Return one candidate per machine, stack, job and number of devices (and batch, unless each GPU has its own)."""
    candidates = [
        Candidate(cell=cell, slot=(cell.job, None if batch == "own" else cell.last.batch, cell.row.count))
        for cell in cells.figures
    ]
    groups = group_by(candidates, lambda candidate: (candidate.cell.machine, candidate.cell.stack.name, candidate.slot))
    return [_representative(group) for group in groups.values()]


def _representative(candidates: Sequence[Candidate]) -> Candidate:
    """Return the cell that stands for all `candidates`: one that ran; of those the largest batch; of those the first."""

    def rank(candidate: Candidate) -> tuple[bool, int]:
        batch = candidate.cell.last.batch
        return candidate.ran, batch if isinstance(batch, int) else 0

    chosen = max(candidates, key=rank)
    return Candidate(cell=chosen.cell, slot=chosen.slot, chosen_of=len(candidates))


def sides_of(candidates: Iterable[Candidate]) -> list[Side]:
    """Return the sides of one GPU: cells of all machines with the same work, then each alone. Failed cells join the first."""
    groups: dict[tuple[Any, ...], dict[str, list[Candidate]]] = {}
    for candidate in sorted(candidates, key=lambda candidate: not candidate.ran):
        works = groups.setdefault((candidate.cell.stack.name, candidate.slot), {})
        work = candidate.cell.last.work if candidate.ran else next(iter(works), candidate.cell.last.work)
        works.setdefault(work, []).append(candidate)
    sides = []
    for group in (group for works in groups.values() for group in works.values()):
        sides.append(Side(every=tuple(group), of_gpu=True))
        sides += [Side(every=(candidate,), of_gpu=False) for candidate in group if len(group) > 1]
    return sides


# Ratios of one GPU model's machines to another's.

LAUNCHES, MACHINES = "launches", "machines"
"""What an interval is over: the launches of these very machines, or machines of this GPU model."""


def over_baseline(cells: Sequence[Cell], base: Sequence[Cell]) -> tuple[Pair, str]:
    """Return the ratio, and what its interval is over ("" where it needs none).

    With several machines on both sides: over their figures (Welch). Otherwise over launches: the mean of the machines' figures
    with the launches' errors only, which says nothing of further machines. The ratio of one of several baseline machines has no
    interval, since that machine is on both sides.
    """
    shared = {id(cell) for cell in cells} & {id(cell) for cell in base}
    if len(shared) == len(cells) == len(base):
        return ITSELF, ""
    if shared:
        return Pair(value=_figure(cells[0]) / _mean(base)), ""
    if len(cells) > 1 and len(base) > 1:
        above, below = (list(map(_figure, side)) for side in (cells, base))
        is_disturbed = [any(cell.disturbed for cell in side) for side in (cells, base)]
        looks = max(cell.looks for cell in (*cells, *base))
        return replace(pair(above, below), disturbed=is_disturbed[0] != is_disturbed[1], looks=looks), MACHINES
    if len(base) > 1:
        return _over_mean(cells[0], base), LAUNCHES
    if len(cells) > 1:
        return _over_mean(base[0], cells).inverse, LAUNCHES
    return cells[0].over(base[0]), LAUNCHES


def _over_mean(cell: Cell, others: Sequence[Cell]) -> Pair:
    """Return one machine's figure over the mean of several machines' figures."""
    above, parts = cell.moments(), [other.moments() for other in others]
    if above and all(parts):
        return pair_over_sum(above, [part for part in parts if part]).scaled(len(others))
    return Pair(value=_figure(cell) / _mean(others))


def _mean(cells: Sequence[Cell]) -> float:
    return sum(map(_figure, cells)) / len(cells)


def _figure(cell: Cell) -> float:
    """Return the figure of a machine in a ratio: the geometric mean of its launches, as in all ratios (pairs.py)."""
    return geometric_mean(cell.samples).value


NOT_MEASURED = "not measured"
ALONE = Significance()


class RelativeRow(FleetRow, frozen=True, kw_only=True):
    """A row of relative_table. `of_gpu`: whether it stands for its GPU; `chosen_of`: for how many cells. The interval of the
    throughput is over machines if there are several; `level`: what that of the ratio is over.
    """

    of_gpu: bool
    chosen_of: int
    failed: int
    baseline_stack: str | None
    baseline_batch: int | str | None
    baseline_machines: int
    baseline_n: int
    baseline_throughput: float
    baseline_work: str | None
    stack_match: str | None
    ratio: float = math.nan
    ratio_low: float = math.nan
    ratio_high: float = math.nan
    level: str = ""
    verdict: str = ""
    adjusted_p_value: float = math.nan


class RelativeMean(Struct, frozen=True, kw_only=True):
    """The geometric mean of a GPU's `n` ratios on `count` devices, without an interval. `missing` have none; `missing_why` says
    how many for which reason.
    """

    gpu: str
    count: int
    ratio: float
    n: int
    missing: int
    missing_why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Relative:
    """The table of ratios to a GPU. `table`: its rows. `baseline`: the GPU. `batch`: same or own. `refused`: what is not
    compared, and why. `pairs`: the ratios of the rows that stand for their GPUs, without the baseline's own; `significance`: at
    which they are judged.
    """

    table: list[RelativeRow]
    baseline: str
    batch: str
    refused: tuple[Refused, ...]
    pairs: tuple["OfGpu", ...] = ()
    significance: Significance = ALONE


@dataclass(frozen=True, kw_only=True, slots=True)
class OfGpu:
    """The ratio of a GPU's figure to the baseline's, with the cells of both `sides` that ran; `verdict`: as in the table;
    `workload`: its name, without the stack.
    """

    gpu: str
    count: int
    pair: Pair
    sides: tuple[tuple[Cell, ...], tuple[Cell, ...]]
    slot: Slot
    verdict: str = ""
    workload: str = ""

    @property
    def is_over_machines(self) -> bool:
        """Check whether both sides have several machines, over which its interval is."""
        return all(len(side) > 1 for side in self.sides) and not math.isnan(self.pair.error)

    @property
    def machines(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the machines of both sides."""
        above, below = (frozenset(cell.machine for cell in side) for side in self.sides)
        return above, below

    def of_machine(self, side: int, name: str) -> float:
        """Return the logarithm of a machine's figure."""
        return math.log(geometric_mean([_figure(cell) for cell in self.sides[side] if cell.machine == name]).value)


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuMean:
    """The geometric mean of a GPU's ratios to another one as a Pair; `of`: the ratios that count in it."""

    pair: Pair
    of: tuple[OfGpu, ...]

    @property
    def inverse(self) -> "GpuMean":
        """Return that of the other GPU to this one."""
        swapped = {"FASTER": "SLOWER", "SLOWER": "FASTER"}
        of = (
            replace(item, pair=item.pair.inverse, sides=item.sides[::-1], verdict=swapped.get(item.verdict, item.verdict))
            for item in self.of
        )
        return GpuMean(pair=self.pair.inverse, of=tuple(of))

    @property
    def workloads(self) -> int:
        """Return how many workloads it is of: one may have been measured on several stacks."""
        return len({item.workload for item in self.of})

    @property
    def disagrees(self) -> bool:
        """Check whether the GPU is faster in some of the workloads and slower in others."""
        return {"FASTER", "SLOWER"} <= {item.verdict for item in self.of}

    def count(self, verdict: str) -> int:
        """Return in how many of the workloads there is this verdict."""
        return sum(item.verdict == verdict for item in self.of)

    def at(self, level: Significance) -> MeanRatio:
        """Return it with its verdict at this level."""
        return as_mean(self.pair, [item.pair.value for item in self.of], level)


def mean_over(pairs: Sequence[OfGpu]) -> GpuMean:
    """Return the geometric mean of these ratios; that of one is the ratio itself.

    It is over machines where several of both GPUs measured one of them: each machine then counts once, by its own mean, since
    its cells share it, and only the ratios count that all these machines measured. Where none is of all machines, the ratios
    err together (_erring_together). Otherwise it is over launches of these machines. Raises ValueError without a pair.
    """
    every = [frozenset[str]().union(*(item.machines[side] for item in pairs)) for side in (0, 1)]
    common = tuple(item for item in pairs if item.machines == (every[0], every[1]))
    is_over_machines = bool(common) and all(len(names) > 1 for names in every)
    counted = common if is_over_machines else tuple(pairs)
    if len(counted) == 1:
        return GpuMean(pair=counted[0].pair, of=counted)
    if not is_over_machines and any(item.is_over_machines for item in counted):
        return GpuMean(pair=_erring_together(counted), of=counted)
    if not is_over_machines:
        moments = {_names(side): _moments(side) for item in pairs for side in item.sides}
        ratios = [(_names(item.sides[0]), _names(item.sides[1]), item.pair.value) for item in pairs]
        return GpuMean(pair=mean_of_ratios(ratios, moments), of=counted)
    above, below = (
        [math.exp(mean_of([item.of_machine(side, name) for item in common])) for name in sorted(every[side])] for side in (0, 1)
    )
    is_disturbed, looks = any(item.pair.disturbed for item in common), max(item.pair.looks for item in common)
    return GpuMean(pair=replace(pair(above, below), disturbed=is_disturbed, looks=looks), of=counted)


def _erring_together(items: Sequence[OfGpu]) -> Pair:
    """Return the mean of ratios, some of which are over machines that they share in part: their errors are taken to be one.
    That of a ratio of single machines is by how much one machine differs from others of its GPU, as the others show.
    """
    known = [item.pair for item in items if item.is_over_machines]
    apart = [
        mean_of([
            variance_of([item.of_machine(side, name) for name in item.machines[side]])
            for item in items if len(item.machines[side]) > 1
        ])
        for side in (0, 1)
    ]  # fmt: skip

    def error_of(item: OfGpu) -> float:
        if item.is_over_machines:
            return item.pair.error
        by_machines = math.sqrt(sum(apart[side] / len(item.machines[side]) for side in (0, 1)))
        return by_machines if math.isnan(item.pair.error) else max(by_machines, item.pair.error)

    log = mean_of([math.log(item.pair.value) for item in items])
    return Pair(
        value=math.exp(log), log=log, error=mean_of(list(map(error_of, items))), freedom=min(pair.freedom for pair in known),
        disturbed=any(item.pair.disturbed for item in items), looks=max(item.pair.looks for item in items),
    )  # fmt: skip


def relative_table(cells: CellIndex, baseline: str | None = None, batch: str = "same") -> Relative:
    """Compare every GPU with the baseline GPU: same workload, same number of devices, an equal or an equivalent stack.

    `cells`: of machines.fleet_rows. `baseline`: a GPU by its short name or an unambiguous part of it; by default, of those with
    a workload in common with another, the GPU that was released first (gpus.csv), else the first. `batch`: "same", or "own":
    each GPU's largest batch that ran. Of several device sets of one size the first that ran is taken; `chosen_of` says of how
    many cells.

    A row is about one machine, or about all with this GPU together. `ratio` is NaN where there is none, and `why` says why;
    what only the baseline measured has a row too. `level`: launches, or machines where both sides have two or more of them.
    `verdict`: see verdicts.judged, corrected for the
    number of rows that stand for their GPU, and separately for that of the others; "" without a ratio and on the baseline's own
    rows. Raises BadInput for an unknown GPU.
    """
    candidates = candidates_of(cells, batch)
    gpus = _gpus(candidates)
    if baseline:
        return _relative(candidates, gpus, _baseline(gpus, baseline), batch)
    oldest = _by_age(cells, gpus)
    each = (_relative(candidates, gpus, gpu, batch) for gpu in oldest)
    return next((relative for relative in each if relative.pairs), _relative(candidates, gpus, oldest[0], batch))


def relative_to_each(cells: CellIndex, batch: str = "same") -> tuple[Relative, ...]:
    """Return relative_table with each GPU as the baseline."""
    candidates = candidates_of(cells, batch)
    gpus = _gpus(candidates)
    return tuple(_relative(candidates, gpus, gpu, batch) for gpu in gpus)


def _gpus(candidates: Iterable[Candidate]) -> list[str]:
    """Return the GPUs of the candidates, each once, in order."""
    return list(dict.fromkeys(candidate.cell.row.gpu for candidate in candidates))


def _relative(candidates: Sequence[Candidate], gpus: Sequence[str], baseline: str, batch: str) -> Relative:
    """Compare the candidates of every GPU with those of the GPU `baseline`."""
    base = [candidate for candidate in candidates if candidate.cell.row.gpu == baseline]
    by_slot = group_by(base, lambda candidate: candidate.slot)
    by_job = group_by(base, lambda candidate: candidate.slot_of_any_batch)
    compared: list[_Compared] = []
    refused: list[Refused] = []
    for gpu in gpus:
        of_this_gpu = [candidate for candidate in candidates if candidate.cell.row.gpu == gpu]
        uncovered = _uncovered(of_this_gpu, base)
        new = []
        for side in sides_of(of_this_gpu):
            slot_cells = [candidate.cell for candidate in by_slot.get(side.first.slot, ())]
            alike = [candidate.cell for candidate in by_job.get(side.first.slot_of_any_batch, ())]
            new.append(_row(side, _counterpart(side.first.cell, slot_cells), alike, uncovered, batch))
        compared += [*new, *(_absent(gpu, cell, batch) for cell in uncovered)]
        refused += refusals(gpu, baseline, [item.differences for item in new if item.row.of_gpu])
    table = [item.row for item in compared]
    level = significance_of([item.pair.chances for item in compared if item.row.of_gpu and item.row.level])
    for of_gpu in (True, False):
        family = [place for place, row in enumerate(table) if row.of_gpu == of_gpu and row.level]
        for place, told in zip(family, judged([compared[place].pair for place in family]), strict=True):
            table[place] = structs.replace(table[place], verdict=told.verdict, adjusted_p_value=told.adjusted_p_value)
    of_gpus = [
        replace(item.of_gpu, verdict=row.verdict)
        for item, row in zip(compared, table, strict=True)
        if item.of_gpu and row.gpu != baseline
    ]
    pairs = _mutual(of_gpus, candidates)
    return Relative(table=table, baseline=baseline, batch=batch, refused=tuple(refused), pairs=pairs, significance=level)


def _mutual(pairs: Sequence[OfGpu], candidates: Sequence[Candidate]) -> tuple[OfGpu, ...]:
    """Return the ratios of stacks of which each is the other's nearest: no cell counts twice, whichever GPU is the baseline."""
    ran = group_by((one for one in candidates if one.ran), lambda one: (one.cell.row.gpu, one.slot))
    kept = []
    for item in pairs:
        nearest = nearest_stack(item.sides[1][0].stack, [one.cell.stack for one in ran[item.gpu, item.slot]])
        if nearest is None or nearest[0].name == item.sides[0][0].stack.name:
            kept.append(item)
    return tuple(kept)


NOT_BY_ALL = "not measured by all machines"


def relative_means(relative: Relative) -> list[RelativeMean]:
    """Return the geometric means of the ratios of the rows that stand for their GPUs, for each GPU and number of devices: of
    those that count in their mean (mean_over).
    """
    pairs = group_by(relative.pairs, lambda item: (item.gpu, item.count))
    means = []
    for (gpu, count), group in group_by((row for row in relative.table if row.of_gpu), lambda r: (r.gpu, r.count)).items():
        ratios = [row.ratio for row in group if not math.isnan(row.ratio)]
        left = [NOT_BY_ALL] * len(ratios)
        if of_gpu := pairs.get((gpu, count)):
            ratios = [item.pair.value for item in mean_over(of_gpu).of]
        mean, why = geometric_mean(ratios), _counted([*(row.why for row in group), *left[len(ratios) :]])
        means.append(RelativeMean(
            gpu=gpu, count=count, ratio=mean.value, n=len(ratios), missing=len(group) - len(ratios), missing_why=why,
        ))  # fmt: skip
    return means


_OF_LAUNCH = ("model", "mode", "precision", "compile", "unit", "count", "runtime", "batch")


def _baseline(gpus: Sequence[str], word: str) -> str:
    """Return the GPU that `word` names. Raises BadInput unless it names exactly one."""
    exact = [gpu for gpu in gpus if gpu.casefold() == word.casefold()]
    part = re.compile(rf"(?<![^\W_]){re.escape(word)}" + (r"(?!\d)" if word[-1:].isdigit() else ""), re.IGNORECASE)
    matches = exact or [gpu for gpu in gpus if part.search(gpu)]  # A10 is no part of A100, H100 SXM is one of H100 SXM5
    if len(matches) != 1:
        problem = f"{word} names {len(matches)} GPUs" if matches else f"no GPU {word}"
        raise BadInput(f"{problem} to compare with", hint=f"GPUs: {', '.join(matches or gpus) or 'none'}")
    return matches[0]


def _by_age(cells: CellIndex, gpus: Sequence[str]) -> list[str]:
    """Return the GPUs by their launch dates in gpus.csv, those without one last; "" if there is none."""
    dates: dict[str, str] = {}
    for row in (row for cell in cells.every for row in cell.launches):
        facts = gpu_specs.of_row(row) if row.gpu not in dates else None
        if facts and facts.launch_date:
            dates[row.gpu] = facts.launch_date
    return sorted(gpus, key=lambda gpu: dates.get(gpu, "9999")) or [""]


def _counterpart(cell: Cell, slot_cells: Sequence[Cell]) -> list[Cell]:
    """Return the baseline's cells in the same slot to compare with, of one stack and one work; those that ran, if any did."""
    candidates = [other for other in slot_cells if other.samples] or list(slot_cells)
    nearest = nearest_stack(cell.stack, [other.stack for other in candidates])
    if nearest is None:
        return []
    named = [other for other in candidates if other.stack.name == nearest[0].name]
    first = next((other for other in named if other.last.work == cell.last.work), named[0])
    return [other for other in named if other.last.work == first.last.work]


def _uncovered(candidates: Sequence[Candidate], base: Sequence[Candidate]) -> list[Cell]:
    """Return the baseline's cells that ran and have no counterpart among `candidates`, once for each release of torch."""
    covered = {(candidate.slot, _stack_class(candidate.cell.stack)) for candidate in candidates}
    baseline_cells = {(cand.slot, _stack_class(cand.cell.stack)): cand.cell for cand in reversed(base) if cand.ran}
    return [cell for key, cell in reversed(baseline_cells.items()) if key not in covered]


def _row(side: Side, other: Sequence[Cell], alike: Sequence[Cell], uncovered: Sequence[Cell], batch: str) -> "_Compared":
    """Compare a side with the baseline's cells `other`.

    `alike`: the baseline's cells with this job and number of devices; `uncovered`: those without a counterpart on this GPU.
    """
    first = side.first.cell
    why, differences = _why_not(side, other, alike, uncovered, batch)
    pair, level = (Pair(why_not=why), "") if why else over_baseline(side.ran, other)
    rate = side.rate
    row = RelativeRow(
        **_cell_columns(first, batch), gpu=first.row.gpu, stack=first.stack.name, devices=first.last.devices,
        chosen_of=side.first.chosen_of, machine=first.machine if len(side.every) == 1 else None, machines=len(side.ran),
        of_gpu=side.of_gpu, n=sum(len(candidate.cell.samples) for candidate in side.every),
        failed=sum(candidate.cell.failed for candidate in side.every), throughput=rate.value, low=rate.low, high=rate.high,
        **_baseline_columns(other), stack_match=_match(side, other), ratio=pair.interval.value,
        ratio_low=pair.interval.low, ratio_high=pair.interval.high, level=level, why=why,
    )  # fmt: skip
    of_gpu = None
    if side.of_gpu and not why:
        sides = tuple(side.ran), tuple(cell for cell in other if cell.samples)
        of_gpu = OfGpu(
            gpu=first.row.gpu, count=first.row.count, pair=pair, sides=sides, slot=side.first.slot, workload=row.workload
        )
    return _Compared(row=row, differences=differences, pair=pair, of_gpu=of_gpu)


def _names(cells: Sequence[Cell]) -> Hashable:
    """Return the machines and ids of the cells, sorted."""
    return tuple(sorted((cell.machine, cell.row.cell) for cell in cells))


def _moments(cells: Sequence[Cell]) -> Moments | None:
    """Return the moments of the mean of the machines' figures, or None if one is unknown."""
    machine_moments = [moments for cell in cells if (moments := cell.moments())]
    return mean_of_machines(machine_moments) if len(machine_moments) == len(cells) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Compared:
    """A row, the fields that make it incomparable, and its ratio; `of_gpu`: where it stands for its GPU."""

    row: RelativeRow
    differences: Sequence[Difference]
    pair: Pair
    of_gpu: OfGpu | None


def _absent(gpu: str, base: Cell, batch: str) -> _Compared:
    """Return the row of a GPU for a cell that only the baseline measured."""
    row = RelativeRow(
        **_cell_columns(base, batch), **_baseline_columns([base]), gpu=gpu, stack=None, devices=None, chosen_of=0, machine=None,
        machines=0, of_gpu=True, n=0, failed=0, throughput=math.nan, stack_match=None,
        why=NOT_MEASURED,
    )  # fmt: skip
    return _Compared(row=row, differences=(), pair=Pair(why_not=NOT_MEASURED), of_gpu=None)


def _cell_columns(cell: Cell, batch: str) -> dict[str, Any]:
    """Return what a row has of its workload and software."""
    return {
        "workload": name_of(cell.work, None if batch == "own" else cell.last.batch),
        **{name: cell.last.value(name) for name in _OF_LAUNCH},
        "task": task_of(cell.work),
        "stack_class": _stack_class(cell.stack),
    }


def _baseline_columns(cells: Sequence[Cell]) -> dict[str, Any]:
    return {
        "baseline_stack": cells[0].stack.name if cells else None,
        "baseline_batch": cells[0].last.batch if cells else None,
        "baseline_machines": sum(bool(cell.samples) for cell in cells),
        "baseline_n": sum(len(cell.samples) for cell in cells),
        "baseline_throughput": _rate(cells).value if cells else math.nan,
        "baseline_work": cells[0].last.work if cells else None,
    }


def _stack_class(stack: StackUsed) -> str:
    """Return a name that is equal for stacks that may stand for each other."""
    return f"torch {stack.release}" if stack.release else stack.name


def _match(side: Side, other: Sequence[Cell]) -> str | None:
    """Return the weakest stack match of any two machines of both sides."""
    matches = {stack_match(a.stack, b.stack) for a in (candidate.cell for candidate in side.every) for b in other}
    return next((match for match in (None, EQUIVALENT, EQUAL) if match in matches), None)


def _why_not(
    side: Side, other: Sequence[Cell], alike: Sequence[Cell], uncovered: Sequence[Cell], batch: str
) -> tuple[str, Sequence[Difference]]:
    """Return why a side has no ratio ("" if it has one), and the differing fields if they are the reason."""
    cell = side.first.cell
    if not cell.samples:
        return cell.last.outcome, ()
    if not other:
        return _why_no_counterpart(cell, alike, uncovered)
    if not other[0].samples:
        return f"baseline: {other[0].last.outcome}", ()
    differing = work_differences(cell.work, other[0].work, batch)
    counts = [counted_together(counted_of_row(each.last) for each in cells) for cells in (side.ran, other)]
    return refusal_in_words(differing) or counted_difference(*counts) or "", differing


def _why_no_counterpart(missing: Cell, alike: Sequence[Cell], uncovered: Sequence[Cell]) -> tuple[str, Sequence[Difference]]:
    """Return why the baseline GPU has no counterpart; where there are near cells, in which fields they differ."""
    stacks = [cell for cell in alike if stack_match(missing.stack, cell.stack)]
    if stacks:
        ran = [cell.last.batch for cell in stacks if cell.samples] or [cell.last.batch for cell in stacks]
        batches = ", ".join(map(str, sorted(set(ran), key=lambda batch: (isinstance(batch, str), batch))))
        return f"batch {missing.last.batch}, baseline {batches}", [(BATCH, str(missing.last.batch), batches)]
    if alike:
        return f"baseline: no stack with {_stack_class(missing.stack)}", ()
    near = [work_differences(missing.work, cell.work, "own") for cell in uncovered if _is_near(missing, cell)]
    differing = min((fields for fields in near if len(fields) <= MOST_DIFFERENCES), key=len, default=[])
    return refusal_in_words(differing) or f"baseline: {NOT_MEASURED}", differing


def _is_near(cell: Cell, other: Cell) -> bool:
    """Check whether two cells have one model, mode and number of devices, on stacks of one release."""
    same = all(cell.last.value(name) == other.last.value(name) for name in ("model", "mode", "count"))
    return same and stack_match(cell.stack, other.stack) is not None


def _counted(reasons: Iterable[str]) -> str:
    """Count equal reasons, such as "3 not measured, 1 oom"."""
    return ", ".join(f"{number} {why}" for why, number in Counter(filter(None, reasons)).items())
