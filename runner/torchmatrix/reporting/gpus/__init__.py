"""GPUs compared: the default view of a page of several machines. Open first: answers.py, then the charts below."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torchmatrix.analysis.rows import FleetRow, group_by
from torchmatrix.core.formatting import count, is_known
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import BarRow as Bar
from torchmatrix.reporting.charts import Chart, Panel, round_values, scale_of
from torchmatrix.reporting.charts.files import Style
from torchmatrix.reporting.explorers.data import ShownCell
from torchmatrix.reporting.gpus import answers
from torchmatrix.reporting.gpus.answers import Gpus, Scope, Setting, Standing, setting_of
from torchmatrix.reporting.overview.answers import Answers
from torchmatrix.reporting.overview.cells import colours, grouped, span
from torchmatrix.reporting.overview.charts import line_of, scaling_bar

# The charts of a page of machines: each GPU's figures, the highest first; their ratios; versions of PyTorch; several devices.

MOST_MODELS = 6
VENDORS = ("NVIDIA", "AMD", "other")
COLOURS = (
    ("#2563a8", "#5a9fdc"), ("#d96f0d", "#f08a2c"), ("#17684c", "#4bc298"),
    ("#8db8e2", "#2f6391"), ("#3f7fc0", "#5a9fdc"), ("#0b2545", "#c3e0fb"),
)  # fmt: skip
"""Colours on white and on black: the vendors', then three for settings; those of PyTorch's releases follow."""


def _legend(gpus: Gpus) -> tuple[tuple[int, str], ...]:
    colours = sorted({gpus.colour(gpu) for gpu in gpus.names})
    return tuple((number, VENDORS[number]) for number in colours) if len(colours) > 1 else ()


def relative(gpus: Gpus) -> Chart | None:
    """Draw the means on the fewest and on the most devices of each; None where nothing is compared."""
    counts = sorted({pair.count for pair in gpus.relative.pairs})
    if not counts:
        return None
    ends = list(dict.fromkeys((counts[0], counts[-1])))
    rows = {count: tuple(_mean_bar(gpus, gpu, count) for gpu, _ in gpus.ranked(count)) for count in ends}
    every = [row for group in rows.values() for row in group]
    high = max(scale_of(every), *(stroke for row in every for stroke in row.strokes), 1.0) * 1.02
    ticks = tuple((value, f"{value:g}×") for value in round_values(0.0, high))
    return Chart(
        id="relative", nav=f"{gpus.noun} against {gpus.noun}", title=_relative_title(gpus),
        sub=f"Throughput over that of {gpus.relative.baseline} on as many devices, for the same workload and "
        f"{'batch' if gpus.relative.batch == 'same' else 'each at its own batch'}. Bar: the geometric mean over the workloads "
        f"that both measured; strokes: the workloads.{_alone(gpus)} "
        f"{gpus.rule.replace('It is', '± is').replace(' it is', ' ± is')}",
        panels=tuple((Panel(title=answers.of_each(gpus, count), unit=f"{gpus.relative.baseline} = 1×", rows=rows[count],
                            high=high, kind="rel", ticks=ticks),) for count in ends),
        legend=_legend(gpus),
    )  # fmt: skip


def _alone(gpus: Gpus) -> str:
    """Say which GPUs have no workload in common with the baseline."""
    compared = {gpu for count in gpus.counts for gpu, _ in gpus.ranked(count)}
    alone = [gpu for gpu in gpus.names if gpu not in compared]
    return f" Nothing in common with it: {words.enumerated(alone)}." if alone else ""


def _relative_title(gpus: Gpus) -> str:
    top, other = answers.first_two(gpus) or ("", "")
    mean, verdict, _ = answers.compared(gpus, top, other) or (None, "", "")
    if mean is None:
        return f"{gpus.noun} against {gpus.noun}"
    effect = words.effect(mean.interval.value)
    is_faster = mean.verdict == "FASTER"
    return f"{top} is {verdict} than {other}: {effect}" if is_faster else f"{top} beside {other}: {effect}, {verdict}"


def _mean_bar(gpus: Gpus, gpu: str, count: int) -> Bar:
    rows = [row for row in gpus.rows if row.gpu == gpu and row.count == count]
    mean = gpus.mean(gpu, gpus.relative.baseline, count) if gpu != gpus.relative.baseline else None
    if mean is None:
        many = f"{answers.workloads(sum(row.n > 0 for row in rows))} measured"
        return Bar(label=gpu, value=1.0, colour=gpus.colour(gpu), figures=("1×", "the baseline", many))
    value = mean.interval
    many = f"{gpus.of_workloads(gpu, gpus.relative.baseline, count)} in common{gpus.on(gpu, count)}"
    verdict = gpus.verdict(gpu, gpus.relative.baseline, count)
    low, high = (end if is_known(end) else None for end in (value.low, value.high))
    return Bar(
        label=gpu, value=value.value, low=low, high=high, colour=gpus.colour(gpu), strokes=tuple(gpus.ratios(gpu, count)),
        figures=(words.effect_with_interval(value), verdict, many),
    )  # fmt: skip


# A model's figures: of one device of each GPU, of whole machines, per joule and price; of each release of PyTorch; by devices.


def standings_charts(gpus: Gpus) -> list[Chart]:
    """Return the charts of one device of each GPU, of whole machines, per joule and per price, the highest first."""
    return [_standings_chart(gpus, scope) for scope in gpus.scopes.values()]


def _standings_chart(gpus: Gpus, scope: Scope) -> Chart:
    colours = _levels(scope)
    panels = tuple((_standings_panel(gpus, scope, job, colours),) for job in scope.jobs[:MOST_MODELS])
    several = any(row.machines > 1 for job in scope.jobs for row in job)
    return Chart(
        id="fastest" if scope.name == "device" else f"fastest-{scope.name}", nav=scope.nav,
        instead_of="" if scope.name == "device" else "fastest", choice=scope.choice, title=_standings_title(gpus, scope),
        sub=" ".join(filter(None, (
            f"{scope.sub} Each at its best PyTorch and {'batch' if gpus.relative.batch == 'same' else 'its largest batch'} in "
            "each setting of the legend; its bars lie over each other and begin at zero. PyTorch, bs (batch): of the longest.",
            "Where several machines have a GPU, the bar is their mean, and the strokes are the machines." if several else "",
        ))),
        panels=panels, legend=tuple((number, answers.setting_in_words(setting)) for setting, number in colours.items()),
        more=words.more(len(scope.jobs) - MOST_MODELS, "models"),
    )  # fmt: skip


def _levels(scope: Scope) -> dict[Setting, int]:
    """Return the colours of the settings of a chart, light to dark."""
    every = sorted({setting for job in scope.jobs[:MOST_MODELS] for setting in scope.settings(job)}, key=answers.rank_of)
    return {setting: 3 if setting == every[0] else 5 if setting == every[-1] else 4 for setting in every}


def _standings_title(gpus: Gpus, scope: Scope) -> str:
    """Name the highest of the first model, with its figure and setting."""
    job = scope.jobs[0]
    standings = scope.standings(job)
    top = next(standing.top for standing in standings if standing.top)
    read = ", of those known" if any(one.top is None or scope.is_partly_unknown(one) for one in standings) else ""
    figure, setting = words.with_unit(top.value(scope.column), scope.unit(top)), answers.setting_in_words(setting_of(top))
    return f"{scope.title(job)}: {scope.who(top)} {scope.does} {figure} with {setting}{read}"


def _standings_panel(gpus: Gpus, scope: Scope, job: Sequence[FleetRow], colours: Mapping[Setting, int]) -> Panel:
    settings, first = scope.settings(job), job[0]
    rows = tuple(_standing_bar(gpus, scope, standing, settings, colours) for standing in scope.standings(job))
    heads = [words.precision(precision) + (" + compile" if compiled else "") for precision, _, compiled in reversed(settings)]
    return Panel(
        title=scope.title(job), unit=scope.unit(first), rows=rows, high=scale_of(rows),
        kind=f"nest n{len(settings)}", heads=(heads[0], "", *heads[1:], "PyTorch", "bs"),
    )  # fmt: skip


def _standing_bar(
    gpus: Gpus, scope: Scope, standing: Standing, settings: Sequence[Setting], colours: Mapping[Setting, int]
) -> Bar:
    top = standing.top
    if top is None:
        return Bar(label=standing.who, problem=standing.problem, note=standing.note)
    layers = [(row.value(scope.column), colours[setting]) for setting, row in standing.rows.items()]
    low, high, machines = _limits(gpus, scope, top)
    figures = [_figure(standing, setting, scope.column) for setting in reversed(settings)]
    limits = _limits_in_words(gpus, scope, standing.rows.get(settings[-1]))
    if standing.is_apart:
        layers.append((top.value(scope.column), 2))
        also = f"; {figures[0]}" if settings[-1] in standing.rows else ""
        figures[0] = f"{words.short(top.value(scope.column))} with {answers.setting_in_words(setting_of(top))}{also}"
    return Bar(
        label=standing.who, value=top.value(scope.column), low=low, high=high, layers=tuple(sorted(layers, reverse=True)),
        strokes=machines, figures=(figures[0], limits, *figures[1:], gpus.release(top), str(top.batch)), note=standing.note,
    )  # fmt: skip


def _figure(standing: Standing, setting: Setting, column: str) -> str:
    row = standing.rows.get(setting)
    return words.short(row.value(column)) if row else standing.lacks.get(setting, "–")


def _limits(gpus: Gpus, scope: Scope, row: FleetRow) -> tuple[float | None, float | None, tuple[float, ...]]:
    """Return both ends of a throughput's interval, or instead the figures of several machines, whose mean it is."""
    machines = gpus.of_machines(row) if scope.is_rate else []
    low, high = (end if scope.is_rate and not machines and is_known(end) else None for end in (row.low, row.high))
    return low, high, tuple(machines)


def _limits_in_words(gpus: Gpus, scope: Scope, row: FleetRow | None) -> str:
    """Write the interval of a throughput, or how far its machines lie apart; "" for other figures."""
    if row is None or not scope.is_rate:
        return ""
    low, high, machines = _limits(gpus, scope, row)
    if machines:
        return f"{words.percent(max(machines) / min(machines) - 1)} apart"
    return words.rate_interval(row.value(scope.column), low, high) or ("1 launch" if row.n == 1 else "")


def _jobs(gpus: Gpus) -> list[list[FleetRow]]:
    """Return the rows of single devices by what they compute."""
    return gpus.scopes["device"].jobs if "device" in gpus.scopes else []


def versions(gpus: Gpus) -> Chart | None:
    """Draw for each model and setting each GPU with a bar for each release of PyTorch; None where no GPU measured two."""
    jobs = _jobs(gpus)
    releases = gpus.releases
    if len(releases) < 2 or not jobs:
        return None
    return Chart(
        id="versions", nav="Versions", title=_versions_title(gpus),
        sub=f"Items per second of {answers.of_each(gpus, gpus.least)}, at the best batch (bs) of each; the panels of a model "
        f"share a scale. A group is a {gpus.noun}, a bar a release of PyTorch.",
        panels=tuple(_version_panels(gpus, job) for job in jobs[:MOST_MODELS]),
        legend=tuple((_FIRST_RELEASE + number, release) for number, release in enumerate(releases)),
        more=words.more(len(jobs) - MOST_MODELS, "models"),
    )  # fmt: skip


_FIRST_RELEASE = len(COLOURS)
"""The colour of the oldest release."""


def _versions_title(gpus: Gpus) -> str:
    """Say what the newest release brings over the oldest, on the GPUs that measured both alike."""
    first, last = gpus.releases[0], gpus.releases[-1]
    by_gpu = {gpu: mean for gpu in gpus.order if (mean := gpus.release_mean(gpu, last, first))}
    means, where = list(by_gpu.values()), words.enumerated(by_gpu)
    newest, oldest = (release.removeprefix("torch ") for release in (last, first))
    if not means:
        return f"PyTorch {oldest} to {newest} on each {gpus.noun}"
    verdicts = {mean.verdict for mean in means}
    verdict = words.verdict(verdicts.pop()) if len(verdicts) == 1 else "verdicts differ"
    effects = span([mean.interval.value for mean in means], words.effect)
    return f"PyTorch {newest} beside {oldest}: {effects} on {where}, {verdict}"


def _version_panels(gpus: Gpus, job: Sequence[FleetRow]) -> tuple[Panel, ...]:
    groups = grouped(sorted(job, key=lambda row: answers.rank_of(setting_of(row))), setting_of)
    bars = [_version_bars(gpus, group) for group in groups]
    high = scale_of(bar for panel in bars for bar in panel)
    return tuple(
        Panel(title=f"{gpus.scopes['device'].title(job)}, {answers.setting_in_words(setting_of(group[0]))}",
              unit=f"{group[0].unit}/s", rows=panel, high=high, kind="bars gpu")
        for group, panel in zip(groups, bars, strict=True)
    )  # fmt: skip


def _version_bars(gpus: Gpus, rows: Sequence[FleetRow]) -> tuple[Bar, ...]:
    bars: list[Bar] = []
    for gpu in gpus.order:
        by_release = group_by((row for row in rows if row.gpu == gpu), lambda row: row.stack_class)
        best = {name: max(same, key=lambda row: row.throughput if row.n else 0.0) for name, same in by_release.items()}
        for number, release in enumerate(gpus.releases):
            bar = _version_bar(gpus, best.get(release), release, _FIRST_RELEASE + number)
            bars.append(replace(bar, head="" if number else gpu))
    return tuple(bars)


def _version_bar(gpus: Gpus, row: FleetRow | None, release: str, colour: int) -> Bar:
    label = release.removeprefix("torch ")
    if row is None or not row.n:
        why = row.why if row and row.why in words.OUTCOMES else ""
        return Bar(label=label, colour=colour, problem=words.failed(why))
    scope = gpus.scopes["device"]
    low, high, machines = _limits(gpus, scope, row)
    return Bar(
        label=label, value=row.throughput, low=low, high=high, colour=colour, strokes=machines,
        figures=(words.short(row.throughput), _limits_in_words(gpus, scope, row), f"bs{words.SPACE}{row.batch}"),
        note=f"{row.workload}, {row.stack}",
    )  # fmt: skip


def scaling(gpus: Gpus) -> Chart | None:
    """Draw what one, two and more devices of each GPU do, in the first and the best setting of each model."""
    if not gpus.scaled:
        return None
    counts = words.enumerated(map(str, sorted({1, *(row.N for row in gpus.scaled)})), 9)
    jobs = gpus.tasks
    return Chart(
        id="scaling", nav="Scaling", title=_scaling_title(gpus),
        sub=f"Items per second of {counts} {gpus.device}s, the multiple of one, and efficiency: the multiple over the number. "
        f"Dashed: the ideal. Each panel has its own scale; each {gpus.noun} at its best PyTorch and batch, where several "
        "machines have one, the most and the least efficient of them.",
        panels=tuple(_device_panels(gpus, job) for job in jobs[:MOST_MODELS]), legend=_legend(gpus),
        more=words.more(len(jobs) - MOST_MODELS, "models"),
    )  # fmt: skip


def _scaling_title(gpus: Gpus) -> str:
    ranked = sorted(answers.ends(gpus), key=lambda end: -end.efficiency)
    if not ranked:
        return "More than the ideal: look for a wrong baseline"
    best, worst = ranked[0], ranked[-1]
    title = f"{best.name} reach {words.percent(best.efficiency)} of the ideal"
    return title if best is worst else f"{title}, {worst.name} {words.percent(worst.efficiency)}"


def _device_panels(gpus: Gpus, job: Sequence[ShownCell]) -> tuple[Panel, ...]:
    """Return a panel for the first and one for the best setting."""
    settings = answers.settings_of(map(gpus.setting, job))
    shown = list(dict.fromkeys((settings[0], settings[-1])))
    panels = []
    for setting in shown:
        lines = [(gpu, line) for gpu in gpus.order for line in _lines(gpus, job, gpu, setting)]
        rows = [bar for gpu, line in lines for bar in _device_bars(gpus, gpu, line)]
        title = f"{gpus.cells.model(job[0])}, {answers.setting_in_words(setting)}"
        high = max((row.ideal or 0.0 for row in rows), default=1.0)
        panels.append(Panel(title=title, unit=f"{job[0].unit}/s", rows=tuple(rows), high=high, kind="scale"))
    return tuple(panels)


def _lines(gpus: Gpus, job: Sequence[ShownCell], gpu: str, setting: Setting) -> list[list[ShownCell]]:
    """Return for each machine with a GPU the cells of the highest figure on the most devices, and of fewer devices in the same
    settings; of more than two machines those of the most and the least efficient one.
    """
    ends = [row for row in job if gpus.name(row) == gpu and gpus.setting(row) == setting]
    best = [max(rows, key=lambda row: (row.N, row.rate)) for rows in group_by(ends, lambda row: row.value("machine")).values()]
    best.sort(key=lambda row: -(row.S or 0.0) / row.N)
    return [line_of(gpus.cells, gpus.cells.rows, row) for row in (best if len(best) < 3 else (best[0], best[-1]))]


def _device_bars(gpus: Gpus, gpu: str, line: Sequence[ShownCell]) -> list[Bar]:
    rate_of_one = next(row.rate / row.S for row in line if row.S)
    bars = [scaling_bar(gpus.cells, row, gpus.colour(gpu), rate_of_one) for row in line]
    machine = gpus.cells.label(line[0], "machine")
    several = gpus.noun == "GPU" and len({row.machine for row in gpus.scaled if gpus.name(row) == gpu}) > 1
    return [replace(bars[0], head=f"{gpu} · {machine}" if several else gpu), *bars[1:]]


__all__ = ["ComparedGpus", "Gpus", "count", "shown"]


MOST = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """A table of GPUs over GPUs. `cells`: by row, for each column ratio, interval, verdict in words and colour."""

    gpus: tuple[str, ...]
    cells: tuple[tuple[tuple[str, str, str, str], ...], ...]
    left_out: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedGpus:
    """The default view of machines. `charts`: in the page's order; `pairs`: every pair of GPUs, None for a single one.
    `releases`: of PyTorch, whose colours follow COLOURS.
    """

    answers: Answers
    charts: tuple[Chart, ...]
    pairs: Pairs | None
    releases: tuple[str, ...]
    style: Style

    @property
    def first(self) -> Panel | None:
        """Return the panel that stands beside the answers."""
        return self.charts[0].panels[0][0] if self.charts else None


def shown(gpus: Gpus) -> ComparedGpus:
    """Build the default view of a page of machines."""
    charts = [*standings_charts(gpus), relative(gpus), versions(gpus), scaling(gpus)]
    return ComparedGpus(
        answers=answers.answers(gpus), charts=tuple(chart for chart in charts if chart), pairs=pairs(gpus),
        releases=tuple(gpus.releases),
        style=Style(colours=[light for light, _ in (*COLOURS, *colours(gpus.releases))], source=gpus.source),
    )  # fmt: skip


def pairs(gpus: Gpus) -> Pairs | None:
    """Compare every pair on the fewest devices; None for fewer than two GPUs with a figure."""
    names = gpus.order[:MOST]
    if len(names) < 2 or not gpus.counts:
        return None
    cells = tuple(tuple(_cell(gpus, gpu, over) for over in names) for gpu in names)
    return Pairs(gpus=tuple(names), cells=cells, left_out=len(gpus.order) - len(names))


def _cell(gpus: Gpus, gpu: str, over: str) -> tuple[str, str, str, str]:
    if gpu == over:
        return "1×", "", "", ""
    mean = gpus.mean(gpu, over, gpus.least)
    if mean is None:
        return "–", "", "not compared", ""
    value = mean.interval
    limits = words.effect_interval(value.value, value.low, value.high)
    colour = {"FASTER": "good", "SLOWER": "bad"}.get(mean.verdict, "")
    return words.effect(value.value, value.low, value.high), limits, gpus.verdict(gpu, over, gpus.least), colour
