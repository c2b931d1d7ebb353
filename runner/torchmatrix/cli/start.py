"""Verbs to start with: init, presets, doctor, plan."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchmatrix.cli import measured, options
from torchmatrix.cli.console import consume, in_json, preamble, say, write_file
from torchmatrix.core import __version__
from torchmatrix.core.errors import BadInput, ExitCode
from torchmatrix.core.formatting import count, printable

if TYPE_CHECKING:
    from torchmatrix.facts.store import Results
    from torchmatrix.machine.host import Host
    from torchmatrix.planning.fit import Prerequisites
    from torchmatrix.running.deep import SelfCheck
    from torchmatrix.running.doctor import Check
    from torchmatrix.running.session import Session

ATTACHMENT = Path("reports/doctor")


def check_deeply(
    matrix: Path, results: Path, engine: str, stack: str | None, seconds: float, output: Path, as_json: bool
) -> ExitCode:
    """Examine all devices in the container of one stack; return the exit code of the findings."""
    from torchmatrix.running import deep as examination
    from torchmatrix.running import session
    from torchmatrix.running.deep import findings
    from torchmatrix.running.doctor import as_records, as_text

    s = session.prepare(matrix, results, engine, [], [])
    chosen, recipe = examination.choose_stack(s, stack)
    preamble(s)
    say(f"stack: {chosen.name}; a load of {seconds:g} s on every device")
    observations = consume(examination.examine(s, chosen, recipe, seconds), lambda line: say(printable(line)))
    checks = findings(observations)
    print(in_json(as_records(checks)) if as_json else as_text(checks))
    written = _write_attachments(s.results, observations, checks, output)
    say(f"written for an issue, with names and identities replaced: {', '.join(map(str, written))}")
    return max(check.exit_code for check in checks)


def _write_attachments(store: "Results", observations: "SelfCheck", checks: "list[Check]", output: Path) -> list[Path]:
    """Write the findings as text, and with all observations as JSON, to attach to an issue. Raises BadInput."""
    from torchmatrix.facts.reveals import SelfCheckFile, fields_of_struct
    from torchmatrix.reporting import redaction
    from torchmatrix.reporting.redaction import identities
    from torchmatrix.running import deep
    from torchmatrix.running.doctor import as_records, as_text

    record: dict[str, Any] = {"torchmatrix": __version__, **deep.as_record(observations), "findings": as_records(checks)}
    pseudonyms = identities.load(store.root)
    clean = redaction.for_results(store, True, pseudonyms, with_messages=True)
    clean.know("host", observations.host.name)
    for event in observations.events:
        clean.learn_line(event)
    fields = fields_of_struct(SelfCheckFile)
    clean.learn(record, fields)
    text = f"torchmatrix {__version__}, doctor --deep\n{as_text(checks)}\n"
    shown = {**clean.declared(record, fields), "events": list(filter(None, map(clean.line, observations.events)))}
    contents = {".txt": clean.text(text), ".json": json.dumps(shown, indent=1) + "\n"}
    paths = [output.with_name(output.name + ending) for ending in contents]
    for path, content in zip(paths, contents.values(), strict=True):
        write_file(path, content.encode(), hint="write elsewhere: --output PATH")
    pseudonyms.save(store.root)
    return paths


@options.app.command()
def init(
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="The file to write.", callback=options.a_matrix)
    ] = options.MATRIX,
    python: Annotated[
        str | None, typer.Option("--python", metavar="PYTHON", help="A Python interpreter that already has PyTorch.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help="A benchmark from the list of torchmatrix presets.",
            autocompletion=options.complete_presets,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a matrix file for this machine.

    With --preset, write the matrix that repeats a published benchmark.
    """
    from torchmatrix.matrix import variants

    if preset and python:
        raise BadInput(
            "--preset and --python contradict each other", hint="a preset has its own stacks: use one of the two options"
        )
    whole = variants.preset_text(preset) if preset else None
    if output.exists() and not force:
        raise BadInput(f"{output} already exists", hint="replace it with --force, or write another file with --output FILE")
    if python and not Path(python).is_file():
        raise BadInput(f"no interpreter at {python}", hint="name a Python interpreter that can import torch")
    if python and not str(Path(python).absolute()).isprintable():
        message = "the interpreter's path has characters that no matrix can hold"
        raise BadInput(message, hint="name it by another path, such as a link to it")
    text = whole or _starter(python)
    write_file(output, text.encode(), hint="write another file: --output FILE")
    say("next: read it, then torchmatrix plan, then torchmatrix run")
    print(output)


def _starter(python: str | None) -> str:
    from torchmatrix.engines.docker import containers_answer
    from torchmatrix.machine import host
    from torchmatrix.matrix import variants
    from torchmatrix.planning import fit

    here, interpreter = host.detect(), str(Path(python).absolute()) if python else None
    return variants.starter_matrix(here, containers_answer(), interpreter, fit.suited)


@options.app.command("presets")
def list_presets(as_json: options.JsonOption = False) -> None:
    """List the published benchmarks that you can repeat here."""
    from torchmatrix.engines.docker import containers_answer
    from torchmatrix.machine import host
    from torchmatrix.matrix import variants
    from torchmatrix.planning.fit import Prerequisites

    here, prerequisites = host.detect(), Prerequisites(containers=containers_answer())
    presets = [_describe_preset(name, here, prerequisites) for name in variants.preset_names()]
    if as_json:
        print(in_json(presets))
        return
    for row in sorted(presets, key=lambda row: not row["here"]):
        possible = f"{row['here']} of them run here" if row["here"] else "none of them runs here"
        size = f"{count(len(row['stacks']), 'stack')}, {count(row['cells'], 'cell')}, {possible}"
        print("\n".join([row["name"], *(f"  {line}" for line in (row["title"], size, *row["article"]))]))
    say("\nto write one as matrix.toml: torchmatrix init --preset NAME")


def _describe_preset(name: str, here: "Host", prerequisites: "Prerequisites") -> dict[str, Any]:
    from torchmatrix.matrix import variants
    from torchmatrix.planning import plan

    matrix = variants.load_preset(name)
    made = plan.make_plan(matrix, here, prerequisites)
    texts = {key: getattr(matrix.preset, key) for key in ("title", "question", "article", "claims", "deviations")}
    counts = {"cells": len(made.cells) + len(made.skips), "here": len(made.cells)}
    return {"name": name, **texts, "stacks": [stack.name for stack in matrix.stacks], **counts}


@options.app.command()
def doctor(
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    engine: options.EngineOption = "auto",
    as_json: options.JsonOption = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also use all devices for a minute or more: mapping, links, precision, load.")
    ] = False,
    stack: Annotated[
        str | None, typer.Option("--stack", metavar="NAME", help="With --deep: the stack; default: the newest that is built.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="N", min=0.1, max=3600, help="With --deep: the length of the load.")
    ] = 30.0,
    output: Annotated[
        Path,
        typer.Option("--output", metavar="PATH", help="With --deep: write PATH.txt and PATH.json.", callback=options.a_file),
    ] = ATTACHMENT,
) -> None:
    """Check the engine, GPUs, driver, disk and network.

    Lists a fix for each problem, and for each stack that this machine would skip. With --deep, uses the devices themselves.
    """
    from torchmatrix.running import doctor as examination
    from torchmatrix.running.doctor import as_records, as_text

    if deep:
        raise typer.Exit(check_deeply(matrix, results, engine, stack, seconds, output, as_json))
    if stack is not None:
        raise BadInput("--stack needs --deep", hint="torchmatrix doctor --deep --stack NAME")
    checks = examination.examine(matrix, results, engine, partial(_starter, None))
    print(in_json(as_records(checks)) if as_json else as_text(checks))
    raise typer.Exit(max(check.exit_code for check in checks))


@options.app.command()
def plan(
    globs: options.GlobsArgument = None,
    where: options.WhereOption = None,
    matrix: options.MatrixOption = options.MATRIX,
    results: options.ResultsOption = options.RESULTS,
    engine: options.EngineOption = "auto",
    ab: options.AbOption = None,
    skipped: Annotated[bool, typer.Option("--skipped", help="List every skipped cell with its reason and fix.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Show what would run, how long it may take, and what is skipped.

    Runs nothing. Cells marked * would run; those marked - are skipped.
    """
    from torchmatrix.matrix.method import AB_LAUNCHES, Request
    from torchmatrix.running import launch_order, run, session

    request = Request(at_least=AB_LAUNCHES if ab else 1)
    s = session.prepare(matrix, results, engine, globs or [], where or [], request, ab=ab)
    if not s.plan.skips:
        measured.refuse_nothing(s, globs or [], where or [])
    measured.note_misses(s, globs or [], where or [], options.Volume.NORMAL)
    launches = launch_order.unordered(s.plan.cells, s.matrix.method.launches)
    earlier = run.known_seconds(s)
    seconds = run.preparing_seconds(s, launches, earlier) + run.measuring_seconds(launches, earlier, {})
    say(f"{measured.plan_in_one_line(s, launches, seconds)}")
    measured.tell_longest(s, launches, seconds)
    newest = s.results.newest_complete(s.results.home(s.host.name, s.host.machine))
    if newest and newest.read_record().key == s.key:
        measured.tell_estimate(newest)
    say()
    preamble(s)
    say()
    if as_json:
        print(in_json(_plan_as_json(s)))
        return
    for line in measured.batches_in_words(s):
        say(line)
    for cell in s.plan.cells:
        print(f"* {cell.id}")
    every_skip = (f"{skip.cell.id}  {skip.why.reason}\n  fix: {skip.why.fix}" for skip in s.plan.skips)
    for line in every_skip if skipped else measured.skips_in_words(s):
        print(f"- {line}")
    if s.plan.skips and not skipped:
        say("\ntorchmatrix plan --skipped lists every skipped cell with the fix")


def _plan_as_json(s: "Session") -> dict[str, Any]:
    def fields(cell: Any) -> dict[str, Any]:
        workload = cell.workload
        named = {"id": cell.id, "stack": cell.stack.name, "workload": workload.id, "gpus": cell.gpus.label}
        return named | ({"batch_key": workload.batch_key} if workload.batch_key else {})

    return {
        "cells": [fields(cell) for cell in s.plan.cells],
        "skips": [{**fields(skip.cell), "reason": skip.why.reason, "fix": skip.why.fix} for skip in s.plan.skips],
    }
