"""The gate's verdict for those who read it: text for the terminal and the mail, Markdown for an issue, JUnit XML for CI.

Names and messages come from files that others wrote: control characters are replaced, and each format gets what is inert in it.
"""

import json
import math
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.intervals import median_of
from torchmatrix.core.formatting import clipped, four_decimals, in_one_line
from torchmatrix.core.process import end_with_parent
from torchmatrix.facts.environments import differences_in_words, is_of_the_machine
from torchmatrix.nightly.gate.judged import Gate, Judged

LONGEST = 300
"""Characters of one message; more is cut, with an ellipsis."""
MOST_CHANGES = 8
"""So many changes of an environment are shown; the record has all."""
_MOVED = ("regression", "suspected", "faster", "failed")


def record(gate: Gate, results: Path | None = None) -> dict[str, Any]:
    """For --json and the hook: all that is known, and the text as `text`, which is what chat services show."""
    return {**gate.as_record(), "text": text(gate, results)}


def text(gate: Gate, results: Path | None = None) -> str:
    """The verdict in one line; then every cell that isn't ok with its figures and what to do, then what changed.

    `results`: the folder to name in commands, where it is not the usual one.
    """
    shown = [one for one in gate.cells if one.verdict != "ok"]
    lines = [headline(gate), _tally(gate), *_could_see(gate.cells)]
    for one in (one for one in shown if one.is_judged):
        lines += [f"{one.verdict:<11} {plain(one.name)}  {figures(one)}".rstrip(), *(f"  {line}" for line in _told(one))]
        lines += [f"  {line}" for line in commands(gate, one, results)]
    lines += _unjudged(one for one in shown if not one.is_judged)
    lines += [*_changes(shown), *_other_conditions(gate.cells)]
    if gate.verdict == "NO-BASELINE" and all(one.verdict != "n/a" for one in gate.cells):
        lines.append("the baseline must be an earlier run of the same cells on this host; to make one: torchmatrix run --new")
    return "\n".join(lines)


def headline(gate: Gate) -> str:
    """Such as: REGRESSION 2 of 40 cells: RUN on HOST against 7 nights."""
    cells, counted = (len({one.cell for one in some}) for some in (gate.cells, [one for one in gate.cells if one.counts]))
    amount = f"{counted} of {cells} cells" if counted else f"{cells} cells"
    name = "the named run " if gate.options.named else ""
    nights = f"{len(gate.baseline)} night{'s' if len(gate.baseline) != 1 else ''} before"
    against = name + gate.baseline[0] if gate.options.named and gate.baseline else nights
    ended = "" if gate.complete else "; the run is not finished"
    return plain(f"{gate.verdict} {amount}: {gate.run} on {gate.host} against {against}{ended}")


def figures(one: Judged) -> str:
    """The ratio, where it becomes slower, and by what; empty where nothing was compared."""
    if math.isnan(one.ratio):
        return ""
    limit = "no limit" if math.isnan(one.low) else f"slower below {one.low:.4f}"
    before = ", nights before: " + ", ".join(f"{ratio:.4f}" for ratio in one.before) if one.before else ""
    strays = f", {len(one.strays)} left out as strays" if one.strays else ""
    return plain(f"{one.ratio:.4f} of the baseline ({limit}: {one.rule}{strays}){before}")


def commands(gate: Gate, one: Judged, results: Path | None = None) -> list[str]:
    """What to paste to look into a cell that isn't ok."""
    where = [] if results is None else ["--results", str(results)]
    lines = [f"look: {shlex.join(['torchmatrix', 'plan', one.cell])}"] if one.verdict in ("missing", "skipped-now") else []
    if one.verdict == "failed":
        lines.append(f"facts: {one.facts}")
    if one.verdict in ("failed", "regression", "suspected"):
        lines.append(f"repeat: {shlex.join(['torchmatrix', 'reproduce', one.cell, *where])}")
    if one.nights:
        sides = [f"{run}:{one.stack}" for run in (gate.run, one.nights[-1])]
        metric = [] if one.metric == "throughput" else ["--metric", one.metric]
        lines.append(f"compare: {shlex.join(['torchmatrix', 'compare', *sides, *metric, *where])}")
    return [in_one_line(line) for line in lines]


def plain(words: str, longest: int = LONGEST) -> str:
    """One line without control characters (also those that reverse text), cut after `longest`."""
    return clipped(in_one_line(words), longest)


def _tally(gate: Gate) -> str:
    counts: dict[str, int] = {}
    for one in gate.cells:
        counts[one.verdict] = counts.get(one.verdict, 0) + 1
    tally = ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no cells"
    left = len(gate.cells) - gate.judged
    return f"{tally}; judged: {gate.judged} of {len(gate.cells)} figures" if left else tally


def _could_see(cells: Iterable[Judged]) -> list[str]:
    """The smallest loss that tonight would have shown; nothing where no cell was held against nights."""
    known = sorted((one for one in cells if not math.isnan(one.detectable)), key=lambda one: one.detectable)
    if not known:
        return []
    loss, worst = 100 * median_of([one.detectable for one in known]), known[-1]
    of = f" (median of {len(known)} figures; worst: {100 * worst.detectable:.1f} % {worst.name})" if len(known) > 1 else ""
    return [plain(f"tonight would have shown a loss of {loss:.1f} % in 4 of 5 cases{of}")]


def _told(one: Judged) -> list[str]:
    lines = [one.why, f"{one.cause}: {one.cause_why}" if one.cause else ""]
    return [plain(line) for line in lines if line]


def _unjudged(cells: Iterable[Judged]) -> list[str]:
    """One line for all cells of one verdict and one reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in cells:
        groups.setdefault((one.verdict, one.why), []).append(one.name)
    return [
        f"{verdict:<11} {plain(ids[0])}{f' and {len(ids) - 1} more' if len(ids) > 1 else ''}: {plain(why)}"
        for (verdict, why), ids in groups.items()
    ]


def _changes(cells: Iterable[Judged]) -> list[str]:
    """What changed in the environments of the stacks whose cells moved, failed or have another machine now, each stack once."""
    moved = [one for one in cells if one.verdict in _MOVED or (one.verdict == "new" and one.changes)]
    lines = []
    for stack, found in {one.stack: one for one in reversed(moved)}.items():
        since = f"since {found.nights[-1]}" if found.nights else "since it was last measured"
        if not found.changes:
            amount = f" ({found.compared.in_words})" if found.compared else ""
            lines.append(plain(f"{stack}: no recorded change of its environment {since}{amount}"))
            continue
        lines.append(plain(f"{stack}: changed {since}:"))
        pairs = list(found.changes.items())
        lines += [f"  {plain(name)}: {plain(was, 60)} -> {plain(now, 60)}" for name, (was, now) in pairs[:MOST_CHANGES]]
        if len(pairs) > MOST_CHANGES:
            lines.append(f"  and {len(pairs) - MOST_CHANGES} more (--json has all)")
    return lines


def _other_conditions(cells: Iterable[Judged]) -> list[str]:
    """What changed of the machine for cells that did not move: their verdicts are of unlike nights, too."""
    found: dict[str, Judged] = {}
    for one in cells:
        changes = {name: pair for name, pair in one.changes.items() if is_of_the_machine(name)}
        if changes and one.nights and one.verdict not in _MOVED:
            found.setdefault(differences_in_words(changes, MOST_CHANGES), one)
    return [plain(f"other conditions than in {one.nights[-1]}, though not slower: {words}") for words, one in found.items()]


def markdown(gate: Gate, results: Path | None = None) -> str:
    """A heading, a table of all cells (those that aren't ok first), and the text; what others wrote stands in code spans."""
    ordered = sorted(gate.cells, key=lambda one: (not one.counts, one.verdict == "ok"))
    head = ("verdict", "cell", "ratio", "slower below", "baseline", "why")
    rows = [
        [one.verdict, code(one.name), *map(four_decimals, (one.ratio, one.low)), code(one.rule), code(_why(one))]
        for one in ordered
    ]
    table = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]
    details = "\n".join(line.replace("```", "'''") for line in text(gate, results).splitlines())
    folded = ["<details><summary>Details</summary>", "", "```text", details, "```", "", "</details>"]
    blocks = [
        f"### torchmatrix gate: {gate.verdict}",
        "",
        f"Judged: {code(headline(gate))}",
        "",
        *(line for said in _could_see(gate.cells) for line in (code(said), "")),
        *table,
        "",
        *folded,
        "",
        DEFINITIONS["gate"],
    ]
    return "\n".join(blocks) + "\n"


def code(words: str) -> str:
    """A code span that holds in a table's cell: what stands in it is neither markup nor a mention nor a link. | becomes ¦."""
    line = plain(words).replace("|", "¦").strip()
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    padding = " " if "`" in line else ""
    return f"{fence}{padding}{line}{padding}{fence}" if line else ""


def _why(one: Judged) -> str:
    return "; ".join(_told(one))


def junit(gate: Gate, results: Path | None = None) -> bytes:
    """JUnit XML, as Jenkins, GitLab and GitHub's actions read it: a testcase per cell; what could not be judged is skipped."""
    failures = sum(one.counts for one in gate.cells)
    skipped = sum(not one.is_judged for one in gate.cells)
    counts = {"tests": str(len(gate.cells)), "failures": str(failures), "errors": "0", "skipped": str(skipped)}
    root = ElementTree.Element("testsuites", {"name": "torchmatrix gate", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": plain(gate.run), "hostname": plain(gate.host), **counts})
    if not math.isnan(gate.started):
        suite.set("timestamp", time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(gate.started)))
    for one in gate.cells:
        _testcase(suite, gate, one, results)
    ElementTree.indent(root)
    found: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return found


def _testcase(suite: ElementTree.Element, gate: Gate, one: Judged, results: Path | None) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=plain(one.stack or "torchmatrix"), name=plain(one.name))
    shown = "" if one.verdict != "ok" else "; ".join(_could_see([one]))
    message = plain("; ".join(filter(None, (one.verdict, figures(one), _why(one), shown))))
    if one.counts:
        failure = ElementTree.SubElement(case, "failure", type=one.verdict, message=message)
        failure.text = "\n".join([message, *commands(gate, one, results), *_changes([one])])
    elif not one.is_judged:
        ElementTree.SubElement(case, "skipped", message=message)
    else:
        ElementTree.SubElement(case, "system-out").text = message


# A user's command that receives the gate's verdict, to post to a chat, send a mail or open an issue.

TIMEOUT_SECONDS = 60.0
_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LC_\w+|TZ|TMPDIR|(?i:(https?|ftp|all|no)_proxy)|SSL_CERT_(FILE|DIR)"
    r"|REQUESTS_CA_BUNDLE|TORCHMATRIX_HOOK_\w+",
    flags=re.ASCII,
)
"""The variables of ours that a hook gets (docs/nightly.md): all else, such as passwords of package indexes, is kept from it."""


def call_hook(command: str, verdict: Mapping[str, Any], timeout_seconds: float = TIMEOUT_SECONDS) -> str | None:
    """Run `command` in a shell with `verdict` (of verdicts.record) as JSON on its stdin; what went wrong, or None.

    TORCHMATRIX_VERDICT, TORCHMATRIX_RUN and few other variables are in its environment. What it prints goes to stderr. One
    that takes longer, or whose caller is interrupted, is killed with all that it started.
    """
    environment = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    environment |= {"TORCHMATRIX_VERDICT": str(verdict["verdict"]), "TORCHMATRIX_RUN": str(verdict["run"])}
    process = subprocess.Popen(
        command, shell=True, stdin=subprocess.PIPE, stdout=2, env=environment, start_new_session=True, bufsize=0,
        preexec_fn=partial(end_with_parent, os.getpid()),
    )  # fmt: skip
    try:
        process.communicate(json.dumps(verdict).encode() + b"\n", timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        return f"the hook took longer than {timeout_seconds:g} s and was ended"
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with process:  # closes the pipe and waits
            pass
    return None if process.returncode == 0 else f"the hook ended with exit code {process.returncode}"
