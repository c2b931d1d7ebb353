"""`torchmatrix doctor --deep`: runs the self-check, says what it found, and writes what can be attached to an issue."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmatrix import __version__
from torchmatrix.cli.console import preamble, say
from torchmatrix.ground.errors import BadInput, ExitCode
from torchmatrix.ground.files import write_to
from torchmatrix.ground.formatting import printable

if TYPE_CHECKING:
    from torchmatrix.facts.store import Results
    from torchmatrix.running.deep import Seen
    from torchmatrix.running.doctor import Check

ATTACHMENT = Path("reports/doctor")


def deep(matrix: Path, results: Path, engine: str, stack: str | None, seconds: float, output: Path, as_json: bool) -> ExitCode:
    """Examine all devices in the box of one stack; returns the exit code that the findings give."""
    from torchmatrix.running import deep as examination
    from torchmatrix.running import deep_findings, session
    from torchmatrix.running.doctor import as_records, as_text

    s = session.prepare(matrix, results, engine, [], [])
    chosen, recipe = examination.choose_stack(s, stack)
    preamble(s)
    say(f"stack: {chosen.name}; a load of {seconds:g} s on every device")
    steps = examination.examine(s, chosen, recipe, seconds)
    while True:
        try:
            say(printable(next(steps)))
        except StopIteration as over:
            seen: Seen = over.value
            break
    checks = deep_findings.findings(seen)
    print(json.dumps(as_records(checks)) if as_json else printable_lines(as_text(checks)))
    written = _attach(s.results, seen, checks, output)
    say(f"written for an issue, with names and identities replaced: {', '.join(map(str, written))}")
    return max(check.exit_code for check in checks)


def printable_lines(text: str) -> str:
    """A text of several lines without what could steer a terminal."""
    return "\n".join(map(printable, text.splitlines()))


def _attach(store: "Results", seen: "Seen", checks: "list[Check]", output: Path) -> list[Path]:
    """The findings as text, and with everything that was seen as JSON. Raises BadInput."""
    from torchmatrix.reporting import redaction
    from torchmatrix.reporting.redaction import names
    from torchmatrix.running import deep
    from torchmatrix.running.doctor import as_records, as_text

    record: dict[str, Any] = {"torchmatrix": __version__, **deep.as_record(seen), "findings": as_records(checks)}
    pseudonyms = names.load(store.root)
    clean = redaction.for_results(store, True, pseudonyms)
    clean.know("host", seen.host.name)
    clean.learn(record)
    text = f"torchmatrix {__version__}, doctor --deep\n{as_text(checks)}\n"
    contents = {".txt": clean.text(text), ".json": json.dumps(clean.value(record), indent=1) + "\n"}
    paths = [output.with_name(output.name + ending) for ending in contents]
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        for path, content in zip(paths, contents.values(), strict=True):
            write_to(path, content.encode())
    except OSError as error:
        raise BadInput(f"can't write {output}: {error.strerror}", hint="write elsewhere: --output PATH") from None
    pseudonyms.save(store.root)
    return paths
