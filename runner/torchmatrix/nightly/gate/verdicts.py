"""Format the gate's verdict: text for the terminal and the mail, Markdown for an issue, JUnit XML for CI.

Names and messages come from files that others wrote: control characters are replaced, and markup is made inert in each format.
"""

import json
import math
import os
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from torchmatrix.analysis.centers import median_of
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.rows import group_by
from torchmatrix.core.formatting import clipped, count, four_decimals, in_one_line
from torchmatrix.core.process import end_with_parent
from torchmatrix.core.secrets import cleaned_value
from torchmatrix.facts.environments import differences_in_words, is_of_the_machine
from torchmatrix.nightly.gate.judged import Gate, JudgedCell

LONGEST = 300
"""Characters of one message; more is cut, with an ellipsis."""
MOST_CHANGES = 8
"""How many changes of an environment are shown; the record has all."""
_MOVED = ("regression", "suspected", "faster", "failed")


def record(gate: Gate, results: Path | None = None) -> dict[str, Any]:
    """Return the record for --json and the hook: the whole gate, and the text as `text`, which is what chat services show."""
    return {**gate.as_record(), "text": text(gate, results)}


def text(gate: Gate, results: Path | None = None) -> str:
    """Return the verdict in one line; then every cell that isn't ok with its figures and what to do, then what changed.

    `results`: the folder to name in commands, where it is not the usual one.
    """
    shown = [judged for judged in gate.cells if judged.verdict != "ok"]
    lines = [headline(gate), _tally(gate), *_detectable_loss(gate.cells)]
    for judged in (cell for cell in shown if cell.is_judged):
        lines.append(f"{judged.verdict:<11} {plain(judged.name)}  {figures(judged)}".rstrip())
        lines += [f"  {line}" for line in (*_reasons(judged), *commands(gate, judged, results))]
    lines += _unjudged_lines(judged for judged in shown if not judged.is_judged)
    lines += [*_environment_changes(shown), *_other_conditions(gate.cells)]
    if gate.verdict == "NO-BASELINE" and all(judged.verdict != "n/a" for judged in gate.cells):
        lines.append("the baseline must be an earlier run of the same cells on this host; to make one: torchmatrix run --new")
    return "\n".join(lines)


def headline(gate: Gate) -> str:
    """Return a line such as: REGRESSION 2 of 40 cells: RUN on HOST against 7 nights."""
    cells = len({judged.cell for judged in gate.cells})
    counted = len({judged.cell for judged in gate.cells if judged.counts})
    amount = f"{counted} of {count(cells, 'cell')}" if counted else count(cells, "cell")
    name = "the named run " if gate.options.named else ""
    nights = f"{len(gate.baseline)} night{'s' if len(gate.baseline) != 1 else ''} before"
    against = name + gate.baseline[0] if gate.options.named and gate.baseline else nights
    ended = "" if gate.complete else "; the run is not finished"
    return plain(f"{gate.verdict} {amount}: {gate.run} on {gate.host} against {against}{ended}")


def figures(judged: JudgedCell) -> str:
    """Return the ratio, the limit below which it is slower, and the limit's rule; empty where nothing was compared."""
    if math.isnan(judged.ratio):
        return ""
    limit = "no limit" if math.isnan(judged.low) else f"slower below {judged.low:.4f}"
    before = ", nights before: " + ", ".join(f"{ratio:.4f}" for ratio in judged.before) if judged.before else ""
    strays = f", {len(judged.strays)} left out as strays" if judged.strays else ""
    return plain(f"{judged.ratio:.4f} of the baseline ({limit}: {judged.rule}{strays}){before}")


def commands(gate: Gate, judged: JudgedCell, results: Path | None = None) -> list[str]:
    """Return commands to paste to look into a cell that isn't ok."""
    where = [] if results is None else ["--results", str(results)]
    lines = []
    if judged.verdict in ("missing", "skipped-now"):
        lines.append(f"look: {shlex.join(['torchmatrix', 'plan', judged.cell])}")
    if judged.verdict == "failed":
        lines.append(f"facts: {judged.facts}")
    if judged.verdict in ("failed", "regression", "suspected"):
        lines.append(f"repeat: {shlex.join(['torchmatrix', 'reproduce', judged.cell, *where])}")
    if judged.nights:
        sides = [f"{gate.host}/{run}:{judged.stack}" for run in (gate.run, judged.nights[-1])]
        metric = [] if judged.metric == "throughput" else ["--metric", judged.metric]
        lines.append(f"compare: {shlex.join(['torchmatrix', 'compare', *sides, *metric, *where])}")
    return [in_one_line(line) for line in lines]


def plain(words: str, longest: int = LONGEST) -> str:
    """Return one line without control characters (also those that reverse text), cut after `longest`."""
    return clipped(in_one_line(words), longest)


def _tally(gate: Gate) -> str:
    counts = Counter(judged.verdict for judged in gate.cells)
    tally = ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no cells"
    left = len(gate.cells) - gate.judged
    return f"{tally}; judged: {gate.judged} of {len(gate.cells)} figures" if left else tally


def _detectable_loss(cells: Iterable[JudgedCell]) -> list[str]:
    """Return a line with the smallest loss that tonight would have shown; none where no cell was compared with nights."""
    losses = sorted(((cell.detectable, cell.name) for cell in cells if not math.isnan(cell.detectable)), key=itemgetter(0))
    if not losses:
        return []
    loss, (worst, name) = 100 * median_of([loss for loss, _ in losses]), losses[-1]
    of = f" (median of {len(losses)} figures; worst: {100 * worst:.1f} % {name})" if len(losses) > 1 else ""
    return [plain(f"tonight would have shown a loss of {loss:.1f} % in 4 of 5 cases{of}")]


def _reasons(judged: JudgedCell) -> list[str]:
    lines = [judged.why, f"{judged.cause}: {judged.cause_why}" if judged.cause else ""]
    return [plain(line) for line in lines if line]


def _why(judged: JudgedCell) -> str:
    return "; ".join(_reasons(judged))


def _unjudged_lines(cells: Iterable[JudgedCell]) -> list[str]:
    """Return one line for all cells of one verdict and one reason."""
    groups = group_by(cells, lambda judged: (judged.verdict, judged.why))
    return [
        f"{verdict:<11} {plain(alike[0].name)}{f' and {len(alike) - 1} more' if len(alike) > 1 else ''}: {plain(why)}"
        for (verdict, why), alike in groups.items()
    ]


def _environment_changes(cells: Iterable[JudgedCell]) -> list[str]:
    """List changes of the environments of stacks whose cells moved, failed or have another machine now, each stack once."""
    moved = [judged for judged in cells if judged.verdict in _MOVED or (judged.verdict == "new" and judged.changes)]
    lines = []
    for stack, first in {judged.stack: judged for judged in reversed(moved)}.items():
        since = f"since {first.nights[-1]}" if first.nights else "since it was last measured"
        if not first.changes:
            if first.compared:
                amount = first.compared.in_words
                lines.append(plain(f"{stack}: no recorded change of its environment {since} ({amount})"))
            continue
        lines.append(plain(f"{stack}: changed {since}:"))
        pairs = list(first.changes.items())
        lines += [f"  {plain(name)}: {plain(was, 60)} -> {plain(now, 60)}" for name, (was, now) in pairs[:MOST_CHANGES]]
        if len(pairs) > MOST_CHANGES:
            lines.append(f"  and {len(pairs) - MOST_CHANGES} more (--json has all)")
    return lines


def _other_conditions(cells: Iterable[JudgedCell]) -> list[str]:
    """List changes of the machine for cells that did not move: their nights are unlike, too."""
    examples: dict[str, JudgedCell] = {}
    for judged in cells:
        changes = {name: pair for name, pair in judged.changes.items() if is_of_the_machine(name)}
        if changes and judged.nights and judged.verdict not in _MOVED:
            examples.setdefault(differences_in_words(changes, MOST_CHANGES), judged)
    return [plain(f"other conditions than in {cell.nights[-1]}, though not slower: {text}") for text, cell in examples.items()]


def markdown(gate: Gate, results: Path | None = None) -> str:
    """Return a heading, a table of all cells (those that aren't ok first), and the text; what others wrote is in code spans."""
    ordered = sorted(gate.cells, key=lambda judged: (not judged.counts, judged.verdict == "ok"))
    head = ("verdict", "cell", "ratio", "slower below", "baseline", "why")
    rows = [
        [cell.verdict, code(cell.name), *map(four_decimals, (cell.ratio, cell.low)), *map(code, (cell.rule, _why(cell)))]
        for cell in ordered
    ]
    table = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    details = "\n".join(line.replace("```", "'''") for line in text(gate, results).splitlines())
    folded = ["<details><summary>Details</summary>", "", "```text", details, "```", "", "</details>"]
    blocks = [
        f"### torchmatrix gate: {gate.verdict}",
        "",
        f"Judged: {code(headline(gate))}",
        "",
        *(line for sentence in _detectable_loss(gate.cells) for line in (code(sentence), "")),
        *table,
        "",
        *folded,
        "",
        DEFINITIONS["gate"],
    ]
    return "\n".join(blocks) + "\n"


def code(words: str) -> str:
    """Return a code span that is safe in a table's cell: no markup, mention or link takes effect in it. | becomes ¦."""
    line = plain(words).replace("|", "¦").strip()
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    padding = " " if "`" in line else ""
    return f"{fence}{padding}{line}{padding}{fence}" if line else ""


def junit(gate: Gate, results: Path | None = None) -> bytes:
    """Return JUnit XML, as Jenkins, GitLab and GitHub's actions read it: a testcase per cell; unjudged ones are skipped."""
    failures = sum(judged.counts for judged in gate.cells)
    skipped = sum(not judged.is_judged for judged in gate.cells)
    counts = {"tests": str(len(gate.cells)), "failures": str(failures), "errors": "0", "skipped": str(skipped)}
    root = ElementTree.Element("testsuites", {"name": "torchmatrix gate", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": plain(gate.run), "hostname": plain(gate.host), **counts})
    if not math.isnan(gate.started):
        suite.set("timestamp", time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(gate.started)))
    for judged in gate.cells:
        _testcase(suite, gate, judged, results)
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _testcase(suite: ElementTree.Element, gate: Gate, judged: JudgedCell, results: Path | None) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=plain(judged.stack or "torchmatrix"), name=plain(judged.name))
    shown = "" if judged.verdict != "ok" else "; ".join(_detectable_loss([judged]))
    message = plain("; ".join(filter(None, (judged.verdict, figures(judged), _why(judged), shown))))
    if judged.counts:
        failure = ElementTree.SubElement(case, "failure", type=judged.verdict, message=message)
        failure.text = "\n".join([message, *commands(gate, judged, results), *_environment_changes([judged])])
    elif not judged.is_judged:
        ElementTree.SubElement(case, "skipped", message=message)
    else:
        ElementTree.SubElement(case, "system-out").text = message


# The hook: a user's command that receives the gate's verdict, to post to a chat, send a mail or open an issue.

TIMEOUT_SECONDS = 60.0
_HOOK_VARIABLES = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_\w+|TZ|TMPDIR|(?i:(https?|ftp|all|no)_proxy)|SSL_CERT_(FILE|DIR)"
    r"|REQUESTS_CA_BUNDLE|TORCHMATRIX_HOOK_\w+",
    flags=re.ASCII,
)
"""The environment variables that a hook gets (docs/nightly.md); others, such as passwords of package indexes, are withheld."""


def call_hook(command: str, verdict: Mapping[str, Any], timeout_seconds: float = TIMEOUT_SECONDS) -> str | None:
    """Run `command` in a shell with `verdict` (of `record`) as JSON on its stdin; return what went wrong, or None.

    TORCHMATRIX_VERDICT, TORCHMATRIX_RUN and few other variables are in its environment. Its output goes to stderr. A command
    that takes longer than `timeout_seconds`, or whose caller is interrupted, is killed with all that it started.
    """
    environment = {name: value for name, value in os.environ.items() if _HOOK_VARIABLES.fullmatch(name)}
    environment |= {"TORCHMATRIX_VERDICT": str(verdict["verdict"]), "TORCHMATRIX_RUN": str(verdict["run"])}
    process = subprocess.Popen(
        command, shell=True, stdin=subprocess.PIPE, stdout=2, env=environment, start_new_session=True, bufsize=0,
        preexec_fn=partial(end_with_parent, os.getpid()),
    )  # fmt: skip
    try:
        process.communicate(json.dumps(cleaned_value(verdict)).encode() + b"\n", timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        return f"the hook took longer than {timeout_seconds:g} s and was ended"
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with process:  # closes the pipe and waits
            pass
    return None if process.returncode == 0 else f"the hook ended with exit code {process.returncode}"
