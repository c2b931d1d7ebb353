"""A run in the formats of other tools: entries of torchmatrix.formats, which `export --format NAME` writes."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

from torchmatrix.analysis.rows import Row, group_by
from torchmatrix.core import __version__
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import UNKNOWN, count, figure, is_known, printable, without_nan
from torchmatrix.facts.launch import batches_per_step
from torchmatrix.reporting.exports import Tables
from torchmatrix.reporting.exports.formats import by_row, escaped


def _rows(tables: Tables, name: str) -> list[Row]:
    return by_row(tables.values.get(name, {}))


def _cells(tables: Tables) -> list[Row]:
    cells = _rows(tables, "cells")
    if not cells or "outcome" not in cells[0]:
        raise BadInput("this format is of a run, not of several machines", hint="torchmatrix export [RUN] DIR --format NAME")
    return cells


def _text(value: Any) -> str:
    """Return a value as text; "" for an unknown one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return printable(str(value).lower() if isinstance(value, bool) else str(value))


_SETTINGS = (
    "cell",
    "workload",
    "stack",
    "devices",
    "model",
    "mode",
    "precision",
    "compile",
    "batch_per_device",
    "torch",
    "device_name",
    "unit",
)


def hud(tables: Tables) -> dict[str, bytes]:
    """Write the records of PyTorch's benchmark database, v3: one for each cell, with the figures of its launches.

    https://github.com/pytorch/pytorch/wiki/PyTorch-OSS-benchmark-infra; each extra_info holds texts only.
    """
    launches = _rows(tables, "launches")
    records = []
    for cell in _cells(tables):
        if cell["outcome"] != "ok":
            continue
        values = [row["items_per_second"] for row in launches if row["cell"] == cell["cell"] and row["outcome"] == "ok"]
        trains = str(cell["mode"]).startswith("train")
        extra = {name: _text(cell[name]) for name in _SETTINGS if _text(cell[name])}
        records.append(
            {
                "benchmark": {
                    "name": "torchmatrix", "mode": "training" if trains else "inference", "dtype": cell["precision"],
                    "extra_info": extra | {"run": tables.run, "tool": __version__},
                },
                "model": {"name": cell["model"], "type": "OSS model", "backend": _backend(cell)},
                "metric": {
                    "name": f"{cell['unit']}_per_second", "benchmark_values": without_nan(values),
                    "extra_info": {edge: _text(cell[f"items_per_second_{edge}"]) for edge in ("low", "high")},
                },
                "runners": [
                    {"name": _text(cell["device_name"]), "type": _text(cell["devices"]), "gpu_count": cell["device_count"]}
                ],
                "dependencies": {"torch": {"version": _text(cell["torch"])}},
            }
        )  # fmt: skip
    return {"pytorch-hud.json": _json(records)}


def _backend(cell: Row) -> str:
    runtime = _text(cell["runtime"])
    return runtime if runtime not in ("", "eager") else "inductor" if cell["compile"] else "eager"


def junit(tables: Tables) -> dict[str, bytes]:
    """Write JUnit's XML: a test for each cell, which fails where a launch did, and one that is skipped for each skip."""
    cells, skips = _cells(tables), _rows(tables, "skips")
    bad = [cell for cell in cells if cell["outcome"] != "ok" or cell["launches_not_ok"]]
    suite = ElementTree.Element(
        "testsuite", name=f"torchmatrix {_xml(tables.run)}", tests=str(len(cells) + len(skips)), failures=str(len(bad)),
        errors="0", skipped=str(len(skips)),
    )  # fmt: skip
    outcomes = group_by(_rows(tables, "failures"), lambda row: row["cell"])
    for cell in cells:
        case = ElementTree.SubElement(
            suite, "testcase", classname=_xml(cell["stack"]), name=_xml(f"{cell['workload']} {cell['devices']}")
        )
        if cell["outcome"] == "ok":
            ElementTree.SubElement(case, "system-out").text = _xml(_figure(cell))
        if cell["outcome"] != "ok" or cell["launches_not_ok"]:
            lost = dict.fromkeys(row["outcome"] for row in outcomes.get(cell["cell"], ()))
            kind = ", ".join(lost) if cell["outcome"] == "ok" else cell["outcome"]
            ElementTree.SubElement(case, "failure", type=_xml(kind), message=_xml(cell["error"] or _lost(cell)))
    for skip in skips:
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(skip["stack"]), name=_xml(skip["cell"]))
        ElementTree.SubElement(case, "skipped", message=_xml(skip["reason"]))
    ElementTree.indent(suite)
    return {"junit.xml": b'<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="utf-8") + b"\n"}


def _lost(cell: Row) -> str:
    return f"{cell['launches_not_ok']} of {cell['launches_not_ok'] + cell['launches_ok']} launches failed"


def _figure(cell: Row) -> str:
    ends = [cell[f"items_per_second_{edge}"] for edge in ("low", "high")]
    limits = f"95 % interval {' to '.join(map(figure, ends))}" if all(map(is_known, ends)) else "no interval"
    return f"{figure(cell['items_per_second'])} {cell['unit']}/s, {limits}, {count(cell['launches_ok'], 'launch')}"


def _xml(value: Any) -> str:
    return _text(value).encode("utf-8", "backslashreplace").decode()


def prometheus(tables: Tables) -> dict[str, bytes]:
    """Write a text file for node_exporter's textfile collector: a gauge for each figure, its limits and numbers of launches."""
    gauges = {
        "items_per_second": ("items_per_second", "Throughput over all launches of a cell, in items of the label unit."),
        "items_per_second_low": ("items_per_second_low", "Lower limit of its 95 % interval."),
        "items_per_second_high": ("items_per_second_high", "Upper limit of its 95 % interval."),
        "launches_ok": ("launches_ok", "Launches that succeeded."),
        "launches_not_ok": ("launches_not_ok", "Launches that failed."),
    }  # fmt: skip
    lines = ["# HELP torchmatrix_run_info The run that the figures are of.", "# TYPE torchmatrix_run_info gauge"]
    lines.append(f"torchmatrix_run_info{{{_label('run', tables.run)},{_label('tool', __version__)}}} 1")
    for name, (column, about) in gauges.items():
        lines += [f"# HELP torchmatrix_{name} {about}", f"# TYPE torchmatrix_{name} gauge"]
        for cell in _cells(tables):
            if isinstance(value := cell[column], (int, float)) and math.isfinite(value):
                labels = {name: cell[name] for name in _SETTINGS}
                lines.append(
                    f"torchmatrix_{name}{{{','.join(_label(*pair) for pair in labels.items() if _text(pair[1]))}}} {value}"
                )
    return {"torchmatrix.prom": ("\n".join(lines) + "\n").encode()}


def _label(name: str, value: Any) -> str:
    text = _text(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'{name}="{text}"'


def pull_request(tables: Tables) -> dict[str, bytes]:
    """Write a comment for a pull request: the figures of a run, how it compares with a baseline stack, and what failed."""
    cells = _cells(tables)
    lines = [f"### torchmatrix {__version__}, run {_markdown(tables.run)}", ""]
    good = [cell for cell in cells if cell["outcome"] == "ok"]
    if good:
        lines += ["| workload | devices | stack | throughput | 95 % interval | launches |", "|---|---|---|--:|--:|--:|"]
    for cell in good:
        words = [cell["workload"], cell["devices"], cell["stack"]]
        limits = _limits(cell, "items_per_second", figure)
        rate = f"{figure(cell['items_per_second'])} {cell['unit']}/s"
        lines.append("| " + " | ".join(_markdown(word) for word in [*words, rate, limits, cell["launches_ok"]]) + " |")
    ratios = [row for row in _rows(tables, "speedups") if row["stack"] != row["baseline"] and is_known(row["ratio"])]
    if ratios:
        lines += ["", "| cell | over | speed-up | 95 % interval | verdict |", "|---|---|--:|--:|---|"]
    for row in ratios:
        what, speed_up = f"{row['workload']} {row['devices']}, {row['stack']}", f"{row['ratio']:.3f}×"
        words = [what, row["baseline"], speed_up, _limits(row, "ratio", "{:.3f}".format), row["verdict"]]
        lines.append("| " + " | ".join(map(_markdown, words)) + " |")
    bad = [cell for cell in cells if cell["outcome"] != "ok"]
    if bad:
        lines += ["", f"{len(bad)} of {len(cells)} cells have no figure:", ""]
        lines += [f"* {_markdown(cell['cell'])}: {_markdown(cell['outcome'])}" for cell in bad]
    if lost := [cell for cell in good if cell["launches_not_ok"]]:
        lines += ["", *(f"* {_markdown(cell['cell'])}: {_lost(cell)}" for cell in lost)]
    return {"pull-request.md": ("\n".join(lines) + "\n").encode()}


def _limits(row: Mapping[str, Any], name: str, text: Callable[[float], str]) -> str:
    """Return the interval of a figure; a dash where one launch tells none."""
    limits = [row[f"{name}_{edge}"] for edge in ("low", "high")]
    return " to ".join(map(text, limits)) if all(map(is_known, limits)) else UNKNOWN


def _markdown(value: Any) -> str:
    return escaped(_text(value))


def llm_d(tables: Tables) -> dict[str, bytes]:
    """Write a benchmark report of llm-d, schema 0.2, for each cell that generates text, with what it can say: rates and times.

    https://github.com/llm-d/llm-d-benchmark; its requests are those of a closed loop in one process, without a server.
    """
    files: dict[str, bytes] = {}
    for number, cell in enumerate(
        (cell for cell in _cells(tables) if cell["mode"] == "generate" and cell["outcome"] == "ok"), 1
    ):
        batches = batches_per_step(cell["parallel"], cell["device_count"] or 1)
        batch = (cell["batch_per_device"] or 0) * batches or None
        times = dict(_times(cell))
        report = {
            "version": "0.2",
            "run": {"uid": f"{tables.run}-{number}", "eid": tables.run, "description": cell["cell"]},
            "results": {
                "request_performance": {
                    "aggregate": {
                        "latency": times,
                        "throughput": {
                            "output_token_rate": {"units": "tokens/s", "mean": cell["items_per_second"]},
                            "request_concurrency": batch,
                        },
                    }
                }
            },
        }  # fmt: skip
        files[f"llm-d-{number}.yaml"] = _json(report)
    if not files:
        raise BadInput(
            "no cell of this run generates text, which is all that a report of llm-d is about", hint="export --format hud"
        )
    return files


def _times(cell: Row) -> Iterator[tuple[str, Any]]:
    for name, column in (("time_to_first_token", "first_token"), ("time_per_output_token", "per_output_token")):
        values = {q: cell.get(f"{column}_{q}_seconds") for q in ("p50", "p90", "p99")}
        known = {q: value for q, value in values.items() if isinstance(value, (int, float)) and math.isfinite(value)}
        if known:
            yield name, {"units": "s" if column == "first_token" else "s/token", **known}


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
