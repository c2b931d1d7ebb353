"""The verb advise."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import in_json, list_runs, read_prices, say_unreadable, write_new
from torchmatrix.core.errors import BadInput
from torchmatrix.core.toml_keys import nearest, shown
from torchmatrix.matrix.factors import MODES

_AIMS = ("throughput", "latency", "memory", "energy", "cost")


def advise(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model that was measured.")],
    run: Annotated[
        str,
        typer.Option(
            "--run", metavar="RUN", help="The run to read: last, last~1 or an id.", autocompletion=options.complete_runs
        ),
    ] = "last",
    mode: Annotated[
        str,
        typer.Option("--mode", metavar="NAME", help=f"{' or '.join(MODES)}.", autocompletion=options.complete_one_of(*MODES)),
    ] = "train",
    aim: Annotated[
        str,
        typer.Option(
            "--aim",
            metavar="NAME",
            help=f"{', '.join(_AIMS[:-1])} or {_AIMS[-1]}; or another metric, as in compare.",
            autocompletion=options.complete_one_of(*_AIMS),
        ),
    ] = "throughput",
    max_latency: Annotated[
        float | None,
        typer.Option(
            "--max-latency",
            metavar="MS",
            min=0,
            help="Only with at most this median latency (generate: per output token); not for --mode train.",
        ),
    ] = None,
    max_memory: Annotated[
        float | None,
        typer.Option(
            "--max-memory", metavar="GIB", min=0, help="Only configurations with at most this peak memory per process."
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", metavar="FILE", help="Write a matrix of what is missing.", callback=options.a_matrix),
    ] = None,
    prices: options.PricesOption = None,
    results: options.ResultsOption = options.RESULTS,
    as_json: options.JsonOption = False,
) -> None:
    """Recommend a configuration of a model: fastest, or least latency, memory, energy or cost.

    Shows the evidence, equally good choices, what wasn't measured, and how to measure it.
    """
    from torchmatrix.analysis import facts_cache
    from torchmatrix.analysis.metrics import latency_of
    from torchmatrix.analysis.prices import metric_for
    from torchmatrix.facts.store import Results, select_one
    from torchmatrix_plugins.advise import advice, words

    if aim not in advice.AIMS or mode not in MODES:
        word, what, choices = (aim, "aim", [*advice.AIMS]) if aim not in advice.AIMS else (mode, "mode", [*MODES])
        raise BadInput(f"unknown {what} {shown(word)}", hint=nearest(word, choices))
    store = Results(results)
    list_runs(store)
    folder = select_one(store, run)
    held = read_prices(prices, [folder])
    sought = metric_for(advice.metric_of(aim, mode), held)
    (summary,) = facts_cache.read(store, [folder], held)
    say_unreadable(summary.unreadable_launches)
    latency = latency_of(mode).column
    requested = {latency: max_latency and max_latency / 1e3, "peak_bytes": max_memory and max_memory * 2**30}
    limits = {name: most for name, most in requested.items() if most is not None}
    recommendation = advice.advise(summary.launches, model, mode, sought, limits)
    if write:
        write_new(write, words.matrix_to_measure(recommendation, folder.read_record().matrix))
    how = (
        f"torchmatrix run --matrix {shlex.quote(str(write))}"
        if write
        else "add --write FILE, then torchmatrix run --matrix FILE"
    )
    print(
        in_json(words.advice_record(recommendation, folder.id))
        if as_json
        else words.advice_text(recommendation, folder.id, how)
    )
