"""matrix.toml -> Matrix: the user's request, validated and immutable. Every problem is reported at once."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from torchmatrix.core import assets, inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import count
from torchmatrix.core.toml_keys import ADDRESSES, MOST_PROBLEMS, Key, Place, Problems, Table, check, nearest, shown
from torchmatrix.matrix import checks, method
from torchmatrix.matrix.method import Method, Request
from torchmatrix.matrix.stacks import Stack, make_stack
from torchmatrix.matrix.workloads import MOST_DEVICES, Workload, changed, make_workloads


@dataclass(frozen=True, kw_only=True, slots=True)
class Devices:
    """The device sets to use: explicit `lists` of indices, `counts` (the first N), `each` alone; `mixed`: models may differ.

    `nodes`: on how many machines of a cluster at once, each with the same set.
    """

    lists: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]
    each: bool
    nodes: tuple[int, ...] = (1,)
    mixed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """The published benchmark that a matrix repeats.

    `article`: its addresses; none if it is this project's. `question`: what a reader finds out. `claims`: the files of
    reports/published (without .csv) that hold its figures. `deviations`: one sentence for each thing that differs from the
    article, and why.
    """

    title: str
    article: tuple[str, ...]
    question: str
    claims: tuple[str, ...]
    deviations: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """Everything that the user requested. `cpus_when`: "no-gpu" or "always". `digest`: SHA-256 of the file's text.

    `notes`: the settings that change nothing.
    """

    stacks: tuple[Stack, ...]
    workloads: tuple[Workload, ...]
    gpus: Devices
    cpus: Devices
    cpus_when: str
    method: Method
    seed: int
    timeout_seconds: float
    quiet_wait_minutes: float | None
    digest: str
    text: str
    preset: Preset | None = None
    notes: tuple[str, ...] = ()


MOST_NODES = 256
_NODES = Key(
    kind=int,
    default=(1,),
    minimum=1,
    maximum=MOST_NODES,
    plural=True,
    meaning="Each set on so many [nodes of a cluster](slurm.md#cells-over-several-nodes) at once.",
)
ACCENT = r"#[0-9A-Fa-f]{6}"
SECTIONS: dict[str, dict[str, Key]] = {
    "report": {
        "title": Key(kind=str, meaning="The heading of reports, instead of the hardware."),
        "logo": Key(kind=str, meaning="An image above it: PNG, SVG, JPEG or WebP; relative to where the command runs."),
        "accent": Key(
            kind=str, pattern=ACCENT, explanation="is # and six hexadecimal digits", meaning="The colour of links: `#0a5aa8`."
        ),
    },
    "run": {
        "launches": Key(
            kind=int, default=3, minimum=1, maximum=1_000, meaning="Launches per cell; an interval needs at least two."
        ),
        "until": Key(
            kind=str,
            pattern=rf"{method.DECIDED}|[0-9.]+%",
            explanation=f'is "{method.DECIDED}" or a percentage, such as "1%"',
            meaning="More launches where they are needed: until the report's comparisons [are decided]"
            '(method-comparing.md#until-it-is-decided), or until each interval is as narrow as `"1%"`.',
        ),
        "method": Key(
            kind=str,
            default="steady",
            choices=tuple(method.METHODS),
            formerly="protocol",
            meaning="How launches are measured: see [the method](method-launch.md#a-run).",
        ),
        "start_below_celsius": Key(
            kind=float, minimum=1, maximum=150, meaning="Each launch waits for cooler devices; if unset, the method decides."
        ),
        "cool_down_minutes": Key(kind=float, default=10.0, minimum=0, maximum=1_440, meaning="The longest wait for this."),
        "cold_compiles": Key(
            kind=int,
            default=0,
            minimum=0,
            maximum=1_000,
            meaning="So many launches of each compiled cell [compile from an empty cache](method-launch.md#compile-time).",
        ),
        "quiet_wait_minutes": Key(
            kind=float,
            minimum=0,
            maximum=1_440,
            meaning="The longest wait of a launch [for other programs](method-launch.md#other-programs); if unset, 5. 0: "
            "nothing waits, and no disturbed launch is made again.",
        ),
        "seed": Key(kind=int, default=0, minimum=0, meaning="Seeds the launch order and the random data."),
        "timeout_minutes": Key(kind=float, default=30.0, minimum=0.01, maximum=10_080, meaning="The time limit of one launch."),
    },
    "gpus": {
        "lists": Key(kind=list, default=(), plural=True, meaning="Device sets by index: `[[0, 1], [2, 3]]`."),
        "counts": Key(
            kind=int,
            default=(1, 2, 4, 8),
            minimum=1,
            maximum=MOST_DEVICES,
            plural=True,
            meaning="Device sets of the first N GPUs.",
        ),
        "nodes": _NODES,
        "each": Key(kind=bool, default=False, meaning="Also measure every GPU alone; shows a weak GPU and gives E*."),
        "mixed": Key(kind=bool, default=False, meaning="Allow different GPU models in one set."),
    },
    "cpus": {
        "counts": Key(
            kind=int,
            default=(1, 2),
            minimum=1,
            maximum=MOST_DEVICES,
            plural=True,
            meaning="Device sets of the first N core groups: equal shares of the cores, with one process pinned to each.",
        ),
        "nodes": _NODES,
        "each": Key(kind=bool, default=False, meaning="Also measure every core group alone."),
        "when": Key(
            kind=str,
            default="no-gpu",
            choices=("no-gpu", "always"),
            meaning="Run CPU stacks only on machines without a GPU, or on every machine.",
        ),
    },
}
MOST_TABLES = 500
"""The limit of [[stack]] tables, and of [[workload]] tables."""
MOST_CELLS = 100_000
_TEXTS = Key(kind=str, default=(), plural=True)
PRESET: dict[str, Key] = {
    "title": Key(kind=str, meaning="The name shown for the preset. Required."),
    "article": replace(ADDRESSES, meaning="Where it was published."),
    "question": Key(kind=str, meaning="What a reader finds out. Required."),
    "claims": replace(_TEXTS, meaning="The files of `reports/published/` (without `.csv`) that hold the published figures."),
    "deviations": replace(_TEXTS, meaning="What differs from the article, and why: one sentence each."),
}


def load(path: Path) -> Matrix:
    """Read and validate a matrix file. Raises BadInput listing every problem with its place."""
    try:
        text = inputs.read_text(path, hint="name a readable matrix file: --matrix FILE")
    except FileNotFoundError:
        raise BadInput(
            f"no matrix file at {path}", hint="make one for this machine: torchmatrix init, or name one: --matrix FILE"
        ) from None
    return parse(text, name=str(path), folder=path.absolute().parent)


def parse(text: str, *, name: str = "matrix.toml", folder: Path | None = None) -> Matrix:
    """Validate the text of a matrix file; `name` is used in messages, `folder` holds the models of the user's own.

    Raises BadInput.
    """
    data = inputs.toml_of(text, name, hint="fix that line and try again")
    problems = Problems(text)
    matrix = _matrix(data, text, problems, folder)
    if matrix is None or problems.messages:
        raise BadInput(
            f"{name} has {count(problems.number, 'problem')}:\n{problems}",
            hint="nothing was run; docs/matrix.md explains the keys, and so does the file that `torchmatrix init` writes",
        )
    return matrix


def under(matrix: Matrix, request: Request) -> Matrix:
    """Return `matrix` with the method that the command line requests; a method's own steps override those of the workloads."""
    chosen = request.applied(matrix.method)
    workloads = matrix.workloads
    if chosen.steps is not None:
        workloads = tuple(changed(w, steps=chosen.steps, windows=1, seconds=0.0) for w in workloads)
    if chosen.warm_seconds is not None:
        long = chosen.warm_seconds
        workloads = tuple(changed(w, warmup_seconds=long, seconds=long, windows=1) for w in workloads)
    if not chosen.warms_up:
        workloads = tuple(changed(w, warmup_cap_seconds=0.0) for w in workloads)
    too_short = checks.too_short(matrix.timeout_seconds, workloads)
    notes = (*matrix.notes, *checks.idle_method_settings(chosen, matrix.workloads), *too_short)
    return replace(matrix, method=chosen, workloads=workloads, notes=tuple(dict.fromkeys(notes)))


def explained(matrix: Matrix) -> Matrix:
    """Return `matrix` with `explain` on every workload."""
    return replace(matrix, workloads=tuple(replace(w, explain=True) for w in matrix.workloads))


def _matrix(data: Table, text: str, problems: Problems, folder: Path | None) -> Matrix | None:
    tables = [*SECTIONS, "preset", "stack", "workload"]
    for key in [key for key in data if key not in tables][:MOST_PROBLEMS]:
        problems.add(Place(header=f"[{key}]"), None, f'unknown table "{shown(key)}"; {nearest(key, tables)}')
    if isinstance(data.get("run"), dict) and "parallel_percent" in data["run"]:  # of earlier versions
        problems.note(Place(header="[run]"), "parallel_percent", "has no effect: cells are measured one after the other")
        data = {**data, "run": {key: value for key, value in data["run"].items() if key != "parallel_percent"}}
    sections = {
        name: check(_table(data, name, problems), keys, Place(header=f"[{name}]"), problems) for name, keys in SECTIONS.items()
    }
    preset = _preset(data, problems)
    stacks = _each(data, "stack", problems, make_stack)
    made = _each(data, "workload", problems, partial(make_workloads, folder=folder))
    workloads = [workload for table in made for workload in table]
    _check_unique("stack", [s.name for s in stacks], problems)
    _check_unique("workload", [w.id for w in workloads], problems)
    if problems.messages:
        return None
    _check_globs(data, stacks, problems)
    _check_size(stacks, workloads, sections, problems)
    checks.note_idle_tables(data, stacks, made, problems)
    run, gpus, cpus = (sections[name] for name in ("run", "gpus", "cpus"))
    return Matrix(
        stacks=checks.with_packages(stacks, workloads),
        workloads=tuple(workloads),
        gpus=Devices(lists=_lists(gpus["lists"], problems), **{key: gpus[key] for key in ("counts", "each", "nodes", "mixed")}),
        cpus=Devices(lists=(), **{key: cpus[key] for key in ("counts", "each", "nodes")}),
        cpus_when=cpus["when"],
        method=_method(run, problems),
        seed=run["seed"],
        timeout_seconds=60.0 * run["timeout_minutes"],
        quiet_wait_minutes=run["quiet_wait_minutes"],
        digest=hashlib.sha256(text.encode()).hexdigest(),
        text=text,
        preset=preset,
        notes=tuple(problems.notes),
    )


def _preset(data: Table, problems: Problems) -> Preset | None:
    if "preset" not in data:
        return None
    place = Place(header="[preset]")
    values = check(_table(data, "preset", problems), PRESET, place, problems)
    for required in ("title", "question"):
        if not values[required]:
            problems.add(place, None, f"needs {required}")
    published = {path.stem for path in assets.PUBLISHED.glob("*.csv")} - {"gpus"}
    for claim in values["claims"]:
        if claim not in published:
            problems.add(place, "claims", f'reports/published has no figures "{claim}"; {nearest(claim, published)}')
    return Preset(**values)


def _method(run: dict[str, Any], problems: Problems) -> Method:
    chosen = method.named(run["method"])
    below = run["start_below_celsius"] or chosen.start_below_celsius
    same = {name: run[name] for name in ("launches", "cold_compiles")}
    converted = {"cool_down_seconds": 60.0 * run["cool_down_minutes"]}
    chosen = replace(chosen, start_below_celsius=below, **same, **converted)
    try:
        return method.until(chosen, run["until"]) if run["until"] else chosen
    except BadInput as error:
        problems.add(Place(header="[run]"), "until", str(error))
        return chosen


def _table(data: Table, name: str, problems: Problems) -> Table:
    value = data.get(name, {})
    if not isinstance(value, dict):
        problems.add(Place(header=f"[{name}]"), None, f"must be one table [{name}]")
        return {}
    return value


def _each(data: Table, name: str, problems: Problems, make: Callable[[Table, Place, Problems], Any]) -> list[Any]:
    """Make something of every [[name]] table; leave out those with problems."""
    tables = data.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        problems.add(Place(header=f"[{name}]"), None, f"must be a list of tables: write [[{name}]]")
        return []
    if not tables:
        problems.add(Place(header=f"[[{name}]]"), None, f"there must be at least one [[{name}]]")
    if len(tables) > MOST_TABLES:
        problems.add(Place(header=f"[[{name}]]"), None, f"there must be at most {MOST_TABLES} [[{name}]], not {len(tables)}")
        return []
    made = (make(table, Place(header=f"[[{name}]]", number=i), problems) for i, table in enumerate(tables))
    return [result for result in made if result is not None]


def _check_unique(noun: str, names: list[str], problems: Problems) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            problems.add(Place(header=f"[[{noun}]]"), None, f'{times} {noun}s are called "{name}"; give all but one a `name`')


def _check_size(
    stacks: list[Stack], workloads: list[Workload], sections: dict[str, dict[str, Any]], problems: Problems
) -> None:
    """Limit the cells before they are made: one device set per count and list on each number of nodes, with its baseline."""
    on = Counter("cpu" if stack.accelerator == "cpu" else "gpu" for stack in stacks)
    lists = {"gpu": 2 * len(sections["gpus"]["lists"]), "cpu": 0}
    requested = {device: sections[f"{device}s"] for device in lists}
    cells = sum(
        on[w.device]
        * (len({1, *(w.counts or requested[w.device]["counts"])}) + lists[w.device])
        * len({1, *requested[w.device]["nodes"]})
        for w in workloads
    )
    if cells > MOST_CELLS:
        both = f"{count(len(stacks), 'stack')}, {count(len(workloads), 'workload')}"
        problems.add(Place(header="[[workload]]"), None, f"up to {cells:,} cells ({both}); at most {MOST_CELLS:,}")


def _check_globs(data: Table, stacks: list[Stack], problems: Problems) -> None:
    names = [stack.name for stack in stacks]
    for number, table in enumerate(data.get("workload", [])):
        for glob in table.get("stacks", ()):
            if not any(fnmatchcase(name, glob) for name in names):
                place = Place(header="[[workload]]", number=number)
                problems.add(place, "stacks", f'"{shown(glob)}" matches no stack; {nearest(glob, names)}')


def _lists(lists: tuple[Any, ...], problems: Problems) -> tuple[tuple[int, ...], ...]:
    for entry in lists:
        whole = all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < MOST_DEVICES for i in entry)
        if not entry or not whole or len(set(entry)) < len(entry):
            problem = f"each list must consist of different GPU indices below {MOST_DEVICES}, not {shown(entry)}"
            problems.add(Place(header="[gpus]"), "lists", problem)
    return tuple(tuple(entry) for entry in lists)
