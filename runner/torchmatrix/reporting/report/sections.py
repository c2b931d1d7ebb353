"""What the sections of a report show besides their tables: headlines, marks, failures, skips, the stacks as measured."""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from torchmatrix.analysis import watched
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.tables import records
from torchmatrix.facts.launch import Launch
from torchmatrix.reporting.report.filters import ratio
from torchmatrix.reporting.report.view import View

LAUNCH_BOUND = 0.9
"""Above this share of the time spent enqueuing, the host is the bottleneck."""
_WATCHED = {"temperature": "temperature_last", "power": "power_watts", "energy": "energy_per_item", "MFU": "mfu"}


def cell_rows(view: View) -> list[dict[str, Any]]:
    """The cells with their marks."""
    return [row | {"marks": _marks(row)} for row in records(view.cells)]


def known_columns(view: View) -> dict[str, bool]:
    """Which of the optional columns have a value for at least one cell."""
    return {name: bool(view.cells[column].notna().any()) for name, column in _WATCHED.items()} if len(view.cells) else {}


def unknown_columns(view: View) -> list[str]:
    """The optional columns that have no value for any cell, each with the reason."""
    cells = view.cells
    if not len(cells) or not (cells["n"] > 0).any():
        return []
    reasons = {
        "energy": next((w for w in cells["energy_problem"] if w), "unknown"),
        "MFU": "the peak of this device is unknown",
    }
    notes = "; ".join(view.record.watch_notes) or "this machine does not report it"
    return [f"{name} ({reasons.get(name, notes)})" for name, column in _WATCHED.items() if not cells[column].notna().any()]


def throttled_tries(view: View) -> int:
    """How many launches were repeated because their devices were throttled."""
    kept = {launch.path for launch in view.launches}
    return sum(launch.outcome == "ok" for launch in view.every if launch.path not in kept)


def skips(view: View) -> list[dict[str, Any]]:
    """Skips grouped by stack and reason, because a stack that can't run skips all its cells."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for skip in view.record.skips:
        grouped.setdefault((skip.name.stack, skip.reason, skip.fix or "n/a"), []).append(skip.name.cell)
    return [{"stack": stack, "reason": reason, "fix": fix, "cells": cells} for (stack, reason, fix), cells in grouped.items()]


def failures(view: View) -> list[dict[str, Any]]:
    """Launches that are not ok, with what is needed to reproduce them."""
    return [
        {
            "cell": launch.cell,
            "round": launch.round,
            "outcome": launch.outcome,
            "error": launch.error,
            "seen": watched.summarize(launch).errors,
            "command": launch.command,
            "log": _log_of(launch),
        }
        for launch in view.launches
        if launch.outcome != "ok"
    ]


def unreadable(view: View) -> list[str]:
    """Files that can't be read, and why; what of the run's own record can't be."""
    files = [f"{_below_results(found.path)}: {found.reason}" for found in view.unreadable]
    return [*files, *(f"run.jsonl: {problem}" for problem in view.record.problems)]


def stacks(view: View) -> list[dict[str, Any]]:
    """The environment of each stack, from the first launch that recorded it."""
    found: dict[str, dict[str, Any]] = {}
    for launch in view.launches:
        box, name = launch.box, launch.stack.name
        if box and name not in found:
            versions = box.versions
            found[name] = {
                "name": name,
                "environment": box.facts,
                "torchvision": versions.get("torchvision"),
                "transformers": versions.get("transformers"),
                "image": launch.image.facts if launch.image else {},
                "engine": launch.engine,
            }
    return list(found.values())


def headlines(view: View) -> list[str]:
    """The answers first: how well it scales and which stack is faster, each as a sentence."""
    lines = []
    known = view.scaling[~view.scaling["impossible"].astype(bool)].dropna(subset=["S"])
    if len(known):
        best, worst = known.loc[known["s"].idxmax()], known.loc[known["s"].idxmin()]
        lines.append(f"Scale factors: each additional device adds {_span(worst['s'], best['s'])} of one device.")
    lines += _fastest(view.speedups[view.speedups["stack"] != view.speedups["baseline"]].dropna(subset=["ratio"]))
    if not len(view.cells) or not (view.cells["n"] > 0).any():
        lines.append("No cell was measured; the reasons are below.")
    return lines


def _marks(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """What a reader must know about a cell's launches, each as a word with its explanation."""
    n = cell["n"]
    if not n:
        return []
    found = [
        (cell["host_bound"] > LAUNCH_BOUND, "launch-bound", False,
         f"time to enqueue a step over the time of a step: {ratio(cell['host_bound'])}; the GPU waits for the host"),
        (cell["not_flat"], "†", False, f"{cell['not_flat']} of {n} launches reached the warm-up cap before the step time "
         "was flat within 2 %"),
        (cell["throttled"], "throttled", True, f"{cell['throttled']} of {n} launches: {DEFINITIONS['throttled']}"),
        (cell["not_steady"], "not steady", False, f"in {cell['not_steady']} of {n} launches temperature or clock still changed "
         "during the timed windows, by more than 3 °C or 1 %"),
        (cell["too_warm"], "warm start", True, f"{cell['too_warm']} of {n} launches started above the method's temperature, "
         "after the maximum wait"),
        (cell["start_unknown"], "start temperature unknown", True, "the method needs it, and none could be read"),
        (cell["foreign"], "disturbed", True, f"others used the devices during the launch: {', '.join(cell['foreign'])}"),
        (cell["mixed"], "mixed GPUs", True, "GPUs of different models in one set, as requested ([gpus] mixed = true)"),
        (cell["ecc_errors"], "ECC errors", True, f"{cell['ecc_errors']:.0f} uncorrected memory errors in the timed windows"),
        (cell["clock_jumps"], "clock jumped", False, f"in {cell['clock_jumps']} of {n} launches the wall clock was set; "
         "all durations come from the monotonic clock"),
        (cell["unchecked"], "losses unchecked", False, f"eager fp32 gave no reference: {cell['unchecked']}"),
    ]  # fmt: skip
    return [{"word": word, "bad": bad, "title": title} for on, word, bad, title in found if on]


def _log_of(launch: Launch) -> str:
    """The log to read, relative to the results folder: the stack's build log or the launch's own."""
    if launch.outcome == "build-failed":
        host, run = launch.path.parts[-6:-4]
        return f"{host}/{run}/builds/{launch.stack.name}.log"
    return _below_results(launch.path.with_suffix(".log"))


def _below_results(path: Path) -> str:
    """From the results folder on, as store.py lays it out: HOST/RUN/STACK/WORKLOAD/DEVICES/FILE."""
    return "/".join(path.parts[-6:])


def _fastest(others: pd.DataFrame) -> list[str]:
    """The largest difference between stacks that its interval confirms, or a sentence that there is none."""
    if not len(others):
        return []
    if not others["low"].notna().any():
        return [
            f"One launch each gives no interval, so it is not clear which stack is faster ({len(others)} comparisons below)."
        ]
    clear = others[(others["low"] > 1) | (others["high"] < 1)]
    if not len(clear):
        return [f"No difference between the stacks exceeds its 95 % interval ({len(others)} comparisons)."]
    top = clear.loc[(clear["ratio"].map(math.log)).abs().idxmax()]
    limits = f"95 % interval {top['low']:.3f} to {top['high']:.3f}"
    where = f"on {top['devices']}; the largest of {len(others)} comparisons"
    return [f"On {top['workload']}, {top['stack']} is {top['ratio']:.3f} × as fast as {top['baseline']} ({limits}, {where})."]


def _span(low: float, high: float) -> str:
    least, most = round(low, 2) + 0.0, round(high, 2) + 0.0  # adding 0 makes -0 a 0
    return f"{least:.2f}" if least == most else f"{least:.2f} to {most:.2f}"
