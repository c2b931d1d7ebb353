"""What `compare` and `audit` say of files that other tools wrote: an entry of torchmatrix.files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchmatrix.core.errors import BadInput, ExitCode
from torchmatrix.core.formatting import as_text
from torchmatrix.core.plugins import Answer
from torchmatrix_plugins.foreign import reading
from torchmatrix_plugins.foreign.results import ForeignFile


def answer(verb: str, words: Sequence[str], options: Mapping[str, Any]) -> Answer | None:
    """Answer a verb on files of other tools; None if the words name none. Raises BadInput, also where one word does and another
    doesn't."""
    sides = [reading.read_side(word) for word in words]
    if not any(sides):
        if verb == "compare":
            _refuse_unknown(words)
        return None  # audit says what it reads of its own
    if verb == "audit" and all(file.tool == "timm" and file.path.suffix == ".csv" for side in sides for file in side):
        return None  # a published table, which audit reads with more than its file says
    if verb == "audit":
        return _audit([file for side in sides for file in side], options)
    if of_runs := options.get("of_runs"):
        raise BadInput(f"{of_runs[0]} is for runs, not for files of other tools", hint="leave it out")
    if missing := next((word for word, side in zip(words, sides, strict=True) if not side), None):
        raise BadInput(f"{missing} is no file of another tool that is read, and the other side is", hint=_hint())
    return _compare(sides[0], sides[1], options)


def _refuse_unknown(words: Sequence[str]) -> None:
    for word in words:
        if Path(word).is_file() and Path(word).suffix == ".json":
            raise BadInput(f"{as_text(word)} is a file of no tool that is read", hint=_hint())


def _hint() -> str:
    return f"files of {reading.tools()} are read; see docs/other-tools.md"


def _compare(a: Sequence[ForeignFile], b: Sequence[ForeignFile], options: Mapping[str, Any]) -> Answer:
    from torchmatrix_plugins.foreign import words
    from torchmatrix_plugins.foreign.comparing import compare

    comparison = compare(a, b)
    text = words.comparison_in_words(comparison, bool(options.get("reasons")))
    code = ExitCode.OK if comparison.ratios else ExitCode.BAD_INPUT
    return Answer(text=text, record=comparison.as_record(), notes=(*reading.NOTES.values(), *comparison.notes), exit_code=code)


def _audit(files: Sequence[ForeignFile], options: Mapping[str, Any]) -> Answer:
    from torchmatrix_plugins.foreign import auditing, words

    claim = auditing.claim_of(options.get("gpu"), options.get("parameters"), options.get("bits"))
    audit = auditing.audit(files, claim)
    notes = [
        *reading.NOTES.values(),
        *dict.fromkeys(filter(None, (file.note for file in files))),
        *words.unchecked_in_words(audit),
    ]
    notes.append(words.result_in_words(audit, sum(len(file.cases) for file in files)))
    clean = audit.made and not audit.findings
    return Answer(
        text=words.audit_in_words(audit), record=audit.as_record(), notes=tuple(notes),
        exit_code=ExitCode.OK if clean else ExitCode.FINDINGS,
    )  # fmt: skip
