"""`run --engine slurm`: what the nodes will do, the news of their launches, the reports; and the verb that runs on a node."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmatrix.cli.console import Volume, preamble, say, tell
from torchmatrix.cli.measured import Measured, as_typed, plan_in_one_line, refuse_nothing, tell_answers, tell_cells
from torchmatrix.core.errors import BadInput, EngineUnusable, ExitCode, ToolError
from torchmatrix.core.formatting import count

if TYPE_CHECKING:
    from torchmatrix.matrix.method import Request
    from torchmatrix.planning.plan import Cell
    from torchmatrix.planning.selection import TwoStacks
    from torchmatrix.running.cluster.cluster import Cluster, Kind
    from torchmatrix.running.cluster.jobs import Submitted

ON_NODE = "on-node"
"""The first word of what a job calls."""
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
    from torchmatrix.running.cluster import cluster as clusters
    from torchmatrix.running.cluster import jobs

    with Results(results).hold():
        found = clusters.prepare(
            matrix, results, globs, where, request, locked=locked, ab=ab, new=new, tell=lambda text: say(text, volume)
        )
        todo, estimated = _announce(found, globs, where, volume)
        jobs.begin(found, as_typed())
        begin, known = time.monotonic(), _known(found)
        submitted = jobs.submit_all(found)
        if detach:
            say(_DETACHED.format(found.name), volume)
            return []
        stopped_by: BaseException | None = None
        try:
            tell(jobs.watch(submitted), todo, known, volume, lanes=[lane for kind in found.kinds for lane in kind.lanes])
        except BaseException as error:  # anything at all: it is raised again after the report is written
            stopped_by = error
            say("\nending the jobs; writing a report of what was measured so far", volume)
            with suppress(EngineUnusable):
                jobs.end(submitted)
        missing = jobs.finish(submitted, time.monotonic() - begin, estimated)
        _tell_cancelled(submitted, volume)
        several = len(found.kinds) > 1
        if missing and not stopped_by:
            stopped_by = Incomplete(f"{count(missing, 'launch')} not measured", hint="the same command continues the run")
        return [_reported(kind, found, _named(output, kind, several), stopped_by, volume) for kind in found.kinds]


class Incomplete(ToolError):
    """Launches are missing that nobody here ended."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint, exit_code=ExitCode.INCOMPLETE)


def _announce(found: "Cluster", globs: list[str], where: list[str], volume: Volume) -> "tuple[list[tuple[Cell, int]], float]":
    from torchmatrix.running import run
    from torchmatrix.running import run as running

    say(f"slurm {found.version}", volume)
    for node, why in found.silent.items():
        say(f"note: {node} is left out: {why}", volume)
    todo: list[tuple[Cell, int]] = []
    longest = 0.0
    able = [kind for kind in found.kinds if kind.session.plan.cells]
    for kind in found.kinds:
        preamble(kind.session, volume)
        if not able:
            refuse_nothing(kind.session, globs, where)
        left = running.todo(kind.session, kind.folder(found.order.run))
        seconds = run.measuring_seconds(left, run.known_seconds(kind.session), kind.lanes)
        todo, longest = todo + left, max(longest, seconds)
        say(plan_in_one_line(kind.session, left, seconds), volume)
        say(f"nodes: {', '.join(lane.devices for lane in kind.lanes)}", volume)
    if not found.kinds:
        reasons = "; ".join(dict.fromkeys(found.silent.values()))
        raise EngineUnusable(f"no node said what it is: {reasons}", hint="the jobs' output says why")
    say(f"run {found.order.run}: {count(len(todo), 'launch')} to do", volume)
    say("Ctrl-C ends the jobs; the same command continues the run\n", volume)
    return todo, longest


def _known(found: "Cluster") -> dict[str, float]:
    from torchmatrix.running import run

    return {cell: seconds for kind in found.kinds for cell, seconds in run.known_seconds(kind.session).items()}


def _tell_cancelled(submitted: "Submitted", volume: Volume) -> None:
    if submitted.cancelled:
        number = count(len(submitted.cancelled), "launch")
        say(f"\n{number} cancelled by somebody else: not measured; the same command continues the run", volume)


def _named(output: Path, kind: "Kind", several: bool) -> Path:
    return output.with_name(f"{output.stem}-{kind.home}{output.suffix}") if several else output


def _reported(kind: "Kind", found: "Cluster", output: Path, stopped_by: BaseException | None, volume: Volume) -> Measured:
    from torchmatrix.reporting import report
    from torchmatrix.running import run as running

    folder = kind.folder(found.order.run)
    written, answers = report.write(folder, output)
    outcomes = running.outcomes(folder)
    cells = tell_cells(kind.session, folder, outcomes, volume)
    tell_answers(answers, volume)
    return Measured(folder=folder, report=written, outcomes=outcomes, cells=cells, stopped_by=stopped_by, answers=answers)


def on_node(words: list[str]) -> int:
    """What the scripts of `run --engine slurm` call on a node: `describe PLACE NAME`, `launch PLACE ARRAY` or
    `join PLACE ARRAY TASK ASKED`. No verb for people: Typer's parsing would add a quarter to what a launch costs.
    """
    verbs: dict[tuple[str, int], Callable[..., None]] = {("describe", 3): _describe, ("launch", 3): _launch, ("join", 5): _join}
    verb = verbs.get((words[0] if words else "", len(words)))
    if verb is None:
        raise BadInput(f"{ON_NODE} is for the jobs of a run on a cluster", hint="torchmatrix run --engine slurm")
    verb(Path(words[1]), *words[2:])
    return ExitCode.OK


def _describe(place: Path, name: str) -> None:
    """Say what this node is."""
    from torchmatrix.running.cluster import on_node as node

    node.describe(place, name)


def _launch(place: Path, array: str) -> None:
    """Make one launch of an array: that of the task that Slurm names."""
    from torchmatrix.running.cluster import on_node as node

    tell(node.launch(place, int(array), int(os.environ["SLURM_ARRAY_TASK_ID"])), [], {}, Volume.NORMAL)


def _join(place: Path, array: str, task: str, asked: str) -> None:
    """Take part in a launch that another node records: the word to begin comes on stdin, what is told goes to stdout."""
    from torchmatrix.running.cluster.on_node import take_part

    lock = threading.Lock()

    def say_to_it(told: dict[str, Any]) -> None:
        with lock:
            print(json.dumps(told, default=str), flush=True)

    take_part(place, int(array), int(task), json.loads(asked), say_to_it, lambda: bool(sys.stdin.readline()))
