"""Faults of what surrounds a run: other commands, and files that appear, change or vanish."""

import json
import os
import shutil

from faults.checks import Finished, completed, completes, ended_as
from faults.workplace import LONGER, Workplace
from support import FAKE_PYTHON, full_device, until


def two_runs(place: Workplace) -> int:
    """Start a second run of the same results: it is refused, and names the first; that one isn't harmed."""
    first = place.start(variables=LONGER)
    until(lambda: place.is_measuring, first)
    second = place.call()
    ended_as(second, 4)
    assert f"process {first.pid}" in second.stderr, second.stderr
    ended_as(place.end(first), 0)
    completed(place)
    return 1


def two_starts(place: Workplace) -> int:
    """Start two runs in the same moment: one of them measures."""
    both = [place.start(), place.start()]
    codes = sorted(place.end(process).code for process in both)
    assert codes in ([0, 0], [0, 4]), codes
    Finished(place).check()
    completes(place)
    return 1


def reports_meanwhile(place: Workplace) -> int:
    """Read the results while a run writes them."""
    process, tried = place.start(variables=LONGER), 0
    until(lambda: place.is_measuring, process)
    while process.poll() is None:
        ended_as(place.call("report", "--output", f"{place.folder}/other.html"), 0)
        tried += 1
    ended_as(place.end(process), 0)
    completed(place)
    return tried


def results_vanish(place: Workplace) -> int:
    """Remove the results during a run: the run says so, and the next one begins anew."""
    process = place.start(variables=LONGER)
    until(lambda: place.is_measuring, process)
    shutil.rmtree(place.results.root, ignore_errors=True)
    ended = place.end(process)
    ended_as(ended, 4)
    assert "removed" in ended.stderr, f"it doesn't say what happened:\n{ended.stderr}"
    place.ended.clear()  # what was reported is gone by somebody's hand
    shutil.rmtree(place.results.root, ignore_errors=True)
    completes(place)
    return 1


def matrix_changes(place: Workplace) -> int:
    """Change the matrix, or make it invalid, during a run: it measures what it read."""
    before = place.matrix.read_text()
    process = place.start(variables=LONGER)
    until(lambda: place.is_measuring, process)
    place.matrix.write_text(place.random.choice(["", "nonsense [", before.replace("batch = 4", "batch = 8")]))
    ended_as(place.end(process), 0)
    completed(place)
    place.matrix.write_text(before)
    completes(place)
    return 1


def matrix_changes_between(place: Workplace) -> int:
    """Change the matrix after a kill -9: another run begins; with the old matrix the first one is continued."""
    before = place.matrix.read_text()
    process = place.start(variables=LONGER)
    until(lambda: place.is_measuring, process)
    process.kill()
    place.end(process)
    place.matrix.write_text(before.replace("batch = 4", "batch = 8"))
    completes(place)
    place.matrix.write_text(before)
    place.end(place.start())
    assert [run.read_record().complete for run in place.results.runs()] == [True, True]
    return 1


def interpreter_vanishes(place: Workplace) -> int:
    """Remove the stack's interpreter during a run: launches fail, and none of them has a figure."""
    python = place.folder / "python"
    python.symlink_to(FAKE_PYTHON)
    place.matrix.write_text(place.matrix.read_text().replace(str(FAKE_PYTHON), str(python)))
    process = place.start(variables=LONGER)
    until(lambda: place.is_measuring, process)
    python.unlink()
    ended_as(place.end(process), 1)
    completed(place, "ok", "crashed")
    python.symlink_to(FAKE_PYTHON)
    completes(place)
    return 1


def links_planted(place: Workplace) -> int:
    """Put links, pipes and devices where files are written: what links lead to stays, and all stay what they are."""
    precious = place.folder / "precious"
    precious.write_text("mine")
    place.report.parent.mkdir()
    for folder, name in ((place.report.parent, place.report.name), (place.folder, "site"), (place.results.root, "run.jsonl")):
        folder.mkdir(exist_ok=True)
        for part in (f".{name}.part", f".{name}.0.part", f".{name}.1.part"):
            (folder / part).symlink_to(precious)
    ended_as(place.call(), 0)
    os.mkfifo(place.folder / "pipe")
    full = full_device(place.folder)
    for target in ("pipe", str(full)):
        ended_as(place.call("report", "--output", target), 4)
    assert precious.read_text() == "mine" and (place.folder / "pipe").is_fifo() and full.is_char_device()
    for link in (*place.report.parent.glob(".*.part"), *place.results.root.glob(".*.part")):
        link.unlink()
    completes(place)
    return 2


def two_publications(place: Workplace) -> int:
    """Publish twice into one site at once, once redacted: it is redacted wholly, or it doesn't say so."""
    for _ in range(2):
        ended_as(place.call("run", "--engine", "local", "--new", "--launches", "1"), 0)
    both = [place.start("report", "--publish", "site", *words) for words in ((), ("--redact",))]
    ended = [place.end(process) for process in both]
    ended_as(ended[0], 0, 2)
    ended_as(ended[1], 0)
    published = [json.loads(path.read_text()) for path in (place.folder / "site").glob("runs/*/run.json")]
    assert json.loads((place.folder / "site" / "site.json").read_text())["redacted"] and len(published) == 2
    assert all(run["redacted"] for run in published)
    completed(place)
    return 1


def rubbish(place: Workplace) -> int:
    """Put files that aren't the tool's among the results: they are left out, by name."""
    process, finished = place.start(variables=LONGER), Finished(place)
    until(lambda: place.is_measuring, process)
    cell = place.files()[0].parent
    (cell / "round1-try1 (copy).jsonl").write_bytes(place.random.randbytes(300))
    (cell / "round7-try1.jsonl").mkdir()
    (cell / "round7-try1.jsonl" / "file").touch()
    (cell / "round8-try1.jsonl").write_text("null\n")
    (place.results.root / "notes.txt").write_text("mine")
    (place.results.root / "a" / "b").mkdir(parents=True)
    (place.results.root / "a" / "b" / "run.jsonl").write_bytes(b'{"event": "run", "host": 7}\n' + place.random.randbytes(99))
    ended_as(place.end(process), 0)
    assert "can't be read" in place.ended[-1].stderr, place.ended[-1].stderr
    ended_as(place.call("report"), 0)
    for name in ("round1-try1 (copy).jsonl", "round8-try1.jsonl"):
        (cell / name).unlink()
    shutil.rmtree(cell / "round7-try1.jsonl")
    shutil.rmtree(place.results.root / "a")
    finished.check()
    completed(place)
    return 1
