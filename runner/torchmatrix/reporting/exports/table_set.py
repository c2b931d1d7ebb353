"""One run, or several machines -> named tables with exactly the documented columns, each of a fixed type."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from msgspec import structs

from torchmatrix.analysis import across, facts_cache, gpu_specs, prices, published, run_summary, scaling, speedups, time_split
from torchmatrix.analysis.across import Relative
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.cube_points import word_of
from torchmatrix.analysis.effects import Cube, cubes_of
from torchmatrix.analysis.launch_row import columns_of
from torchmatrix.analysis.machines import Chosen, fleet_gpu_table, worth
from torchmatrix.analysis.prices import NONE, PriceList
from torchmatrix.analysis.published import Measured, audit, claims
from torchmatrix.analysis.published.claims import Section
from torchmatrix.analysis.rows import CellRow, Column, LaunchRow, Row, is_ok
from torchmatrix.analysis.run_summary import Installed, RunDetails, RunSummary, WholeRun
from torchmatrix.analysis.speedups import Ratios
from torchmatrix.analysis.time_split import latency_rows
from torchmatrix.core.formatting import number_or_nan
from torchmatrix.core.secrets import cleaned
from torchmatrix.facts.run_record import RunRecord
from torchmatrix.facts.store import RunFolder
from torchmatrix.facts.wire import END_TO_END, LATENCY
from torchmatrix.reporting.exports.columns import EVERY_TABLE, MACHINE_TABLES, TABLES
from torchmatrix.reporting.exports.formats import Values

# A run as its report shows it: the facts of its final attempts, and the tables made from them.


@dataclass(frozen=True, kw_only=True)
class View:
    """A run and its tables. `summary`, `details`: the facts of its launches, the tables' source. `cells`: cells of DDP or one
    device. `price_list`: what the devices cost."""

    id: str
    record: RunRecord
    summary: RunSummary
    details: RunDetails
    index: CellIndex
    every_cell: list[CellRow]
    cells: list[CellRow]
    scaling: list[Row]
    decomposition: list[Row]
    nodes: list[Row]
    collectives: list[Row]
    devices: list[Row]
    compiles: list[Row]
    ratios: Ratios
    price_list: PriceList = NONE

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        """Return the cells in the form of published figures."""
        return published.measured(self.index.figures)

    @property
    def not_ok(self) -> int:
        """Count the launches that count but have no figure."""
        return sum(not is_ok(row) for row in self.summary.launches)

    @property
    def pending(self) -> list[str]:
        """Return the planned cells that have not been launched."""
        launched = {row.cell for row in self.summary.launches} | {cell for cell, _ in self.details.repeated}
        return [name.cell for name in self.record.planned if name.cell not in launched]


def view_of(run: RunFolder, baseline: str | None = None, found: WholeRun | None = None, price_list: PriceList = NONE) -> View:
    """Build the view of a run's facts; `baseline` as in make_view; `found`: its launches, if they were read."""
    return make_view(run.id, run.read_record(), found or facts_cache.whole_from_files(run), baseline, price_list)


def make_view(
    run_id: str, record: RunRecord, found: WholeRun, baseline: str | None = None, price_list: PriceList = NONE
) -> View:
    """Build the view of facts already read. `baseline`: the stack of reference for ratios; default: the first in the matrix.
    Raises BadInput if that stack has no cell.
    """
    summary = found.summary.charged(price_list)
    cells = summary.cells
    every_cell, figures = run_summary.cells_table(cells.every), {cell.row.cell for cell in cells.figures}
    return View(
        id=run_id,
        record=record,
        summary=summary,
        details=found.details,
        index=cells,
        every_cell=every_cell,
        cells=[row for row in every_cell if row.of.cell in figures],  # the others explain a loss, in a table of their own
        scaling=scaling.scaling_table(cells),
        decomposition=scaling.decomposition_table(cells),
        nodes=scaling.nodes_table(cells),
        collectives=scaling.collectives_table(summary.launches),
        devices=scaling.devices_table(cells),
        compiles=time_split.compiles_table(cells),
        ratios=speedups.ratios_of(cells, baseline),
        price_list=price_list,
    )


# Cubes as tables: the effect of each setting, the variance it explains, and the way to the best combination.


def cube_rows(launches: Iterable[LaunchRow]) -> dict[str, list[dict[str, Any]]]:
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
        row = {"step": number, "setting": word_of(step.setting, step.value), "cell": step.point.row.cell}
        yield _job(cube) | row | step.gain.columns("gain") | step.so_far.columns("so_far")


def cell_rows(table: Sequence[CellRow], price_list: PriceList) -> list[Row]:
    """Return the rows of the cells (run_summary.cells_table) with their prices."""
    return [
        columns_of(row)
        | {
            "throughput_low": row.low,
            "throughput_high": row.high,
            "items_per_second_per_currency": row.throughput / prices.purchase(price_list, row.of),
            "currency": price_list.currency or None,
        }
        for row in table
    ]


def launch_rows(view: View) -> list[Row]:
    """Return all launches that count, each with its start and the name of its file."""
    return [
        columns_of(row) | {"started_unix_seconds": started, "file": _file_of(row.path, view.id)}
        for row, started in zip(view.summary.launches, view.details.started, strict=True)
    ]


def other_rows(view: View) -> dict[str, list[Row]]:
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
        **cube_rows(view.summary.launches),
        "speedups": [ratio.columns() for ratio in view.ratios.speedups],
        "settings": [ratio.columns() for ratio in view.ratios.settings],
        "gpus": gpu_specs.gpu_table(view.every_cell),
        "stacks": list(map(_stack, view.details.installed)),
        "skips": [
            {"cell": skip.cell, "stack": skip.stack, "reason": skip.reason, "fix": skip.fix} for skip in view.record.skips
        ],
        "failures": _failures(view),
        "findings": _findings(view.every_cell, measured, published.mixed(view.index.figures)),
        "published": _published(section),
        "claims": _claims(section),
        "prices": [_fields_of(price) for price in view.price_list.prices.values()],
    }


def _fields_of(noun: Any) -> Row:
    """Convert a frozen dataclass to a row."""
    return {name: getattr(noun, name) for name in noun.__dataclass_fields__}


def _file_of(path: str, run: str) -> str:
    """Return a path relative to the run's folder, as facts_archive names it."""
    parts = path.split("/")
    start = max((i for i, part in enumerate(parts) if part == run), default=len(parts) - 1)
    return "/".join(parts[start:])


_REPORTED = ("torch", "python", "cuda", "hip", "cudnn", "nccl", "triton", "glibc", "os")


def _stack(installed: Installed) -> Row:
    image, engine = installed.image, installed.engine
    return {
        **{key: installed.reported.get(key) for key in _REPORTED},
        "stack": installed.stack,
        "torchvision": installed.versions.get("torchvision"),
        "transformers": installed.versions.get("transformers"),
        "image": image.get("tag") or image.get("reference"),
        "image_id": image.get("id"),
        **{key: image.get(key) for key in ("base", "base_digest", "lock_sha256")},
        "engine": engine.get("engine"),
        "engine_version": engine.get("ServerVersion") or engine.get("version"),
        "packages": installed.packages,
    }


def _failures(view: View) -> list[Row]:
    names = ("cell", "stack", "workload", "devices", "round", "outcome", "error", "command")
    return [
        {name: row.value(name) for name in names} | {"seen": error, "file": _file_of(row.path, view.id)}
        for row, error in zip(view.summary.launches, view.details.errors, strict=True)
        if not is_ok(row)
    ]


def _findings(table: Sequence[CellRow], measured: Sequence[Measured], mixed: Sequence[str]) -> list[Row]:
    """Return the findings and what could not be checked: an empty table would say that all is well."""
    figures = [cell.figure for cell in measured]
    findings = [_fields_of(finding) for finding in audit.findings(table, figures)]
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


# The rows of several machines.


class Compared(Protocol):
    """The source of the rows: the machines, each with its run, and the tables of all their launches."""

    @property
    def chosen(self) -> Sequence[Chosen]: ...
    @property
    def cells(self) -> list[CellRow]: ...
    @property
    def scaling(self) -> list[Row]: ...
    @property
    def price_list(self) -> PriceList: ...


def machine_rows(facts: Compared, relative: Relative) -> dict[str, list[Row]]:
    """Return the rows of each table."""
    machines, base = [choice.machine for choice in facts.chosen], {"baseline_gpu": relative.baseline}
    gpus = {machine.label: machine.gpu for machine in machines}
    no_limits = {"ratio_low": math.nan, "ratio_high": math.nan}
    return {
        "machines": [_machine(choice) for choice in facts.chosen],
        "machine_gpus": fleet_gpu_table(machines, facts.cells),
        "machine_cells": _machine_cells(facts.cells, facts.price_list),
        "machine_scaling": [row | {"gpu": gpus[row["machine"]]} for row in facts.scaling],
        "relative": [structs.asdict(row) | base for row in relative.table],
        "relative_means": [structs.asdict(row) | no_limits | base for row in across.relative_means(relative)],
        "not_compared": [
            {
                "gpu": pair.a, "baseline_gpu": pair.b, "field": pair.field, "cells": pair.rows,
                "values": [f"{a} and {b}" for a, b in pair.values],
            }
            for pair in relative.refused
        ],
    }  # fmt: skip


def _machine(choice: Chosen) -> Row:
    machine = choice.machine
    names = ("gpu", "gpu_count", "cpu", "cores", "memory_bytes", "driver", "os", "kernel", "verified")
    values = {name: getattr(machine, name) for name in names}
    return values | {"machine": machine.label, "run": choice.run.id, "note": choice.note}


def _machine_cells(table: Sequence[CellRow], price_list: PriceList) -> list[Row]:
    """Return the cells with their yield per watt and GiB."""
    yields = [worth(row, price_list) for row in table]
    return [
        row | {name: getattr(each, name, None) for name in ("per_watt", "per_gb")}
        for row, each in zip(cell_rows(table, price_list), yields, strict=True)
    ]


_LARGEST = 2**63
_FEW_VALUES = frozenset({str, bool, type(None)})
"""Types with few distinct values; no value of one equals a value of another."""


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The tables of one run by name, in the order of columns.TABLES; `run` is its id."""

    run: str
    values: Mapping[str, Values]


def of(view: View) -> Tables:
    """Build all tables of a run; a table without rows still has its columns."""
    return _tables(view.id, TABLES, _launched(view) | other_rows(view))


def of_machines(facts: Compared, relative: Relative) -> Tables:
    """Build all tables of several machines, and how they compare with the baseline GPU."""
    return _tables("of machines", MACHINE_TABLES, machine_rows(facts, relative))


def launched(view: View) -> Tables:
    """Build only the tables of cells and launches, which are most of the data."""
    return _tables(view.id, TABLES, _launched(view))


def _launched(view: View) -> dict[str, list[Row]]:
    return {"cells": cell_rows(view.every_cell, view.price_list), "launches": launch_rows(view)}


def _tables(run: str, columns: Mapping[str, tuple[Column, ...]], by_table: Mapping[str, Iterable[Row]]) -> Tables:
    """Make tables of these rows, in the order of the columns' tables."""
    return Tables(run=run, values={name: _values(columns[name], by_table[name]) for name in columns if name in by_table})


def described(names: Iterable[str]) -> Values:
    """Describe every column of these tables: one row each, with table, column, kind and meaning."""
    entries = [(name, column.name, column.kind, column.meaning) for name in names for column in EVERY_TABLE[name]]
    return dict(zip(("table", "column", "kind", "meaning"), map(list, zip(*entries, strict=True)), strict=True))


def _values(columns: Sequence[Column], rows: Iterable[Row]) -> Values:
    """Convert rows to a table; lists become JSON text."""
    contents = list(zip(*([row.get(column.source) for column in columns] for row in rows), strict=True)) or [()] * len(columns)
    kinds = ["path" if column.source == "file" else column.kind for column in columns]
    return {column.name: _column(kind, list(values)) for column, kind, values in zip(columns, kinds, contents, strict=True)}


def _column(kind: str, values: list[Any]) -> list[Any]:
    """Convert a column's values: most texts repeat, so each is converted once; most numbers need no conversion."""
    convert, types = _CONVERTERS[kind], set(map(type, values))
    if types <= _FEW_VALUES:
        converted = {value: convert(value) for value in set(values)}
        return [converted[value] for value in values]
    if kind == "number" and types == {float}:
        return [None if math.isnan(value) else value for value in values]
    return list(map(convert, values))


def _text(value: Any) -> str | None:
    """Return a text without credentials, and without lone surrogates, which a workload may print but no file can hold."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return _encodable(cleaned(str(value)))


def _path(value: Any) -> str | None:
    """Return a path in the archive as a text; its parts are few, the paths of launches many."""
    return None if value is None else _encodable("/".join(map(cleaned, str(value).split("/"))))


def _encodable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _whole(value: Any) -> int | None:
    """Return a whole number, although pandas turns whole numbers into floats if one is unknown."""
    number = number_or_nan(value)
    return int(value) if number.is_integer() and abs(number) < _LARGEST else None


def _number(value: Any) -> float | None:
    number = number_or_nan(value)
    return None if math.isnan(number) else number


def _list(value: Any) -> str | None:
    if not isinstance(value, (list, tuple)):
        return None
    return _encodable(json.dumps([cleaned(str(item)) for item in value], ensure_ascii=False))


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "text": _text,
    "path": _path,
    "number": _number,
    "whole": _whole,
    "flag": lambda value: value if isinstance(value, bool) else None,
    "list": _list,
}
