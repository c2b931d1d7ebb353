"""Repeat a recorded launch: the same cell, seed, batch and method, on an image of the same packages."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from torchmatrix.core.errors import BadInput
from torchmatrix.core.files import sha256_of
from torchmatrix.engines import lockfile, recipes
from torchmatrix.engines.engine import Image
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.facts.launch import Launch, throughput
from torchmatrix.facts.reading import launch_at
from torchmatrix.facts.run_record import RunRecord
from torchmatrix.facts.store import Results, RunFolder, run_around
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.method import Request
from torchmatrix.matrix.workloads import ddp_id
from torchmatrix.planning import plan
from torchmatrix.planning.plan import Cell, Plan
from torchmatrix.running import session
from torchmatrix.running.launch_cell import Job
from torchmatrix.running.progress import ProgressEvent
from torchmatrix.running.run import measure
from torchmatrix.running.session import Session


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """A recorded `launch`, the lock of its image, and the session that repeats it."""

    launch: Launch
    held: StackLock | None
    session: Session


def find(results: Path, target: str) -> Launch:
    """Return the launch that `target` names: its file or, by a cell's id or a glob, the newest launch of that cell.

    Raises BadInput, with the cells that were meant if there are several.
    """
    path = Path(target)
    if path.is_file():
        launch = launch_at(path)
        if not launch.image:
            hint = "torchmatrix build shows why; repeat another launch"
            raise BadInput(f"{path} never started: {launch.outcome}: {launch.error}", hint=hint)
        return launch
    for run in reversed(Results(results).runs()):
        launches = [launch for launch in run.launches() if launch.image and fnmatchcase(launch.cell, target)]
        cells = sorted({launch.cell for launch in launches})
        if len(cells) > 1:
            raise BadInput(f"{len(cells)} cells of run {run.id} match: {', '.join(cells[:5])}", hint="name one of them")
        if launches:
            return max(launches, key=lambda launch: launch.unix_seconds)
    raise BadInput(f"{target} is not a preset, a launch file or a measured cell", hint="torchmatrix presets; torchmatrix plan")


def _run_of(launch: Launch) -> tuple[RunFolder, RunRecord]:
    """Return the run that a launch belongs to, and its record."""
    if (run := run_around(launch.path)) is None:
        raise BadInput(
            f"{launch.path} does not belong to a run: there is no run.jsonl above it", hint="copy the whole run's folder"
        )
    record = run.read_record()
    if not record.matrix:
        why = f": {record.problems[0]}" if record.problems else ""
        raise BadInput(f"{run.record} holds no matrix{why}", hint="name a launch of another run")
    return run, record


def _models_of(launch: Launch, folder: RunFolder) -> Path:
    """Return the folder of users' own models of the run.

    Raises BadInput if it lacks the launch's model: published facts don't carry them.
    """
    model = launch.workload.own
    if model and _sha256_of(folder.models / model.path) != model.sha256:
        raise BadInput(
            f"run {folder.id} lacks the {model.path} that was measured: published and gathered facts have only its hash",
            hint=f"put the file whose SHA-256 begins with {model.sha256[:12]} at {folder.models / model.path}",
        )
    return folder.models


def _sha256_of(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return sha256_of(file)
    except OSError:
        return None


def prepare(launch: Launch, results: Path, engine: str) -> Repetition:
    """Prepare to repeat `launch` on this machine. Raises BadInput where that would be another measurement."""
    folder, record = _run_of(launch)
    matrix = matrix_file.parse(record.matrix, name=f"the matrix of run {folder.id}", folder=_models_of(launch, folder))
    matrix = matrix_file.under(matrix, Request(method=launch.method.name, launches=1))
    if launch.workload.explain:
        matrix = matrix_file.explained(matrix)
    name, path = launch.stack.name, folder.lock_of(launch.stack.name)
    held = lockfile.of_stack(path)
    chosen = engine if engine != "auto" else str(launch.engine.get("engine"))
    s = _only(session.assemble(matrix, {name: held} if held else {}, results, chosen, [launch.cell], []), launch.cell)
    then, today = launch.workload_hash or "unknown", recipes.workload_hash()
    if then != today:
        raise BadInput(
            f"the workload has changed since: {then[:12]} then, {today[:12]} now",
            hint="check out the commit that measured it (the tool's version then: " + str(launch.tool) + ")",
        )
    if changed := [name for cell in s.plan.cells for name in _changed(cell, launch)]:
        raise BadInput(
            f"the matrix that run {folder.id} recorded isn't the one that was measured: {', '.join(changed)} differ",
            hint="name a launch of another run",
        )
    return Repetition(launch=launch, held=held, session=_session_of_image(s, launch, held))


def _only(s: Session, cell: str) -> Session:
    """Return the session with this cell alone, without those that a run adds to explain it or to be its baseline."""
    kept = (entry for entry in s.plan.entries if not isinstance(entry, Cell) or entry.id == cell)
    return replace(s, plan=Plan(entries=tuple(kept)))


def _changed(cell: Cell, launch: Launch) -> Iterator[str]:
    """Yield the settings in which a planned cell isn't what was launched."""
    then = launch.workload.factors
    yield from (name for name, value in cell.workload.factors.items() if name in then and then[name] != value)


def _session_of_image(s: Session, launch: Launch, held: StackLock | None) -> Session:
    """Return the session without the lock if the stack's own recipe still gives the very image that was measured.

    Raises BadInput if it doesn't, and the image can't be built again here.
    """
    for cell in s.plan.cells:
        engine = s.engine_for(cell.stack)
        recipe = recipes.ready_recipe(cell.stack, engine)
        if recipe and _is_of(engine.build(recipe, lambda line: None), launch):
            return session.without_locks(s)
    if held and s.plan.cells and held.name not in s.locks:
        raise BadInput(f"the image that was measured is gone, and {'; '.join(s.notes)}", hint="repeat it where it was measured")
    return s


def commands(again: Repetition, folder: Path) -> list[str]:
    """Return the commands that build and run the launch anew, to be pasted; build contexts are written to `folder`."""
    launch = again.launch.command
    stacks = recipes.stacks_of(again.session.plan.cells)
    if not again.held or not stacks:
        return [launch]
    recipe = recipes.recipes(stacks[0], again.held)[0]
    rebuild = again.session.engine_for(stacks[0]).rebuild(recipe, again.held, folder)
    if rebuild is None:
        return [launch]
    return [*rebuild.commands, launch.replace(_image_of(again.launch), rebuild.reference)]


def run(again: Repetition, job: Job) -> Generator[ProgressEvent, None, None]:
    """Repeat the launch, in a run of its own, with the recorded batch."""
    for cell in again.session.plan.cells:
        key = {"stack": cell.stack.name, "workload": ddp_id(cell.workload)}
        job.folder.append("batch", **key, batch=again.launch.batch_used)
    launches = again.session.launches
    yield from measure(again.session, job, launches, plan.total_seconds(launches, [], {}))


def _contents_of(launch: Launch) -> tuple[str | None, ...]:
    """Return what tells an image from another one: a virtualenv's or an interpreter's path stays while its packages change."""
    image = launch.image
    return (_image_of(launch), image.lock_sha256, image.torch, image.python) if image else ()


def _is_of(image: Image, launch: Launch) -> bool:
    """Check whether an image is the one of a launch."""
    facts = image.facts
    return (image.reference, *(facts.get(name) for name in ("lock_sha256", "torch", "python"))) == _contents_of(launch)


def _image_of(launch: Launch) -> str:
    """Return the reference of a launch's image, without which it could not be repeated."""
    assert launch.image is not None
    return launch.image.reference


def outcome_in_words(again: Repetition, folder: RunFolder) -> str:
    """Compare the repeated launch with the recorded one, in words."""
    now = next(launch for launch in reversed(folder.launches()) if launch.cell == again.launch.cell)
    unit = again.session.plan.cells[0].workload.unit
    if now.outcome != "ok" or not again.launch.is_ok:
        return f"then: {again.launch.outcome}, now: {now.outcome}"
    then, rate = throughput(again.launch), throughput(now)
    same = _contents_of(now) == _contents_of(again.launch)
    image = "the same image" if same else "an image of the same packages" if again.held else "another image"
    return (
        f"then: {then:.5g} {unit}/s, now: {rate:.5g} {unit}/s, ratio {rate / then:.4f} (one launch each: no interval); {image}"
    )
