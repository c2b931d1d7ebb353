"""Up to six answers of a page of machines, and the sentence above them."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torchmatrix.analysis import across
from torchmatrix.analysis.across import Relative
from torchmatrix.analysis.intervals import Interval, Moments, geometric_mean
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.rows import Row, group_by
from torchmatrix.analysis.verdicts import MeanRatio, mean_ratio
from torchmatrix.core.formatting import is_known
from torchmatrix.reporting import words
from torchmatrix.reporting.overview.answers import Answer, Answers, pairs_of
from torchmatrix.reporting.overview.cells import Cells, grouped, span

# The figures of GPUs and their means over a baseline, for answers and charts.

_BEST = {"amp": 3, "amp-bf16": 2, "tf32": 1}
"""The rank of precisions in charts that show a single setting: mixed precision first, compiled."""


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """The figures of a page of machines. `relative`: to the page's baseline; `each`: to every GPU. `worth`: measured cells with
    what each yields (machines.worth). `vendors`: of each GPU. `noun`: what is compared, GPU or machine.
    """

    cells: Cells
    relative: Relative
    each: tuple[Relative, ...]
    worth: Sequence[Row]
    vendors: dict[str, str]
    price_list: PriceList
    noun: str = "GPU"

    @cached_property
    def rows(self) -> list[Row]:
        """Return for each GPU, workload, stack and number of devices the figure that stands for the GPU."""
        return [row for row in self.relative.table if row["of_gpu"]]

    @cached_property
    def names(self) -> list[str]:
        return list(dict.fromkeys(row["gpu"] for row in self.rows))

    @property
    def device(self) -> str:
        """Return the noun for one of several devices that are measured at once."""
        return "GPU" if any(self.cells.value(row, "devices").isdigit() for row in self.cells.rows) else "device"

    def name(self, row: Row) -> str:
        """Return the GPU of a cell; its machine where machines are compared."""
        return self.cells.value(row, "machine" if self.noun == "machine" else "gpu")

    def who(self, row: Row) -> str:
        """Return the GPU of a row of `worth`, and its machine where several have it."""
        several = len({other["machine"] for other in self.worth if other["gpu"] == row["gpu"]}) > 1
        return row["machine"] if self.noun == "machine" else f"{row['gpu']} · {row['machine']}" if several else row["gpu"]

    @cached_property
    def scaled(self) -> list[Row]:
        """Return the cells of several devices that have a speed-up over one."""
        return [row for row in self.cells.rows if row["S"] is not None and row["N"] > 1]

    @cached_property
    def counts(self) -> list[int]:
        """Return the numbers of devices on which another GPU has a mean over the baseline."""
        return sorted({pair.count for pair in self.relative.pairs})

    def lone(self, *names: str) -> str:
        """Say for which of these GPU models one machine stands; "" if all have several, or machines are compared."""
        lone = [name for name in names if max((row["machines"] for row in self.rows if row["gpu"] == name), default=1) < 2]
        if not lone or self.noun != "GPU":
            return ""
        return f" One machine with {' and one with '.join(lone)}: others may differ by some per cent."

    @property
    def least(self) -> int:
        return self.counts[0] if self.counts else min((row["count"] for row in self.rows), default=1)

    def mean(self, gpu: str, over: str, count: int) -> MeanRatio | None:
        """Return the mean ratio of two GPUs; None where no workload is compared."""
        relative = next(relative for relative in self.each if relative.baseline == over)
        pairs = [pair for pair in relative.pairs if pair.gpu == gpu and pair.count == count]
        return across.mean_over(pairs, self.cells.data.significance) if pairs else None

    def ratios(self, gpu: str, count: int) -> list[float]:
        """Return the ratios over the baseline, one for each workload."""
        return [pair.ratio for pair in self.relative.pairs if pair.gpu == gpu and pair.count == count]

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

    def colour(self, gpu: str) -> int:
        return {"NVIDIA": 0, "AMD": 1}.get(self.vendors.get(gpu, ""), 2)

    @cached_property
    def jobs(self) -> list[list[Row]]:
        """Return the rows on the fewest devices by mode and model, of models with a figure there."""
        groups = grouped((row for row in self.rows if row["count"] == self.least), lambda row: (row["mode"], row["model"]))
        return [job for job in groups if any(row["n"] for row in job)]

    def by_release(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return by workload and release of torch the rows that most GPUs measured, until each GPU is in."""
        groups = grouped((row for row in rows if row["n"]), lambda row: (row["workload"], row["stack_class"]))
        left, chosen = {row["gpu"] for group in groups for row in group}, []
        while left:
            chosen.append(max(groups, key=lambda group: len(left & {row["gpu"] for row in group})))
            left -= {row["gpu"] for row in chosen[-1]}
        return chosen

    def best(self, rows: Sequence[Row]) -> list[Row]:
        """Return for each GPU a row of the workload that most GPUs measured, with the setting that is usually the fastest."""
        jobs = grouped((row for row in rows if row["n"]), lambda row: row["workload"])

        def rank(job: Sequence[Row]) -> tuple[int, int, bool]:
            return len({row["gpu"] for row in job}), _BEST.get(job[0]["precision"], 0), bool(job[0]["compile"])

        by_gpu: dict[str, Row] = {}
        for row in (row for release in self.by_release(max(jobs, key=rank, default=[])) for row in release):
            by_gpu.setdefault(row["gpu"], row)
        return list(by_gpu.values())


RULE = "It is over launches of these machines: another machine of the same GPU may differ by a few per cent."


def answers(gpus: Gpus) -> Answers:
    """Answer for machines of several GPU models, or for several machines of one."""
    if not any(row["n"] for row in gpus.rows):
        return Answers(lead="No cell was measured on any of these machines.", each=())
    possible = [
        _fastest_answer(gpus), _next_answer(gpus), _settings_answer(gpus), _devices_answer(gpus),
        _worth_answer(gpus, "per_joule"), _worth_answer(gpus, "cost") or _worth_answer(gpus, "per_price"),
    ]  # fmt: skip
    return Answers(lead=" ".join(_lead(gpus)), each=tuple(answer for answer in possible if answer), rule=RULE)


def compared(gpus: Gpus, gpu: str, over: str) -> tuple[MeanRatio, str, str] | None:
    """Return the mean over all workloads that both GPUs measured, its verdict in words, and over how many it is."""
    mean = gpus.mean(gpu, over, gpus.least)
    return (mean, words.verdict(mean.verdict), workloads(mean.n)) if mean else None


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
    if lone:  # how much machines of one GPU differ isn't known: the interval over launches would be taken for that
        value = Interval(value=value.value)
    limits = words.effect_interval(value.value, value.low, value.high)
    effect = words.effect(value.value, value.low, value.high)
    each = f", from {span([mean.lowest, mean.highest], words.effect)}" if mean.n > 1 else ""
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
    top, *others = (gpu for gpu, _ in gpus.ranked(gpus.least))
    over = gpus.relative.baseline if top != gpus.relative.baseline else others[0]
    means = {other: gpus.mean(top, other, gpus.least) for other in others}
    equal = [other for other, mean in means.items() if mean is None or mean.verdict != "FASTER"]
    answer = _comparison(gpus, top, over, "fastest", "Highest mean" if equal else f"Fastest {gpus.noun}", top)
    if answer and equal and over not in equal:
        by_reason = group_by(equal, lambda other: _not_faster(means[other]))
        text = "; ".join(f"{reason} {words.enumerated(names)}" for reason, names in by_reason.items())
        answer = replace(answer, text=f"{answer.text} {text[:1].upper()}{text[1:]}.")
    return answer


def _not_faster(mean: MeanRatio | None) -> str:
    if mean is None:
        return "not compared with"
    return {"n/a": "not tested against", "SAME": f"{words.verdict('SAME')} as"}.get(mean.verdict, "no difference shown from")


def _next_answer(gpus: Gpus) -> Answer | None:
    """Compare the second with the first."""
    names = [gpu for gpu, _ in gpus.ranked(gpus.least)]
    if len(names) < 3:
        return None
    over = names[0] if gpus.mean(names[1], names[0], gpus.least) else gpus.relative.baseline
    return _comparison(gpus, names[1], over, "next", f"{names[1]} beside {over}") if over != names[1] else None


def _chain(gpus: Gpus) -> tuple[str, list[tuple[int, int, float]]]:
    """Return the ratios of AMP with compile over fp32 eager, all else equal: the product of both settings' ratios."""
    amp = {pair["at"]: pair for pair in pairs_of(gpus.cells, "amp") if pair["over"] is not None}
    compiled = [pair for pair in pairs_of(gpus.cells, "compile") if pair["over"] in amp]
    both = [(pair["at"], amp[pair["over"]]["over"], pair["ratio"] * amp[pair["over"]]["ratio"]) for pair in compiled]
    if both:
        return "AMP + torch.compile", both
    for kind, name in (("amp", "AMP"), ("compile", "torch.compile")):
        if pairs := [(pair["at"], pair["over"], pair["ratio"]) for pair in pairs_of(gpus.cells, kind)]:
            return name, pairs
    return "", []


def setting_means(gpus: Gpus) -> tuple[str, dict[str, MeanRatio]]:
    """Return what AMP and compile bring on each GPU."""
    name, chain = _chain(gpus)
    rows, means = gpus.cells.rows, {}
    for gpu in gpus.order:
        pairs = [pair for pair in chain if gpus.name(rows[pair[0]]) == gpu]
        moments: dict[Hashable, Moments | None] = {
            place: gpus.cells.moments(rows[place]) for pair in pairs for place in pair[:2]
        }
        if pairs:
            means[gpu] = mean_ratio(pairs, moments, gpus.cells.data.significance)
    return name, means


def _settings_answer(gpus: Gpus) -> Answer | None:
    name, means = setting_means(gpus)
    if not means:
        return None
    least, most = (pick(means, key=lambda gpu: means[gpu].interval.value) for pick in (min, max))
    values = [means[least].interval.value, means[most].interval.value]
    over = "eager" if name == "torch.compile" else "fp32" if name == "AMP" else "fp32, eager"
    verdicts = list(dict.fromkeys(words.verdict(mean.verdict) for mean in means.values()))
    verdict = f"{verdicts[0]} on {'each' if len(means) > 1 else 'it'}" if len(verdicts) == 1 else "verdicts differ"
    return Answer(
        name="settings", title=f"{name} bring" if "+" in name else f"{name} brings", figure=span(values, words.effect),
        text=f"over {over}: {verdict}" + (f"; least on {least}, most on {most}." if len(means) > 1 else "."),
        note="Geometric means of pairs that differ in nothing else.", chart="throughput", value=max(values), low=min(values),
        high=max(values), unit="×",
    )  # fmt: skip


def ends(gpus: Gpus) -> list[tuple[str, int, float, int]]:
    """Return for each GPU its name, its most devices, the geometric mean of their speed-ups, and the number of cells."""
    by_gpu = []
    for gpu in gpus.order:
        rows = [row for row in gpus.scaled if gpus.name(row) == gpu]
        most = max((row["N"] for row in rows), default=0)
        values = [row["S"] for row in rows if row["N"] == most]
        if values:
            by_gpu.append((gpu, most, geometric_mean(values).value, len(values)))
    return by_gpu


def _devices_answer(gpus: Gpus) -> Answer | None:
    """Answer what the most devices bring, with the highest and the lowest efficiency."""
    ranked = sorted(ends(gpus), key=lambda end: (-end[1], -end[2]))
    if not ranked:
        return None
    gpu, most, value, cells = ranked[0]
    lowest = min(ranked, key=lambda end: end[2] / end[1])
    other = (
        f" {lowest[1]} × {lowest[0]}: {words.ratio(lowest[2])}, {words.percent(lowest[2] / lowest[1])}."
        if lowest is not ranked[0] else ""
    )  # fmt: skip
    return Answer(
        name="devices", title=f"{most} {gpus.device}s bring", figure=words.ratio(value),
        text=f"the work of one {gpu}: {words.percent(value / most)} efficiency.{other}",
        note=f"Geometric mean of {workloads(cells)}." if cells > 1 else "", chart="scaling", value=value, unit="×",
    )  # fmt: skip


def worth_rows(gpus: Gpus, job: list[Row], name: str) -> list[Row]:
    """Return each machine's yield per joule or price on the fewest devices, in the setting of the charts; highest first."""
    best = gpus.best([row for row in job if row["n"]])
    alike = ("model", "mode", "precision", "compile", "count", "batch", "stack")
    keys = {tuple(row[key] for key in (*alike, "gpu")) for row in best}
    by_machine: dict[str, Row] = {}
    for row in gpus.worth:
        if is_known(row[name]) and tuple(row[key] for key in (*alike, "gpu" if gpus.noun == "GPU" else "machine")) in keys:
            by_machine.setdefault(row["machine"], row)
    return sorted(by_machine.values(), key=lambda row: row[name] if name == "cost" else -row[name])


def without_worth(gpus: Gpus, job: list[Row], rows: Sequence[Row]) -> list[str]:
    """Return the GPUs, or machines, that measured a job in the setting of the charts and of which `rows` (of worth_rows) have
    no yield: they are in no ranking.
    """
    name = "machine" if gpus.noun == "machine" else "gpu"
    known = {row[name] for row in rows}
    return [row["gpu"] for row in gpus.best([row for row in job if row["n"]]) if row["gpu"] not in known]


def setting(row: Row) -> str:
    """Write a setting such as "AMP, torch.compile"."""
    return f"{words.precision(row['precision'])}, {'torch.compile' if row['compile'] else 'eager'}"


def _worth_answer(gpus: Gpus, name: str) -> Answer | None:
    found = ((job, worth_rows(gpus, job, name)) for job in gpus.jobs)
    job, rows = next(((job, rows) for job, rows in found if len(rows) > 1), ([], []))
    if not rows:
        return None
    missing = without_worth(gpus, job, rows)
    unknown = f" Not known of {words.enumerated(missing)}." if missing else ""
    top = rows[0]
    second = next((row for row in rows if row["gpu"] != top["gpu"]), rows[1])
    currency = gpus.price_list.currency
    title, unit, what = {
        "per_joule": ("Most per joule", f"{top['unit']}/J", "Power of the GPU alone"),
        "per_price": (f"Most per {currency}", f"{top['unit']}/s per {currency} 1000", "Price of the GPU alone"),
        "cost": ("Least cost", f"{currency} per million {top['unit']}", "By the price list"),
    }[name]
    return Answer(
        name=name, title=title, 
        figure=str(top["machine"] if gpus.noun == "machine" else top["gpu"]),
        text=f"{words.with_unit(top[name], unit)} for {words.model(top['model'])}; next is {gpus.who(second)}: "
        f"{words.short(second[name])}. Not tested.{unknown}",
        note=f"{what}, {setting(top)}.", chart="worth", value=top[name], unit=unit,
    )  # fmt: skip


def first_two(gpus: Gpus) -> tuple[str, str] | None:
    """Return the highest mean, and the next, or the baseline where both have no workload in common."""
    names = [gpu for gpu, _ in gpus.ranked(gpus.least)]
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
    if ranked := sorted(ends(gpus), key=lambda end: (-end[1], -end[2])):
        gpu, most, value, _ = ranked[0]
        yield f"{most} × {gpu} do {words.ratio(value)} the work of one, {words.percent(value / most)} efficiency."
