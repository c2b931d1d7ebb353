"""The verb that makes files of a run's tables and charts."""

from pathlib import Path
from typing import Annotated

import typer

from torchmatrix.cli.application import app
from torchmatrix.cli.console import say
from torchmatrix.cli.options import RESULTS, PricesOption, RedactOption, ResultsOption
from torchmatrix.ground.errors import BadInput


@app.command()
def export(
    words: Annotated[list[str], typer.Argument(metavar="[RUN] DIR", help="A run, last (the default), last~1; and a folder.")],
    results: ResultsOption = RESULTS,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="csv, json, parquet or md; may be repeated; default: all.", show_default=False),
    ] = None,
    charts: Annotated[bool, typer.Option("--charts/--no-charts", help="Every chart as SVG and PNG.")] = True,
    scale: Annotated[float, typer.Option("--scale", min=0.1, max=10, help="Dots of a PNG for each of its points.")] = 2.0,
    prices: PricesOption = None,
    redact: RedactOption = False,
    force: Annotated[bool, typer.Option("--force", help="Into a folder that holds something else; that stays.")] = False,
) -> None:
    """Write every table of a run as CSV, JSON, Parquet and Markdown, what each column means, and every chart."""
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

    folder.written_before(Path(words[-1]), force)  # refused before anything is drawn
    held = held_for(prices, [run])
    with tempfile.TemporaryDirectory(prefix="torchmatrix-") as temporary:
        view = report.view_of(redaction.redacted(store, run, Path(temporary)) if redact else run)
        drawn = [chart for one in report.charts_of(view, held).values() for chart in one.charts] if charts else []
        names = folder.write(exports.of(view, held), drawn, Path(words[-1]), chosen, scale, force)
    say(f"run {view.id}: {len(names)} files")
    print(words[-1])
