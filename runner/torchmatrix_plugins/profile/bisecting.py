"""Prepare the runs of a search through releases (search.py), and find the runs that exist already."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from torchmatrix.core.errors import BadInput, NothingSelected
from torchmatrix.core.toml_keys import nearest, shown
from torchmatrix.engines import lockfile, recipes
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.facts.alike import counting
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import sorted_out
from torchmatrix.facts.store import RunFolder
from torchmatrix.machine.vendors import accelerator_of
from torchmatrix.matrix import matrix_file, variants
from torchmatrix.matrix.matrix_file import Matrix
from torchmatrix.matrix.method import Request
from torchmatrix.matrix.variants import rewritten, workload_keys
from torchmatrix.matrix.workloads import AUTO
from torchmatrix.planning.plan import Cell
from torchmatrix.running import session
from torchmatrix.running.session import Session


@dataclass(frozen=True, kw_only=True)
class ReleaseSearch:
    """The `stacks` that are searched, oldest first, in a `matrix` with one workload. `job`: the end of its cells' ids.

    `left_out`: the stacks that this machine can't run, and why.
    """

    matrix: Matrix
    stacks: tuple[str, ...]
    job: str
    left_out: Mapping[str, str]
    held: Mapping[str, StackLock]
    results: Path
    engine: str

    def session_of(self, names: Sequence[str]) -> Session:
        """Return the session that measures these stacks alternately. Raises ToolError."""
        globs = [f"{name}/{self.job}" for name in names]
        s = session.assemble(self.matrix, self.held, self.results, self.engine, globs, [])
        return s if self.held else session.without_locks(s)


def prepare(
    path: Path, results: Path, engine: str, ends: tuple[str, str], cell: str, request: Request, listed: bool
) -> ReleaseSearch:
    """Find the stacks between `ends`, and the one workload and device set that `cell` (an id or a glob) means.

    `ends`: releases or stacks of the matrix file `path`. `listed`: search its stacks instead of the catalog's releases. Raises
    BadInput and NothingSelected.
    """
    s = session.prepare(path, results, engine, [cell], [], request)
    example = _example_cell(s, cell)
    workload = {**workload_keys(example.workload), "counts": [len(example.gpus.indices)]}
    if listed:
        names, text = _stacks_between(s.matrix, ends), rewritten(s.matrix.text, workload)
    else:
        wheels = _releases_between(s.matrix, ends, accelerator_of(example.gpus.vendor))
        names = [release.name for release in wheels]
        text = rewritten(s.matrix.text, workload, [release.table for release in wheels])
    searched = matrix_file.under(matrix_file.parse(text, folder=path.absolute().parent), request)
    matrix = replace(searched, notes=s.matrix.notes)  # of the lines that the user wrote
    hunt = ReleaseSearch(
        matrix=matrix, stacks=tuple(names), job=example.id.partition("/")[2], left_out={}, results=results, engine=engine,
        held=lockfile.read(recipes.lock_path(path)),
    )  # fmt: skip
    return _leave_out_unfit(hunt)


def finished(s: Session) -> list[RunFolder]:
    """Return the complete runs of exactly what `s` asks for, on this machine, oldest first."""
    return s.results.finished(s.results.home(s.host.name, s.host.machine), s.key)


def launches_of(runs: Sequence[RunFolder], names: Sequence[str]) -> dict[str, list[Launch]]:
    """Return the last tries of each stack in these runs."""
    launches = [launch for run in runs for launch in counting(sorted_out(run.everything())[0])]
    return {name: [launch for launch in launches if launch.stack.name == name] for name in names}


def why_none(launches: Sequence[Launch]) -> str | None:
    """Return why a stack has no figure; None if a launch is ok."""
    if any(launch.is_ok for launch in launches):
        return None
    return next((f"{launch.outcome}: {launch.error}" for launch in launches), "not launched")


def _example_cell(s: Session, word: str) -> Cell:
    """Return a cell of the one workload and device set that `word` means, on whatever stack."""
    cells = {cell.id.partition("/")[2]: cell for cell in s.plan.cells if fnmatchcase(cell.id, word)}
    if not cells:
        why = next((f": {skip.cell.id}: {skip.why.reason}" for skip in s.plan.skips), "")
        raise NothingSelected(
            f"--cell {shown(word)} matches no cell that can run here{why}", hint="torchmatrix plan lists the ids of all cells"
        )
    if len(cells) > 1:
        listing = "".join(f"\n  {job}" for job in sorted(cells)[:8])
        raise BadInput(
            f"--cell {word} means {len(cells)} workloads or device sets, not one:{listing}",
            hint="name one of them, such as --cell '*/WORKLOAD/DEVICES'",
        )
    (cell,) = cells.values()
    if cell.workload.batch == AUTO:
        raise BadInput(
            f"the batch of {cell.id} is the largest that fits, which may differ from release to release",
            hint="give the workload a batch in the matrix; torchmatrix batch says what fits",
        )
    return cell


def _releases_between(matrix: Matrix, ends: tuple[str, str], accelerator: str) -> list[variants.Wheels]:
    """Return the catalog's releases from one end to the other."""
    (old, old_variant), (new, new_variant) = (variants.named_release(word, matrix.stacks) for word in ends)
    return variants.releases_between(old, new, accelerator, (old_variant, new_variant))


def _stacks_between(matrix: Matrix, ends: tuple[str, str]) -> list[str]:
    """Return the names of the matrix's stacks from one end to the other."""
    names = [stack.name for stack in matrix.stacks]
    for word in ends:
        if word not in names:
            raise BadInput(f"the matrix has no stack {shown(word)}", hint=nearest(word, names))
    first, last = map(names.index, ends)
    if first >= last:
        raise BadInput(
            f"{ends[0]} does not stand before {ends[1]} in the matrix", hint="with --listed the order of the matrix counts"
        )
    return names[first : last + 1]


def _leave_out_unfit(hunt: ReleaseSearch) -> ReleaseSearch:
    """Leave out what this machine can't run. Raises NothingSelected if that is one of the ends."""
    s = hunt.session_of(hunt.stacks)
    skipped = {skip.cell.stack.name: skip.why for skip in s.plan.skips}
    for end in (hunt.stacks[0], hunt.stacks[-1]):
        if why := skipped.get(end):
            raise NothingSelected(f"{end} can't run here: {why.reason}", hint=why.fix)
    return replace(hunt, left_out={name: why.reason for name, why in skipped.items()})
