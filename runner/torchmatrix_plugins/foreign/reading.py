"""Find the tool that wrote a file, and read it. Readers are entry points: those of strangers count as ours do."""

import glob
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

from torchmatrix.core import plugins
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.formatting import as_text
from torchmatrix_plugins.foreign.document import HINT, Aggregate, Document, read
from torchmatrix_plugins.foreign.results import ForeignFile

READERS = "torchmatrix.readers"
"""Names are tools; each is called with a Document and returns a ForeignFile, or None for a file of another tool."""
SUFFIXES = (".json", ".jsonl", ".csv", ".txt", ".yaml", ".yml")
MOST_FILES = 200
"""Of one side."""
NOTES: dict[str, str] = {}
"""What is to be said of readers that can't be used, and of files that are left out: they stop no other."""


def tools() -> str:
    """Return the names of the tools whose files are read."""
    return ", ".join(plugins.names(READERS))


def paths_of(word: str) -> list[list[Path]]:
    """Return the files that a word names: one, those of a folder, by its depth, or those that a glob fits; [] if it names none.

    A folder of a run of ours is none.
    """
    path = Path(word)
    try:
        if path.is_file():
            return [[path]]
        if path.is_dir():
            return [] if _is_ours(path / "run.jsonl") else _inside(path)
        found = glob.glob(word, recursive=True) if glob.has_magic(word) else []  # noqa: PTH207 (a pattern, absolute or not)
        files = sorted(path for path in map(Path, found) if path.is_file())
        folders = [path for path in map(Path, found) if path.is_dir() and not _is_ours(path / "run.jsonl")]
        levels = zip(*map(_inside, folders), strict=True)
        return [files] if files else [[path for level in each for path in level] for each in levels]
    except (OSError, ValueError):
        return []


def _inside(folder: Path) -> list[list[Path]]:
    """Return the files in a folder, those one folder below, and those two below, where AIPerf keeps its runs."""
    return [
        sorted(path for path in folder.glob(pattern) if path.suffix in SUFFIXES and path.name[0] != "." and path.is_file())
        for pattern in ("*", "*/*", "*/*/*")
    ]


def reader_of(name: str) -> Callable[[Document], ForeignFile | None]:
    """Return the reader of this name; raises EngineUnusable for one that can't be loaded or fails."""

    def read_by(document: Document) -> ForeignFile | None:
        made: ForeignFile | None = plugins.made(READERS, name, _is_read, document)
        return made

    return read_by


def _is_read(given: object) -> bool:
    return given is None or isinstance(given, ForeignFile)


def read_file(path: Path) -> ForeignFile | None:
    """Read a file; None if no reader knows it. Raises BadInput for one that a reader knows and can't read."""
    try:
        document = read(path)
    except FileNotFoundError:
        raise BadInput(f"can't read {as_text(path)}: there is no such file", hint=HINT) from None
    for name in plugins.names(READERS):
        try:
            found = reader_of(name)(document)
        except EngineUnusable as error:
            NOTES[name] = f"note: {error}"
            continue
        if found is not None:
            if not any(case.figures or case.requests for case in found.cases):
                raise BadInput(f"{as_text(path)} is {found.tool}'s, but holds no figure", hint=HINT)
            return found
    return None


def read_side(word: str) -> tuple[ForeignFile, ...]:
    """Read the files of other tools that a word names, in the order in which they were made, as far as they say; () if they are
    ours, or nobody's. In a folder or a glob, what can't be read is left out with a note. Raises BadInput for a file of its own
    that can't be read, and for files of several tools.
    """
    files: list[ForeignFile] = []
    errors: list[BadInput] = []
    for level in paths_of(word):
        paths = list(itertools.filterfalse(_is_ours, level))
        if len(paths) > MOST_FILES:
            raise BadInput(f"{word} names {len(paths)} files", hint=f"name at most {MOST_FILES}")
        for path in paths:
            try:
                files += filter(None, [read_file(path)])
            except BadInput as error:
                errors.append(error)
        if files:
            break
    if errors and not files:
        raise errors[0]
    NOTES.update((str(error), f"note: left out: {error}") for error in errors if not isinstance(error, Aggregate))
    files = _each_once(files)
    if len({file.tool for file in files}) > 1:
        raise BadInput(
            f"{word} holds files of {', '.join(sorted({file.tool for file in files}))}", hint="name files of one tool"
        )
    return tuple(sorted(files, key=lambda file: (file.began, str(file.path))))


def _each_once(files: Iterable[ForeignFile]) -> list[ForeignFile]:
    """Return the files without copies, as of one run in two formats: of those with equal figures the one that says most."""
    once: dict[object, ForeignFile] = {}
    for file in files:
        figures = tuple(figure.value for case in file.cases for figure in case.figures)
        key = figures or file.path
        if key not in once or _known(file) > _known(once[key]):
            once[key] = file
    return list(once.values())


def _known(file: ForeignFile) -> int:
    return sum(value is not None for case in file.cases for value in case.work.values())


def _is_ours(path: Path) -> bool:
    """Check whether a file is a launch or a run of ours, which begin with a header."""
    if path.suffix != ".jsonl" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_HEADER)) == _HEADER


_HEADER = b'{"event'
