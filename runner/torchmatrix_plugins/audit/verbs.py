"""The verb audit."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import answer_for_files, in_json, list_runs, say, say_unreadable
from torchmatrix.core.errors import BadInput, ExitCode
from torchmatrix.core.formatting import count


def audit(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|RUN",
            help="A published table, another tool's file or folder, or a run, last, last~1, a folder.",
            autocompletion=options.complete_runs,
        ),
    ],
    results: options.ResultsOption = options.RESULTS,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="Of another tool's file: the GPUs, such as '8x H100 SXM5 80GB'.")
    ] = None,
    parameters: Annotated[
        float | None,
        typer.Option("--parameters", metavar="N", help="Of another tool's file: those that a token uses, as 8.03e9."),
    ] = None,
    bits: Annotated[
        float | None, typer.Option("--bits", metavar="N", help="Of another tool's file: of a weight, such as 16.")
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Check throughputs for impossible or inconsistent values.

    Checks efficiency, the gain from AMP, the peak, rounding, baselines and unknown fields. Lists what it can't read.
    """
    from torchmatrix.analysis.published import audit as auditing
    from torchmatrix.analysis.published.audit import as_record, coverage
    from torchmatrix.facts.store import Results
    from torchmatrix.reporting import audit_words
    from torchmatrix_plugins.audit import words

    answer_for_files("audit", [target], as_json, gpu=gpu, parameters=parameters, bits=bits)
    if (gpu, parameters, bits) != (None, None, None):
        raise BadInput("--gpu, --parameters and --bits are about a file of another tool", hint="see docs/other-tools.md")
    store = Results(results)
    if not Path(target).is_file():
        list_runs(store)
    stated = words.stated(store, target)
    findings = auditing.findings(stated.cells, stated.figures)
    several = coverage(stated.figures)
    checked = auditing.checked(stated.figures, stated.mixed)
    if as_json:
        record = {"figures": len(stated.figures), "scaling": as_record(several)}
        record |= {"checked": asdict(checked)}
        record |= {"unparsed": [asdict(row) for row in stated.unparsed], "findings": [asdict(row) for row in findings]}
        record |= {"unreadable": [{"file": str(row.path), "reason": row.reason} for row in stated.unreadable]}
        print(in_json(record))
    else:
        texts = (words.findings_in_words(findings) if findings else "", words.unparsed_in_words(stated.unparsed))
        print("\n".join(filter(None, texts)), end="\n" if any(texts) else "")
    for line in audit_words.unchecked_in_words(checked.unchecked):
        say(line)
    say_unreadable(stated.unreadable)
    unread = f", {len(stated.unparsed)} not read" if stated.unparsed else ""
    say(f"{count(checked.figures, 'figure')}, {audit_words.result_in_words(checked, findings)}{unread}")
    if sentence := words.coverage_in_words(several):
        say(sentence)
    say(audit_words.checked_in_words(checked))
    clean = checked.is_any and not (findings or stated.unparsed or stated.unreadable)
    raise typer.Exit(ExitCode.OK if clean else ExitCode.FINDINGS)
