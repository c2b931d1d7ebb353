"""The sections of a report besides its tables: marks, failures, skips, the stacks as measured."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from torchmatrix.analysis import sharing
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.published.audit import is_other_build
from torchmatrix.analysis.rows import CellRow, LaunchRow, are_equal_counts, group_by, has_failed, is_ok
from torchmatrix.analysis.run_summary import RunDetails, RunSummary
from torchmatrix.analysis.time_split import latency_rows
from torchmatrix.core.formatting import as_text, count, is_known
from torchmatrix.facts.launch import UNLIKE, Unreadable
from torchmatrix.facts.run_record import RunRecord
from torchmatrix.facts.wire import END_TO_END, LATENCY
from torchmatrix.reporting import words
from torchmatrix.reporting.exports.table_set import View
from torchmatrix.reporting.page import ratio

LAUNCH_BOUND = 0.9
"""The share of time spent enqueuing above which the host is the bottleneck."""
MOST_INSIDE = 600
"""Most rows of the table of phases and step times; a larger table is not part of the page, to keep it small."""
WATCHED = {"temperature": "temperature_last", "power": "power_watts", "energy": "energy_per_item", "MFU": "mfu"}


def nodes_in_words(record: RunRecord) -> str:
    """Name the nodes of a cluster that measured, such as "node1, node2 (slurm 22.05.8)"; "" on one machine."""
    scheduler = record.scheduler
    names = ", ".join(node.name for node in scheduler.nodes)
    return f"{names} ({' '.join(filter(None, (scheduler.name, scheduler.version)))})" if names else ""


_AGAIN = {
    "throttled": "heat or hardware had slowed the devices down",
    "disturbed": "other programs had used the CPU or the devices",
}


def made_again(details: RunDetails) -> list[str]:
    """Say how many launches were made again, and why."""
    counts = Counter(_AGAIN.get(outcome, "it ended before its time") for _, outcome in details.repeated)
    verbs = ((number, "was" if number == 1 else "were", why) for why, number in counts.most_common())
    return [f"{count(number, 'launch')} {verb} measured again because {why}" for number, verb, why in verbs]


def unknown_columns(view: View) -> list[str]:
    """Return the optional columns that have no value for any cell, each with the reason."""
    cells = view.cells
    if not any(row.n for row in cells):
        return []
    reasons = {
        "energy": next((row.value("energy_problem") for row in cells if row.value("energy_problem")), "unknown"),
        "MFU": "the peak of this device is unknown",
    }
    notes = "; ".join(view.record.watch_notes) or "this machine does not report it"
    return [f"{name} ({reasons.get(name, notes)})" for name, column in WATCHED.items() if not is_known_for_some(view, column)]


def counters(view: View) -> list[str]:
    """Return what counted the FLOPs, each with its stacks, where two count the same operations unlike; else nothing."""
    known = [row for row in view.summary.launches if is_ok(row) and is_known(row.flops_per_item)]
    pairs = set()
    for rows in group_by(known, lambda row: row.operations).values():
        if not are_equal_counts([row.flops_per_item for row in rows]):
            pairs |= {(row.flops_counter, row.stack) for row in rows}
    stacks = {counter: [stack for _, stack in of] for counter, of in group_by(sorted(pairs), itemgetter(0)).items()}
    return [f"by {counter}: {', '.join(of)}" for counter, of in stacks.items()] if len(stacks) > 1 else []


def is_known_for_some(view: View, column: str) -> bool:
    return any(is_known(row.value(column)) for row in view.cells)


DOUBTS = ("†", "not steady", "partly unchecked", "only seen batches")
"""Marks that are no fault of the launch, but leave a doubt about its figure; `bad` marks leave one too."""


NOISY = "noisy"


def flags(row: CellRow) -> list[dict[str, Any]]:
    """Return the marks which say that a cell's figure may not be what it seems, also that its launches scatter much."""
    found = [mark for mark in marks(row) if mark["bad"] or mark["word"] in DOUBTS]
    if row.verdict == NOISY:
        title = f"the launches scatter by {words.percent(row.cv, 1)}: quiet ones by less than 3{words.SPACE}%"
        found.append({"word": NOISY, "bad": False, "title": title})
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """A mark that leaves a doubt, with the cells that have it; `text`: what it says of the first, for all if `is_same`.
    `is_shared`: whether all measured cells have it, so that bars needn't say it one by one.
    """

    word: str
    cells: tuple[str, ...]
    text: str
    is_same: bool
    is_shared: bool

    @property
    def brief(self) -> str:
        """Return it in a few words, such as "5 cells still drifting"."""
        return f"{count(len(self.cells), 'cell')} {_BRIEF.get(self.word, self.word)}"


_BRIEF = {"†": "still drifting", "other build": "of another build"}


def flagged(rows: Iterable[CellRow]) -> list[Doubt]:
    """Return each such mark with the cells that have it; of several machines with their machine."""
    cells: dict[str, list[tuple[str, str]]] = {}
    measured = set()
    for row in rows:
        name = f"{row.of.machine}: {row.of.cell}" if row.of.machine else row.of.cell
        measured |= {name} if row.n else set()
        for mark in flags(row):
            cells.setdefault(mark["word"], []).append((name, mark["title"]))
    return [
        Doubt(
            word=word, cells=tuple(cell for cell, _ in marked), text=marked[0][1].removesuffix("."),
            is_same=len({t for _, t in marked}) == 1,
            is_shared=len(measured) > 1 and measured <= {cell for cell, _ in marked},
        )
        for word, marked in cells.items()
    ]  # fmt: skip


def state(view: View) -> str:
    """Describe what was measured, failed, was skipped, left out or is still to come, in one line."""
    measured = sum(row.n > 0 for row in view.every_cell)
    failed = [row.outcome for row in view.summary.launches if has_failed(row) and not _may_run(view, row)]
    left_out = sum(row.outcome == UNLIKE for row in view.summary.launches)
    parts = [f"{measured} of {count(len(view.record.planned), 'cell')} measured"]
    parts += [f"{count(len(failed), 'launch')} failed ({words.counted(failed)})"] if failed else []
    not_ended = sum(_may_run(view, row) for row in view.summary.launches)
    parts += [f"{count(not_ended, 'launch')} without an end yet"] if not_ended else []
    parts += [f"{count(left_out, 'launch')} left out, unlike the others of their cell"] if left_out else []
    parts += made_again(view.details)
    reasons = Counter(skip.reason.partition(";")[0] for skip in view.record.skips).most_common()  # most frequent first
    why = words.enumerated(reason for reason, _ in reasons)
    parts += [f"{count(len(view.record.skips), 'cell')} skipped ({why})"] if view.record.skips else []
    parts += [f"{count(len(view.pending), 'cell')} still to be launched"] if view.pending else []
    parts += (
        [f"{count(len(view.summary.unreadable_launches), 'file')} can’t be read"] if view.summary.unreadable_launches else []
    )
    return f"{', '.join(parts)}."


def _may_run(view: View, row: LaunchRow) -> bool:
    """Check whether a launch has no end because it may be running: that of a run that isn't finished."""
    return row.outcome == "lost" and not view.record.complete


def inside_rows(view: View) -> list[dict[str, Any]]:
    """Return phases and step times of each cell; none if there are more than MOST_INSIDE, which an export has."""
    steps = {row["cell"]: row for row in view.details.steps}
    rows = [row | {"step": steps.get(row["cell"])} for row in view.details.phases]
    return rows if len(rows) <= MOST_INSIDE else []


def latencies(view: View) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return a table for each kind of request: its title, its definition and its rows; none without requests."""
    tables = [
        ("On the device", DEFINITIONS["latency"], latency_rows(view.summary.launches, LATENCY)),
        ("End to end", DEFINITIONS["end_to_end"], latency_rows(view.summary.launches, END_TO_END)),
    ]
    return [table for table in tables if table[2]]


def skips(view: View) -> list[dict[str, Any]]:
    """Group skips by stack and reason, because a stack that can't run skips all its cells."""
    groups = group_by(view.record.skips, lambda skip: (skip.stack, skip.reason, skip.fix or "–"))
    return [
        {"stack": stack, "reason": reason, "fix": fix, "cells": [skip.cell for skip in group]}
        for (stack, reason, fix), group in groups.items()
    ]


def failures(view: View) -> list[dict[str, Any]]:
    """Return the launches that are not ok, with what is needed to reproduce them."""
    return [
        {name: row.value(name) for name in ("cell", "round", "outcome", "error", "command")}
        | {"seen": error, "log": log_of(Path(row.path), row.outcome, row.stack)}
        for row, error in zip(view.summary.launches, view.details.errors, strict=True)
        if not is_ok(row) and not _may_run(view, row)
    ]


def unreadable_of(run: RunSummary, files: Iterable[Unreadable]) -> list[str]:
    """Name files of a run that can't be read, by their paths from the results folder on, with the reason."""
    results = f"{as_text(run.path.parents[1])}/"
    return [f"{as_text(file.path).removeprefix(results)}: {file.reason}" for file in files]


def unreadable(view: View) -> list[str]:
    """Name the files that can't be read, with the reason, and the unreadable parts of the run's record."""
    files = unreadable_of(view.summary, view.summary.unreadable_launches)
    return [*files, *(f"run.jsonl: {problem}" for problem in view.record.problems)]


def stacks(view: View) -> list[dict[str, Any]]:
    """Return the environment of each stack, from the first launch that recorded it."""
    return [
        {
            "name": installed.stack,
            "environment": installed.reported,
            "torchvision": installed.versions.get("torchvision"),
            "transformers": installed.versions.get("transformers"),
            "image": installed.image,
            "engine": installed.engine,
        }
        for installed in view.details.installed
    ]


def marks(cell: CellRow) -> list[dict[str, Any]]:
    """Return what a reader must know about a cell's launches, each as a word with its explanation."""
    n = cell.n
    if not n:
        return []
    possible = [
        (cell.value("host_bound") > LAUNCH_BOUND, "launch-bound", False,
         f"time to enqueue a step over the time of a step: {ratio(cell.value('host_bound'))}; the GPU waits for the host "
         "(amp: without the optimizer, which waits for the device)"),
        (cell.not_flat, "†", False, _not_flat(cell)),
        (cell.outliers, "outlier", False, f"{cell.outliers} of {n} launches: {DEFINITIONS['outlier']}"),
        (cell.levels, "two levels", False, f"{cell.levels}. {DEFINITIONS['levels']}"),
        (cell.stalled, "stalled", False, f"{cell.stalled} of {n} launches: {DEFINITIONS['stall']}"),
        (cell.throttled, "throttled", True, f"{cell.throttled} of {n} launches: {DEFINITIONS['throttled']}"),
        (cell.not_steady, "not steady", False, _not_steady(cell)),
        (cell.too_warm, "warm start", True, f"{cell.too_warm} of {n} launches started above the method's temperature, "
         "after the maximum wait"),
        (cell.start_unknown, "start temperature unknown", True, "the method needs it, and none could be read"),
        (cell.skipped_steps, "steps skipped", True, f"in {cell.skipped_steps} of {n} launches GradScaler skipped timed "
         "steps, since gradients did not fit into float16: these steps were forward and backward only"),
        (cell.disturbed, "disturbed", True, _disturbed(cell)),
        (cell.of.mixed, "mixed GPUs", True, "GPUs of different models in one set, as requested ([gpus] mixed = true)"),
        (cell.left_out, "launches left out", True,
         f"{cell.left_out} of {n + cell.left_out} launches, which are unlike the others: {cell.left_out_why}"),
        (cell.value("apart"), "conditions differ", False, f"between the launches of this figure: {cell.value('apart')}"),
        (cell.value("unlike"), "unlike core groups", True, cell.value("unlike")),
        (cell.quota_seconds > 0, "CPU quota", True, "the quota of a control group made processes wait for CPUs in the timed "
         f"windows, for up to {cell.quota_seconds:.1f} s in a launch: the figure is that of the quota"),
        (cell.impossible_readings, "impossible readings", True, f"left out: {cell.impossible_readings}"),
        (cell.ecc_errors, "ECC errors", True, f"{cell.ecc_errors:.0f} uncorrected memory errors in the timed windows"),
        (cell.clock_jumps, "clock jumped", False, f"in {cell.clock_jumps} of {n} launches the wall clock was set; "
         "all durations come from the monotonic clock"),
        (is_other_build(cell), "other build", True, f"the stack asks for {cell.of.accelerator}; installed is PyTorch "
         f"{cell.of.torch_build}"),
        (cell.value("changed_settings"), "settings changed", False, f"by the model's code: {cell.value('changed_settings')}"),
        (cell.remarks, "remarks", True, cell.remarks),
        (cell.value("unchecked"), "partly unchecked", False, cell.value("unchecked")),
        (cell.value("only_seen"), "only seen batches", False, f"no step was timed on a new batch: {cell.value('only_seen')}"),
    ]  # fmt: skip
    return [{"word": word, "bad": bad, "title": title} for on, word, bad, title in possible if on]


def _disturbed(cell: CellRow) -> str:
    """Describe what is known of other programs."""
    share = words.percent(cell.waited)
    waited = f"their threads waited in up to {share} of the time for CPUs that others used"
    seen = [*([waited] if cell.waited >= sharing.NOTEWORTHY else []), *cell.foreign]
    return f"{cell.disturbed} of {cell.n} launches, beside other programs: {', '.join(seen)}"


def _not_flat(cell: CellRow) -> str:
    """Describe a drift; older facts have only that there was one."""
    left = cell.drift
    rest = (
        "how far it would have gone can't be told"
        if math.isnan(left)
        else f"it would have changed by another {100 * left:+.1f} %"
    )
    return f"{cell.not_flat} of {cell.n} launches reached the warm-up cap before the step time was flat; {rest}"


def _not_steady(cell: CellRow) -> str:
    """Describe what the host saw of temperature, clock and power, and what it means for the figure."""
    heat, clock, power = cell.warming, cell.clock_change, cell.power_change
    what = "power" if math.isnan(heat) and math.isnan(clock) and not math.isnan(power) else "temperature or clock"
    changes = [
        "" if math.isnan(heat) else f"temperature by up to {heat:+.1f} °C a minute",
        "" if math.isnan(power) else f"power by up to {100 * power:+.1f} % from their begin to their end",
        "" if math.isnan(clock) else f"the clock at their end was {100 * abs(clock):.1f} % {'below' if clock < 0 else 'above'} "
        f"its mean, so the figure may be up to so much too {'high' if clock < 0 else 'low'}",
    ]  # fmt: skip
    inside = ", ".join(filter(None, changes))
    observed = (
        f"{what} still changed in the timed windows: {inside}" if inside else "the machine slowed down after the timed windows"
    )
    notes = [*_later_changes(cell), *(["no trend of the clock was seen"] if inside and math.isnan(clock) else [])]
    return "; ".join([f"in {cell.not_steady} of {cell.n} launches {observed}", *notes])


def _later_changes(cell: CellRow) -> Iterator[str]:
    """Yield what was seen after the windows, and so what the figure speaks for."""
    fall, seconds = cell.later_clock, cell.under_load_seconds
    if cell.at_limit > MOSTLY:
        yield "the power was at its limit"
    if not math.isnan(fall):
        yield f"after them the clock was {-100 * fall:.1f} % lower, with as much use and no more power"
    if cell.throttled_later:
        yield "after them a slow-down by heat or hardware was seen"
    if (cell.throttled_later or not math.isnan(fall)) and not math.isnan(seconds):
        yield f"the figure speaks for the first {seconds:.0f} s under load"


MOSTLY = 0.5
"""The share of readings above which a state counts as that of the launch."""


def log_of(path: Path, outcome: str, stack: str) -> str:
    """Return the log of the launch at `path`, relative to the results folder: the stack's build log or the launch's own."""
    if outcome == "build-failed":
        host, run = path.parts[-6:-4]
        return f"{host}/{run}/builds/{stack}.log"
    return "/".join(path.with_suffix(".log").parts[-6:])
