"""Tables -> GitHub's Markdown, few columns, four significant digits: to paste into an issue. Their contents are escaped."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from torchmatrix.analysis.gpu_specs import PEAKED
from torchmatrix.analysis.rows import Row
from torchmatrix.ground.formatting import figure
from torchmatrix.reporting import words
from torchmatrix.reporting.exports.table_set import Values, by_row

_PUNCTUATION = re.compile(r"([\\`*_{}\[\]()!|~$])")
_CALLS = re.compile(r"(?<![&\w])([@#])(?=\w)")
"""What GitHub would turn into a mention of a person or a link to an issue."""
_LINKS = re.compile(r"(https?|ftp|www)([:.])(?=\S)", re.IGNORECASE)


def escaped(value: Any) -> str:
    """A text as itself inside a table: no markup, no HTML, no new line, nobody notified."""
    text = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _CALLS.sub(r"\1&#8203;", _PUNCTUATION.sub(r"\\\1", text))
    return _LINKS.sub(r"\1&#8203;\2", text)


def to_markdown(name: str, table: Values) -> bytes:
    """The table with the columns of _SHOWN; all columns if the table isn't listed there."""
    shown = _SHOWN.get(name) or [(column, _own(column)) for column in table]
    lines = [_line([escaped(title) for title, _ in shown]), _line(["---"] * len(shown))]
    lines += [_line([write(row) for _, write in shown]) for row in by_row(table)]
    return ("\n".join(lines) + "\n").encode()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _own(column: str) -> Callable[[Row], str]:
    """The column as it is; numbers with four significant digits."""

    def write(row: Row) -> str:
        value = row[column]
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int):
            return str(value)
        return words.UNKNOWN if value is None else figure(value) if isinstance(value, float) else escaped(value)

    return write


def _times(column: str, factor: float, unit: str) -> Callable[[Row], str]:
    """The column in another unit."""
    return lambda row: words.UNKNOWN if row[column] is None else f"{figure(factor * row[column])} {unit}"


def _interval(column: str) -> Callable[[Row], str]:
    """Both ends of the column's interval."""

    def write(row: Row) -> str:
        low, high = row[f"{column}_low"], row[f"{column}_high"]
        return words.UNKNOWN if low is None or high is None else f"{figure(low)} – {figure(high)}"

    return write


def _rate(row: Row) -> str:
    value = row["items_per_second"]
    return words.UNKNOWN if value is None else f"{figure(value)} {escaped(row['unit'])}/s"


def _verdict(row: Row) -> str:
    """Of a ratio by its corrected verdict, of a cell by its scatter."""
    return words.NO_INTERVAL if "cv_fraction" in row and row["verdict"] == "n/a" else escaped(_said(row["verdict"]))


def _said(verdict: str | None) -> str:
    return words.verdict(verdict or "n/a") or str(verdict)


def _outcome(row: Row) -> str:
    return escaped(words.OUTCOMES.get(row["outcome"], row["outcome"]))


_JOB = [("Workload", _own("workload")), ("Stack", _own("stack")), ("Devices", _own("devices"))]
_RATIO = [("Ratio", _own("ratio")), ("95 % interval", _interval("ratio"))]
_SHOWN: dict[str, list[tuple[str, Callable[[Row], str]]]] = {
    "cells": [
        *_JOB, ("Throughput", _rate), ("95 % interval", _interval("items_per_second")), ("n", _own("launches_ok")),
        ("CV", _times("cv_fraction", 100, "%")), ("Verdict", _verdict), ("Outcome", _outcome),
    ],
    "launches": [
        *_JOB, ("Round", _own("round")), ("Throughput", _rate), ("Outcome", _outcome), ("Error", _own("error")),
    ],
    "scaling": [
        *_JOB, ("N", _own("device_count")), ("S", _own("speedup_S")), ("95 % interval", _interval("speedup_S")),
        ("E", _own("efficiency_E")), ("s", _own("scale_factor_s")), ("95 % interval", _interval("scale_factor_s")),
        ("E*", _own("efficiency_E_star")),
    ],
    "decomposition": [
        *_JOB, *((name, _own(f"efficiency_{name}")) for name in ("E", "E_hetero", "E_corun", "E_ddp", "E_comm")),
        ("Exposed communication", _times("exposed_communication_seconds_per_step", 1e3, "ms")),
    ],
    "nodes": [
        *_JOB, ("Nodes", _own("nodes")), ("Over one node", _own("speedup_over_one_node")),
        *((name, _own(f"efficiency_{name}")) for name in ("E", "E_inside", "E_between")), ("Transport", _own("transport")),
    ],
    "collectives": [
        *_JOB, ("Operation", _own("operation")), ("Bytes", _own("bytes")), ("Time", _times("seconds", 1e3, "ms")),
        ("Bus bandwidth", _times("bus_bytes_per_second", 1e-9, "GB/s")),
        ("Of the links", _times("bus_fraction_of_link", 100, "%")),
    ],
    "devices": [
        ("Workload", _own("workload")), ("Stack", _own("stack")), ("Model", _own("device_name")),
        ("Device", _own("device")), ("Throughput", _rate), *_RATIO, ("Weak", _own("weak")),
    ],
    "speedups": [
        *_JOB, ("Over", _own("baseline")), *_RATIO, ("Verdict", _verdict), ("n", _own("launches_ok")),
        ("Why not", _own("why")),
    ],
    "settings": [
        ("Setting", _own("setting")), *_JOB, *_RATIO, ("Verdict", _verdict), ("n", _own("launches_ok")),
        ("Why not", _own("why")),
    ],
    "gpus": [
        ("GPU", _own("device_name")), ("Architecture", _own("architecture")), ("Memory", _times("memory_gb", 1, "GB")),
        ("Bandwidth", _times("bandwidth_gb_per_second", 1, "GB/s")), ("Power limit", _times("power_watts", 1, "W")),
        ("Launched", _own("launch_date")),
        *((f"MFU {word}", _times(f"mfu_{word.replace('-', '_')}_fraction", 100, "%")) for word in PEAKED),
    ],
    "stacks": [
        ("Stack", _own("stack")), ("torch", _own("torch")), ("Python", _own("python")), ("CUDA", _own("cuda")),
        ("HIP", _own("hip")), ("cuDNN", _own("cudnn")), ("NCCL", _own("nccl")), ("System", _own("os")),
    ],
    "failures": [*_JOB, ("Round", _own("round")), ("Outcome", _outcome), ("Error", _own("error"))],
    "published": [
        ("Cell", _own("cell")), ("Ours", _own("ours")), ("95 % interval", _interval("ours")), ("Theirs", _own("theirs")),
        ("Ours / theirs", _own("ratio")), ("Verdict", _verdict), ("Whose", _own("vendor")),
    ],
    "claims": [
        ("Claim", _own("quantity")), ("Whose", _own("vendor")), ("From", _own("claimed_low")),
        ("To", _own("claimed_high")), ("Ours", _own("ours")), ("95 % interval", _interval("ours")),
        ("Verdict", _verdict),
    ],
}  # fmt: skip
