"""Verbs that look into a step: profile, why. What they find is no figure, and is kept apart from all results."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import consume, preamble, say, volume_of
from torchmatrix.cli.options import Volume
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import printable

if TYPE_CHECKING:
    from torchmatrix.facts.profiles import Profile
    from torchmatrix.planning.plan import Cell
    from torchmatrix.reporting.profile_pages import Seen
    from torchmatrix.running.session import Session


@options.app.command()
def profile(
    cell: Annotated[
        str, typer.Argument(metavar="CELL", help="The id of a planned cell, or a glob.", autocompletion=options.complete_cells)
    ],
    where: options.WhereOption = None,
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    profiles: options.ProfilesOption = options.PROFILES,
    engine: options.EngineOption = "auto",
    steps: options.StepsOption = 10,
    operators: options.OperatorsOption = False,
    name_kernels: options.NameKernelsOption = False,
    output: options.OutputOption = options.PROFILE,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show where a cell spends its step time.

    Runs the cell under torch.profiler and shows operators or kernels, gaps, memory and a trace. Records no result.
    """
    from torchmatrix.reporting import profile_pages
    from torchmatrix.reporting.report import page
    from torchmatrix.running import profiling, session

    volume = volume_of(quiet, verbose)
    s = session.prepare(matrix, results, engine, [cell], where or [])
    chosen = profiling.one_cell(s, cell)
    preamble(s, volume)
    held = _profile_cell(s, profiles, chosen, steps, name_kernels, volume)
    (view,) = _read_profiles(s, [held], kernels=not operators)
    print(json.dumps(profile_pages.profile_record(view)) if as_json else profile_pages.shares_in_words(view))
    say(f"\ntrace, for ui.perfetto.dev: {held.path_of()}", volume)
    say(f"page: {page.save(profile_pages.of_profile(view), output)}", volume)


@options.app.command()
def why(
    a: Annotated[str, typer.Argument(metavar="A", help="A cell: its id, or a glob.", autocompletion=options.complete_cells)],
    b: Annotated[
        str, typer.Argument(metavar="B", help="Another cell. Differences are B minus A.", autocompletion=options.complete_cells)
    ],
    where: options.WhereOption = None,
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    profiles: options.ProfilesOption = options.PROFILES,
    engine: options.EngineOption = "auto",
    steps: options.StepsOption = 10,
    again: Annotated[bool, typer.Option("--again", help="Profile both cells again.")] = False,
    recorded: Annotated[bool, typer.Option("--recorded", help="Launch nothing; use the profiles that are there.")] = False,
    operators: options.OperatorsOption = False,
    name_kernels: options.NameKernelsOption = False,
    output: options.OutputOption = options.WHY,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show which operators make two cells differ.

    Compares the same work on two stacks or with two settings. The bars add up to the difference of the step times. Profiles
    cells that have no profile yet.
    """
    from torchmatrix.analysis import why as analysis
    from torchmatrix.reporting import profile_pages
    from torchmatrix.reporting.report import page
    from torchmatrix.running import profiling, session

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
    sides = _read_profiles(s, held, kernels=not operators)
    explanation = analysis.why(sides[0].side, sides[1].side)
    print(
        json.dumps(profile_pages.why_record(explanation, sides)) if as_json else profile_pages.why_in_words(explanation, sides)
    )
    say(f"\npage: {page.save(profile_pages.of_why(explanation, sides), output)}", volume)


def _profile_cell(s: "Session", root: Path, cell: "Cell", steps: int, named: bool, volume: Volume) -> "Profile":
    """Profile a cell, and say what is being done."""
    from torchmatrix.running import profiling

    say(f"profiling {cell.id}", volume)

    def show(line: str) -> None:
        if volume is Volume.VERBOSE or not printable(line).startswith("$ "):
            say(f"  {printable(line)}", volume)

    return consume(profiling.profile(s, root, cell, steps, named), show)


def _read_profiles(s: "Session", held: "list[Profile]", kernels: bool) -> "list[Seen]":
    """Read profiles, with the step time that a run measured. Raises BadInput for a trace that can't be read."""
    from torchmatrix.analysis.why import measured
    from torchmatrix.core.inputs import Malformed
    from torchmatrix.reporting import profile_pages

    steps = measured(s.results, s.host.machine, {profile.cell: profile.work["batch"] for profile in held})
    try:
        return [profile_pages.seen_in(profile, step, kernels) for profile, step in zip(held, steps, strict=True)]
    except Malformed as why:
        raise BadInput(str(why), hint="profile again: torchmatrix profile CELL, or torchmatrix why --again A B") from None
