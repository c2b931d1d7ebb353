"""Verbs that read facts: compare, history, export, gate; report is in render.py."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import answer_for_files, in_json, list_runs, read_prices, say, say_unreadable, width, write_file
from torchmatrix.core.errors import BadInput, ExitCode
from torchmatrix.core.files import scratch
from torchmatrix.core.formatting import count

if TYPE_CHECKING:
    from torchmatrix.analysis.prices import PriceList
    from torchmatrix.analysis.run_summary import RunSummary
    from torchmatrix.facts.launch import Unreadable
    from torchmatrix.facts.store import Results
    from torchmatrix.nightly.gate.judged import Gate
    from torchmatrix.reporting.redaction import Redaction


@options.app.command()
def compare(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A run, last, last~1, a machine, a file or folder (another tool's, too), a stack, or RUN:STACK.",
            autocompletion=options.complete_runs_and_machines,
        ),
    ],
    b: Annotated[
        str,
        typer.Argument(
            metavar="B", help="What to compare it with. Ratios are A over B.", autocompletion=options.complete_runs_and_machines
        ),
    ],
    results: options.ResultsOption = options.RESULTS,
    own_batch: Annotated[
        bool, typer.Option("--own-batch", help="Where batches differ, compare each side at its own batch, and show both.")
    ] = False,
    metric: options.MetricOption = "throughput",
    prices: options.PricesOption = None,
    reasons: Annotated[bool, typer.Option("--reasons", help="Also print the rule that decided each verdict.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Compare two runs, machines or stacks: ratio, interval, verdict.

    Matches by workload, number of devices and stack. Also lists how the environments differ.
    """
    from torchmatrix.analysis import compare as comparing
    from torchmatrix.analysis import history, metrics
    from torchmatrix.analysis.machines import choose_sides
    from torchmatrix.analysis.prices import metric_for
    from torchmatrix.facts.store import Results
    from torchmatrix.reporting import terminal

    of_runs = {"--own-batch": own_batch, "--metric": metric != "throughput", "--prices": prices is not None}
    answer_for_files("compare", [a, b], as_json, reasons=reasons, of_runs=[name for name, given in of_runs.items() if given])
    store = Results(results)
    held = read_prices(prices, store.runs() if prices else ())
    compared = metric_for(metrics.named(metric), held)
    list_runs(store)
    sides = choose_sides(store, a, b)
    for side in sides:
        say_unreadable(side.unreadable)
        if side.note:
            say(f"note: {side.note}")
    both = sides[0].launches, sides[1].launches
    between = history.variances_of_history(store, *both, compared, held)
    cells_by_run = history.families(store, *both, price_list=held)
    comparison = comparing.compare(*both, "own" if own_batch else "same", between, compared, cells_by_run, held)
    print(in_json(comparison.as_record()) if as_json else terminal.comparison_in_words(comparison, reasons, width()))
    refused = all(row.refused for row in comparison.rows)
    raise typer.Exit(ExitCode.BAD_INPUT if refused else ExitCode.OK)


@options.app.command()
def history(
    word: Annotated[
        str,
        typer.Argument(
            metavar="RUNS", help="all, last-30d (or h, w), last, last~1, a run's id.", autocompletion=options.complete_runs
        ),
    ] = "all",
    results: options.ResultsOption = options.RESULTS,
    since: options.SinceOption = None,
    host: options.HostOption = None,
    metric: options.MetricOption = "throughput",
    prices: options.PricesOption = None,
    as_json: options.JsonOption = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help=f"The HTML file to write; default: {options.HISTORY}; none with --json.",
            callback=options.a_file,
        ),
    ] = None,
) -> None:
    """Show how each cell changed from run to run.

    Marks lasting changes, and what changed in the environment at the same time.
    """
    import gc

    from torchmatrix.facts.store import Results, select

    store = Results(results)
    runs = select(store, word, since, host, list_runs(store))
    from torchmatrix.analysis import facts_cache, metrics, run_index
    from torchmatrix.analysis.prices import metric_for

    gc.disable()  # as in report
    unreadable: list[Unreadable] = []
    held = read_prices(prices, runs)
    shown = metric_for(metrics.named(metric), held)
    of_nights = None if held.prices else run_index.rows(store, runs, unreadable, shown)
    from torchmatrix.analysis import history as trends  # with numpy: the rows are read by several processes
    from torchmatrix.reporting import history_page as pages
    from torchmatrix.reporting import page, terminal

    if of_nights is None:
        read = _collect_unreadable(unreadable, facts_cache.each(store, runs, held))
        of_nights = (row for run in read for row in trends.rows_of(run, shown))
    trend_list = trends.trends(trends.with_differences(of_nights), shown)
    say_unreadable(unreadable)
    print(in_json({"cells": [trend.as_record() for trend in trend_list]}) if as_json else terminal.trends_in_words(trend_list))
    if output or not as_json:
        say(f"{count(len(runs), 'run')}: {page.save(pages.render(trend_list), output or options.HISTORY)}")


@options.app.command()
def export(
    words: Annotated[
        list[str], typer.Argument(metavar="[RUN] DIR", help="The run: last (the default), last~1 or an id; then the folder.")
    ],
    results: options.ResultsOption = options.RESULTS,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="csv, json, parquet (needs pyarrow), md (default: these four), hud, junit, llm-d, prometheus, "
            "pull-request; repeatable.",
            show_default=False,
        ),
    ] = None,
    machines: Annotated[
        bool, typer.Option("--machines", help="Write the comparison of all machines, each by its newest complete run.")
    ] = False,
    baseline_gpu: Annotated[
        str | None,
        typer.Option("--baseline-gpu", metavar="GPU", help="With --machines: the GPU that others are relative to."),
    ] = None,
    own_batch: Annotated[
        bool, typer.Option("--own-batch", help="With --machines: compare each machine at its own batch; tables show the batch.")
    ] = False,
    charts: Annotated[bool, typer.Option("--charts/--no-charts", help="Write every chart as SVG and PNG.")] = True,
    scale: Annotated[
        float, typer.Option("--scale", metavar="N", min=0.1, max=10, help="Pixels of a PNG per point of the chart.")
    ] = 2.0,
    prices: options.PricesOption = None,
    redact: options.RedactOption = False,
    with_messages: options.MessagesOption = False,
    force: Annotated[bool, typer.Option("--force", help="Write even if the folder holds other files; they stay.")] = False,
) -> None:
    """Write the tables and charts of a run, or of several machines, as files.

    Writes tables as CSV, JSON, Parquet and Markdown, the meaning of each column, and charts as SVG and PNG.
    """
    from torchmatrix.facts.store import Results, select_one
    from torchmatrix.reporting import exports, redaction

    if len(words) > (1 if machines else 2):
        hint = "torchmatrix export --machines DIR" if machines else "torchmatrix export [RUN] DIR"
        raise BadInput(f"too many words: {' '.join(words)}", hint=hint)
    if (baseline_gpu or own_batch) and not machines:
        word = "--baseline-gpu" if baseline_gpu else "--own-batch"
        raise BadInput(f"{word} is about several machines", hint="add --machines")
    options.refuse_messages(with_messages, redact)
    chosen = exports.names_of(formats or exports.usable())
    if not formats and exports.PARQUET not in chosen:
        say(f"without Parquet: it needs pyarrow ({exports.INSTALL})")
    store = Results(results)
    list_runs(store)
    if machines:
        _export_machines(
            store, Path(words[0]), chosen, (charts, scale), (baseline_gpu, own_batch), prices, (redact, with_messages), force
        )
        return
    run = select_one(store, words[0] if len(words) == 2 else "last")
    from torchmatrix.analysis import facts_cache
    from torchmatrix.reporting import exports, report

    exports.written_before(Path(words[-1]), force)  # refuses before anything is drawn
    held = read_prices(prices, [run])
    with scratch() as temporary:
        shown, cleaner = redaction.redacted(store, run, temporary, say, with_messages) if redact else (run, None)
        found = None if cleaner else facts_cache.whole(store, run)
        held = _redacted_prices(held, store, cleaner)
        view = report.view_of(shown, found=found, price_list=held)
        overview = report.overview_of(view, report.last_before(shown, view.summary))
        drawn, answers = overview.charts if charts else (), overview.answers.as_record()
        names = exports.write(exports.of(view), drawn, Path(words[-1]), chosen, scale, force, answers, overview.style)
    say_unreadable(view.summary.unreadable, cleaner=cleaner)
    say(f"run {view.id}: {count(len(names), 'file')}")
    print(words[-1])


def _export_machines(
    store: "Results", target: Path, formats: Sequence[str], charts: tuple[bool, float],
    basis: tuple[str | None, bool], prices: Path | None, redact: tuple[bool, bool], force: bool,
) -> None:  # fmt: skip
    """Export the comparison of all machines. `charts`: whether to write charts, and their scale. `basis`: the baseline GPU, and
    whether each machine has its own batch. `redact`: whether the facts are redacted, and whether messages stay then."""
    from torchmatrix.cli.render import one_of_each
    from torchmatrix.facts.store import select_each
    from torchmatrix.reporting import exports, machines_page

    exports.written_before(target, force)
    runs = select_each(store, ["all"], None, None)
    held = read_prices(prices, runs)
    with scratch() as temporary:
        chosen, cleaner = one_of_each(store, runs, [], temporary if redact[0] else None, redact[1])
        held = _redacted_prices(held, store, cleaner)
        fleet, relative = machines_page.compared(chosen, *basis, held)
        shown = machines_page.shown_of(fleet, relative)
        drawn, answers = shown.charts if charts[0] else (), shown.answers.as_record()
        names = exports.write(
            exports.of_machines(fleet, relative), drawn, target, formats, charts[1], force, answers, shown.style
        )
    say_unreadable(fleet.unreadable, cleaner=cleaner)
    say(f"{count(len(fleet.chosen), 'machine')}: {count(len(names), 'file')}")
    print(target)


def _redacted_prices(held: "PriceList", store: "Results", cleaner: "Redaction | None") -> "PriceList":
    from torchmatrix.reporting import redaction

    return held.redacted(redaction.of_texts(store.runs(), cleaner)) if cleaner else held


def _collect_unreadable(unreadable: "list[Unreadable]", runs: "Iterable[RunSummary]") -> "Iterator[RunSummary]":
    """Yield the runs, one at a time, and add the files in them that can't be read to `unreadable`."""
    for run in runs:
        unreadable += run.unreadable
        yield run


# The gate: judge the newest run against earlier nights.

_CODES = {
    "PASS": ExitCode.OK, "REGRESSION": ExitCode.REGRESSION, "NO-BASELINE": ExitCode.NOTHING_SELECTED,
    "INCOMPLETE": ExitCode.INCOMPLETE,
}  # fmt: skip


@options.app.command()
def gate(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="The run to judge: last, last~1 or an id.", autocompletion=options.complete_runs),
    ] = "last",
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="RUN",
            help="Compare with this run instead of earlier nights.",
            autocompletion=options.complete_runs,
        ),
    ] = None,
    nights: Annotated[
        int, typer.Option("--nights", metavar="N", min=1, help="Take the median of this many nights as the baseline.")
    ] = 7,
    strict: Annotated[bool, typer.Option("--strict", help="Report a regression after one slower night, not two.")] = False,
    canary: Annotated[
        list[str] | None,
        typer.Option(
            "--canary",
            metavar="GLOB",
            help="Cells of a stack that never changes; repeatable.",
            autocompletion=options.complete_cells,
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
        str | None, typer.Option("--host", metavar="HOST", help="Judge runs of this host; default: that of the newest run.")
    ] = None,
    results: options.ResultsOption = options.RESULTS,
    as_json: options.JsonOption = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdict as JUnit XML.", callback=options.a_file)
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write the verdict as a Markdown table.", callback=options.a_file),
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

    gate_options = gating.GateOptions(
        nights=nights, named=baseline is not None, strict=strict, canary=tuple(canary or ()), tolerance=tolerance / 100
    )
    store = Results(results)
    runs = read_runs(store, run, nights, baseline, host, list_runs(store))
    say_unreadable([*(file for past in runs for file in past.unreadable), *judged.unreadable_record(store, runs[-1].host)])
    result = gating.judge(runs, gate_options, judged.read_accepted(store, runs[-1].host))
    if accept or because:
        if not accept or not because.strip():
            raise BadInput(
                "--accept and --because go together", hint="gate --accept CELL --because 'the new driver; see ticket 12'"
            )
        result = gating.judge(runs, gate_options, judged.accept(store, result, accept or (), because))
    where = None if results == options.RESULTS else results
    print(in_json(verdicts.record(result, where)) if as_json else verdicts.text(result, where), flush=True)
    try:
        write_verdict(result, junit, markdown, where)
    finally:
        tell_hook(result, hook, where)
    raise typer.Exit(_CODES[result.verdict])


def write_verdict(verdict: "Gate", junit: Path | None, markdown: Path | None, where: Path | None) -> None:
    """Write the requested files. `where`: the results folder, if it is not the default one."""
    from torchmatrix.nightly.gate import verdicts

    for path, content in ((junit, verdicts.junit), (markdown, lambda *a: verdicts.markdown(*a).encode())):
        if path:
            hint = "the verdict is printed above; name another file: --junit FILE, --markdown FILE"
            write_file(path, content(verdict, where), hint)


def tell_hook(verdict: "Gate", hook: str | None, where: Path | None) -> None:
    """Run the user's command after any verdict but PASS; its failure is reported, but doesn't change the exit code."""
    if hook is None or verdict.verdict == "PASS":
        return
    from torchmatrix.nightly.gate import verdicts

    problem = verdicts.call_hook(hook, verdicts.record(verdict, where))
    if problem:
        say(f"warning: {problem}: {hook}")
