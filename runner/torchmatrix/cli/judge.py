"""The verb that judges a run by the nights before it: gate."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchmatrix.cli import completing
from torchmatrix.cli.application import app
from torchmatrix.cli.console import say, say_undated, say_unreadable
from torchmatrix.cli.options import RESULTS, JsonOption, ResultsOption, a_file
from torchmatrix.ground.errors import BadInput, EngineUnusable, ExitCode
from torchmatrix.ground.files import write_to

if TYPE_CHECKING:
    from torchmatrix.nightly.gate.judged import Gate

_CODES = {
    "PASS": ExitCode.OK, "REGRESSION": ExitCode.REGRESSION, "NO-BASELINE": ExitCode.NOTHING_SELECTED,
    "INCOMPLETE": ExitCode.INCOMPLETE,
}  # fmt: skip


@app.command()
def gate(
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", help="The run to judge: last, last~1 or an id.", autocompletion=completing.runs)
    ] = "last",
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", metavar="RUN", help="Compare with this run instead of earlier nights.", autocompletion=completing.runs
        ),
    ] = None,
    nights: Annotated[int, typer.Option("--nights", min=1, help="Take the median of this many nights as the baseline.")] = 7,
    strict: Annotated[bool, typer.Option("--strict", help="Report a regression after one slower night, not two.")] = False,
    canary: Annotated[
        list[str] | None,
        typer.Option(
            "--canary", metavar="GLOB", help="Cells of a stack that never changes; repeatable.", autocompletion=completing.cells
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", metavar="PERCENT", min=0, max=50, help="Ignore slowdowns below this.")
    ] = 1.0,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="CELL", help="Accept that this cell (or glob) is slower; repeatable."),
    ] = None,
    because: Annotated[
        str, typer.Option("--because", metavar="TEXT", help="With --accept: the reason, which is recorded.")
    ] = "",
    host: Annotated[
        str | None, typer.Option("--host", help="Judge runs of this host; default: that of the newest run.")
    ] = None,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdict as JUnit XML.", callback=a_file)
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write the verdict as a Markdown table.", callback=a_file)
    ] = None,
    hook: Annotated[
        str | None,
        typer.Option("--hook", metavar="COMMAND", help="Run this command after any verdict but PASS; it gets JSON on stdin."),
    ] = None,
) -> None:
    """Judge the newest run against earlier nights.

    Exit code 0: PASS. 5: a regression, a failed or a missing cell. 6: the run is not finished.
    A regression is reported every night until it is gone or accepted.
    """
    from torchmatrix.facts.store import Results
    from torchmatrix.nightly import gate as gating
    from torchmatrix.nightly.gate import judged, read_runs, verdicts

    options = gating.GateOptions(
        nights=nights, named=baseline is not None, strict=strict, canary=tuple(canary or ()), tolerance=tolerance / 100
    )
    store = Results(results)
    say_undated(store)
    runs = read_runs(store, run, nights, baseline, host)
    say_unreadable([*(one for found in runs for one in found.unreadable), *judged.unreadable_record(store, runs[-1].host)])
    found = gating.judge(runs, options, judged.read_accepted(store, runs[-1].host))
    if accept or because:
        _check_acceptance(accept, because)
        found = gating.judge(runs, options, judged.accept(store, found, accept or (), because))
    where = None if results == RESULTS else results
    print(json.dumps(verdicts.record(found, where)) if as_json else verdicts.text(found, where), flush=True)
    try:
        write_verdict(found, junit, markdown, where)
    finally:
        tell_hook(found, hook, where)
    raise typer.Exit(_CODES[found.verdict])


def _check_acceptance(accept: list[str] | None, because: str) -> None:
    if not accept or not because.strip():
        raise BadInput(
            "--accept and --because go together", hint="gate --accept CELL --because 'the new driver; see ticket 12'"
        )


def write_verdict(found: "Gate", junit: Path | None, markdown: Path | None, where: Path | None) -> None:
    """Write the requested files. `where`: the results folder, if it is not the default one."""
    from torchmatrix.nightly.gate import verdicts

    for path, content in ((junit, verdicts.junit), (markdown, lambda *a: verdicts.markdown(*a).encode())):
        if path is not None:
            _write(path, content(found, where))


def tell_hook(found: "Gate", hook: str | None, where: Path | None) -> None:
    """Run the user's command after any verdict but PASS; its failure is reported, but doesn't change the exit code."""
    if hook is None or found.verdict == "PASS":
        return
    from torchmatrix.nightly.gate import verdicts

    problem = verdicts.call_hook(hook, verdicts.record(found, where))
    if problem:
        say(f"warning: {problem}: {hook}")


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_to(path, content)
    except OSError as error:
        raise EngineUnusable(
            f"can't write {path}: {error.strerror}",
            hint="the verdict is printed above; name another file: --junit FILE, --markdown FILE",
        ) from None
