"""The verb that recommends a configuration from the facts at hand: advise."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from torchmatrix.cli import completing
from torchmatrix.cli.application import app
from torchmatrix.cli.console import say_undated, say_unreadable, write_new
from torchmatrix.cli.options import RESULTS, JsonOption, ResultsOption, a_file
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.toml_keys import nearest, shown

_AIMS = ("throughput", "latency", "memory", "energy")


@app.command()
def advise(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model that was measured.")],
    run: Annotated[
        str,
        typer.Option("--run", metavar="RUN", help="The run to read: last, last~1 or an id.", autocompletion=completing.runs),
    ] = "last",
    mode: Annotated[
        str, typer.Option("--mode", help="train or infer.", autocompletion=completing.one_of("train", "infer"))
    ] = "train",
    aim: Annotated[
        str,
        typer.Option(
            "--aim",
            help=f"{', '.join(_AIMS[:-1])} or {_AIMS[-1]}; or another metric, as in compare.",
            autocompletion=completing.one_of(*_AIMS),
        ),
    ] = "throughput",
    max_latency: Annotated[
        float | None,
        typer.Option(
            "--max-latency",
            metavar="MS",
            min=0,
            help="Only configurations with at most this median latency; needs --mode infer.",
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
        typer.Option("--write", metavar="FILE", help="Write a matrix that measures what is missing.", callback=a_file),
    ] = None,
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Recommend a configuration of a model: fastest, or least latency, memory or energy.

    Shows the evidence, equally good choices, what wasn't measured, and how to measure it.
    """
    from torchmatrix.analysis import advice, facts_cache
    from torchmatrix.facts.store import Results, select_one
    from torchmatrix.reporting import advised

    if aim not in advice.AIMS or mode not in ("train", "infer"):
        word, what, known = (aim, "aim", [*advice.AIMS]) if aim not in advice.AIMS else (mode, "mode", ["train", "infer"])
        raise BadInput(f"unknown {what} {shown(word)}", hint=nearest(word, known))
    store = Results(results)
    say_undated(store)
    folder = select_one(store, run)
    (summary,) = facts_cache.read(store, [folder])
    say_unreadable(summary.unreadable_launches)
    asked = {"latency_p50": max_latency and max_latency / 1e3, "peak_bytes": max_memory and max_memory * 2**30}
    limits = {name: most for name, most in asked.items() if most is not None}
    found = advice.advise(summary.launches, model, mode, advice.AIMS[aim], limits)
    if write:
        write_new(write, advised.matrix_to_measure(found, folder.read_record().matrix))
    how = (
        f"torchmatrix run --matrix {shlex.quote(str(write))}"
        if write
        else "add --write FILE, then torchmatrix run --matrix FILE"
    )
    print(json.dumps(advised.record(found, folder.id)) if as_json else advised.text(found, folder.id, how))
