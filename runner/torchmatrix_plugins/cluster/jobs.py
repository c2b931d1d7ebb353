"""Submit the launches of a run as Slurm arrays, one per node and round; watch and collect them. Yields progress events.

A node that dies makes Slurm run a job twice. Each try writes a file of its own in the run's folder, whose last line completes
it: a complete launch is not made again, and of two complete tries that began only the later one counts.
"""

import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from torchmatrix.core.errors import BadInput, EngineUnusable, ExitCode, ToolError
from torchmatrix.core.formatting import count
from torchmatrix.facts.launch import UNFINISHED, Launch
from torchmatrix.facts.reading import launches_below, sorted_out
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.planning.plan import Cell
from torchmatrix.running import launch_order, run
from torchmatrix.running.launch_cell import record_failure
from torchmatrix.running.progress import LaunchFinished, LaunchStarted, LaunchWaits, ProgressEvent
from torchmatrix.running.scheduler import Part, Scheduler
from torchmatrix.running.session import Session
from torchmatrix_plugins.cluster import job_system, orders
from torchmatrix_plugins.cluster.cluster import Cluster, NodeGroup
from torchmatrix_plugins.cluster.job_system import Task

_STUCK = (
    "held", "Held", "DOWN", "DRAINED", "NotAvail", "Invalid", "Licenses", "NeverSatisfied", "QOS", "Assoc", "Unschedulable",
)  # fmt: skip
"""Words in the reason of a job that needs somebody's help, or that other jobs keep waiting for long."""
_DETACHED = "submitted; the same command without --detach watches, and writes the report; scancel --name={} ends it"
MOST_REFUSALS = 150
"""Polls in a row in which a scheduler takes no job, and has none of this run: about five minutes."""
MOST_RETRIES = 2
"""The most retries of a launch that the cluster lost."""
THE_CELLS = {"FAILED": "crashed", "OUT_OF_MEMORY": "oom", "TIMEOUT": "timeout", "DEADLINE": "timeout"}
"""The outcome of a cell by its job's state; every other state is the cluster's fault, and the launch is tried again."""


@dataclass(kw_only=True, slots=True)
class SubmittedLaunch:
    """A launch that is with Slurm. `polls`: how often its job was found over, `ending`: ending; `retries`: how often lost;
    `was_ended`: an earlier command ended its job, which was still there when this one began.
    """

    kind: NodeGroup
    cell: Cell
    number: int
    started: bool = False
    polls: int = 0
    ending: int = 0
    retries: int = 0
    was_ended: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Launches on `nodes` that are submitted together and run one by one, in order. `retries`: how often they were lost."""

    kind: NodeGroup
    nodes: tuple[str, ...]
    launches: list[tuple[Cell, int]]
    retries: int = 0


@dataclass(kw_only=True)
class Submitted:
    """The launches that are with Slurm, by job and task. `later`: launches that it doesn't take yet, in their order.

    `cancelled`: launches that somebody else ended. `most_tasks`: of one array. `enough`: the cells that need no further rounds.
    `finished`: tasks whose launches are complete, so that their jobs end by themselves. `reported`: what waits were reported.
    """

    cluster: Cluster
    most_tasks: int
    waiting: dict[str, SubmittedLaunch] = field(default_factory=dict)
    later: deque[Batch] = field(default_factory=deque)
    cancelled: list[SubmittedLaunch] = field(default_factory=list)
    enough: set[tuple[str, str]] = field(default_factory=set)
    begun: float = field(default_factory=time.monotonic)
    last: dict[str, str] = field(default_factory=dict)
    """The job after which a node's next one may begin."""
    finished: set[str] = field(default_factory=set)
    reported: set[str] = field(default_factory=set)
    refused_at: int | None = None
    """How many launches were with Slurm when it took no more; None if it takes all."""

    def add(self, kind: NodeGroup, nodes: tuple[str, ...], launches: Sequence[tuple[Cell, int]], retries: int = 0) -> None:
        """Queue launches after those that were added before, in arrays as large as Slurm allows."""
        for launch in launches:
            # only into the nodes' last array: an earlier one would run before work that was added later
            last = next((batch for batch in reversed(self.later) if set(batch.nodes) & set(nodes)), None)
            fits = last and last.kind is kind and (last.nodes, last.retries) == (nodes, retries)
            if last and fits and len(last.launches) < self.most_tasks:
                last.launches.append(launch)
            else:
                self.later.append(Batch(kind=kind, nodes=nodes, launches=[launch], retries=retries))

    def add_further(self) -> None:
        """Queue the next round of compared cells of an adaptive method, none of whose launches is awaited."""
        for kind in (kind for kind in self.cluster.kinds if kind.session.matrix.method.further):
            busy = {waiting.cell.id for waiting in self._all_awaited() if waiting.kind is kind}
            for group in launch_order.compared(kind.session.plan.cells):
                ids = {cell.id for cell in group}
                keys = {(kind.home, cell) for cell in ids}
                if ids & busy or keys <= self.enough:
                    continue
                launches = [] if self.is_over(kind) else run.further(kind.session, kind.folder(self.cluster.order.run), group)
                self.enough |= set() if launches else keys
                for cell, number in launches:
                    self.add(kind, kind.at[cell.id], [(cell, number)])

    def _all_awaited(self) -> Iterator[SubmittedLaunch]:
        """Yield all launches, also those not with Slurm yet, and those that somebody ended: the next command continues them."""
        yield from self.waiting.values()
        yield from self.cancelled
        for batch in self.later:
            yield from (SubmittedLaunch(kind=batch.kind, cell=cell, number=number) for cell, number in batch.launches)

    def is_over(self, kind: NodeGroup) -> bool:
        """Check whether the budget is spent; then no round is begun."""
        budget = kind.session.matrix.method.budget_seconds
        return budget is not None and time.monotonic() - self.begun > budget

    def submit(self) -> None:
        """Submit what Slurm takes; after a refusal, only once some launches have ended.

        Raises NotNow if it takes nothing, and nothing is with it that would end some time.
        """
        if self.refused_at is not None and 0 < self.refused_at <= len(self.waiting):
            return
        self.refused_at = None
        busy = {node for waiting in self.waiting.values() for node in waiting.kind.at[waiting.cell.id]}
        for batch in list(self.later):
            if not self.cluster.system.queues and busy & set(batch.nodes):
                continue
            try:
                self._submit_part(batch)
            except job_system.NotNow:
                self.refused_at = len(self.waiting)
                if not self.waiting:
                    raise
                return
            if not batch.launches:
                self.later.remove(batch)
            busy |= set(batch.nodes)

    def _submit_part(self, batch: Batch) -> None:
        """Submit a batch, and take it out of it; if nothing is with Slurm that would end, as much of it as its limit allows."""
        size = len(batch.launches)
        while True:
            try:
                self._submit(replace(batch, launches=batch.launches[:size]))
            except job_system.NotNow:
                if self.waiting or size == 1:
                    raise
                size = (size + 1) // 2
            else:
                del batch.launches[:size]
                return

    def _submit(self, batch: Batch) -> None:
        order, kind = self.cluster.order, batch.kind
        key = uuid.uuid4().hex[:8]
        number = orders.keep_launches(order, kind.home, [(cell.id, its_round) for cell, its_round in batch.launches], key)
        submission = job_system.Submission(
            words=("on-node", "launch", str(order.place), str(number)),
            name=self.cluster.name,
            nodes=batch.nodes,
            tasks=range(len(batch.launches)),
            output=str(order.place / "jobs" / f"{number}-%a.out"),
            key=key,
            gpus=next(node.gpus for node in kind.nodes if node.name == batch.nodes[0]),
            after=tuple(dict.fromkeys(self.last[node] for node in batch.nodes if node in self.last)),
        )
        try:
            job = self.cluster.system.submit(submission)
        except (BadInput, job_system.NotNow):
            orders.drop_launches(order, number)
            raise
        job = orders.keep_job(order, number, job)
        self.last |= dict.fromkeys(batch.nodes, job)
        for task, (cell, its_round) in enumerate(batch.launches):
            self.waiting[f"{job}_{task}"] = SubmittedLaunch(kind=kind, cell=cell, number=its_round, retries=batch.retries)


def submit_all(cluster: Cluster) -> Submitted:
    """Submit what is neither complete nor with Slurm already: a node makes its launches one after the other, round by round."""
    submitted = Submitted(cluster=cluster, most_tasks=cluster.system.most_tasks())
    todo = {kind.home: run.todo(kind.session, kind.folder(cluster.order.run)) for kind in cluster.kinds}
    _attach(submitted, todo)
    held = {(waiting.kind.home, waiting.cell.id, waiting.number) for waiting in submitted.waiting.values()}
    for kind in cluster.kinds:
        by_round: dict[int, list[tuple[Cell, int]]] = {}
        for cell, number in todo[kind.home]:
            by_round.setdefault(number, []).append((cell, number))
        for launches in by_round.values():
            left = [(cell, number) for cell, number in launches if (kind.home, cell.id, number) not in held]
            for nodes in dict.fromkeys(kind.at[cell.id] for cell, _ in left):
                submitted.add(kind, nodes, [(cell, number) for cell, number in left if kind.at[cell.id] == nodes])
    submitted.add_further()
    with suppress(job_system.NotNow):  # others' jobs are at the limit, or ours that are being removed: `watch` asks again
        submitted.submit()
    return submitted


def _attach(submitted: Submitted, todo: Mapping[str, Sequence[tuple[Cell, int]]]) -> None:
    """Take up the launches that an earlier command submitted and that Slurm still has, whether or not it noted that.

    `todo`: the launches that aren't complete, by the folder of their runs.
    """
    system, name, order = submitted.cluster.system, submitted.cluster.name, submitted.cluster.order
    arrays, kinds = orders.jobs_of(order), {kind.home: kind for kind in submitted.cluster.kinds}
    tasks = {task.id: task for task in system.tasks(name)} if arrays else {}
    for number, (key, noted) in arrays.items():
        home, launches = orders.launches_of(order, number)
        missing = {(cell.id, its_round): cell for cell, its_round in todo[home]}
        job, is_hidden = noted, False
        if any(launch in missing for launch in launches) and not any(task.startswith(f"{job}_") for task in tasks):
            job = system.job_of(name, key) or noted  # what was noted may be damaged
            is_hidden = bool(job) and system.has(job)
        for index, (cell, its_round) in enumerate(launches):
            task = tasks.get(f"{job}_{index}")
            is_there = task.state not in job_system.OVER if task else is_hidden
            if is_there and (cell, its_round) in missing:
                submitted.waiting[f"{job}_{index}"] = SubmittedLaunch(
                    kind=kinds[home],
                    cell=missing[cell, its_round],
                    number=its_round,
                    was_ended=task is not None and task.state == "COMPLETING",
                )


def watch(submitted: Submitted) -> Generator[ProgressEvent, None, None]:
    """Yield what becomes of the launches until none is left; submit lost launches again."""
    refusals, forgotten = 0, set[str]()
    while submitted.waiting or submitted.later:
        time.sleep(job_system.POLL_SECONDS)
        try:
            submitted.submit()
        except job_system.NotNow:  # others' jobs are at the limit, and may end
            with suppress(ToolError):
                submitted.cluster.system.forget(submitted.finished - forgotten)
                forgotten |= submitted.finished
            refusals += 1
            if refusals > MOST_REFUSALS:
                raise
            continue
        refusals = 0
        tasks = {task.id: task for task in submitted.cluster.system.tasks(submitted.cluster.name)}
        for name, waiting in list(submitted.waiting.items()):
            # tasks that are cancelled together stand as one job
            task = tasks.get(name) or tasks.get(job_system.array_index(name)[0])
            if task and task.state not in job_system.OVER:
                yield from _report(submitted, waiting, task)
            else:
                yield from _settle(submitted, name, waiting, task)
        submitted.add_further()


def _report(submitted: Submitted, waiting: SubmittedLaunch, task: Task) -> Iterator[ProgressEvent]:
    """Report that a launch begins, again after a requeue, or once why it waits, if only somebody's help ends that."""
    waiting.polls = 0
    waiting.ending = waiting.ending + 1 if task.state == "COMPLETING" else 0
    is_running = task.state == "RUNNING"
    if is_running and not waiting.started:
        yield LaunchStarted(cell=waiting.cell, number=waiting.number)
    waiting.started = is_running
    if task.state == "PENDING" and any(word in task.reason for word in _STUCK):
        yield from _report_wait(submitted, waiting, task.reason)
    if waiting.ending == job_system.STALE_POLLS:
        job, _ = job_system.array_index(task.id)
        yield from _report_wait(submitted, waiting, f"its job {job} was ended, but is still there; is its node?")


def _report_wait(submitted: Submitted, waiting: SubmittedLaunch, reason: str) -> Iterator[LaunchWaits]:
    """Report a reason to wait once for each place."""
    place = "+".join(waiting.kind.at[waiting.cell.id])
    if (text := f"{place}: {reason}") not in submitted.reported:
        submitted.reported.add(text)
        yield LaunchWaits(cell=waiting.cell, place=place, reason=reason)


def _settle(submitted: Submitted, name: str, waiting: SubmittedLaunch, task: Task | None) -> Iterator[ProgressEvent]:
    """Yield how a launch ended whose job is over; nothing if that isn't clear yet, or if it was submitted again."""
    folder = waiting.kind.folder(submitted.cluster.order.run)
    if launch := next((launch for launch in _tries(folder, waiting) if launch.outcome not in UNFINISHED), None):
        del submitted.waiting[name]
        submitted.finished.add(name)
        note = f"try {launch.number}" if launch.number > 1 else ""
        yield LaunchFinished(cell=waiting.cell, number=waiting.number, launch=launch, seconds=launch.seconds, note=note)
        return
    waiting.polls += 1
    system = submitted.cluster.system
    state = task.state if task else system.gone
    if waiting.polls < (job_system.STALE_POLLS if state == "COMPLETED" else job_system.SETTLING_POLLS):
        return
    if not task and system.has(name):
        waiting.polls = 0
        yield from _report_wait(submitted, waiting, system.hidden(name))
        return
    del submitted.waiting[name]
    if state == "CANCELLED" and not waiting.was_ended:
        submitted.cancelled.append(waiting)
    elif _is_cluster_failure(state, folder, waiting) and waiting.retries < MOST_RETRIES:
        nodes = waiting.kind.at[waiting.cell.id]
        submitted.add(waiting.kind, nodes, [(waiting.cell, waiting.number)], retries=waiting.retries + 1)
    else:
        yield _record_lost(submitted.cluster, folder, waiting, state, task.why if task else "")


def _is_cluster_failure(state: str, folder: RunFolder, waiting: SubmittedLaunch) -> bool:
    """Check whether the cluster, not the cell, ended a job: also if the job failed, but its launch was only interrupted, as
    when its engine or another node was lost.
    """
    return state not in THE_CELLS or (state == "FAILED" and any(True for _ in _tries(folder, waiting)))


def _tries(folder: RunFolder, waiting: SubmittedLaunch) -> Iterator[Launch]:
    names = f"round{waiting.number}-try*.jsonl"
    launches, _ = sorted_out(launches_below(folder.path / waiting.cell.id, names, folder.place()))
    return reversed(launches)


def _record_lost(cluster: Cluster, folder: RunFolder, waiting: SubmittedLaunch, state: str, why: str) -> LaunchFinished:
    """Record a launch of which only the end of its job is known. `why`: in the cluster's words, if it says."""
    job = run.job_of(waiting.kind.session, folder)
    node = "+".join(waiting.kind.at[waiting.cell.id])
    system, place = cluster.system, cluster.order.place / "jobs"
    ended = f"{state} ({why})" if why else state
    message = f"{system.title}'s job on {node} ended as {ended} without a launch; what it printed is below {place}"
    reason = THE_CELLS.get(state, "crashed")
    command = f"torchmatrix run --engine {system.name} '{waiting.cell.id}'"
    return record_failure(job, waiting.cell, waiting.number, reason, message, command, own=not why)


class Clustered(Scheduler):
    """The nodes of a cluster, each kind of which has a run of its own. `prepare`: plans, with the results folder held."""

    is_cluster = True
    stopping = "ending the jobs; writing a report of what was measured so far"
    how_to_stop = "Ctrl-C ends the jobs; the same command continues the run"

    def __init__(self, prepare: Callable[[], Cluster], results: Path, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._prepare, self._results, self._tell = prepare, Results(results), tell
        self._estimated = 0.0

    def sessions(self) -> Sequence[Session]:
        self.enter_context(self._results.hold())
        self._cluster = cluster = self._prepare()
        self.detached = _DETACHED.format(cluster.name)
        self._tell(f"{cluster.system.name} {cluster.version}")
        for node, why in cluster.silent.items():
            self._tell(f"note: {node} is left out: {why}")
        if not cluster.kinds:
            reasons = "; ".join(dict.fromkeys(cluster.silent.values()))
            raise EngineUnusable(f"no node said what it is: {reasons}", hint="the jobs' output says why")
        return [kind.session for kind in cluster.kinds]

    def open(self, s: Session, command: str) -> Part:
        kind = next(kind for kind in self._cluster.kinds if kind.session is s)
        folder = kind.folder(self._cluster.order.run)
        if not folder.record.exists():
            nodes = [{"host name": node.name, "gres": node.gres} for node in kind.nodes]
            system, version = self._cluster.system, self._cluster.version
            scheduler = {"name": system.name, "version": version, "nodes": nodes, "placed": dict(kind.at)}
            notes = ["each node watches its own devices: what can't be watched is said in each launch"]
            run.open_record(s, folder, command, notes, scheduler=scheduler)
        places = f"nodes: {', '.join(dict.fromkeys(kind.node_of.values()))}"
        todo, earlier = run.todo(s, folder), run.known_seconds(s)
        part = Part(session=s, folder=folder, todo=todo, earlier=earlier, node_of=kind.node_of, places=places)
        self._estimated = max(self._estimated, part.seconds)
        return part

    def submit(self) -> None:
        try:
            self._submitted = submit_all(self._cluster)
        except BaseException:  # whatever it is, such as Ctrl-C: what was submitted before would run on
            self.cancel()
            raise

    def poll(self) -> Generator[ProgressEvent, None, None]:
        return watch(self._submitted)

    def cancel(self) -> None:
        """End all launches that were submitted, and wait until they have been closed."""
        system, name = self._cluster.system, self._cluster.name
        if not system.cancel_or_tell(name):
            return
        with suppress(ToolError):
            for _ in range(int(60 / job_system.POLL_SECONDS)):
                if all(task.state in job_system.OVER for task in system.tasks(name)):
                    return
                time.sleep(job_system.POLL_SECONDS)
        self._tell(f"note: jobs are still ending; hint: {system.how_to_cancel(name)}")

    def collect(self) -> None:
        missing, seconds = 0, time.monotonic() - self._submitted.begun
        for kind in self._cluster.kinds:
            folder = kind.folder(self._cluster.order.run)
            more = [] if self._submitted.is_over(kind) else run.further(kind.session, folder, kind.session.plan.cells)
            left = len(run.todo(kind.session, folder)) + len(more)
            missing += left
            if not left and not folder.read_record().complete:
                folder.append("run-exit", complete=True, seconds=seconds, estimated_seconds=self._estimated)
        if self._submitted.cancelled:
            number = count(len(self._submitted.cancelled), "launch")
            self._tell(f"\n{number} cancelled by somebody else: not measured; the same command continues the run")
        if missing:
            text, hint = f"{count(missing, 'launch')} not measured", "the same command continues the run"
            raise ToolError(text, hint=hint, exit_code=ExitCode.INCOMPLETE)
        tasks = self._cluster.system.tasks(self._cluster.name)
        if {task.id for task in tasks if task.state not in (*job_system.OVER, "COMPLETING")} - self._submitted.finished:
            self.cancel()  # such as one that Slurm took twice
        orders.close(self._cluster.order)
