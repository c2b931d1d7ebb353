"""Compare two sides of files: which cases are the same work, which figures have the same definition, and their ratios. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from torchmatrix.analysis import pairs, verdicts
from torchmatrix.analysis.intervals import Interval, geometric_mean
from torchmatrix.analysis.rows import group_by
from torchmatrix.core.formatting import without_nan
from torchmatrix_plugins.foreign.results import ESTIMATED, QUANTITIES, Case, Figure, ForeignFile

SHOWN = ("", "mean", "median", "p90", "p95", "p99", f"{ESTIMATED} p90", f"{ESTIMATED} p99")
"""The statistics that are compared: of mean and median the first that both have."""
_EITHER = {"mean", "median"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """How a figure of A compares with that of B: above 1, A is better. `a` and `b`: geometric means over so many runs."""

    case: str
    figure: str
    unit: str
    a: float
    b: float
    runs: tuple[int, int]
    ratio: Interval
    verdict: verdicts.Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """What isn't compared, and why."""

    case: str
    what: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All ratios of what both sides have. `doubts`: what the files themselves say against their figures, and failed requests.
    `unknown`: what decides the amount of work and neither side, or one, doesn't say. `setup`: how the sides' set-ups differ,
    A's and B's. `only_one`: cases of one side. `notes`: on versions that weren't tried.
    """

    doubts: tuple[str, ...]
    ratios: tuple[Ratio, ...]
    refused: tuple[Refused, ...]
    unknown: tuple[str, ...]
    setup: Mapping[str, tuple[str, str]]
    only_one: tuple[str, ...]
    notes: tuple[str, ...]

    def as_record(self) -> dict[str, Any]:
        """Return the comparison for --json."""
        record = asdict(self)
        record["rows"] = [
            row | pair.ratio.columns("ratio") | {"verdict": pair.verdict.verdict} | _test_of(pair.verdict)
            for row, pair in zip(record.pop("ratios"), self.ratios, strict=True)
        ]
        return dict(without_nan(record | {"correction": verdicts.CORRECTION}))


def _test_of(verdict: verdicts.Verdict) -> dict[str, Any]:
    return {"reason": verdict.reason, "adjusted_p_value": verdict.adjusted_p_value}


Cases: TypeAlias = Sequence[Case]
Compared: TypeAlias = tuple[str, Figure, Figure, pairs.Pair, tuple[int, int]]
"""The label of two cases, a figure of each, over all runs, their ratio, and the numbers of runs."""


def compare(a: Sequence[ForeignFile], b: Sequence[ForeignFile]) -> Comparison:
    """Compare the cases of two sides. Those of one label belong together; where each side has one alone, these two."""
    varying = _varying([*a, *b])
    sides = _by_label(a, varying), _by_label(b, varying)
    if all(len(side) == 1 for side in sides):
        shared = [(*sides[0], *sides[1])]
    else:
        shared = [(name, name) for name in sides[0] if name in sides[1]]
    rows: list[Compared] = []
    refused: list[Refused] = []
    unknown: dict[str, None] = {}
    for name, other in shared:
        cases = sides[0][name], sides[1][other]
        label = name or other
        if why := _other_work(*cases):
            refused.append(Refused(case=label, what="all figures", why=why))
            continue
        for key in _unknown(*cases):
            unknown[key] = None
        each, refusals = _figures(label, *cases)
        rows += each
        refused += refusals
    judged = verdicts.judged([row[3] for row in rows])
    ratios = tuple(
        Ratio(
            case=label, figure=above.name, unit=above.unit, a=above.value, b=below.value, runs=runs, ratio=pair.interval,
            verdict=verdict,
        )
        for (label, above, below, pair, runs), verdict in zip(rows, judged, strict=True)
    )  # fmt: skip
    names = {name for pair in shared for name in pair}
    only = [
        f"{side}: {name or 'a case'}" for side, cases in zip("AB", sides, strict=True) for name in cases if name not in names
    ]
    return Comparison(
        doubts=tuple(dict.fromkeys([*_doubts("A", a), *_doubts("B", b)])),
        ratios=ratios, refused=tuple(refused), unknown=tuple(unknown),
        setup=_setup(a, b), only_one=tuple(only), notes=tuple(dict.fromkeys(filter(None, (file.note for file in (*a, *b))))),
    )  # fmt: skip


def _varying(files: Sequence[ForeignFile]) -> Mapping[str, list[str]]:
    """Return by name in what cases of this name differ that one file holds, as a sweep does."""
    keys: dict[str, dict[str, None]] = {}
    for file in files:
        for name, cases in group_by(file.cases, lambda case: case.name).items():
            found = [{**case.setup, **case.work} for case in cases]
            keys.setdefault(name, {}).update(
                (key, None) for key in found[0] if not _alike(key, [found[0][key]], [one.get(key) for one in found])
            )
    return {name: list(each) for name, each in keys.items()}


def _by_label(files: Sequence[ForeignFile], varying: Mapping[str, list[str]]) -> dict[str, list[Case]]:
    def label(case: Case) -> str:
        said = {**case.setup, **case.work}
        return ", ".join(filter(None, [case.name, *(f"{key} {_values([said.get(key)])}" for key in varying[case.name])]))

    return group_by((case for file in files for case in file.cases), label)


def _works(cases: Cases) -> dict[str, list[Any]]:
    """Return each value of what decides the amount of work, over a side's cases; unknown ones are left out."""
    found: dict[str, list[Any]] = {}
    for case in cases:
        for key, value in case.work.items():
            if value is not None and value not in found.get(key, ()):
                found.setdefault(key, []).append(value)
    return found


NEARLY = 0.02
"""Tokens of prompts may differ by this share: tools add different numbers of special tokens, and lengths scatter."""


def _other_work(a: Cases, b: Cases) -> str:
    """Write why the cases aren't the same work, those of one side or those of both; "" if they are, as far as they say."""
    works = _works(a), _works(b)
    for side, work in zip("AB", works, strict=True):
        if mixed := [f"{key} {_values(values)}" for key, values in work.items() if not _alike(key, values[:1], values)]:
            return f"the files of {side} are not the same work: {'; '.join(mixed)}"
    first, second = works
    differs = [
        f"{key} {_values(first[key])} and {_values(second[key])}"
        for key in first
        if key in second and not _alike(key, first[key], second[key])
    ]
    return f"not the same work: {'; '.join(differs)}" if differs else ""


def _alike(key: str, a: Sequence[Any], b: Sequence[Any]) -> bool:
    every = [*a, *b]
    if "tokens" in key and all(isinstance(value, (int, float)) for value in every):
        return bool(max(every) <= (1 + NEARLY) * min(every))
    return set(a) == set(b)


def _values(values: Iterable[Any]) -> str:
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)


def _unknown(a: Cases, b: Cases) -> list[str]:
    keys = dict.fromkeys(key for case in (*a, *b) for key in case.work)
    known = _works(a), _works(b)
    sides = {key: [side for side, values in zip("AB", known, strict=True) if not values.get(key)] for key in keys}
    return [f"{key} ({' and '.join(missing)})" for key, missing in sides.items() if missing]


def _figures(label: str, a: Cases, b: Cases) -> tuple[list[Compared], list[Refused]]:
    """Return the ratios of a case, and the figures that both have by other definitions."""
    rows, refused = [], []
    for quantity, about in QUANTITIES.items():
        kinds = [_kinds(side, quantity) for side in (a, b)]
        common = [statistic for statistic in SHOWN if all(statistic in side for side in kinds)]
        if {*common} >= _EITHER:
            common.remove("median")
        for statistic in common:
            above, below = (side[statistic] for side in kinds)
            definitions = {figure.definition for figure in (*above, *below)}
            name = above[0].name
            if len(definitions) > 1:
                why = "A: {}; B: {}".format(
                    *(" and ".join(dict.fromkeys(f.definition for f in side)) for side in (above, below))
                )
                refused.append(Refused(case=label, what=name, why=f"other definitions: {why}"))
                continue
            values = _runs(above), _runs(below)
            first, second = values if about.more_is_better else (values[1], values[0])
            middle = [Figure(quantity=quantity, statistic=statistic, value=_mean(side)) for side in values]
            rows.append((label, middle[0], middle[1], pairs.pair(first, second), (len(values[0]), len(values[1]))))
        if not common and all(kinds):
            names = [", ".join(side) or "rate" for side in kinds]
            refused.append(Refused(case=label, what=quantity, why=f"other statistics: A: {names[0]}; B: {names[1]}"))
    if not rows and not refused:
        sides = [side for side, cases in zip("AB", (a, b), strict=True) if not any(case.figures for case in cases)]
        refused.append(
            Refused(case=label, what="all figures", why=f"{' and '.join(sides)} has none" if sides else "none is of both")
        )
    return rows, refused


def _kinds(cases: Cases, quantity: str) -> dict[str, list[Figure]]:
    figures = [figure for case in cases for figure in case.figures if figure.quantity == quantity]
    return group_by(figures, lambda figure: figure.statistic)


def _runs(figures: Sequence[Figure]) -> list[float]:
    """Return the figures of all runs: one of each file, or those of fresh processes that a file holds."""
    return [value for figure in figures for value in (figure.runs or (figure.value,))]


def _mean(values: Sequence[float]) -> float:
    return geometric_mean(values).value


def _doubts(side: str, files: Sequence[ForeignFile]) -> Iterator[str]:
    for case in (case for file in files for case in file.cases):
        yield from (f"{side}: {problem}" for problem in case.problems or ())
        if case.requests and case.requests.failed:
            yield f"{side}: {case.requests.failed} of {case.requests.ended} requests of a run failed, and are in no figure"


def _setup(a: Sequence[ForeignFile], b: Sequence[ForeignFile]) -> dict[str, tuple[str, str]]:
    sides = []
    for files in (a, b):
        found: dict[str, dict[str, None]] = {"tool": {}, "version": {}}
        for file in files:
            found["tool"][file.tool] = None
            found["version"][file.version or "unknown"] = None
            for case in file.cases:
                number = case.requests.completed if case.requests else None
                for key, value in {**case.setup, **({"requests": str(number)} if number else {})}.items():
                    found.setdefault(key, {})[value or "unknown"] = None
        sides.append({key: ", ".join(values) for key, values in found.items()})
    keys = dict.fromkeys([*sides[0], *sides[1]])
    texts = {key: (sides[0].get(key, "unknown"), sides[1].get(key, "unknown")) for key in keys}
    return {key: both for key, both in texts.items() if both[0] != both[1] or both == UNSAID}


UNSAID = ("unknown", "unknown")
