"""Plan a run on a cluster, on the machine that submits: find the nodes, ask what they can run, and assign cells to nodes.

Nodes of one kind (the same GPUs, features, cores and memory, as their scheduler describes them) measure one run together: each
model and mode stays on one node, with all cells that are compared with it. Each kind has a run of its own, as its figures are
its own.
"""

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torchmatrix.core import settings
from torchmatrix.core.errors import BadInput, EngineUnusable, ToolError
from torchmatrix.core.formatting import printable
from torchmatrix.engines import recipes
from torchmatrix.engines.choose import choose
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.method import Request
from torchmatrix.planning import selection
from torchmatrix.planning.plan import Cell, make_plan
from torchmatrix.planning.selection import TwoStacks, select
from torchmatrix.running.session import Session, refuse_unlocked, without_locks
from torchmatrix_plugins.cluster import job_system, orders
from torchmatrix_plugins.cluster.job_system import JobSystem, Node
from torchmatrix_plugins.cluster.orders import NodeError, NodeFacts, RunRequest

NO_ENGINE = "local"
"""The engine on the submitting machine, which is available everywhere: nothing is built or run there."""


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Nodes that are alike, and what they measure. `at`: which of them measure a cell, by its id."""

    nodes: tuple[Node, ...]
    session: Session
    home: str
    at: Mapping[str, tuple[str, ...]]

    @property
    def node_of(self) -> dict[str, str]:
        """Return the node that measures a cell, by its id; a launch on several nodes belongs to the first of them."""
        return {cell: nodes[0] for cell, nodes in self.at.items()}

    def folder(self, run: str) -> RunFolder:
        """Return the folder of their run."""
        return self.session.results.named_run(self.home, run)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The kinds of nodes and what they measure. `silent`: nodes that were left out, and why."""

    system: JobSystem
    version: str
    order: RunRequest
    kinds: tuple[NodeGroup, ...]
    silent: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return the name of its jobs."""
        return self.order.job_name


def prepare(
    scheduler: str,
    path: Path,
    results: Path,
    globs: Sequence[str],
    where: Sequence[str],
    request: Request,
    *,
    locked: bool = False,
    ab: TwoStacks | None = None,
    new: bool = False,
    tell: Callable[[str], None],
) -> Cluster:
    """Ask one node of each kind what it is, and plan. Raises ToolError.

    Continues the order that asks for the same and isn't done. `locked`: refuse if matrix.lock doesn't match the matrix.
    `ab`: only what these two stacks share.
    """
    system, matrix = _job_system(scheduler, tell), selection.matrix_of_two(matrix_file.load(path), request, ab)
    _refuse_unfit(system, matrix, results.absolute(), path.absolute().parent)
    version, nodes = system.version(), system.nodes()
    if not any(node.standing.is_usable for node in nodes):
        states = ", ".join(f"{node.name} ({node.in_words})" for node in nodes)
        raise EngineUnusable(f"no node of the partition can be used: {states}", hint=f"{system.look} shows why")
    order = _continue_or_begin(system, path, matrix, results.absolute(), globs, where, request, ab, new=new, tell=tell)
    kinds, silent = [], {node.name: node.in_words for node in nodes if not node.standing.is_usable}
    with ExitStack() as stack:
        questions = []
        for alike in _groups(system, order, nodes):
            node = min(alike, key=lambda member: (orders.node_facts(order, member.name) is None, *_waiting_rank(member)))
            for member in (member for member in alike if member.standing.is_usable and member.standing.why):
                tell(f"{member.name} is {member.in_words}")
            tell(f"asking {node.name}{f' (and {len(alike) - 1} like it)' if len(alike) > 1 else ''} what it has")
            questions.append((alike, node, stack.enter_context(_describing_job(system, order, node))))
        for alike, node, job in questions:
            facts = _await_facts(system, order, node, job, tell)
            if isinstance(facts, str):
                silent |= {member.name: f"{node.name} said nothing{facts}; see {order.place / 'jobs'}" for member in alike}
            elif isinstance(facts, NodeError):
                raise ToolError(facts.error, hint=facts.hint, exit_code=facts.exit_code)
            elif facts.wrong:
                silent |= {member.name: f"{node.name}: {facts.wrong}" for member in alike}
            else:
                kinds.append(_make_kind(matrix, order, alike, facts, nodes=len(alike) if system.queues else 1))
    if locked:
        refuse_unlocked(recipes.lock_path(path), list(dict.fromkeys(note for kind in kinds for note in kind.session.notes)))
    _refuse_without_nodes(order, [kind.home for kind in kinds], silent)
    kinds = kinds if order.held() else [replace(kind, session=without_locks(kind.session)) for kind in kinds]
    return Cluster(system=system, version=version, order=order, kinds=tuple(kinds), silent=silent)


def _job_system(name: str, tell: Callable[[str], None]) -> JobSystem:
    """Return the job system of this name, as the settings describe it."""
    if name == "slurm":
        from torchmatrix_plugins.cluster.slurm import Slurm

        return Slurm(settings.load().slurm, tell)
    try:
        from torchmatrix_plugins.cluster.kubernetes import Kubernetes
    except ImportError:
        raise EngineUnusable(
            "the client for Kubernetes is not installed", hint="pip install 'torchmatrix[kubernetes]'"
        ) from None
    return Kubernetes(settings.load().kubernetes, tell)


def _refuse_unfit(system: JobSystem, matrix: Matrix, *places: Path) -> None:
    """Raise BadInput for a method that jobs can't carry out, or a place that nodes don't see."""
    if matrix.method.warm_seconds is not None:
        method, title = matrix.method.name, system.title
        raise BadInput(
            f"the method {method} heats one machine before its launches, and {title} starts each in a job of its own",
            hint=f"run torchmatrix in an allocation of the node, without --engine {system.name}",
        )
    for place in places:
        if system.shared and not place.is_relative_to(system.shared):
            hint = f"docs/{system.name}.md shows what the nodes need"
            raise BadInput(f"{place} is not below {system.shared}, which the nodes share", hint=hint)


def _continue_or_begin(
    system: JobSystem, path: Path, matrix: Matrix, results: Path, globs: Sequence[str], where: Sequence[str], request: Request,
    ab: TwoStacks | None,
    *, new: bool, tell: Callable[[str], None],
) -> RunRequest:  # fmt: skip
    """Return the unfinished order of the same cells, with the same lock, measured in the same way, or a new one."""
    lock = orders.content_of(recipes.lock_path(path), "torchmatrix lock writes it anew")
    wanted = RunRequest(
        run=time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
        results=results,
        folder=path.absolute().parent,
        engine=system.engine,
        scheduler=system.name,
        globs=tuple(globs),
        where=tuple(where),
        request=request,
        ab=ab,
        digests=orders.digests(matrix.text, lock),
    )
    for held in () if new else orders.unfinished(results, tell, system.name):
        same = replace(held, run=wanted.run, digests=wanted.digests) == wanted
        if same and (held.digests or orders.found_digests(held)) == wanted.digests:
            orders.refuse_damaged(held)
            return held
    orders.keep(wanted, matrix.text, lock)
    return wanted


def _groups(system: JobSystem, order: RunRequest, nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
    """Return the groups of nodes that measure together.

    A continued run keeps the nodes with which it began, whatever their state: no cell moves to another node, and the launches
    of a node that is down wait for it.
    """
    by_name = {node.name: node for node in nodes}
    begun = orders.groups_of(order)
    if begun is None:
        by_kind: dict[tuple[object, ...], list[Node]] = {}
        for node in [node for node in nodes if node.standing.is_usable][: system.nodes_used]:
            by_kind.setdefault((node.gres, node.features, node.cpus, node.memory_mb), []).append(node)
        orders.keep_groups(order, [[node.name for node in alike] for alike in by_kind.values()])
        return [tuple(alike) for alike in by_kind.values()]
    gone = [name for group in begun for name in group if name not in by_name]
    if gone:
        hint = "--new begins a run on the nodes that there are"
        raise BadInput(f"this run began with {', '.join(gone)}, which {system.title} has no more", hint=hint)
    return [tuple(by_name[name] for name in group) for group in begun]


def _waiting_rank(node: Node) -> tuple[bool, bool, bool]:
    """Rank a node by the wait for a job: it begins at once; after minutes, when the node is up; when others' jobs are over."""
    return not node.standing.is_usable, not node.state.startswith("idle"), node.state != "idle"


@contextmanager
def _describing_job(system: JobSystem, order: RunRequest, node: Node) -> Iterator[str]:
    """Submit a job on a node that describes it, unless it did before; yields the job's id, and ends the job at last."""
    submission = job_system.Submission(
        words=("on-node", "describe", str(order.place), node.name),
        name=_describing_name(order, node),
        nodes=(node.name,),
        tasks=(0,),
        output=str(order.place / "jobs" / f"{node.name}.out"),
        key=uuid.uuid4().hex[:8],
        gpus=node.gpus,
    )
    try:
        yield system.submit(submission) if orders.node_facts(order, node.name) is None else ""
    finally:
        system.cancel_or_tell(submission.name)


def _describing_name(order: RunRequest, node: Node) -> str:
    return f"{order.job_name}-{node.name}"


def _await_facts(
    system: JobSystem, order: RunRequest, node: Node, job: str, tell: Callable[[str], None]
) -> NodeFacts | NodeError | str:
    """Return a node's description of itself, however long its job waits; why there is none if the job ends without one."""
    polls, most, reported, why = 0, job_system.SETTLING_POLLS, "", ""
    while polls < most:
        if (facts := orders.node_facts(order, node.name)) is not None:
            return facts
        tasks = system.tasks(_describing_name(order, node))
        why = next((f": {task.why}" for task in tasks if task.why), why)
        waiting = [task for task in tasks if task.state not in job_system.OVER]
        most = job_system.STALE_POLLS if any(task.state == "COMPLETED" for task in tasks) else job_system.SETTLING_POLLS
        polls = 0 if waiting else polls + 1
        reason = waiting[0].reason if waiting and waiting[0].state == "PENDING" else "None"
        reason = "its job is being ended" if waiting and waiting[0].state == "COMPLETING" else reason
        if polls >= most and not tasks and system.has(job):
            polls, reason = 0, system.hidden(job)
        if reason and reason not in ("None", "Priority", reported):
            reported = reason
            tell(f"waiting for {node.name}: {reason}; Ctrl-C ends it")
        time.sleep(job_system.POLL_SECONDS)
    return why


def _refuse_without_nodes(order: RunRequest, homes: Sequence[str], silent: Mapping[str, str]) -> None:
    """Raise EngineUnusable if launches of a continued run have no kind of node any more: its nodes changed."""
    for number in orders.jobs_of(order):
        home, _ = orders.launches_of(order, number)
        if home not in homes:
            place = order.place / "jobs" / f"{number}.json"
            begun = [name for group in orders.groups_of(order) or () for name in group]
            reasons = [f"{name} is left out: {why}" for name, why in silent.items() if name in begun]
            reasons = reasons or [f"they measure for results/{', results/'.join(homes)}"]
            raise EngineUnusable(
                f"{place} has launches for results/{printable(home)}, which no node of this run measures any more: "
                + "; ".join(reasons),
                hint="with the nodes as they were, the same command continues the run; --new begins one on those there are",
            )


def _make_kind(matrix: Matrix, order: RunRequest, alike: tuple[Node, ...], facts: NodeFacts, nodes: int) -> NodeGroup:
    prerequisites = replace(facts.prerequisites, nodes=nodes)
    names = ", ".join(node.name for node in alike)
    host = replace(facts.host, machine=facts.machine, name=alike[0].name)
    planned = select(make_plan(matrix, host, prerequisites), order.globs, order.where)
    planned = selection.shared_cells(planned, order.ab) if order.ab else planned
    results = Results(order.results)
    ids = sorted(cell.id for cell in planned.cells)
    key = json.dumps([matrix.digest, ids, asdict(matrix.method), recipes.workload_hash(), order.scheduler, order.run])
    session = Session(
        matrix=matrix,
        host=host,
        engines=replace(choose(NO_ENGINE, results.owner), why=f"{order.scheduler} on {names}; {facts.engine}"),
        plan=planned,
        prerequisites=prerequisites,
        locks={},
        notes=facts.notes,
        is_here=False,
        results=results,
        key=hashlib.sha256(key.encode()).hexdigest()[:16],
    )
    home = results.home(host.name, host.machine)
    return NodeGroup(nodes=alike, session=session, home=home, at=placed(planned.cells, [node.name for node in alike]))


def placed(cells: Sequence[Cell], nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the nodes that measure a cell, by cell id. All cells of a model and mode are on one node, as they are compared;
    cells for several nodes are on that one and the nodes after it.

    The largest groups come first, each on the node with the fewest cells: the same cells and nodes give the same places.
    """
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.workload.model, cell.workload.mode), []).append(cell)
    load = dict.fromkeys(nodes, 0)
    places = {}
    for members in sorted(groups.values(), key=len, reverse=True):
        node = min(load, key=lambda name: load[name])
        load[node] += len(members)
        ring = [*nodes[nodes.index(node) :], *nodes[: nodes.index(node)]]
        places.update({cell.id: tuple(ring[: cell.gpus.nodes]) for cell in members})
    return places
