"""Verbs about this machine and what is kept on it: init, doctor."""

import json
from pathlib import Path
from typing import Annotated

import typer

from torchmatrix.cli.application import app
from torchmatrix.cli.console import say
from torchmatrix.errors import BadInput
from torchmatrix.options import (
    MATRIX,
    RESULTS,
    EngineOption,
    JsonOption,
    MatrixOption,
    ResultsOption,
)


@app.command()
def init(
    output: Annotated[Path, typer.Option("--output", help="The file to write.")] = MATRIX,
    python: Annotated[str | None, typer.Option("--python", help="An interpreter that already holds PyTorch.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a matrix file for this machine."""
    from torchmatrix import host, session, starter

    if output.exists() and not force:
        raise BadInput(f"{output} exists already", hint="replace it with --force, or write elsewhere with --output")
    if python and not Path(python).is_file():
        raise BadInput(f"no interpreter at {python}", hint="name a Python that can import torch")
    text = starter.starter_matrix(host.detect(), session.docker_answers(), str(Path(python).absolute()) if python else None)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text)
    except OSError as error:
        raise BadInput(f"can't write {output}: {error.strerror}", hint="write elsewhere with --output") from None
    say("look at it, then: torchmatrix plan, torchmatrix run")
    print(output)


@app.command()
def doctor(
    matrix: MatrixOption = MATRIX,
    results: ResultsOption = RESULTS,
    engine: EngineOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Check engine, GPUs, driver, disk and indexes; say what would be skipped, why, and the fix."""
    from torchmatrix import checkup

    checks = checkup.examine(matrix, results, engine)
    if as_json:
        print(json.dumps([check.as_record() for check in checks]))
    else:
        for check in checks:
            print(f"{check.mark:<5} {check.subject}: {check.finding}")
            if check.fix:
                print(f"      fix: {check.fix}")
    raise typer.Exit(max(check.exit_code for check in checks))
