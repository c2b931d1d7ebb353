"""Words -> launches: what `compare` and `audit` are asked to look at."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from torchmatrix.analysis import machines
from torchmatrix.facts import store
from torchmatrix.facts.alike import counting
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.reading import launch_at, launches_below, sorted_out
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.toml_keys import shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The launches that a word names. `unreadable`: files among them that can't be read. `note`: what else is to be said."""

    launches: list[Launch]
    unreadable: tuple[Unreadable, ...] = ()
    note: str | None = None


def choose(results: Results, word: str) -> Chosen:
    """The launches that `word` names; raises BadInput.

    A launch file, a cell's or a run's folder; a run's id; `last` or `last~N`; a machine's label, name or identity, which stands
    for its newest complete run; else a glob on the stacks of the newest run, or of RUN (or MACHINE) in RUN:GLOB.
    """
    path = Path(word)
    try:
        if path.is_file():
            return Chosen(launches=[launch_at(path)])
        if path.is_dir():
            return _in_folder(path)
    except OSError as error:
        raise BadInput(
            f"can't read {shown(word)}: {error.strerror}", hint="name a launch file or a folder of results"
        ) from None
    folder, glob, note = _run_and_glob(results, word)
    launches, unreadable = sorted_out(folder.everything()) if folder else ([], [])
    found = [launch for launch in counting(launches) if fnmatchcase(launch.stack.name, glob)]
    if not found:
        raise BadInput(f'"{word}" is not a file, folder, run, machine or stack with launches', hint=_known(results))
    return Chosen(launches=found, unreadable=tuple(unreadable), note=note)


def _in_folder(path: Path) -> Chosen:
    launches, unreadable = sorted_out(launches_below(path))
    if not launches:
        broken = f" that can be read; {_broken(unreadable)}" if unreadable else ""
        raise BadInput(f"{path} has no launches{broken}", hint="name a cell's or a run's folder, or a launch file")
    return Chosen(launches=counting(launches), unreadable=tuple(unreadable))


def _broken(unreadable: Sequence[Unreadable]) -> str:
    first = unreadable[0]
    of_several = f"{len(unreadable)} files can't, the first: " if len(unreadable) > 1 else "1 file can't: "
    return f"{of_several}{first.path}: {first.reason}"


def _run_and_glob(results: Results, word: str) -> tuple[RunFolder | None, str, str | None]:
    """The run that RUN, MACHINE, RUN:GLOB or MACHINE:GLOB names, else the newest one with `word` as the glob; and a note."""
    runs = results.runs()
    run, _, glob = word.rpartition(":")
    found = store.find(runs, run or word)
    if len(found) > 1:
        raise BadInput(f"{run or word} names {len(found)} runs; name one", hint=_known(results))
    if found:
        return found[0], glob if run else "*", None
    if machine := machines.find(runs, run or word):
        return machine.run, glob if run else "*", machine.note or f"{run or word} stands for its run {machine.run.id}"
    if run:
        raise BadInput(f"no run or machine {shown(run)} in {results.root}", hint=_known(results))
    return (runs[-1] if runs else None), word, None


def _known(results: Results) -> str:
    runs = results.runs()
    stacks = sorted({launch.stack.name for run in runs[-1:] for launch in run.launches()})
    labels = [machine.label for machine, _ in machines.grouped(runs)]
    return (
        f"runs: {', '.join(run.id for run in runs[-5:]) or 'none'}; machines: {', '.join(labels[:5]) or 'none'}; "
        f"stacks of the newest: {', '.join(stacks) or 'none'}"
    )
