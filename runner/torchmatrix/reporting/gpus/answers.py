"""Up to six answers of a page of machines, and the sentence above them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torchmatrix.analysis import across
from torchmatrix.analysis.across import GpuMean, Relative, RelativeRow
from torchmatrix.analysis.intervals import Interval, geometric_mean
from torchmatrix.analysis.machines import Yield
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.rows import FleetRow, group_by
from torchmatrix.analysis.verdicts import MeanRatio, Significance, significance_of
from torchmatrix.core.formatting import is_known
from torchmatrix.matrix.factors import BY_NAME, EAGER, RUNTIMES_BY_NAME, TUNED
from torchmatrix.reporting import words
from torchmatrix.reporting.explorers.data import ShownCell
from torchmatrix.reporting.overview.answers import Answer, Answers, mean_of, most_apart, pairs_of, warning_of
from torchmatrix.reporting.overview.cells import Cells, age, grouped, span

# The figures of GPUs and their means over a baseline, for answers and charts.

Setting = tuple[str, str, bool]
"""Precision, runtime, and whether torch.compile compiles the model."""
_USUAL = ("amp", "amp-bf16", "tf32", "fp32")
"""Precisions from the one that a chart of few settings shows first."""


def rank_of(setting: Setting) -> tuple[int, int, bool, str]:
    """Return a sort key: fp32 before mixed precision before others, eager before compiled, PyTorch before other runtimes."""
    precision, runtime, compiled = setting
    place = _USUAL[::-1].index(precision) if precision in _USUAL else len(_USUAL)
    return int(runtime != EAGER), place, compiled, f"{precision} {runtime}"


def setting_of(row: FleetRow) -> Setting:
    """Return the setting of a row of launches or cells."""
    return row.precision, row.runtime or EAGER, bool(row.compile)


def setting_in_words(setting: Setting) -> str:
    """Write a setting such as "AMP, torch.compile"."""
    precision, runtime, compiled = setting
    known = RUNTIMES_BY_NAME.get(runtime)  # a newer version's launches may have another
    engine = "torch.compile" if compiled else "eager" if runtime == EAGER else known.words if known else runtime
    return f"{words.precision(precision)}, {engine}"


def settings_of(settings: Iterable[Setting]) -> list[Setting]:
    """Return up to three settings, in the order of rank_of: the first, the last, and the last's precision in eager mode."""
    ranked = sorted(set(settings), key=rank_of)
    last = max((one for one in ranked if one[1] == EAGER and one[0] in _USUAL), key=rank_of, default=ranked[-1])
    eager = (last[0], EAGER, False)
    return list(dict.fromkeys(one for one in (ranked[0], eager, last) if one in ranked))


def task_of(row: FleetRow) -> tuple[str, ...]:
    """Return what a row computes."""
    return tuple(map(str, (row.mode, row.model, *row.task.values())))


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """The figures of a page of machines. `relative`: to the page's baseline; `each`: to every GPU. `worth`: measured cells with
    what each yields (machines.worth). `vendors`: of each GPU. `noun`: what is compared, GPU or machine; `source`: how.
    """

    cells: Cells
    relative: Relative
    each: tuple[Relative, ...]
    worth: Sequence[Yield]
    vendors: dict[str, str]
    price_list: PriceList
    noun: str = "GPU"
    source: str = ""

    @cached_property
    def rows(self) -> list[RelativeRow]:
        """Return for each GPU, workload, stack and number of devices the figure that stands for the GPU."""
        return [row for row in self.relative.table if row.of_gpu]

    @cached_property
    def names(self) -> list[str]:
        return list(dict.fromkeys(row.gpu for row in self.rows))

    @property
    def device(self) -> str:
        """Return the noun for one of several devices that are measured at once."""
        return "GPU" if any(self.cells.value(row, "devices").isdigit() for row in self.cells.rows) else "device"

    def name(self, row: ShownCell) -> str:
        """Return the GPU of a cell; its machine where machines are compared."""
        return self.cells.value(row, "machine" if self.noun == "machine" else "gpu")

    def who(self, row: FleetRow) -> str:
        """Return the GPU of a row of `worth`, and its machine where several have it."""
        several = len({other.machine for other in self.worth if other.gpu == row.gpu}) > 1
        return str(row.machine) if self.noun == "machine" else f"{row.gpu} · {row.machine}" if several else row.gpu

    @cached_property
    def scaled(self) -> list[ShownCell]:
        """Return the cells of several devices that have a speed-up over one."""
        return [row for row in self.cells.rows if row.S is not None and row.N > 1]

    @cached_property
    def counts(self) -> list[int]:
        """Return the numbers of devices on which two GPUs are compared."""
        return sorted({count for *_, count in self._means})

    def lone(self, gpu: str, over: str) -> str:
        """Say for which of two GPU models one machine stands in each ratio; "" if none, or machines are compared."""
        if self.noun != "GPU":
            return ""
        if lone := self.of_one_machine(gpu, over):
            return f" One machine with {' and one with '.join(lone)}: others may differ by some per cent."
        return self._partly_lone(gpu, over)

    def of_one_machine(self, gpu: str, over: str) -> list[str]:
        """Return which of two GPUs one machine stands for in each ratio."""
        mean = self._means.get((gpu, over, self.least))
        most = [max((len(item.machines[side]) for item in mean.of), default=0) if mean else 0 for side in (0, 1)]
        return [name for name, machines in zip((gpu, over), most, strict=True) if machines < 2]

    def _partly_lone(self, gpu: str, over: str) -> str:
        """Say in how many of two GPUs' ratios a side is one machine, where the others are of several."""
        of = self._means[gpu, over, self.least].of
        few = sum(min(map(len, item.machines)) < 2 for item in of)
        return f" {few} of {len(of)} ratios are of one machine with one of both." if few else ""

    @property
    def rule(self) -> str:
        """Say what intervals are over."""
        return OVER_MACHINES if any(row.level == "machines" for row in self.rows) else RULE

    @property
    def apart(self) -> float:
        """Return by what factor, at most, a ratio of two GPUs is another one than that of their figures."""
        return most_apart((row.throughput, row.baseline_throughput, row.ratio) for row in self.rows if row.n)

    @property
    def least(self) -> int:
        return self.counts[0] if self.counts else min((row.count for row in self.rows if row.n), default=1)

    @cached_property
    def _means(self) -> dict[tuple[str, str, int], GpuMean]:
        """Return the mean of each two GPUs with a workload in common, by both and their number of devices."""
        means = {}
        first = self.relative.baseline  # of two GPUs one direction is computed, and its inverse is the other
        for relative in sorted(self.each, key=lambda relative: (relative.baseline != first, relative.baseline)):
            for (gpu, count), pairs in group_by(relative.pairs, lambda pair: (pair.gpu, pair.count)).items():
                if (gpu, relative.baseline, count) not in means:
                    mean = means[gpu, relative.baseline, count] = across.mean_over(pairs)
                    means[relative.baseline, gpu, count] = mean.inverse
        return means

    @cached_property
    def _significance(self) -> Significance:
        """Return the p-values up to which a difference of two GPUs is told, corrected for all of them."""
        each = [mean.pair.chances for (gpu, over, _), mean in self._means.items() if gpu < over]
        return significance_of(each)

    def mean(self, gpu: str, over: str, count: int) -> MeanRatio | None:
        """Return the mean ratio of two GPUs; None where no workload is compared. That of one ratio over the baseline is judged
        as in the table of these ratios. Of workloads that differ in their verdicts (`split`) it is AMBIGUOUS.
        """
        mean = self._means.get((gpu, over, count))
        if mean is None:
            return None
        is_in_table = len(mean.of) == 1 and self.relative.baseline in (gpu, over)
        found = mean.at(self.relative.significance if is_in_table else self._significance)
        return replace(found, verdict="AMBIGUOUS") if mean.disagrees else found

    def verdict(self, gpu: str, over: str, count: int) -> str:
        """Return the words of the verdict on that mean, "" without one."""
        mean = self.mean(gpu, over, count)
        return self.split(gpu, over, count) or (words.verdict_of(mean) if mean else "")

    def split(self, gpu: str, over: str, count: int) -> str:
        """Say in how many workloads a GPU is faster than another and in how many slower; "" if it isn't both."""
        mean = self._means.get((gpu, over, count))
        if mean is None or not mean.disagrees:
            return ""
        faster, slower = (mean.count(verdict) for verdict in ("FASTER", "SLOWER"))
        every = workloads(len(mean.of)) if mean.workloads == len(mean.of) else f"{len(mean.of)} ratios"
        return f"{words.verdict('FASTER')} in {faster} of {every}, {words.verdict('SLOWER')} in {slower}"

    def of_workloads(self, gpu: str, over: str, count: int) -> str:
        """Return of how many workloads a mean is, and of how many ratios where some were measured on several stacks."""
        mean = self._means[gpu, over, count]
        many = workloads(mean.workloads)
        return many if mean.workloads == len(mean.of) else f"{len(mean.of)} ratios of {many}"

    def on(self, gpu: str, count: int) -> str:
        """Name the PyTorch on which a GPU is compared with the baseline, where GPUs are on several; "" where all have one."""
        releases = {
            name: sorted({cell.stack.release or cell.stack.name for item in mean.of for cell in item.sides[0]})
            for (name, over, number), mean in self._means.items() if over == self.relative.baseline and number == count
        }  # fmt: skip
        return f", torch {words.enumerated(releases[gpu])}" if len(set(map(tuple, releases.values()))) > 1 else ""

    def ratios(self, gpu: str, count: int) -> list[float]:
        """Return the ratios over the baseline that count in its mean, one for each workload."""
        mean = self._means.get((gpu, self.relative.baseline, count))
        return [item.pair.value for item in mean.of] if mean else []

    def ranked(self, count: int) -> list[tuple[str, MeanRatio | None]]:
        """Return the baseline (None) and the GPUs with a mean over it, the highest first."""
        baseline = self.relative.baseline
        means = [(gpu, self.mean(gpu, baseline, count)) for gpu in self.names if gpu != baseline]
        entries = [*((gpu, mean) for gpu, mean in means if mean), (baseline, None)]
        return sorted(entries, key=lambda entry: -(entry[1].interval.value if entry[1] else 1.0))

    @cached_property
    def order(self) -> list[str]:
        """Return all GPUs, those with a result first, by it."""
        first = [gpu for gpu, _ in self.ranked(self.least)]
        return [*first, *(gpu for gpu in self.names if gpu not in first)]

    @cached_property
    def led(self) -> list[str]:
        """Return all GPUs in this order, but that first of which no other is shown to be faster: workloads may differ."""

        def is_led(gpu: str) -> bool:
            means = [mean for other in self.order if (mean := self.mean(gpu, other, self.least))]
            return bool(means) and not any(
                mean.verdict == "SLOWER" or (mean.verdict in ("n/a", "DISTURBED") and mean.interval.value < 1) for mean in means
            )

        first = next(filter(is_led, self.order), self.order[0])
        return [first, *(gpu for gpu in self.order if gpu != first)]

    def colour(self, gpu: str) -> int:
        return {"NVIDIA": 0, "AMD": 1}.get(self.vendors.get(gpu, ""), 2)

    def setting(self, row: ShownCell) -> Setting:
        """Return the setting of a cell of the explorers."""
        precision, runtime, compiled = (self.cells.value(row, name) for name in ("precision", "runtime", "compile"))
        return precision, EAGER if runtime == "none" else runtime, compiled == "true"

    @cached_property
    def tasks(self) -> list[list[ShownCell]]:
        """Return the cells of several devices by what they compute."""
        names = [name for name in self.cells.dims if name not in (*TUNED, "gpu", "machine", "stack", "devices", "set", "batch")]
        return grouped(self.scaled, lambda row: tuple(row.value(name) for name in names))

    def release_mean(self, gpu: str, release: str, over: str) -> MeanRatio | None:
        """Return what a release of torch brings on a GPU over another one, all else equal; None where nothing is compared."""
        rows, releases = self.cells.rows, {row.stack: row.stack_class for row in self.rows}

        def is_of(place: int, wanted: str) -> bool:
            row = rows[place]
            return self.name(row) == gpu and releases.get(self.cells.value(row, "stack")) == wanted

        pairs = [
            pair for pair in pairs_of(self.cells, "stack")
            if pair.over is not None and is_of(pair.at, release) and is_of(pair.over, over)
        ]  # fmt: skip
        return mean_of(self.cells, pairs) if pairs else None

    @cached_property
    def releases(self) -> list[str]:
        """Return the releases of PyTorch with a figure, the oldest first."""
        return sorted({row.stack_class for row in self.rows if row.n}, key=age)

    def release(self, row: FleetRow) -> str:
        """Return the release of a row's stack, such as 2.7.1, or the stack's name."""
        stack = str(row.stack)
        return (row.stack_class or words.stacks([stack])[stack]).removeprefix("torch ")

    def of_machines(self, row: FleetRow) -> list[float]:
        """Return the figures of the machines behind the figure of a GPU; none where one machine stands for it."""

        def key(row: FleetRow) -> tuple[object, ...]:
            return row.gpu, row.workload, row.stack, row.count, row.precision, row.compile

        alone = [other for other in self.relative.table if not other.of_gpu and other.n] if row.machines > 1 else []
        return [other.throughput for other in alone if key(other) == key(row)]

    @cached_property
    def scopes(self) -> "dict[str, Scope]":
        """Return what GPUs are ranked by, as far as it is known, by name."""
        groups = group_by(self.rows, lambda row: (row.gpu, task_of(row)))
        most = {key: max(self.least, *(row.count for row in rows if row.n), 0) for key, rows in groups.items()}
        alone = [row for row in self.rows if row.count == self.least]
        whole = [row for row in self.rows if row.count == most[row.gpu, task_of(row)]]
        each, currency = of_each(self, self.least), self.price_list.currency
        yields = [row for row in self.worth if row.count == self.least]
        formula = self.price_list.formulas(self.cells.dims["gpu"].labels)
        every = [
            Scope(name="device", gpus=self, rows=alone, column="throughput",
                  choice=f"one {self.device}" if self.least == 1 else f"{self.least} {self.device}s",
                  does="does" if self.least == 1 else "do",
                  unit_text="{unit}/s", sub=f"Items per second of {each}."),
            Scope(name="machine", gpus=self, rows=whole if whole != alone else [], column="throughput", choice="whole machine",
                  does="do", unit_text="{unit}/s", sub=f"Items per second of all {self.device}s that were measured at once."),
            Scope(name="joule", gpus=self, rows=yields, column="per_joule", choice="per joule", does="does",
                  unit_text="{unit} per joule", sub="Power of the devices alone, without the server around them; not tested.",
                  missing="energy not read"),
            Scope(name="cost", gpus=self, rows=yields, column="cost", choice=f"cost in {currency}", does="takes",
                  unit_text=f"{currency} per million {{unit}}", sub=f"Cost: {'; '.join(formula)}. Not tested.", less=True,
                  missing="no price"),
            Scope(name="price", gpus=self, rows=yields, column="per_price", choice=f"per {currency}", does="does",
                  unit_text=f"{{unit}}/s per 1000 {currency}", sub="Purchase price of the devices alone, without the server "
                  "around them; not tested.", missing="no price"),
        ]  # fmt: skip
        return {scope.name: scope for scope in every if scope.jobs}


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """A GPU's, or a machine's, best figures of a task by setting; `lacks`: why others have none, in a word or two. `top`:
    the best of these, or in another setting. `problem`: why there is none.
    """

    who: str
    rows: dict[Setting, FleetRow]
    lacks: Mapping[Setting, str] = field(default_factory=dict)
    top: FleetRow | None = None
    problem: str = ""
    note: str = ""

    @property
    def is_apart(self) -> bool:
        """Check whether its best figure is in none of the settings to draw."""
        return self.top is not None and setting_of(self.top) not in self.rows


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What GPUs are ranked by: a `column` of `rows`, of which `less` may be better. `choice`: its name on a page; `does`,
    `sub`: words around a figure and below a chart; `unit_text`: its unit by that of items; `missing`: why a row has no figure.
    """

    name: str
    gpus: Gpus
    rows: Sequence[FleetRow]
    column: str
    choice: str
    does: str
    unit_text: str
    sub: str
    less: bool = False
    missing: str = ""

    @property
    def nav(self) -> str:
        """Return its name in the page's navigation."""
        return "Fastest first" if self.is_rate else f"{self.choice[:1].upper()}{self.choice[1:]}"

    @property
    def is_rate(self) -> bool:
        """Check whether it is a throughput, which has an interval."""
        return self.column == "throughput"

    @cached_property
    def jobs(self) -> list[list[FleetRow]]:
        """Return the rows by what they compute, of tasks with a figure."""
        groups = grouped(self.rows, task_of)
        return [job for job in groups if any(self._is_known(row) for row in job)]

    def title(self, job: Sequence[FleetRow]) -> str:
        """Return a task's model, with its mode where there are several, and in what it differs from the model's other tasks."""
        first, tasks = job[0], [other[0].task for other in self.jobs if other[0].model == job[0].model]
        modes = {row.mode for row in self.rows}
        varied = [name for name in first.task if name not in ("model", "mode") and len({str(t[name]) for t in tasks}) > 1]
        parts = [words.mode(first.mode)] if len(modes) > 1 else []
        parts += [BY_NAME[name].part.format(first.task[name]) for name in varied if first.task[name] is not None]
        return ", ".join([words.model(first.model), *parts])

    def _is_known(self, row: FleetRow) -> bool:
        return bool(row.n and is_known(row.value(self.column)))

    def _missing(self, rows: Sequence[FleetRow]) -> str:
        """Say why rows have no figure: one that has a price lacks the energy that this price takes."""
        has_price = self.name == "cost" and self.gpus.price_list.formulas([rows[0].gpu])
        return "energy not read" if has_price else self.missing

    def unit(self, row: FleetRow) -> str:
        """Return the unit of the figure of a row."""
        return self.unit_text.format(unit=row.unit)

    def who(self, row: FleetRow) -> str:
        """Return whose figure a row has: a GPU's, a machine's, or of several devices "8 × H100 SXM"."""
        if not self.is_rate:
            return self.gpus.who(row)
        return f"{row.count} × {row.gpu}" if row.count > 1 or self.name == "machine" else row.gpu

    def settings(self, job: Sequence[FleetRow]) -> list[Setting]:
        """Return the settings to draw."""
        return settings_of(setting_of(row) for row in job if self._is_known(row))

    def standings(self, job: Sequence[FleetRow]) -> list[Standing]:
        """Return the standing of each GPU, the best first, then those without a figure."""
        settings = self.settings(job)
        every = [self._standing(who, rows, settings) for who, rows in group_by(job, self.who).items()]
        sign = 1 if self.less else -1
        return sorted(every, key=lambda one: (one.top is None, sign * one.top.value(self.column) if one.top else 0.0))

    def is_partly_unknown(self, standing: Standing) -> bool:
        """Check whether a figure is unknown of a setting that was measured."""
        return not self.is_rate and any(why != "failed" for why in standing.lacks.values())

    def _standing(self, who: str, rows: Sequence[FleetRow], settings: Sequence[Setting]) -> Standing:
        pick = min if self.less else max
        known = [row for row in rows if self._is_known(row)]
        settled = {setting_of(row) for row in known}
        measured = [row for row in known if setting_of(row) in settings]
        best = {setting: pick(same, key=lambda row: row.value(self.column))
                for setting, same in group_by(measured, setting_of).items()}  # fmt: skip
        missing = self._missing(rows)
        if not known:
            failed = next((row.why for row in rows if not row.n and row.why in words.OUTCOMES), "")
            return Standing(who=who, rows={}, problem=missing if any(row.n for row in rows) else words.failed(failed))
        top = pick(known, key=lambda row: row.value(self.column))
        note = "; ".join(f"{setting_in_words(setting)}: {row.workload}, {row.stack}" for setting, row in best.items())
        note = note or f"{setting_in_words(setting_of(top))}: {top.workload}, {top.stack}"
        lacks = {setting_of(row): missing.replace("energy not read", "unknown") if row.n else "failed" for row in rows
                 if setting_of(row) not in settled and (row.n or row.why in words.OUTCOMES)}  # fmt: skip
        return Standing(who=who, rows=best, lacks=lacks, top=top, note=note)


RULE = "It is over launches of these machines: another machine of the same GPU may differ by a few per cent."
NO_PRICES = "Nothing here is per money: no price list was given (--prices FILE)."
OVER_MACHINES = "Of GPUs with several machines each it is over machines, else over launches of these machines."


def answers(gpus: Gpus) -> Answers:
    """Answer for machines of several GPU models, or for several machines of one."""
    if not any(row.n for row in gpus.rows):
        return Answers(lead="No cell was measured on any of these machines.", each=())
    possible = [
        _fastest_answer(gpus), _next_answer(gpus), _settings_answer(gpus), _devices_answer(gpus),
        _worth_answer(gpus, "joule"), _worth_answer(gpus, "cost") or _worth_answer(gpus, "price"),
    ]  # fmt: skip
    return Answers(
        lead=" ".join(_lead(gpus)), each=tuple(answer for answer in possible if answer),
        rule=gpus.rule if gpus.price_list.prices else f"{gpus.rule} {NO_PRICES}",
        warning=warning_of(gpus.cells, gpus.apart),
    )  # fmt: skip


def compared(gpus: Gpus, gpu: str, over: str) -> tuple[MeanRatio, str, str] | None:
    """Return the mean over all workloads that both GPUs measured, its verdict in words, and over how many it is."""
    mean = gpus.mean(gpu, over, gpus.least)
    return (mean, gpus.verdict(gpu, over, gpus.least), gpus.of_workloads(gpu, over, gpus.least)) if mean else None


def workloads(count: int) -> str:
    return f"{count} workload{'s' * (count > 1)}"


def of_each(gpus: Gpus, count: int) -> str:
    """Write the number of devices: "one GPU each"."""
    return f"one {gpus.device} each" if count == 1 else f"{count} {gpus.device}s each"


def _comparison(gpus: Gpus, gpu: str, over: str, name: str, title: str, figure: str | None = None) -> Answer | None:
    comparison = compared(gpus, gpu, over)
    if comparison is None:
        return None
    mean, verdict, many = comparison
    lone, value = gpus.lone(gpu, over), mean.interval
    if lone and gpus.of_one_machine(gpu, over):  # an interval over launches would be taken for one over further machines
        value = Interval(value=value.value)
    limits = words.effect_interval(value.value, value.low, value.high)
    effect = words.effect(value.value, value.low, value.high)
    ends = span([mean.lowest, mean.highest], words.effect)
    each = f", {'from ' if ' to ' in ends else 'each '}{ends}" if mean.n > 1 else ""
    text = (
        f"{words.effect_with_interval(value)} beside {over}: {verdict}{each}." if figure else f"{verdict.capitalize()}{each}."
    )
    note = f"Geometric mean of {many}" if mean.n > 1 else "One workload"
    return Answer(
        name=name, title=title, figure=figure or effect, interval="" if figure else limits, text=text,
        note=f"{note}, {of_each(gpus, gpus.least)}.{lone}", chart="relative", value=value.value, low=mean.interval.low,
        high=mean.interval.high, unit="×",
        verdict=mean.verdict,
    )  # fmt: skip


def _fastest_answer(gpus: Gpus) -> Answer | None:
    """Name the highest mean; it is the fastest only if a verdict shows it to be faster than every other GPU."""
    if not gpus.counts:
        return None
    top, *others = (gpu for gpu in gpus.led if any(row.n for row in gpus.rows if row.gpu == gpu))
    means = {other: gpus.mean(top, other, gpus.least) for other in others}
    over = next((other for other in (gpus.relative.baseline, *others) if means.get(other)), None)
    if over is None:
        return None
    splits = {other: gpus.split(top, other, gpus.least) for other in others}
    equal = [other for other, mean in means.items() if mean is None or mean.verdict != "FASTER"]
    is_ahead = all(means[other] is None for other in equal)
    is_highest = [gpu for gpu, _ in gpus.ranked(gpus.least)][:1] == [top]
    title = f"Fastest {gpus.noun}" if not equal else "Fastest of those compared" if is_ahead else NONE_FASTER
    title = "Highest mean" if title == NONE_FASTER and is_highest else title
    answer = _comparison(gpus, top, over, "fastest", title, top)
    if answer and (rest := [other for other in equal if other != over]):
        by_reason = group_by(rest, lambda other: splits[other] or _why_not_faster(gpus, top, other, means[other]))
        texts = [(f"{reason} than {{}}" if reason in splits.values() else reason, names) for reason, names in by_reason.items()]
        text = "; ".join(reason.format(words.enumerated(names)) for reason, names in texts)
        answer = replace(answer, text=f"{answer.text} {text[:1].upper()}{text[1:]}.")
    return answer


NONE_FASTER = f"None is shown to be {words.verdict('FASTER')} than"


def _why_not_faster(gpus: Gpus, gpu: str, over: str, mean: MeanRatio | None) -> str:
    counts = {row.count for row in gpus.rows if row.gpu == over and row.n}
    if mean is None and gpus.least not in counts:
        on = words.enumerated(map(str, sorted(counts)))
        return f"not compared with {{}}: measured on {on} {gpus.device}{'' if counts == {1} else 's'}"
    if mean is None:
        ours, theirs = ({row.stack_class for row in gpus.rows if row.gpu == name and row.n} for name in (gpu, over))
        shared = bool(ours & theirs) or not (ours and theirs)
        return "not compared with {}" if shared else "not compared with {}: measured on other releases of PyTorch"
    than = words.verdict("SLOWER")
    texts = {
        "n/a": "not tested against {}", "SAME": f"{words.verdict('SAME')} as {{}}", "SLOWER": f"{than} than {{}}",
        "DISTURBED": f"{words.verdict('DISTURBED')} beside {{}}",
    }  # fmt: skip
    return texts.get(mean.verdict, "no difference shown from {}")


def _next_answer(gpus: Gpus) -> Answer | None:
    """Compare the second with the first."""
    names = [gpu for gpu in gpus.led if any(gpus.mean(gpu, other, gpus.least) for other in gpus.led)]
    if len(names) < 3:
        return None
    over = names[0] if gpus.mean(names[1], names[0], gpus.least) else gpus.relative.baseline
    return _comparison(gpus, names[1], over, "next", f"{names[1]} beside {over}") if over != names[1] else None


def _chain(gpus: Gpus) -> tuple[str, list[tuple[int, int, float]]]:
    """Return the ratios of AMP with compile over fp32 eager, all else equal: the product of both settings' ratios."""
    amp = {pair.at: pair for pair in pairs_of(gpus.cells, "amp") if pair.over is not None}
    compiled = [pair for pair in pairs_of(gpus.cells, "compile") if pair.over in amp]
    both = [(pair.at, amp[pair.over].over, pair.ratio * amp[pair.over].ratio) for pair in compiled]
    if both:
        return "AMP + torch.compile", both
    for kind, name in (("amp", "AMP"), ("compile", "torch.compile")):
        if pairs := [(pair.at, pair.over, pair.ratio) for pair in pairs_of(gpus.cells, kind)]:
            return name, pairs
    return "", []


def setting_means(gpus: Gpus) -> tuple[str, dict[str, MeanRatio]]:
    """Return what AMP and compile bring on each GPU."""
    name, chain = _chain(gpus)
    rows, means = gpus.cells.rows, {}
    for gpu in gpus.order:
        pairs = [pair for pair in chain if gpus.name(rows[pair[0]]) == gpu]
        if pairs:
            means[gpu] = gpus.cells.mean(pairs)
    return name, means


def _settings_answer(gpus: Gpus) -> Answer | None:
    name, means = setting_means(gpus)
    if not means:
        return None
    least, most = (pick(means, key=lambda gpu: means[gpu].interval.value) for pick in (min, max))
    best = means[most].interval
    values = [means[least].interval.value, best.value]
    over = "eager" if name == "torch.compile" else "fp32" if name == "AMP" else "fp32, eager"
    verdicts = list(dict.fromkeys(words.verdict_of(mean) for mean in means.values()))
    verdict = f"{verdicts[0]} on {'each' if len(means) > 1 else 'it'}" if len(verdicts) == 1 else "verdicts differ"
    where = words.enumerated(dict.fromkeys(gpus.cells.model(gpus.cells.rows[at]) for at, *_ in _chain(gpus)[1]))
    figure = span(values, words.effect)
    return Answer(
        name="settings", title=words.brings(name), figure=figure,
        text=f"over {over}: {verdict}" + (f"; least on {least}, most on {most}." if " to " in figure else "."),
        note=f"Geometric means of pairs that differ in nothing else, of {where}.", chart="fastest", value=best.value,
        low=best.low, high=best.high, unit="×",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """What the `most` devices of a GPU bring: the geometric mean `value` of their speed-ups, of so many `workloads` and
    `machines`.
    """

    gpu: str
    most: int
    value: float
    workloads: int
    machines: int

    @property
    def efficiency(self) -> float:
        return self.value / self.most

    @property
    def name(self) -> str:
        """Return the devices, with the number of machines whose mean it is."""
        several = f" (mean of {self.machines} machines)" if self.machines > 1 else ""
        return f"{self.most}{words.SPACE}×{words.SPACE}{self.gpu}{several}"


def ends(gpus: Gpus) -> list[End]:
    """Return what the most devices of each GPU bring."""
    by_gpu = []
    for gpu in gpus.order:
        every = [row for row in gpus.scaled if gpus.name(row) == gpu]
        most = max((row.N for row in every), default=0)
        rows = [row for row in every if most == row.N and not row.impossible]
        alike = [name for name in gpus.cells.dims if name not in ("gpu", "machine", "set")]
        if values := [row.S for row in rows if row.S is not None]:
            by_gpu.append(End(
                gpu=gpu, most=most, value=geometric_mean(values).value,
                workloads=len({tuple(row.value(name) for name in alike) for row in rows}),
                machines=len({row.value("machine") for row in rows}) if gpus.noun == "GPU" else 1,
            ))  # fmt: skip
    return by_gpu


def _most_devices_first(gpus: Gpus) -> list[End]:
    return sorted(ends(gpus), key=lambda end: (-end.most, -end.value))


def _devices_answer(gpus: Gpus) -> Answer | None:
    """Answer what the most devices bring, with the highest and the lowest efficiency."""
    ranked = _most_devices_first(gpus)
    if not ranked and gpus.scaled:
        text = f"more than their number times one {gpus.device}: look for a wrong baseline."
        return Answer(name="devices", title=f"Several {gpus.device}s bring", figure="impossible", text=text, chart="scaling")
    if not ranked:
        return None
    first, lowest = ranked[0], min(ranked, key=lambda end: end.efficiency)
    other = f" {lowest.name}: {words.ratio(lowest.value)}, {words.percent(lowest.efficiency)}." if lowest is not first else ""
    several = f", mean of {first.machines} machines" if first.machines > 1 else ""
    wrong = words.enumerated(dict.fromkeys(gpus.name(row) for row in gpus.scaled if row.impossible))
    left_out = f" Left out, as impossible: some of {wrong}; look for a wrong baseline." if wrong else ""
    return Answer(
        name="devices", title=f"{first.most} {gpus.device}s bring", figure=words.ratio(first.value),
        text=f"the work of one {first.gpu}: {words.percent(first.efficiency)} efficiency{several}.{other}{left_out}",
        note=f"Geometric mean of {workloads(first.workloads)}." if first.workloads > 1 else "", chart="scaling",
        value=first.value, unit="×",
    )  # fmt: skip


def _worth_answer(gpus: Gpus, name: str) -> Answer | None:
    """Answer who yields most per joule or price, of the first task that two have a figure of."""
    scope = gpus.scopes.get(name)
    every = (scope.standings(job) for job in scope.jobs) if scope else ()
    standings = next((some for some in every if len(some) > 1 and some[1].top), [])
    if not scope or not standings:
        return None
    missing = [one.who for one in standings if one.top is None]
    partly = [one.who for one in standings if one.top and scope.is_partly_unknown(one)]
    unknown = f" Not known of {words.enumerated(missing)}." if missing else ""
    unknown += f" Not known in every setting of {words.enumerated(partly)}." if partly else ""
    rows = [one.top for one in standings if one.top]
    top = rows[0]
    second = next((row for row in rows if row.gpu != top.gpu), rows[1])
    currency = gpus.price_list.currency
    title, unit, what = {
        "joule": ("Most per joule", f"{top.unit}/J", "Power of the GPU alone"),
        "price": (f"Most per {currency}", f"{top.unit}/s per {currency} 1000", "Price of the GPU alone"),
        "cost": ("Least cost", f"{currency} per million {top.unit}", "By the price list"),
    }[name]
    return Answer(
        name=scope.column, title=title,
        figure=str(top.machine) if gpus.noun == "machine" else top.gpu,
        text=f"{words.with_unit(top.value(scope.column), unit)} for {words.model(top.model)} with "
        f"{setting_in_words(setting_of(top))}; next is {gpus.who(second)}: "
        f"{words.short(second.value(scope.column))}. Differences are not tested.{unknown}",
        note=f"{what}.", chart=f"fastest-{name}", value=top.value(scope.column), unit=unit,
    )  # fmt: skip


def first_two(gpus: Gpus) -> tuple[str, str] | None:
    """Return the first of those led, and the next, or the baseline where both have no workload in common."""
    names = gpus.led
    others = [*names[1:2], *(name for name in (gpus.relative.baseline, *names[1:]) if name != names[0])]
    return next(((names[0], other) for other in others if gpus.mean(names[0], other, gpus.least)), None)


def _lead(gpus: Gpus) -> Iterator[str]:
    """Yield a sentence of at most 30 words: who is how much faster, what several devices bring."""
    names = first_two(gpus)
    comparison = compared(gpus, *names) if names else None
    if names is None or comparison is None:
        yield f"No workload was measured on two {gpus.noun}s with as many devices."
    else:
        mean, verdict, many = comparison
        effect = words.effect(mean.interval.value)
        article = "one " if gpus.noun == "GPU" and gpus.least == 1 else ""
        first = f"{article.capitalize()}{names[0]}"
        yield (
            f"{first} is {verdict} than {article}{names[1]}: {effect} over {many}." if mean.verdict == "FASTER"
            else f"{first} beside {article}{names[1]}: {effect} over {many}, {verdict}."
        )  # fmt: skip
    if ranked := _most_devices_first(gpus):
        end = ranked[0]
        yield f"{end.name} do {words.ratio(end.value)} the work of one, {words.percent(end.efficiency)} efficiency."
