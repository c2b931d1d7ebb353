"""One run -> the rows of every exported table, as plain values under the keys that columns.py calls sources."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchmatrix.analysis import gpu_specs, prices
from torchmatrix.analysis.cube_points import word_of
from torchmatrix.analysis.effects import Cube, cubes_of
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.prices import PriceList
from torchmatrix.analysis.published import audit, claims, figures
from torchmatrix.analysis.published.claims import Section
from torchmatrix.analysis.published.figures import Measured
from torchmatrix.analysis.rows import Column, Row, a_number, a_text, a_whole, an_interval, is_ok
from torchmatrix.analysis.run_summary import Installed
from torchmatrix.analysis.time_split import latency_rows
from torchmatrix.facts.wire import END_TO_END, LATENCY
from torchmatrix.reporting.view import View

# Cubes as tables: the effect of each setting, the variance it explains, and the way to the best combination.

_CUBE = (
    a_text("model", "what is trained or run"), a_text("mode", "train or infer"), a_text("devices", "the device set"),
)  # fmt: skip
CUBE_TABLES: Mapping[str, tuple[Column, ...]] = {
    "effects": (
        *_CUBE, a_text("setting", "the setting with its value"), a_text("over", "the usual value"),
        *an_interval("ratio", DEFINITIONS["effect"], "ratio"),
        a_number("ratio_smallest", "the smallest ratio of a pair", "least"),
        a_number("ratio_largest", "the largest ratio of a pair", "most"),
        a_whole("pairs", "pairs of cells with a ratio", "n"), a_whole("pairs_missing", "pairs without one", "missing"),
        a_text("negative_control", "of a setting that can't matter: still, moved or uncertain; otherwise empty", "control"),
    ),
    "interactions": (
        *_CUBE, a_text("settings", "one setting, or two for what they do only together"),
        a_number("variance_fraction", DEFINITIONS["explained"], "share"),
        a_number("adjusted_p_value", "of the F test, corrected for all of the cube"),
        a_text("sentence", "what the two do together, where that is shown"),
    ),
    "cheap_way": (
        *_CUBE, a_whole("step", "the number of the step, from 1"), a_text("setting", "what is changed in it"),
        a_text("cell", "the cell that it leads to"), *an_interval("gain", "its speed over that of the cell before", "gain"),
        *an_interval("gain_so_far", "its speed over that of the usual settings", "so_far"),
    ),
}  # fmt: skip
ABOUT_CUBES = {
    "effects": "one row per setting of each job whose settings were varied together: what it does",
    "interactions": "one row per setting and pair of settings: how much of the variance of log speed it explains",
    "cheap_way": "one row per step from the usual settings towards the best combination",
}


def rows_of(launches: Iterable[Row]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the tables of cubes."""
    cubes = cubes_of(launches)
    return {
        "effects": [row for cube in cubes for row in _effects(cube)],
        "interactions": [row for cube in cubes for row in _interactions(cube)],
        "cheap_way": [row for cube in cubes for row in _steps(cube)],
    }


def _job(cube: Cube) -> dict[str, Any]:
    return {"model": cube.points.model, "mode": cube.points.mode, "devices": cube.points.devices}


def _effects(cube: Cube) -> Iterable[dict[str, Any]]:
    for effect in cube.effects:
        names = {"setting": word_of(effect.setting, effect.value), "over": word_of(effect.setting, effect.over)}
        rest = {name: getattr(effect, name) for name in ("least", "most", "n", "missing", "control")}
        yield _job(cube) | names | effect.found.columns("ratio") | rest


def _interactions(cube: Cube) -> Iterable[dict[str, Any]]:
    sentences = {frozenset((pair.setting, pair.other)): pair.sentence for pair in cube.interactions.together}
    for part in cube.interactions.explained:
        row = {"settings": " x ".join(part.settings), "share": part.share, "adjusted_p_value": part.adjusted_p_value}
        yield _job(cube) | row | {"sentence": sentences.get(frozenset(part.settings))}


def _steps(cube: Cube) -> Iterable[dict[str, Any]]:
    for number, step in enumerate(cube.best.steps if cube.best else (), 1):
        row = {"step": number, "setting": word_of(step.setting, step.value), "cell": step.point.row["cell"]}
        yield _job(cube) | row | step.gain.columns("gain") | step.so_far.columns("so_far")


def cells(table: Sequence[Row], price_list: PriceList) -> list[Row]:
    """Return the rows of the cells (run_summary.cells_table) with their prices."""
    return [
        row
        | {
            "throughput_low": row["low"],
            "throughput_high": row["high"],
            "items_per_currency": 3600 * row["throughput"] / prices.cost(price_list, row, "per_hour"),
            "items_per_second_per_currency": row["throughput"] / prices.cost(price_list, row, "purchase"),
            "currency": price_list.currency or None,
        }
        for row in table
    ]


def launches(view: View) -> list[Row]:
    """Return all launches that count, each with its start and the name of its file."""
    return [
        row | {"started_unix_seconds": started, "file": _file_of(row["path"], view.id)}
        for row, started in zip(view.summary.launches, view.details.started, strict=True)
    ]


def others(view: View, price_list: PriceList) -> dict[str, list[Row]]:
    """Return all other tables by name."""
    measured = view.measured
    section = claims.section(claims.preset_of(view.record.matrix), measured, view.scaling)
    return {
        "scaling": view.scaling,
        "decomposition": view.decomposition,
        "nodes": view.nodes,
        "collectives": view.collectives,
        "devices": view.devices,
        "phases": list(view.details.phases),
        "steps": list(view.details.steps),
        "latency": latency_rows(view.summary.launches, LATENCY),
        "end_to_end": latency_rows(view.summary.launches, END_TO_END),
        "compiles": view.compiles,
        **rows_of(view.summary.launches),
        "speedups": [_compared(row) for row in view.ratios.speedups],
        "settings": [_compared(row) for row in view.ratios.settings],
        "gpus": gpu_specs.gpu_table(view.every_cell),
        "stacks": list(map(_stack, view.details.installed)),
        "skips": [
            {"cell": skip.name.cell, "stack": skip.name.stack, "reason": skip.reason, "fix": skip.fix}
            for skip in view.record.skips
        ],
        "failures": _failures(view),
        "findings": _findings(measured, figures.mixed(view.index.figures)),
        "published": _published(section),
        "claims": _claims(section),
        "prices": [_fields_of(price) for price in price_list.prices.values()],
    }


def _fields_of(noun: Any) -> Row:
    """Convert a frozen dataclass to a row."""
    return {name: getattr(noun, name) for name in noun.__dataclass_fields__}


def _compared(row: Row) -> Row:
    return {**row, "ratio_low": row["low"], "ratio_high": row["high"]}


def _file_of(path: str, run: str) -> str:
    """Return a path relative to the run's folder, as facts_archive names it."""
    parts = path.split("/")
    start = max((i for i, part in enumerate(parts) if part == run), default=len(parts) - 1)
    return "/".join(parts[start:])


def _stack(installed: Installed) -> Row:
    box, image, engine = installed.box, installed.image, installed.engine
    return {
        **{key: box.facts.get(key) for key in ("torch", "python", "cuda", "hip", "cudnn", "nccl", "triton", "glibc", "os")},
        "stack": installed.stack,
        "torchvision": box.versions.get("torchvision"),
        "transformers": box.versions.get("transformers"),
        "image": image.get("tag") or image.get("reference"),
        "image_id": image.get("id"),
        **{key: image.get(key) for key in ("base", "base_digest", "lock_sha256")},
        "engine": engine.get("engine"),
        "engine_version": engine.get("ServerVersion") or engine.get("version"),
        "packages": box.packages,
    }


def _failures(view: View) -> list[Row]:
    names = ("cell", "stack", "workload", "devices", "round", "outcome", "error", "command")
    return [
        {name: row[name] for name in names} | {"seen": error, "file": _file_of(row["path"], view.id)}
        for row, error in zip(view.summary.launches, view.details.errors, strict=True)
        if not is_ok(row)
    ]


def _findings(measured: Sequence[Measured], mixed: Sequence[str]) -> list[Row]:
    """Return the findings and what could not be checked: an empty table would say that all is well."""
    figures = [cell.figure for cell in measured]
    findings = [_fields_of(finding) for finding in audit.check(figures)]
    empty = {"level": "unchecked", "field": "throughput", "value": "", "unit": "", "limit": ""}
    return findings + [empty | _fields_of(figure) for figure in audit.checked(figures, mixed).unchecked]


def _published(section: Section | None) -> list[Row]:
    rows = []
    for pair in section.throughputs if section else ():
        numbers = pair.ours.cell.estimate().columns("ours") | pair.ratio.columns("ratio") | {"theirs": pair.theirs.throughput}
        rows.append({**_fields_of(pair.theirs), **_fields_of(pair), "cell": pair.ours.figure.cell} | numbers)
    return rows


def _claims(section: Section | None) -> list[Row]:
    rows = []
    for tested in section.claims if section else ():
        claim = tested.claim
        ranges = {"claimed_low": claim.low, "claimed_high": _end(claim.high), "low": tested.low, "high": _end(tested.high)}
        rows.append({**_fields_of(claim), **_fields_of(tested)} | ranges | tested.ours.columns("ours"))
    return rows


def _end(value: float) -> float:
    """Return the end of a range; NaN if it has no upper end."""
    return math.nan if math.isinf(value) else value
