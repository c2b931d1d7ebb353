"""The launches of a run as Slurm's jobs: submitted as arrays, one per node and round; watched; collected. Yields news.

A node that dies makes Slurm run a job twice. Each try writes a file of its own in the run's folder, whose last line completes
it: what is complete is not launched again, and of two complete tries the later one is the launch's, so that none counts twice.
"""

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torchmatrix.core.errors import EngineUnusable
from torchmatrix.facts.launch import UNFINISHED, Launch
from torchmatrix.facts.reading import launches_below, sorted_out
from torchmatrix.facts.store import RunFolder
from torchmatrix.planning.plan import Cell
from torchmatrix.running import launch_order, run
from torchmatrix.running.cluster import orders, slurm
from torchmatrix.running.cluster.cluster import Cluster, Kind
from torchmatrix.running.launch_cell import record_failure
from torchmatrix.running.news import LaunchFinished, LaunchStarted, LaunchWaits, News

_STUCK = ("held", "Held", "DOWN", "DRAINED", "NotAvail", "Invalid", "Licenses", "NeverSatisfied", "QOS", "Assoc")
"""What is in the reason of a job that somebody has to do something for, or that other jobs keep waiting for long."""
MOST_UNANSWERED = 150
"""Polls in a row: about five minutes, and longer where the controller's commands wait themselves."""
MOST_RETRIES = 2
"""Of a launch that the cluster lost."""
THE_CELLS = {"FAILED": "crashed", "OUT_OF_MEMORY": "oom", "TIMEOUT": "timeout", "DEADLINE": "timeout"}
"""What a job's end means for its cell; every other end is the cluster's, and the launch is tried again."""


@dataclass(kw_only=True, slots=True)
class Waiting:
    """A launch that is with Slurm. `polls`: how often its job was found to be over; `retries`: how often it was lost."""

    kind: Kind
    cell: Cell
    number: int
    started: bool = False
    polls: int = 0
    retries: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Launches on `nodes` that are submitted together and run one by one, in order. `retries`: how often they were lost."""

    kind: Kind
    nodes: tuple[str, ...]
    launches: list[tuple[Cell, int]]
    retries: int = 0


@dataclass(kw_only=True)
class Submitted:
    """The launches that are with Slurm, by job and task. `later`: those that it doesn't take yet, in their order.

    `cancelled`: those that somebody else ended. `most_tasks`: of one array. `enough`: the cells that need no further rounds.
    """

    cluster: Cluster
    most_tasks: int
    waiting: dict[str, Waiting] = field(default_factory=dict)
    later: deque[Batch] = field(default_factory=deque)
    cancelled: list[Waiting] = field(default_factory=list)
    enough: set[tuple[str, str]] = field(default_factory=set)
    begun: float = field(default_factory=time.monotonic)
    last: dict[str, str] = field(default_factory=dict)
    """The job after which a node's next one may begin."""
    refused_at: int | None = None
    """How many launches were with Slurm when it took no more; None if it takes all."""

    def add(self, kind: Kind, nodes: tuple[str, ...], launches: Sequence[tuple[Cell, int]], retries: int = 0) -> None:
        """Launches to submit after those that were added before, in arrays as large as Slurm allows."""
        for launch in launches:
            batch = self._open(kind, nodes, retries)
            if batch is None:
                batch = Batch(kind=kind, nodes=nodes, launches=[], retries=retries)
                self.later.append(batch)
            batch.launches.append(launch)

    def _open(self, kind: Kind, nodes: tuple[str, ...], retries: int) -> Batch | None:
        """The last array on these nodes, unless it is full, or one of the nodes has something else to do after it."""
        last = next((batch for batch in reversed(self.later) if set(batch.nodes) & set(nodes)), None)
        fits = last and last.kind is kind and (last.nodes, last.retries) == (nodes, retries)
        return last if last and fits and len(last.launches) < self.most_tasks else None

    def add_further(self) -> None:
        """With an adaptive method, the next round of cells that are compared, none of whose launches is awaited."""
        for kind in (one for one in self.cluster.kinds if one.session.matrix.method.until is not None):
            busy = {waiting.cell.id for waiting in self._awaited() if waiting.kind is kind}
            for group in launch_order.compared(kind.session.plan.cells):
                ids = {cell.id for cell in group}
                known = {(kind.home, cell) for cell in ids}
                if ids & busy or known <= self.enough:
                    continue
                launches = [] if self.is_over(kind) else run.further(kind.session, kind.folder(self.cluster.order.run), group)
                self.enough |= set() if launches else known
                for cell, number in launches:
                    self.add(kind, kind.at[cell.id], [(cell, number)])

    def _awaited(self) -> Iterator[Waiting]:
        """Also what isn't with Slurm yet, and what somebody ended: its cells go on with the next command."""
        yield from self.waiting.values()
        yield from self.cancelled
        for batch in self.later:
            yield from (Waiting(kind=batch.kind, cell=cell, number=number) for cell, number in batch.launches)

    def is_over(self, kind: Kind) -> bool:
        """Whether the budget is spent: then no round is begun."""
        budget = kind.session.matrix.method.budget_seconds
        return budget is not None and time.monotonic() - self.begun > budget

    def submit(self) -> None:
        """Submit what Slurm takes; where it took no more, once some have ended.

        Raises NotNow if it takes nothing, and nothing is with it that would end some time.
        """
        if self.refused_at is not None and 0 < self.refused_at <= len(self.waiting):
            return
        self.refused_at = None
        while self.later:
            try:
                self._submit(self.later[0])
            except slurm.NotNow:
                self.refused_at = len(self.waiting)
                if not self.waiting:
                    raise
                return
            self.later.popleft()

    def _submit(self, batch: Batch) -> None:
        order, kind = self.cluster.order, batch.kind
        number = orders.keep_launches(order, kind.home, [(cell.id, its) for cell, its in batch.launches])
        wish = slurm.Submission(
            script=orders.script("launch", str(order.place), str(number)),
            name=self.cluster.name,
            nodes=batch.nodes,
            tasks=range(len(batch.launches)),
            output=str(order.place / "jobs" / f"{number}-%a.out"),
            gpus=next(its.gpus for its in kind.nodes if its.name == batch.nodes[0]),
            after=tuple(dict.fromkeys(self.last[node] for node in batch.nodes if node in self.last and not batch.retries)),
        )
        job = self.cluster.slurm.submit(wish)
        self.last |= {} if batch.retries else dict.fromkeys(batch.nodes, job)
        orders.keep_job(order, number, job)
        for task, (cell, its) in enumerate(batch.launches):
            self.waiting[f"{job}_{task}"] = Waiting(kind=kind, cell=cell, number=its, retries=batch.retries)


def submit_all(cluster: Cluster) -> Submitted:
    """Submit what is neither complete nor with Slurm already: a node makes its launches one after the other, round by round."""
    found = Submitted(cluster=cluster, most_tasks=cluster.slurm.most_tasks())
    _attach(found)
    held = {(waiting.kind.home, waiting.cell.id, waiting.number) for waiting in found.waiting.values()}
    for kind in cluster.kinds:
        for its_round in _rounds(run.todo(kind.session, kind.folder(cluster.order.run))):
            left = [(cell, number) for cell, number in its_round if (kind.home, cell.id, number) not in held]
            for nodes in dict.fromkeys(kind.at[cell.id] for cell, _ in left):
                found.add(kind, nodes, [(cell, number) for cell, number in left if kind.at[cell.id] == nodes])
    found.add_further()
    found.submit()
    return found


def _attach(found: Submitted) -> None:
    """Take up the launches that an earlier command submitted and that Slurm still has."""
    order, arrays = found.cluster.order, orders.jobs_of(found.cluster.order)
    kinds = {kind.home: (kind, {cell.id: cell for cell in kind.session.plan.cells}) for kind in found.cluster.kinds}
    for task in found.cluster.slurm.tasks(found.cluster.name) if arrays else ():
        job, index = slurm.array_index(task.id)
        if job not in arrays or task.state in slurm.OVER:
            continue
        home, launches = orders.launches_of(order, arrays[job])
        cell, number = launches[index]
        kind, cells = kinds[home]
        found.waiting[task.id] = Waiting(kind=kind, cell=cells[cell], number=number)


def _rounds(launches: Iterable[tuple[Cell, int]]) -> Iterator[list[tuple[Cell, int]]]:
    """The launches of each round, in their order."""
    found: dict[int, list[tuple[Cell, int]]] = {}
    for cell, number in launches:
        found.setdefault(number, []).append((cell, number))
    yield from found.values()


def watch(found: Submitted) -> Generator[News, None, None]:
    """Tell what becomes of the launches until none is left; what the cluster lost is submitted again."""
    unanswered, told = 0, set[str]()
    while found.waiting or found.later:
        time.sleep(slurm.POLL_SECONDS)
        try:
            found.submit()
            tasks = {task.id: task for task in found.cluster.slurm.tasks(found.cluster.name)}
        except EngineUnusable:  # a controller may be restarted; its jobs go on meanwhile
            unanswered += 1
            if unanswered > MOST_UNANSWERED:
                raise
            continue
        unanswered = 0
        for name, waiting in list(found.waiting.items()):
            task = tasks.get(name) or tasks.get(
                slurm.array_index(name)[0]
            )  # tasks that are cancelled together stand as one job
            if task and task.state not in slurm.OVER:
                yield from _under_way(waiting, task)
                yield from _told(waiting, task, told)
            elif news := _settled(found, name, waiting, task):
                yield news
        found.add_further()


def _under_way(waiting: Waiting, task: slurm.Task) -> Iterator[News]:
    """A job that was requeued begins again."""
    waiting.polls = 0
    if task.state == "RUNNING" and not waiting.started:
        waiting.started = True
        yield LaunchStarted(cell=waiting.cell, number=waiting.number)
    waiting.started = waiting.started and task.state == "RUNNING"


def _told(waiting: Waiting, task: slurm.Task, told: set[str]) -> Iterator[News]:
    """Why a launch waits, where neither time nor its turn ends that: once for each reason."""
    place = "+".join(waiting.kind.at[waiting.cell.id])
    said = f"{place}: {task.reason}"
    if task.state == "PENDING" and any(word in task.reason for word in _STUCK) and said not in told:
        told.add(said)
        yield LaunchWaits(cell=waiting.cell, place=place, reason=task.reason)


def _settled(found: Submitted, name: str, waiting: Waiting, task: slurm.Task | None) -> LaunchFinished | None:
    """How a launch ended whose job is over; None if that isn't clear yet, or if it was submitted again."""
    folder = waiting.kind.folder(found.cluster.order.run)
    if launch := _complete(folder, waiting):
        del found.waiting[name]
        return LaunchFinished(
            cell=waiting.cell, number=waiting.number, launch=launch, seconds=launch.seconds, note=_retried(launch)
        )
    waiting.polls += 1
    state = task.state if task else "gone"
    if waiting.polls < (slurm.STALE_POLLS if state == "COMPLETED" else slurm.SETTLING_POLLS):
        return None
    del found.waiting[name]
    if state == "CANCELLED":
        found.cancelled.append(waiting)
        return None
    if _is_the_clusters(state, folder, waiting) and waiting.retries < MOST_RETRIES:
        at = waiting.kind.at[waiting.cell.id]
        found.add(waiting.kind, at, [(waiting.cell, waiting.number)], retries=waiting.retries + 1)
        return None
    return _recorded(found.cluster, folder, waiting, state)


def _is_the_clusters(state: str, folder: RunFolder, waiting: Waiting) -> bool:
    """Whether it was not the cell that ended a job: the job failed, but what it launched was only interrupted, as when its
    engine or another node was lost.
    """
    return state not in THE_CELLS or (state == "FAILED" and any(True for _ in _tries(folder, waiting)))


def _tries(folder: RunFolder, waiting: Waiting) -> Iterator[Launch]:
    launches, _ = sorted_out(launches_below(folder.path / waiting.cell.id, f"round{waiting.number}-try*.jsonl"))
    return reversed(launches)


def _complete(folder: RunFolder, waiting: Waiting) -> Launch | None:
    return next((launch for launch in _tries(folder, waiting) if launch.outcome not in UNFINISHED), None)


def _retried(launch: Launch) -> str:
    return f"try {launch.number}" if launch.number > 1 else ""


def _recorded(cluster: Cluster, folder: RunFolder, waiting: Waiting, state: str) -> LaunchFinished:
    """A launch of which nothing is there but how its job ended."""
    job = run.job_of(waiting.kind.session, folder)
    node = "+".join(waiting.kind.at[waiting.cell.id])
    message = (
        f"Slurm's job on {node} ended as {state} without a launch; what it printed is below {cluster.order.place / 'jobs'}"
    )
    reason, command = THE_CELLS.get(state, "crashed"), f"torchmatrix run --engine slurm '{waiting.cell.id}'"
    return record_failure(job, waiting.cell, waiting.number, reason, message, command)


def end(found: Submitted) -> None:
    """End all that is with Slurm, and wait until the launches have been closed."""
    found.cluster.slurm.cancel(found.cluster.name)
    for _ in range(int(60 / slurm.POLL_SECONDS)):
        if all(task.state in slurm.OVER for task in found.cluster.slurm.tasks(found.cluster.name)):
            return
        time.sleep(slurm.POLL_SECONDS)


def begin(cluster: Cluster, command: str) -> None:
    """Begin the record of each kind's run, if an earlier command didn't."""
    for kind in cluster.kinds:
        folder = kind.folder(cluster.order.run)
        if not folder.record.exists():
            nodes = [{"host name": node.name, "gres": node.gres} for node in kind.nodes]
            scheduler = {"name": "slurm", "version": cluster.version, "nodes": nodes, "placed": dict(kind.at)}
            notes = ["each node watches its own devices: what can't be watched is said in each launch"]
            run.open_record(kind.session, folder, command, notes, scheduler=scheduler)


def finish(found: Submitted, seconds: float, estimated: float) -> int:
    """Say in each run's record that it is complete, if all launches are; then the order is done. Returns how many are not."""
    missing, cluster = 0, found.cluster
    for kind in cluster.kinds:
        folder = kind.folder(cluster.order.run)
        more = [] if found.is_over(kind) else run.further(kind.session, folder, kind.session.plan.cells)
        left = len(run.todo(kind.session, folder)) + len(more)
        missing += left
        if not left and not folder.read_record().complete:
            folder.append("run-exit", complete=True, seconds=seconds, estimated_seconds=estimated)
    if not missing:
        orders.close(cluster.order)
    return missing
