"""A run on a cluster, as the machine sees it that submits: which nodes there are, what they can run, and who measures what.

Nodes of one kind (the same GPUs, features, cores and memory, as Slurm describes them) measure one run together: each model and
mode stays on one node, with all that is compared with it. Each kind has a run of its own, since its figures are of its own.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torchmatrix.core import settings
from torchmatrix.core.errors import BadInput, EngineUnusable, ToolError
from torchmatrix.engines import recipes
from torchmatrix.engines.choose import choose
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.method import Request
from torchmatrix.planning import selection
from torchmatrix.planning.plan import Cell, make_plan, select
from torchmatrix.planning.selection import TwoStacks
from torchmatrix.running.cluster import orders
from torchmatrix.running.cluster.orders import NodeError, NodeFacts, Order
from torchmatrix.running.cluster.slurm import OVER, POLL_SECONDS, SETTLING_POLLS, STALE_POLLS, Node, Slurm, Submission
from torchmatrix.running.launch_order import Lane
from torchmatrix.running.session import Session, refuse_unlocked, without_locks

LAUNCHERS = {"docker": "docker", "podman": "podman", "apptainer": "apptainer", "pyxis": "pyxis", "bare": "local"}
"""The engine that each launcher means on a node."""
NO_ENGINE = "local"
"""Where jobs are submitted nothing is built or run, and no engine is needed: this one is everywhere."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Nodes that are alike, and what they measure. `at`: which of them measure a cell, by its id."""

    nodes: tuple[Node, ...]
    session: Session
    home: str
    at: Mapping[str, tuple[str, ...]]

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """What each node measures, one launch at a time; what several do together stands with the first of them."""
        cells = self.session.plan.cells
        return tuple(
            Lane(devices=name, cells=tuple(cell for cell in cells if self.at[cell.id][0] == name))
            for name in dict.fromkeys(nodes[0] for nodes in self.at.values())
        )

    def folder(self, run: str) -> RunFolder:
        """That of their run."""
        return self.session.results.named_run(self.home, run)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What is to be measured where. `silent`: nodes that were left out, and why."""

    slurm: Slurm
    version: str
    order: Order
    kinds: tuple[Kind, ...]
    silent: Mapping[str, str]

    @property
    def name(self) -> str:
        """Of its jobs."""
        return self.order.job_name


def prepare(
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
    site = settings.load().slurm
    slurm, matrix = Slurm(site), selection.matrix_of_two(matrix_file.load(path), request, ab)
    if matrix.method.warm_seconds is not None:
        raise BadInput(
            f"the method {matrix.method.name} heats one machine before its launches, and Slurm starts each in a job of its own",
            hint="run torchmatrix in an allocation of the node, without --slurm",
        )
    version, every = slurm.version(), slurm.nodes()
    if not any(node.standing.is_usable for node in every):
        states = ", ".join(f"{node.name} ({node.in_words})" for node in every)
        raise EngineUnusable(f"no node of the partition can be used: {states}", hint="sinfo shows why")
    order = _order(path, matrix, results.absolute(), globs, where, request, ab, new=new, tell=tell)
    kinds, silent = [], {node.name: node.in_words for node in every if not node.standing.is_usable}
    with ExitStack() as stack:
        asked = []
        for alike in _groups(order, every, site.nodes):
            node = min(alike, key=lambda one: (orders.said_by(order, one.name) is None, *_patience(one)))
            for one in (one for one in alike if one.standing.is_usable and one.standing.why):
                tell(f"{one.name} is {one.in_words}")
            tell(f"asking {node.name}{f' (and {len(alike) - 1} like it)' if len(alike) > 1 else ''} what it has")
            asked.append((alike, node, stack.enter_context(_asked(slurm, order, node))))
        for alike, node, name in asked:
            said = _said(slurm, order, node, name, tell)
            if said is None:
                silent |= {one.name: f"{node.name} said nothing; see {order.place / 'jobs'}" for one in alike}
            elif isinstance(said, NodeError):
                raise ToolError(said.error, hint=said.hint, exit_code=said.exit_code)
            elif said.wrong:
                silent |= {one.name: f"{node.name}: {said.wrong}" for one in alike}
            else:
                kinds.append(_kind(matrix, order, alike, said))
    if locked:
        refuse_unlocked(recipes.lock_path(path), list(dict.fromkeys(n for kind in kinds for n in kind.session.notes)))
    kinds = kinds if order.held() else [replace(kind, session=without_locks(kind.session)) for kind in kinds]
    return Cluster(slurm=slurm, version=version, order=order, kinds=tuple(kinds), silent=silent)


def _order(
    path: Path, matrix: Matrix, results: Path, globs: Sequence[str], where: Sequence[str], request: Request,
    ab: TwoStacks | None,
    *, new: bool, tell: Callable[[str], None],
) -> Order:  # fmt: skip
    """The unfinished order of the same cells, with the same lock, measured in the same way, or a new one."""
    wanted = Order(
        run=time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
        results=results,
        folder=path.absolute().parent,
        engine=LAUNCHERS.get(settings.load().slurm.launcher, "auto"),
        globs=tuple(globs),
        where=tuple(where),
        request=request,
        ab=ab,
    )
    lock = _content(recipes.lock_path(path))
    for held in () if new else orders.unfinished(results, tell):
        same = replace(held, run=wanted.run) == wanted
        if same and orders.text_of(held) == matrix.text and _content(held.lock) == lock:
            return held
    orders.keep(wanted, matrix.text, lock)
    return wanted


def _content(lock: Path) -> bytes | None:
    return lock.read_bytes() if lock.exists() else None


def _groups(order: Order, every: Sequence[Node], most: int | None) -> list[tuple[Node, ...]]:
    """The nodes that measure together. A run that goes on keeps those that it began with, whatever became of them: then no
    cell moves to another node, and what a node that is down has left waits for it.
    """
    by_name = {node.name: node for node in every}
    begun = orders.groups_of(order)
    if begun is None:
        found = _alike([node for node in every if node.standing.is_usable][:most])
        orders.keep_groups(order, [[node.name for node in alike] for alike in found])
        return found
    gone = [name for group in begun for name in group if name not in by_name]
    if gone:
        hint = "--new begins a run on the nodes that there are"
        raise BadInput(f"this run began with {', '.join(gone)}, which Slurm has no more", hint=hint)
    return [tuple(by_name[name] for name in group) for group in begun]


def _alike(nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
    found: dict[tuple[object, ...], list[Node]] = {}
    for node in nodes:
        found.setdefault((node.gres, node.features, node.cpus, node.memory_mb), []).append(node)
    return [tuple(members) for members in found.values()]


def _patience(node: Node) -> tuple[bool, bool, bool]:
    """The smaller, the sooner a job on a node begins: at once; after minutes, when it is up; when others' jobs are over."""
    return not node.standing.is_usable, not node.state.startswith("idle"), node.state != "idle"


@contextmanager
def _asked(slurm: Slurm, order: Order, node: Node) -> Iterator[str]:
    """A job on a node that says what the node is, unless it said so before; gives the job's name, and ends it at last."""
    name = f"{order.job_name}-{node.name}"
    if orders.said_by(order, node.name) is None:
        script = orders.script("describe", str(order.place), node.name)
        output = str(order.place / "jobs" / f"{node.name}.out")
        slurm.submit(Submission(script=script, name=name, nodes=(node.name,), tasks=(0,), output=output, gpus=node.gpus))
    try:
        yield name
    finally:
        slurm.cancel(name)


def _said(slurm: Slurm, order: Order, node: Node, name: str, tell: Callable[[str], None]) -> NodeFacts | NodeError | None:
    """What a node says of itself, however long its job waits; None if the job ends and says nothing."""
    polls, most, told = 0, SETTLING_POLLS, ""
    while polls < most:
        if (said := orders.said_by(order, node.name)) is not None:
            return said
        tasks = slurm.tasks(name)
        waiting = [task for task in tasks if task.state not in OVER]
        polls = 0 if waiting else polls + 1
        most = STALE_POLLS if any(task.state == "COMPLETED" for task in tasks) else SETTLING_POLLS
        reason = waiting[0].reason if waiting and waiting[0].state == "PENDING" else "None"
        if reason not in ("None", "Priority", told):
            told = reason
            tell(f"waiting for {node.name}: {reason}; Ctrl-C ends it")
        time.sleep(POLL_SECONDS)
    return None


def _kind(matrix: Matrix, order: Order, alike: tuple[Node, ...], said: NodeFacts) -> Kind:
    supplies = replace(said.supplies, nodes=len(alike))
    names = ", ".join(node.name for node in alike)
    its = replace(said.host, machine=said.machine, name=alike[0].name)
    planned = select(make_plan(matrix, its, supplies), order.globs, order.where)
    planned = selection.shared_cells(planned, order.ab) if order.ab else planned
    results = Results(order.results)
    ids = sorted(cell.id for cell in planned.cells)
    key = json.dumps([matrix.digest, ids, asdict(matrix.method), recipes.workload_hash(), "slurm", order.run])
    session = Session(
        matrix=matrix,
        host=its,
        engines=replace(choose(NO_ENGINE, results.owner), why=f"slurm on {names}; {said.engine}"),
        plan=planned,
        supplies=supplies,
        locks={},
        notes=said.notes,
        is_here=False,
        results=results,
        key=hashlib.sha256(key.encode()).hexdigest()[:16],
    )
    home = results.home(its.name, its.machine)
    return Kind(nodes=alike, session=session, home=home, at=placed(planned.cells, [node.name for node in alike]))


def placed(cells: Sequence[Cell], nodes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Which of the nodes measure a cell, by id. All cells of a model and mode are on one, since they are compared; those for
    several nodes are on that one and those after it.

    The largest groups first, each on the node with the fewest cells: the same cells and nodes give the same places.
    """
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.workload.model, cell.workload.mode), []).append(cell)
    taken = dict.fromkeys(nodes, 0)
    found = {}
    for members in sorted(groups.values(), key=len, reverse=True):
        node = min(taken, key=lambda name: taken[name])
        taken[node] += len(members)
        ring = [*nodes[nodes.index(node) :], *nodes[: nodes.index(node)]]
        found.update({cell.id: tuple(ring[: cell.gpus.nodes]) for cell in members})
    return found
