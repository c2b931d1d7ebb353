"""The verbs profile, why and bisect.

What profile and why find is no figure, and is kept apart from all results.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import (
    consume,
    in_json,
    preamble,
    say,
    volume_of,
    write_new,
)
from torchmatrix.cli.measured import measure_here
from torchmatrix.cli.options import Volume
from torchmatrix.core.errors import BadInput, ExitCode, ToolError
from torchmatrix.core.formatting import printable

if TYPE_CHECKING:
    from torchmatrix.facts.store import RunFolder
    from torchmatrix.planning.plan import Cell
    from torchmatrix.running.session import Session
    from torchmatrix_plugins.profile.bisecting import ReleaseSearch
    from torchmatrix_plugins.profile.pages import TracedCell
    from torchmatrix_plugins.profile.profiles import Profile
    from torchmatrix_plugins.profile.search import Search

_ProfilesOption = Annotated[
    Path, typer.Option("--profiles", metavar="FOLDER", help="Where profiles are kept (never used as results).")
]
_StepsOption = Annotated[int, typer.Option("--steps", metavar="N", min=1, max=1_000, help="Steps to trace.")]
_OperatorsOption = Annotated[
    bool, typer.Option("--operators", help="On a GPU: show the operators that launched the kernels, not the kernels.")
]
_NameKernelsOption = Annotated[
    bool,
    typer.Option("--name-kernels", help="On a CPU: name the kernels that torch.compile makes; takes minutes longer."),
]
_PROFILES = Path("profiles")
_PROFILE = Path("reports/profile.html")
_WHY = Path("reports/why.html")


def bisect(
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="A release, such as 2.5.1, or a stack.", autocompletion=options.complete_stacks)
    ],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="A newer release or stack.", autocompletion=options.complete_stacks)
    ],
    cell: Annotated[
        str,
        typer.Option(
            "--cell", metavar="CELL", help="The workload and devices: a cell's id or a glob. The stack in it is ignored."
        ),
    ],
    listed: Annotated[
        bool, typer.Option("--listed", help="Search the stacks of the matrix, in its order, instead of PyTorch's releases.")
    ] = False,
    launches: options.LaunchesOption = None,
    new_runs: Annotated[bool, typer.Option("--new", help="Measure again what an earlier search has measured.")] = False,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FILE",
            help="Write the search's matrix, for torchmatrix why and report.",
            callback=options.a_matrix,
        ),
    ] = None,
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    engine: options.EngineOption = "auto",
    output: options.OutputOption = options.REPORT,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Find the release that made a cell faster or slower.

    A binary search: each step alternates the release in the middle with both ends.
    """
    from torchmatrix.matrix.method import AB_LAUNCHES, Request
    from torchmatrix_plugins.profile import bisecting, words
    from torchmatrix_plugins.profile import search as bisection

    volume = volume_of(quiet, verbose)
    request = Request(launches=launches, at_least=AB_LAUNCHES)
    hunt = bisecting.prepare(matrix, results, engine, (old, new), cell, request, listed)
    if write:
        write_new(write, hunt.matrix.text)
    search = bisection.begun(hunt.stacks)
    for name, why in hunt.left_out.items():
        search = search.without(name, why)
    say("\n".join(words.plan_in_words(search, hunt.job, hunt.matrix.method.launches)), volume)
    runs = _Runs(hunt, output, volume, anew=new_runs)
    while search.wanted:
        search = _search_one_step(search, runs)
    print(in_json(search.as_record()) if as_json else words.bisection_text(search, hunt.job, str(write) if write else None))


class _Runs:
    """The runs that the steps of one search use: complete ones of the same request, unless it is to be measured `anew`."""

    def __init__(self, hunt: "ReleaseSearch", output: Path, volume: Volume, anew: bool) -> None:
        self.hunt, self.volume = hunt, volume
        self._output, self._anew = output, anew
        self._measured: list[RunFolder] = []

    def of(self, names: tuple[str, ...], number: int) -> "list[RunFolder]":
        """Return `number` runs that alternate these stacks; measure those that are missing. Raises what stops one."""
        from torchmatrix_plugins.profile import bisecting

        s = self.hunt.session_of(names)
        usable = bisecting.finished(s)
        if self._anew:
            usable = [run for run in usable if run.id in {measured.id for measured in self._measured}]
        while len(usable) < number:
            done = measure_here(s, self._output, new=self._anew, volume=self.volume)
            if done.stopped_by:
                raise done.stopped_by
            usable.append(done.folder)
            self._measured.append(done.folder)
        return usable[:number]


def _search_one_step(search: "Search", runs: _Runs) -> "Search":
    """Measure what the search wants next, and return the search after it; without its middle, if that can't be measured."""
    from torchmatrix_plugins.profile import bisecting, words

    names = search.wanted
    launches = bisecting.launches_of(runs.of(names, search.looks + 1), names)
    reasons = {name: why for name in names if (why := bisecting.why_none(launches[name]))}
    for end in search.ends:
        if end in reasons:
            raise ToolError(
                f"{end}/{runs.hunt.job} has no figure, and a search needs both its ends: {reasons[end]}",
                hint="name another release; torchmatrix report shows what failed",
                exit_code=ExitCode.CELL_NOT_OK,
            )
    if search.middle in reasons:
        say(f"left out: {search.middle}: {reasons[search.middle]}", runs.volume)
        return search.without(search.middle, reasons[search.middle])
    after = search.told(launches)
    say("\n".join(("", *words.step_in_words(after.steps[-1]), "")), runs.volume)
    return after


def profile(
    cell: Annotated[
        str, typer.Argument(metavar="CELL", help="The id of a planned cell, or a glob.", autocompletion=options.complete_cells)
    ],
    where: options.WhereOption = None,
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    profiles: _ProfilesOption = _PROFILES,
    engine: options.EngineOption = "auto",
    steps: _StepsOption = 10,
    operators: _OperatorsOption = False,
    name_kernels: _NameKernelsOption = False,
    output: options.OutputOption = _PROFILE,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show where a cell spends its step time.

    Runs the cell under torch.profiler and shows operators or kernels, gaps, memory and a trace. Records no result.
    """
    from torchmatrix.reporting import page
    from torchmatrix.running import session
    from torchmatrix_plugins.profile import pages as profile_pages
    from torchmatrix_plugins.profile import profiling

    volume = volume_of(quiet, verbose)
    s = session.prepare(matrix, results, engine, [cell], where or [])
    chosen = profiling.one_cell(s, cell)
    preamble(s, volume)
    held = _profile_cell(s, profiles, chosen, steps, name_kernels, volume)
    (view,) = _read_profiles(s, [held], kernels=not operators)
    print(in_json(profile_pages.profile_record(view)) if as_json else profile_pages.shares_in_words(view))
    say(f"\ntrace, for ui.perfetto.dev: {held.path_of()}", volume)
    say(f"page: {page.save(profile_pages.of_profile(view), output)}", volume)


def why(
    a: Annotated[str, typer.Argument(metavar="A", help="A cell: its id, or a glob.", autocompletion=options.complete_cells)],
    b: Annotated[
        str, typer.Argument(metavar="B", help="Another cell. Differences are B minus A.", autocompletion=options.complete_cells)
    ],
    where: options.WhereOption = None,
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    profiles: _ProfilesOption = _PROFILES,
    engine: options.EngineOption = "auto",
    steps: _StepsOption = 10,
    again: Annotated[bool, typer.Option("--again", help="Profile both cells again.")] = False,
    recorded: Annotated[bool, typer.Option("--recorded", help="Launch nothing; use the profiles that are there.")] = False,
    operators: _OperatorsOption = False,
    name_kernels: _NameKernelsOption = False,
    output: options.OutputOption = _WHY,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show which operators make two cells differ.

    Compares the same work on two stacks or with two settings. The bars add up to the difference of the step times. Profiles
    cells that have no profile yet.
    """
    from torchmatrix.reporting import page
    from torchmatrix.running import session
    from torchmatrix_plugins.profile import explanation as analysis
    from torchmatrix_plugins.profile import pages as profile_pages
    from torchmatrix_plugins.profile import profiling

    if again and recorded:
        raise BadInput("--again and --recorded contradict each other", hint="use one of the two options")
    volume = volume_of(quiet, verbose)
    s = session.prepare(matrix, results, engine, [a, b], where or [])
    cells = [profiling.one_cell(s, word) for word in (a, b)]
    profiling.same_work(*cells)
    preamble(s, volume)
    existing = [None if again else profiling.known(s, profiles, cell, name_kernels) for cell in cells]
    if recorded:
        profiling.refuse_unknown(cells, existing)
    pairs = zip(cells, existing, strict=True)
    held = [earlier or _profile_cell(s, profiles, cell, steps, name_kernels, volume) for cell, earlier in pairs]
    batches = [profile.work["batch"] for profile in held]
    if batches[0] != batches[1]:
        raise BadInput(
            f"a step of A does other work than a step of B: the batch that fits is {batches[0]} and {batches[1]}",
            hint="give both workloads one batch in the matrix",
        )
    sides = _read_profiles(s, held, kernels=not operators)
    explanation = analysis.why(sides[0].side, sides[1].side)
    print(in_json(profile_pages.why_record(explanation, sides)) if as_json else profile_pages.why_in_words(explanation, sides))
    say(f"\npage: {page.save(profile_pages.of_why(explanation, sides), output)}", volume)


def _profile_cell(s: "Session", root: Path, cell: "Cell", steps: int, named: bool, volume: Volume) -> "Profile":
    """Profile a cell, and say what is being done."""
    from torchmatrix_plugins.profile import profiling

    say(f"profiling {cell.id}", volume)

    def show(line: str) -> None:
        if volume is Volume.VERBOSE or not printable(line).startswith("$ "):
            say(f"  {printable(line)}", volume)

    return consume(profiling.profile(s, root, cell, steps, named), show)


def _read_profiles(s: "Session", held: "list[Profile]", kernels: bool) -> "list[TracedCell]":
    """Read profiles, with the step time that a run measured. Raises BadInput for a trace that can't be read."""
    from torchmatrix.core.inputs import Malformed
    from torchmatrix_plugins.profile import pages as profile_pages
    from torchmatrix_plugins.profile.explanation import measured

    steps = measured(s.results, s.host.machine, {profile.cell: profile.work["batch"] for profile in held})
    try:
        return [profile_pages.seen_in(profile, step, kernels) for profile, step in zip(held, steps, strict=True)]
    except Malformed as why:
        raise BadInput(str(why), hint="profile again: torchmatrix profile CELL, or torchmatrix why --again A B") from None
