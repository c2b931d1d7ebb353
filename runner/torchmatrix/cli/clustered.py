"""Carry out `run --engine slurm`: announce, submit, watch, report; and the verb that a job calls on a node."""

import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmatrix.cli.console import preamble, say, tell
from torchmatrix.cli.measured import Measured, as_typed, plan_in_one_line, refuse_nothing, tell_answers, tell_cells
from torchmatrix.cli.options import Volume
from torchmatrix.core.errors import BadInput, EngineUnusable, ExitCode, ToolError
from torchmatrix.core.formatting import count

if TYPE_CHECKING:
    from torchmatrix.matrix.method import Request
    from torchmatrix.planning.plan import Cell
    from torchmatrix.planning.selection import TwoStacks
    from torchmatrix.running.cluster.cluster import Cluster, Kind

ON_NODE = "on-node"
"""The first word of the command that a job calls."""
_DETACHED = "submitted; the same command without --detach watches, and writes the report; scancel --name={} ends it"


def measure(
    matrix: Path,
    results: Path,
    globs: list[str],
    where: list[str],
    request: "Request",
    output: Path,
    *,
    locked: bool,
    ab: "TwoStacks | None",
    new: bool,
    detach: bool,
    volume: Volume,
) -> list[Measured]:
    """Run what is planned on the cluster, and write a report of each kind of node whatever happens; none with `detach`."""
    from torchmatrix.facts.store import Results
    from torchmatrix.running import run
    from torchmatrix.running.cluster import cluster as clusters
    from torchmatrix.running.cluster import jobs

    with Results(results).hold():
        cluster = clusters.prepare(
            matrix, results, globs, where, request, locked=locked, ab=ab, new=new, tell=lambda text: say(text, volume)
        )
        todo, estimated = _announce(cluster, globs, where, volume)
        jobs.begin(cluster, as_typed())
        begin = time.monotonic()
        earlier = {cell: seconds for group in cluster.kinds for cell, seconds in run.known_seconds(group.session).items()}
        submitted = jobs.submit_all(cluster)
        if detach:
            say(_DETACHED.format(cluster.name), volume)
            return []
        stopped_by: BaseException | None = None
        try:
            tell(jobs.watch(submitted), todo, earlier, volume, lanes=[lane for group in cluster.kinds for lane in group.lanes])
        except BaseException as error:  # anything at all: it is raised again after the report is written
            stopped_by = error
            say("\nending the jobs; writing a report of what was measured so far", volume)
            with suppress(EngineUnusable):
                jobs.end(submitted)
        missing = jobs.finish(submitted, time.monotonic() - begin, estimated)
        if submitted.cancelled:
            number = count(len(submitted.cancelled), "launch")
            say(f"\n{number} cancelled by somebody else: not measured; the same command continues the run", volume)
        if missing and not stopped_by:
            stopped_by = ToolError(
                f"{count(missing, 'launch')} not measured",
                hint="the same command continues the run",
                exit_code=ExitCode.INCOMPLETE,
            )
        return [_write_report(group, cluster, output, stopped_by, volume) for group in cluster.kinds]


def _announce(cluster: "Cluster", globs: list[str], where: list[str], volume: Volume) -> "tuple[list[tuple[Cell, int]], float]":
    from torchmatrix.running import run

    say(f"slurm {cluster.version}", volume)
    for node, why in cluster.silent.items():
        say(f"note: {node} is left out: {why}", volume)
    todo: list[tuple[Cell, int]] = []
    longest = 0.0
    able = [group for group in cluster.kinds if group.session.plan.cells]
    for group in cluster.kinds:
        preamble(group.session, volume)
        if not able:
            refuse_nothing(group.session, globs, where)
        left = run.todo(group.session, group.folder(cluster.order.run))
        seconds = run.measuring_seconds(left, run.known_seconds(group.session), group.lanes)
        todo, longest = todo + left, max(longest, seconds)
        say(plan_in_one_line(group.session, left, seconds), volume)
        say(f"nodes: {', '.join(lane.devices for lane in group.lanes)}", volume)
    if not cluster.kinds:
        reasons = "; ".join(dict.fromkeys(cluster.silent.values()))
        raise EngineUnusable(f"no node said what it is: {reasons}", hint="the jobs' output says why")
    say(f"run {cluster.order.run}: {count(len(todo), 'launch')} to do", volume)
    say("Ctrl-C ends the jobs; the same command continues the run\n", volume)
    return todo, longest


def _write_report(
    group: "Kind", cluster: "Cluster", output: Path, stopped_by: BaseException | None, volume: Volume
) -> Measured:
    from torchmatrix.reporting import report
    from torchmatrix.running import run as running

    folder = group.folder(cluster.order.run)
    named = output.with_name(f"{output.stem}-{group.home}{output.suffix}") if len(cluster.kinds) > 1 else output
    written, answers = report.write(folder, named)
    outcomes = running.outcomes(folder)
    cells = tell_cells(group.session, folder, outcomes, volume)
    tell_answers(answers, volume)
    return Measured(folder=folder, report=written, outcomes=outcomes, cells=cells, stopped_by=stopped_by, answers=answers)


def on_node(words: list[str]) -> int:
    """Carry out what the scripts of `run --engine slurm` call on a node: `describe PLACE NAME`, `launch PLACE ARRAY` or
    `join PLACE ARRAY TASK SPEC`. No verb for people: Typer's parsing would add a quarter to what a launch costs.
    """
    from torchmatrix.running.cluster import on_node as node

    match words:
        case ["describe", place, name]:
            node.describe(Path(place), name)
        case ["launch", place, array]:
            tell(node.launch(Path(place), int(array), int(os.environ["SLURM_ARRAY_TASK_ID"])), [], {}, Volume.NORMAL)
        case ["join", place, array, task, spec]:
            _join(Path(place), array, task, spec)
        case _:
            raise BadInput(f"{ON_NODE} is for the jobs of a run on a cluster", hint="torchmatrix run --engine slurm")
    return ExitCode.OK


def _join(place: Path, array: str, task: str, spec: str) -> None:
    """Take part in a launch that another node records: the signal to begin comes on stdin, events go to stdout."""
    from torchmatrix.running.cluster.on_node import take_part

    lock = threading.Lock()

    def write_event(event: dict[str, Any]) -> None:
        with lock:
            print(json.dumps(event, default=str), flush=True)

    take_part(place, int(array), int(task), json.loads(spec), write_event, lambda: bool(sys.stdin.readline()))
