"""Up to six answers of a page of machines, and the sentence above them."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torchmatrix.analysis import across
from torchmatrix.analysis.across import Relative
from torchmatrix.analysis.intervals import Moments, geometric_mean
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.rows import Row
from torchmatrix.analysis.verdicts import MeanRatio, mean_ratio
from torchmatrix.core.formatting import is_known
from torchmatrix.reporting import words
from torchmatrix.reporting.overview.answers import Answer, Answers, pairs_of
from torchmatrix.reporting.overview.cells import Cells, grouped, span

# What answers and charts of several machines are made of: figures of GPUs, and their means over a baseline.

_BEST = {"amp": 3, "amp-bf16": 2, "tf32": 1}
"""The setting that charts of one setting show: the mixed precision, compiled."""


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """`relative`: to the page's baseline; `each`: to every GPU. `worth`: measured cells with rows of fleet_tables.worth_table.
    `vendors`: of each GPU. `noun`: what stands side by side, GPU or machine."""

    cells: Cells
    relative: Relative
    each: tuple[Relative, ...]
    worth: Sequence[Row]
    vendors: dict[str, str]
    held: PriceList
    noun: str = "GPU"

    @cached_property
    def rows(self) -> list[Row]:
        """Of each GPU, workload, stack and number of devices the figure that stands for the GPU."""
        return [row for row in self.relative.table if row["of_gpu"]]

    @cached_property
    def names(self) -> list[str]:
        return list(dict.fromkeys(row["gpu"] for row in self.rows))

    @property
    def device(self) -> str:
        """What several of are measured at once."""
        return "GPU" if any(self.cells.value(row, "devices").isdigit() for row in self.cells.rows) else "device"

    def name(self, row: Row) -> str:
        """The GPU of a cell; its machine where those stand side by side."""
        return self.cells.value(row, "machine" if self.noun == "machine" else "gpu")

    def who(self, row: Row) -> str:
        """The GPU of a row of `worth`, and its machine where several have it."""
        several = len({one["machine"] for one in self.worth if one["gpu"] == row["gpu"]}) > 1
        return row["machine"] if self.noun == "machine" else f"{row['gpu']} · {row['machine']}" if several else row["gpu"]

    @cached_property
    def scaled(self) -> list[Row]:
        """Cells of several devices that have a speed-up over one."""
        return [row for row in self.cells.rows if row["S"] is not None and row["N"] > 1]

    @cached_property
    def counts(self) -> list[int]:
        """Numbers of devices on which another GPU has a mean over the baseline."""
        return sorted({pair.count for pair in self.relative.pairs})

    @property
    def least(self) -> int:
        return self.counts[0] if self.counts else min((row["count"] for row in self.rows), default=1)

    def mean(self, gpu: str, over: str, count: int) -> MeanRatio | None:
        """None where no workload is compared."""
        found = next(one for one in self.each if one.baseline == over)
        pairs = [pair for pair in found.pairs if pair.gpu == gpu and pair.count == count]
        return across.mean_over(pairs, self.cells.data.significance) if pairs else None

    def ratios(self, gpu: str, count: int) -> list[float]:
        """Over the baseline, one for each workload."""
        return [pair.ratio for pair in self.relative.pairs if pair.gpu == gpu and pair.count == count]

    def ranked(self, count: int) -> list[tuple[str, MeanRatio | None]]:
        """The baseline (None) and the GPUs with a mean over it, the highest first."""
        found = [(gpu, self.mean(gpu, self.relative.baseline, count)) for gpu in self.names if gpu != self.relative.baseline]
        known: list[tuple[str, MeanRatio | None]] = [(gpu, mean) for gpu, mean in found if mean]
        known.append((self.relative.baseline, None))
        return sorted(known, key=lambda one: -(one[1].interval.value if one[1] else 1.0))

    @cached_property
    def order(self) -> list[str]:
        """All GPUs, those with a result first, by it."""
        first = [gpu for gpu, _ in self.ranked(self.least)]
        return [*first, *(gpu for gpu in self.names if gpu not in first)]

    def colour(self, gpu: str) -> int:
        return {"NVIDIA": 0, "AMD": 1}.get(self.vendors.get(gpu, ""), 2)

    @cached_property
    def jobs(self) -> list[list[Row]]:
        """The rows on the fewest devices by mode and model."""
        return grouped((row for row in self.rows if row["count"] == self.least), lambda row: (row["mode"], row["model"]))

    def by_release(self, rows: Sequence[Row]) -> list[list[Row]]:
        """By workload and release of torch the rows of those that most GPUs measured, until each GPU is in."""
        groups = grouped((row for row in rows if row["n"]), lambda row: (row["workload"], row["stack_class"]))
        left, found = {row["gpu"] for own in groups for row in own}, []
        while left:
            found.append(max(groups, key=lambda own: len(left & {row["gpu"] for row in own})))
            left -= {row["gpu"] for row in found[-1]}
        return found

    def best(self, rows: Sequence[Row]) -> list[Row]:
        """Of each GPU a row of the workload that most GPUs measured, of these with the setting that is usually the fastest."""
        jobs = grouped((row for row in rows if row["n"]), lambda row: row["workload"])
        own = max(jobs, key=lambda own: (len({row["gpu"] for row in own}), _rank(own[0])), default=[])
        found: dict[str, Row] = {}
        for row in (row for release in self.by_release(own) for row in release):
            found.setdefault(row["gpu"], row)
        return list(found.values())


def _rank(row: Row) -> tuple[int, bool]:
    return _BEST.get(row["precision"], 0), bool(row["compile"])


RULE = "It is over launches of these machines: another machine of the same GPU may differ by a few per cent."


def answers(gpus: Gpus) -> Answers:
    """Of machines of several GPU models, or of several machines of one."""
    if not any(row["n"] for row in gpus.rows):
        return Answers(lead="No cell was measured on any of these machines.", each=())
    found = [_fastest(gpus), _next(gpus), _settings(gpus), _devices(gpus), _worth(gpus, "per_joule"), _worth(gpus, "per_price")]
    each = tuple(answer for answer in found if answer)
    return Answers(lead=" ".join(_lead(gpus)), each=each, rule=RULE)


def beside(gpus: Gpus, own: str, over: str) -> tuple[MeanRatio, str, str] | None:
    """The mean over all workloads that both measured, its verdict in words, and over how many it is."""
    found = gpus.mean(own, over, gpus.least)
    return (found, words.verdict(found.verdict), workloads(found.n)) if found else None


def workloads(count: int) -> str:
    return f"{count} workload{'s' * (count > 1)}"


def of_each(gpus: Gpus, count: int) -> str:
    """On how many devices: "one GPU each"."""
    return f"one {gpus.device} each" if count == 1 else f"{count} {gpus.device}s each"


def _of(gpus: Gpus, own: str, over: str, name: str, title: str, figure: str | None = None) -> Answer | None:
    found = beside(gpus, own, over)
    if found is None:
        return None
    mean, verdict, many = found
    value = mean.interval
    effect, limits = words.effect(value.value), words.effect_interval(value.value, value.low, value.high)
    each = f", from {span([mean.lowest, mean.highest], words.effect)}" if mean.n > 1 else ""
    text = f"{f'{effect} {limits}'.strip()} beside {over}: {verdict}{each}." if figure else f"{verdict.capitalize()}{each}."
    return Answer(
        name=name, title=title, figure=figure or effect, interval="" if figure else limits, text=text,
        note=f"Geometric mean of {many}, {of_each(gpus, gpus.least)}." if mean.n > 1 else f"One workload, "
        f"{of_each(gpus, gpus.least)}.", chart="relative", value=value.value, low=value.low, high=value.high, unit="×",
        verdict=mean.verdict,
    )  # fmt: skip


def _fastest(gpus: Gpus) -> Answer | None:
    """The highest mean; it is called the fastest only if it is faster than every other GPU by a verdict."""
    if not gpus.counts:
        return None
    top, *others = (gpu for gpu, _ in gpus.ranked(gpus.least))
    over = gpus.relative.baseline if top != gpus.relative.baseline else others[0]
    means = {other: gpus.mean(top, other, gpus.least) for other in others}
    equal = [other for other, mean in means.items() if mean is None or mean.verdict != "FASTER"]
    found = _of(gpus, top, over, "fastest", "Highest mean" if equal else f"Fastest {gpus.noun}", top)
    if found and equal and over not in equal:
        said = list(dict.fromkeys(_not_faster(means[other]) for other in equal))
        told = "; ".join(f"{one} {words.enumerated(o for o in equal if _not_faster(means[o]) == one)}" for one in said)
        found = replace(found, text=f"{found.text} {told[:1].upper()}{told[1:]}.")
    return found


def _not_faster(mean: MeanRatio | None) -> str:
    if mean is None:
        return "not compared with"
    return {"n/a": "not tested against", "SAME": f"{words.verdict('SAME')} as"}.get(mean.verdict, "no difference shown from")


def _next(gpus: Gpus) -> Answer | None:
    """The second beside the first."""
    names = [gpu for gpu, _ in gpus.ranked(gpus.least)]
    if len(names) < 3:
        return None
    over = names[0] if gpus.mean(names[1], names[0], gpus.least) else gpus.relative.baseline
    return _of(gpus, names[1], over, "next", f"{names[1]} beside {over}") if over != names[1] else None


def _chain(gpus: Gpus) -> tuple[str, list[tuple[int, int, float]]]:
    """AMP with compile over fp32 eager, all else equal: what each of both settings brings, one after the other."""
    amp = {pair["at"]: pair for pair in pairs_of(gpus.cells, "amp") if pair["over"] is not None}
    compiled = [pair for pair in pairs_of(gpus.cells, "compile") if pair["over"] in amp]
    both = [(pair["at"], amp[pair["over"]]["over"], pair["ratio"] * amp[pair["over"]]["ratio"]) for pair in compiled]
    if both:
        return "AMP + torch.compile", both
    for kind, name in (("amp", "AMP"), ("compile", "torch.compile")):
        if own := [(pair["at"], pair["over"], pair["ratio"]) for pair in pairs_of(gpus.cells, kind)]:
            return name, own
    return "", []


def setting_means(gpus: Gpus) -> tuple[str, dict[str, MeanRatio]]:
    """What AMP and compile bring on each GPU."""
    name, chain = _chain(gpus)
    rows, found = gpus.cells.rows, {}
    for gpu in gpus.order:
        own = [one for one in chain if gpus.name(rows[one[0]]) == gpu]
        known: dict[Hashable, Moments | None] = {place: gpus.cells.moments(rows[place]) for one in own for place in one[:2]}
        if own:
            found[gpu] = mean_ratio(own, known, gpus.cells.data.significance)
    return name, found


def _settings(gpus: Gpus) -> Answer | None:
    name, means = setting_means(gpus)
    if not means:
        return None
    least, most = (pick(means, key=lambda gpu: means[gpu].interval.value) for pick in (min, max))
    values = [means[least].interval.value, means[most].interval.value]
    over = "eager" if name == "torch.compile" else "fp32" if name == "AMP" else "fp32, eager"
    verdicts = list(dict.fromkeys(words.verdict(mean.verdict) for mean in means.values()))
    said = f"{verdicts[0]} on {'each' if len(means) > 1 else 'it'}" if len(verdicts) == 1 else "verdicts differ"
    return Answer(
        name="settings", title=f"{name} bring" if "+" in name else f"{name} brings", figure=span(values, words.effect),
        text=f"over {over}: {said}" + (f"; least on {least}, most on {most}." if len(means) > 1 else "."),
        note="Geometric means of pairs that differ in nothing else.", chart="throughput", value=max(values), low=min(values),
        high=max(values), unit="×",
    )  # fmt: skip


def ends(gpus: Gpus) -> list[tuple[str, int, float, int]]:
    """Of each GPU its name, its most devices, the geometric mean of what they do of the work of one, over how many cells."""
    found = []
    for gpu in gpus.order:
        own = [row for row in gpus.scaled if gpus.name(row) == gpu]
        most = max((row["N"] for row in own), default=0)
        values = [row["S"] for row in own if row["N"] == most]
        if values:
            found.append((gpu, most, geometric_mean(values).value, len(values)))
    return found


def _devices(gpus: Gpus) -> Answer | None:
    """The most devices, by the highest and the lowest efficiency."""
    found = sorted(ends(gpus), key=lambda one: (-one[1], -one[2]))
    if not found:
        return None
    gpu, most, value, cells = found[0]
    lowest = min(found, key=lambda one: one[2] / one[1])
    other = (
        f" {lowest[1]} × {lowest[0]}: {words.ratio(lowest[2])}, {words.percent(lowest[2] / lowest[1])}."
        if lowest is not found[0] else ""
    )  # fmt: skip
    return Answer(
        name="devices", title=f"{most} {gpus.device}s bring", figure=words.ratio(value),
        text=f"the work of one {gpu}: {words.percent(value / most)} efficiency.{other}",
        note=f"Geometric mean of {workloads(cells)}." if cells > 1 else "", chart="scaling", value=value, unit="×",
    )  # fmt: skip


def worth_rows(gpus: Gpus, job: list[Row], name: str) -> list[Row]:
    """On the fewest devices, of the setting that the charts show, what each machine gives per joule or price; highest first."""
    best = gpus.best([row for row in job if row["n"]])
    alike = ("model", "mode", "precision", "compile", "count", "batch", "stack")
    keys = {tuple(row[key] for key in (*alike, "gpu")) for row in best}
    seen: dict[str, Row] = {}
    for row in gpus.worth:
        if is_known(row[name]) and tuple(row[key] for key in (*alike, "gpu" if gpus.noun == "GPU" else "machine")) in keys:
            seen.setdefault(row["machine"], row)
    return sorted(seen.values(), key=lambda row: -row[name])


def setting(row: Row) -> str:
    """Such as "AMP, torch.compile"."""
    return f"{words.precision(row['precision'])}, {'torch.compile' if row['compile'] else 'eager'}"


def _worth(gpus: Gpus, name: str) -> Answer | None:
    rows = next((found for job in gpus.jobs if len(found := worth_rows(gpus, job, name)) > 1), [])
    if not rows:
        return None
    top = rows[0]
    second = next((row for row in rows if row["gpu"] != top["gpu"]), rows[1])
    joule = name == "per_joule"
    unit = f"{top['unit']}/J" if joule else f"{top['unit']}/s per {gpus.held.currency} 1000"
    return Answer(
        name=name, title=f"Most per {'joule' if joule else gpus.held.currency}", 
        figure=str(top["machine"] if gpus.noun == "machine" else top["gpu"]),
        text=f"{words.with_unit(top[name], unit)} for {words.model(top['model'])}; next is {gpus.who(second)}: "
        f"{words.short(second[name])}. Not tested.",
        note=f"{'Power' if joule else 'Price'} of the GPU alone, {setting(top)}.", chart="worth", value=top[name], unit=unit,
    )  # fmt: skip


def first_two(gpus: Gpus) -> tuple[str, str] | None:
    """The highest mean, and the next, or the baseline where both have no workload in common."""
    names = [gpu for gpu, _ in gpus.ranked(gpus.least)]
    beside = [*names[1:2], *(one for one in (gpus.relative.baseline, *names[1:]) if one != names[0])]
    return next(((names[0], other) for other in beside if gpus.mean(names[0], other, gpus.least)), None)


def _lead(gpus: Gpus) -> Iterator[str]:
    """At most 30 words: who is how much faster, what several devices bring."""
    names = first_two(gpus)
    found = beside(gpus, *names) if names else None
    if names is None or found is None:
        yield f"No workload was measured on two {gpus.noun}s with as many devices."
    else:
        mean, verdict, many = found
        effect = words.effect(mean.interval.value)
        one = "one " if gpus.noun == "GPU" and gpus.least == 1 else ""
        first = f"{one.capitalize()}{names[0]}"
        yield (
            f"{first} is {verdict} than {one}{names[1]}: {effect} over {many}." if mean.verdict == "FASTER"
            else f"{first} beside {one}{names[1]}: {effect} over {many}, {verdict}."
        )  # fmt: skip
    if found_ends := sorted(ends(gpus), key=lambda one: (-one[1], -one[2])):
        gpu, most, value, _ = found_ends[0]
        yield f"{most} × {gpu} do {words.ratio(value)} the work of one, {words.percent(value / most)} efficiency."
