"""A report of a run that was read before: the same to the last figure, without reading the launches again."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.browsing import launches, within
from support.records import write_run
from torchmatrix.analysis import facts_cache, run_summary
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.reporting import exports, report
from torchmatrix.reporting.exports import FORMATS


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    odd = [{"stack": "z", "outcome": "crashed", "error": "why\u2028"}, {"stack": "y", "vendor": "cpu", "rate": 1e-300}]
    return write_run(tmp_path, [*launches()[-40:], *within(), *odd], skips=[("rocm/w/gpu0", "needs an AMD GPU")])


def page_and_tables(run: RunFolder, results: Results | None) -> dict[str, str]:
    """Return the page and all exported tables, as texts by name."""
    view = report.view_of(run, found=facts_cache.whole(results, run) if results else None)
    return {"page": report.render(view)} | {n: FORMATS["csv"](n, t).decode() for n, t in exports.of(view).values.items()}


def change_unnoticed(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change a file's content but not its name, size and time: only a reader of the file notices."""
    before, content = path.stat(), path.read_bytes()
    changed = change(content)
    assert len(changed) == len(content) and changed != content
    path.write_bytes(changed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_kept_report_is_the_same_and_opens_no_launch(run: RunFolder, tmp_path: Path) -> None:
    results = Results(tmp_path)
    page_and_tables(run, results)
    fresh = page_and_tables(run, None)
    for path in run.path.rglob("round*.jsonl"):
        change_unnoticed(path, lambda content: content.replace(b'"event": "launch"', b'"event": "LAUNCH"'))
    assert page_and_tables(run, results) == fresh
    assert "no header" in page_and_tables(run, None)["page"]


def test_a_run_is_read_anew_when_one_of_its_files_has_changed_or_the_kept_report_is_damaged(
    run: RunFolder, tmp_path: Path
) -> None:
    results = Results(tmp_path)
    before = page_and_tables(run, results)
    first = next(run.path.rglob("round1-try1.jsonl"))
    first.write_text(first.read_text().split("\n")[0] + "\n")  # cut off: lost
    after = page_and_tables(run, results)
    assert after == page_and_tables(run, None) and "lost" in after["launches"] and "lost" not in before["launches"]
    (kept,) = (tmp_path / ".cache").glob("*/*")
    for content in (b"", kept.read_bytes()[:-9], kept.read_bytes().replace(b"\n", b"\n{", 1)):
        kept.write_bytes(content)
        assert page_and_tables(run, results) == after


def test_a_kept_report_is_removed_with_its_run(run: RunFolder, tmp_path: Path) -> None:
    other = write_run(tmp_path, [{}], run="20260102T000000Z")
    results = Results(tmp_path)
    for folder in (run, other):
        facts_cache.whole(results, folder)
    run.record.unlink()
    facts_cache.whole(results, other)
    assert [path.name for path in (tmp_path / ".cache").glob("*/*")] == ["20260102T000000Z"]


MANY = """
import os, sys
from pathlib import Path
import torchmatrix.cli
from torchmatrix.analysis import facts_cache, prices
from torchmatrix.facts.store import Results

assert "numpy" not in sys.modules  # its threads would rule out other processes
if len(sys.argv) > 2:
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
results = Results(Path(sys.argv[1]))
print(facts_cache.whole(results, results.runs()[0]))
"""


def test_many_launches_are_read_the_same_by_several_processes_and_by_one(tmp_path: Path) -> None:
    some = [*launches()[-40:], *within(), {"stack": "z", "outcome": "crashed", "error": "why\u2028"}]
    run = write_run(tmp_path, [{**launch, "stack": f"{launch.get('stack', 'a')}-{n}"} for n in range(4) for launch in some])
    files = sorted(run.path.rglob("round*.jsonl"))
    assert len(files) >= run_summary.FEWEST_FILES
    files[5].write_text("garbage")
    files[6].write_text(files[6].read_text().split("\n")[0] + "\n")
    files[7].with_name("round7-try1.jsonl").write_bytes(files[7].read_bytes())
    outputs = []
    for words in ([], ["alone"]):
        command = [sys.executable, "-c", MANY, str(tmp_path), *words]
        outputs.append(subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS))
        shutil.rmtree(tmp_path / ".cache")
    assert outputs[0].stdout == outputs[1].stdout and not outputs[0].stderr
    for problem in ("no header", "it was copied", "lost"):
        assert problem in outputs[0].stdout


def pretend_two_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be on a machine with two CPUs, before any thread is there."""
    monkeypatch.setattr(run_summary, "_has_one_thread", lambda: True)
    monkeypatch.setattr(run_summary, "usable_cpus", lambda: 2)


def test_a_process_that_is_ended_or_cannot_be_started_leaves_its_launches_to_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path, [{"stack": f"s{n}"} for n in range(run_summary.FEWEST_FILES)])
    monkeypatch.setattr(run_summary, "usable_cpus", lambda: 1)
    whole, parent, part = run_summary.read_parts(run, run.read_record()), os.getpid(), run_summary.part_of

    def ended(*arguments: Any) -> run_summary.Part:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return part(*arguments)

    def refused() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    pretend_two_cpus(monkeypatch)
    for name, lacking in ((run_summary, ("part_of", ended)), (os, ("fork", refused))):
        with monkeypatch.context() as patch:
            patch.setattr(name, *lacking)
            again = run_summary.read_parts(run, run.read_record())
        rows = [sorted(str(brief.row) for part in parts for brief in part.briefs) for parts in (whole, again)]
        assert rows[0] == rows[1] and len(rows[0]) == run_summary.FEWEST_FILES and not active_children()


def test_an_interruption_waits_for_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, parent = write_run(tmp_path, [{"stack": f"s{n}"} for n in range(run_summary.FEWEST_FILES)]), os.getpid()

    def endless(*_: Any) -> run_summary.Part:
        os.kill(parent, signal.SIGINT)
        time.sleep(PATIENCE_SECONDS)
        raise AssertionError("nobody has ended this process")

    pretend_two_cpus(monkeypatch)
    monkeypatch.setattr(run_summary, "part_of", endless)
    with pytest.raises(KeyboardInterrupt):
        run_summary.read_parts(run, run.read_record())
    until = time.monotonic() + PATIENCE_SECONDS / 60  # a second interruption may come before the ended ones are gone
    while active_children() and time.monotonic() < until:
        time.sleep(0.01)
    assert not active_children()
