"""Verbs that only read facts: report, compare, history, audit, export."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchmatrix.cli import completing
from torchmatrix.cli.application import app
from torchmatrix.cli.console import say
from torchmatrix.cli.options import (
    HISTORY,
    REPORT,
    RESULTS,
    HostOption,
    JsonOption,
    OutputOption,
    PricesOption,
    RedactOption,
    ResultsOption,
    SinceOption,
)
from torchmatrix.ground.errors import BadInput, ExitCode
from torchmatrix.ground.texts import count

if TYPE_CHECKING:
    from torchmatrix.analysis.facts_cache import Indexed
    from torchmatrix.facts.launch import Unreadable

MOST_UNREADABLE = 5
"""How many unreadable files are named."""


@app.command()
def report(
    word: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="last (the default), last~1 or a run's id; with --publish also all (its default) or last-30d.",
            show_default=False,
            autocompletion=completing.runs,
        ),
    ] = None,
    results: ResultsOption = RESULTS,
    output: OutputOption = REPORT,
    run_id: Annotated[str | None, typer.Option("--run", help="The same as RUN.", autocompletion=completing.runs)] = None,
    publish: Annotated[
        Path | None, typer.Option("--publish", metavar="DIR", help="Write a static site of many runs into this folder.")
    ] = None,
    since: SinceOption = None,
    host: HostOption = None,
    redact: RedactOption = False,
    prices: PricesOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", help="The stack that speed-ups are relative to; default: the first.", autocompletion=completing.stacks
        ),
    ] = None,
) -> None:
    """Render a run as one HTML file, or many runs as a website.

    Only reads recorded results; needs no engine.
    """
    import gc
    import tempfile

    from torchmatrix.facts import run_words
    from torchmatrix.facts.store import Results
    from torchmatrix.reporting import redaction

    store, named = Results(results), word or run_id
    if publish and baseline:
        raise BadInput("--baseline and --publish contradict each other", hint="use one of the two options")
    if publish:
        runs = run_words.select(store, named or "all", since, host)
    else:
        runs = [run_words.select_one(store, named or "last", since, host)]
    from torchmatrix.analysis.prices import held_for
    from torchmatrix.reporting import report as pages
    from torchmatrix.reporting import site

    gc.disable()  # everything read is needed to the end: collecting garbage took a fifth of the time
    held = held_for(prices, runs)
    if publish:
        made = site.publish(store, runs, publish, redact=redact, held=held, tell=say)
        say(f"{count(len(made.written), 'run')} written, {len(made.kept)} unchanged")
        print(made.index)
        return
    with tempfile.TemporaryDirectory(prefix="torchmatrix-") as temporary:
        shown = redaction.redacted(store, runs[0], Path(temporary)) if redact else runs[0]
        print(pages.save(pages.page_of(shown, baseline, held), output))


@app.command()
def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A run, last, last~1, a file or folder, a stack, or RUN:STACK.", autocompletion=completing.runs
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The same. Ratios are A over B.", autocompletion=completing.runs)],
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs or stacks: ratio, interval, verdict.

    Also lists how their environments differ.
    """
    from torchmatrix.analysis import compare as comparing
    from torchmatrix.facts.store import Results
    from torchmatrix.reporting import terminal

    store = Results(results)
    found = comparing.compare(comparing.choose(store, a), comparing.choose(store, b))
    print(json.dumps(found.as_record()) if as_json else terminal.comparison_in_words(found))
    refused = all(row.refused for row in found.rows)
    raise typer.Exit(ExitCode.BAD_INPUT if refused else ExitCode.OK)


@app.command()
def history(
    word: Annotated[
        str,
        typer.Argument(
            metavar="[RUNS]", help="all, last-30d (or h, w), last, last~1, a run's id.", autocompletion=completing.runs
        ),
    ] = "all",
    results: ResultsOption = RESULTS,
    since: SinceOption = None,
    host: HostOption = None,
    as_json: JsonOption = False,
    output: Annotated[
        Path | None, typer.Option("--output", help=f"The HTML file to write; default: {HISTORY}; none with --json.")
    ] = None,
) -> None:
    """Show how each cell changed from run to run.

    Marks changes of level, and what changed in the environment at the same time.
    """
    import gc

    from torchmatrix.facts import run_words
    from torchmatrix.facts.store import Results

    store = Results(results)
    runs = run_words.select(store, word, since, host)
    from torchmatrix.analysis import facts_cache
    from torchmatrix.analysis import history as trends
    from torchmatrix.reporting import history_page as pages
    from torchmatrix.reporting import terminal
    from torchmatrix.reporting.report import page

    gc.disable()  # as in report
    unreadable: list[Unreadable] = []
    found = trends.trends(trends.series(_noting(unreadable, facts_cache.each(store, runs))))
    for one in unreadable[:MOST_UNREADABLE]:
        say(f"{one.path} can't be read and is left out: {one.reason}")
    if len(unreadable) > MOST_UNREADABLE:
        say(f"{count(len(unreadable) - MOST_UNREADABLE, 'further file')} can't be read")
    print(json.dumps({"cells": [trend.as_record() for trend in found]}) if as_json else terminal.trends_in_words(found))
    if output or not as_json:
        say(f"{count(len(runs), 'run')}: {page.save(pages.render(found), output or HISTORY)}")


@app.command()
def audit(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.csv|RUN", help="Published figures, or a run, last, last~1, a folder.", autocompletion=completing.runs
        ),
    ],
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Check throughputs for impossible or inconsistent values.

    Checks efficiency, the gain from AMP, the peak, rounding, baselines and unknown fields.
    """
    from torchmatrix.analysis.published import audit as auditing
    from torchmatrix.facts.store import Results
    from torchmatrix.reporting import terminal

    stated = terminal.stated(Results(results), target)
    findings = auditing.check(stated)
    if as_json:
        print(json.dumps({"figures": len(stated), "findings": [asdict(finding) for finding in findings]}))
    elif findings:
        print(terminal.findings_in_words(findings))
    say(f"{count(len(stated), 'figure')}, {count(len(findings), 'finding')}")
    raise typer.Exit(ExitCode.FINDINGS if findings else ExitCode.OK)


@app.command()
def export(
    words: Annotated[
        list[str], typer.Argument(metavar="[RUN] DIR", help="The run: last (the default), last~1 or an id; then the folder.")
    ],
    results: ResultsOption = RESULTS,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="csv, json, parquet or md; repeatable; default: all.", show_default=False),
    ] = None,
    charts: Annotated[bool, typer.Option("--charts/--no-charts", help="Write every chart as SVG and PNG.")] = True,
    scale: Annotated[float, typer.Option("--scale", min=0.1, max=10, help="Pixels of a PNG per point of the chart.")] = 2.0,
    prices: PricesOption = None,
    redact: RedactOption = False,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that holds other files; they stay.")] = False,
) -> None:
    """Write the tables and charts of a run as files.

    Writes tables as CSV, JSON, Parquet and Markdown, the meaning of each column, and charts as SVG and PNG.
    """
    import tempfile

    from torchmatrix.facts import run_words
    from torchmatrix.facts.store import Results
    from torchmatrix.reporting import exports, redaction

    if len(words) > 2:
        raise BadInput(f"too many words: {' '.join(words)}", hint="torchmatrix export [RUN] DIR")
    chosen = exports.names_of(formats or list(exports.FORMATS))
    store = Results(results)
    run = run_words.select_one(store, words[0] if len(words) == 2 else "last")
    from torchmatrix.analysis.prices import held_for
    from torchmatrix.reporting import report
    from torchmatrix.reporting.exports import folder

    folder.written_before(Path(words[-1]), force)  # refuses before anything is drawn
    held = held_for(prices, [run])
    with tempfile.TemporaryDirectory(prefix="torchmatrix-") as temporary:
        view = report.view_of(redaction.redacted(store, run, Path(temporary)) if redact else run)
        drawn = [chart for one in report.charts_of(view, held).values() for chart in one.charts] if charts else []
        names = folder.write(exports.of(view, held), drawn, Path(words[-1]), chosen, scale, force)
    say(f"run {view.id}: {count(len(names), 'file')}")
    print(words[-1])


def _noting(unreadable: "list[Unreadable]", runs: "Iterable[Indexed]") -> "Iterator[Indexed]":
    """The runs, one at a time; adds the files in them that can't be read to `unreadable`."""
    for run in runs:
        unreadable += run.unreadable
        yield run
