"""A report of a run that was read before: the same to the last figure, without reading the launches again."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from browsing import launches, within

from records import write_run
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.reporting import exports, report
from torchmatrix.reporting.exports import FORMATS


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    odd = [{"stack": "z", "outcome": "crashed", "error": "why\u2028"}, {"stack": "y", "vendor": "cpu", "rate": 1e-300}]
    return write_run(tmp_path, [*launches()[-40:], *within(), *odd], skips=[("rocm/w/gpu0", "needs an AMD GPU")])


def told(run: RunFolder, results: Results | None) -> dict[str, str]:
    """The page, and all exported tables."""
    view = report.view_of(run, results=results)
    return {"page": report.render(view)} | {n: FORMATS["csv"](n, t).decode() for n, t in exports.of(view).values.items()}


def without_a_trace(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Name, size and time stay: only who reads the file notices."""
    before, content = path.stat(), path.read_bytes()
    changed = change(content)
    assert len(changed) == len(content) and changed != content
    path.write_bytes(changed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_kept_report_is_the_same_and_opens_no_launch(run: RunFolder, tmp_path: Path) -> None:
    results = Results(tmp_path)
    told(run, results)
    fresh = told(run, None)
    for path in run.path.rglob("round*.jsonl"):
        without_a_trace(path, lambda content: content.replace(b'"event": "launch"', b'"event": "LAUNCH"'))
    assert told(run, results) == fresh
    assert "no header" in told(run, None)["page"]


def test_it_is_read_anew_when_a_file_of_the_run_has_changed_or_what_was_kept_is_damaged(run: RunFolder, tmp_path: Path) -> None:
    results = Results(tmp_path)
    before = told(run, results)
    first = next(run.path.rglob("round1-try1.jsonl"))
    first.write_text(first.read_text().split("\n")[0] + "\n")  # cut off: lost
    after = told(run, results)
    assert after == told(run, None) and "lost" in after["launches"] and "lost" not in before["launches"]
    (kept,) = (tmp_path / ".cache").glob("*/*.report")
    for content in (b"", kept.read_bytes()[:-9], kept.read_bytes().replace(b"\n", b"\n{", 1)):
        kept.write_bytes(content)
        assert told(run, results) == after


def test_what_is_kept_goes_when_its_run_goes(run: RunFolder, tmp_path: Path) -> None:
    other = write_run(tmp_path, [{}], run="20260102T000000Z")
    results = Results(tmp_path)
    for one in (run, other):
        report.view_of(one, results=results)
    run.record.unlink()
    report.view_of(other, results=results)
    assert [path.name for path in (tmp_path / ".cache").glob("*/*")] == ["20260102T000000Z.report"]
