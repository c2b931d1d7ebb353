"""Whole results folders with damaged, changed and foreign files: what reads them goes on, and never counts what is wrong."""

import gc
import io
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from faults.borders import _declared
from faults.borders.box_lines import changed
from support.read_back import spent, traces_of
from support.records import launch_lines, write_run
from torchmatrix.analysis import facts_cache, history, run_summary, time_split, watched
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.cli import invoke
from torchmatrix.core.errors import ExitCode
from torchmatrix.facts import lines
from torchmatrix.facts.environments import environment_of
from torchmatrix.facts.launch import Launch, Unreadable, throughput
from torchmatrix.facts.reading import launch_of
from torchmatrix.facts.reveals import HOST_LINES
from torchmatrix.facts.run_record import record_of
from torchmatrix.facts.store import Results, verified
from torchmatrix.nightly import gate
from torchmatrix.reporting import report
from torchmatrix_plugins.gather import gather

FOLDERS = 0.001
"""The share of cases that are a whole folder, each as long as some thousand of the others, since a report is made."""
VERBS = 0.0007
"""The share of cases that are a folder whose lines of the host are wrong, gathered and given to all verbs that read."""
LAUNCHES = 12
"""The launches in such a folder, each with another wrong field."""
TABLES = 0.02
"""The share of the launches that is made into tables, which takes a hundred times as long as reading."""


def cases(random: Random) -> Iterator[Callable[[], None]]:
    while True:
        if random.random() < FOLDERS:
            yield partial(_try_folder, random.random())
        elif random.random() < VERBS:
            yield partial(_try_verbs, random.random())
        elif random.random() < 0.2:
            yield partial(_try_bytes, random.random())
        elif random.random() < 0.5:
            yield partial(_try_host_line, random.random())
        else:
            yield partial(_try_launch, random.random())


def _good() -> list[dict[str, Any]]:
    readings = [
        (float(t), {"device": "GPU-0", "temperature_celsius": 60, "power_watts": 500.0, "reasons": []}) for t in (95, 110)
    ]
    start = {"waited_seconds": 0.0, "temperature_celsius": 40, "too_warm": False}
    return launch_lines(devices=(0, 1), readings=readings, flops=1e9, start=start)


def _try_launch(seed: float) -> None:
    """Try a launch file without checksums in which up to three lines are changed."""
    random, whole = Random(seed), _good()
    for _ in range(random.randrange(1, 4)):
        number = random.randrange(len(whole))
        whole[number] = changed(random, whole[number])
    events = lines.lines_of(b"".join(json.dumps(line).encode() + b"\n" for line in whole if isinstance(line, dict))).events
    _read(launch_of(Path("h/r/s/w/d/round1-try1.jsonl"), events), tables_too=random.random() < TABLES)


def _try_host_line(seed: float) -> None:
    """Try a line of the host with every field, one of which is wrong: it is refused with a reason, or all readers take it."""
    random = Random(seed)
    record = [_declared.whole(kind, given) for kind, given in _RECORD.items()]
    launch = _declared.launch(nodes=random.choice((1, 1, 2)))
    whole = random.choice((record, launch))
    number = random.choice([number for number, line in enumerate(whole) if line["event"] in HOST_LINES])
    whole[number], what = _declared.changed(random, whole[number])
    try:
        written = lines.lines_of(b"".join(json.dumps(line).encode() + b"\n" for line in whole)).events
        if whole is record:
            read = record_of(written)
            assert len(read.problems) <= 1 and all(problem.isprintable() for problem in read.problems), read.problems
        else:
            _read(launch_of(Path("h/r/s/w/d/round1-try1.jsonl"), written), tables_too=random.random() < TABLES)
    except Exception as error:
        error.add_note(what)
        raise


_CELL = {
    "cell": "stack-a/resnet50-train-fp32-b4/gpu0",
    "stack": "stack-a",
    "workload": "resnet50-train-fp32-b4",
    "devices": "gpu0",
}
_RECORD: dict[str, dict[str, Any]] = {
    "run": {"unix_seconds": 1767225600.0, "matrix": "", "method": {"name": "steady", "statistic": "median"}},
    "planned": _CELL,
    "skip": {**_CELL, "cell": "stack-c/x/gpu0", "stack": "stack-c", "reason": "x"},
    "batch": {},
    "parallel": {},
    "run-exit": {"complete": True},
}


def _read(launch: Launch | Unreadable, tables_too: bool) -> None:
    if isinstance(launch, Unreadable):
        assert launch.reason
        return
    figure = throughput(launch)
    assert math.isnan(figure) or (launch.outcome == "ok" and 0 < figure < math.inf), launch
    rows = run_summary.launch_rows([launch])
    environment_of(launch)
    watched.summarize(launch)
    if not tables_too:
        return
    run_summary.cells_table(CellIndex(rows).every)
    time_split.phases_table(spent([launch]))
    time_split.steps_table(spent([launch]))
    traces_of([launch])


def _try_bytes(seed: float) -> None:
    """Try a launch file with checksums whose bytes were changed, exchanged or cut off: found, or harmless."""
    random, data = Random(seed), lines.packed(_good())
    place = random.randrange(len(data))
    how = random.randrange(3)
    if how == 0:
        stored = lines.lines_of(data[:place])
        assert stored.damage is None, place
        return
    other = bytearray(data)
    if how == 1:
        other[place] ^= 1 << random.randrange(8)
    else:
        del other[place : place + random.randrange(1, 200)]
    if data.startswith(other):  # also where the end that is left repeats what was cut out: it is the file cut off
        assert lines.lines_of(bytes(other)).damage is None, (how, place)
        return
    assert lines.lines_of(bytes(other)).damage, (how, place)


def _try_folder(seed: float) -> None:
    """Try a results folder of a good and a bad run: the good one's figures stay, whatever lies in the other."""
    random = Random(seed)
    with tempfile.TemporaryDirectory() as root:
        results = Path(root) / "results"
        good = write_run(results, [{"rate": 100.0}, {"rate": 100.0}], run="20260101T000000Z")
        bad = write_run(results, [{"rate": 50.0}, {"rate": 50.0, "stack": "stack-b"}], run="20260102T000000Z")
        _spoil(random, bad.path)
        store = Results(results)
        assert verified(store).verified + verified(store).unverified >= 2
        for _ in range(2):  # read anew, then from what was kept
            read = {summary.id: summary for summary in facts_cache.read(store, store.runs())}
            assert [row.throughput for row in read[good.id].launches] == [100.0, 100.0]
        for run in store.runs():
            report.render(report.view_of(run))
        history.trends(history.series(facts_cache.each(store, store.runs())))
        gate.judge(gate.read_runs(store))


_READING = (
    "report --output {out}/report.html",
    "report --machines --output {out}/machines.html",
    "report last last~1 --publish {out}/site",
    "report last last~1 --publish {out}/redacted --redact",
    "export {out}/export --no-charts",
    "export {out}/together --machines --no-charts",
    "advise resnet50",
    "history --json",
    "gate --json",
    "audit last --json",
    "compare last last~1",
)
_ENDS = (
    ExitCode.OK,
    ExitCode.CELL_NOT_OK,
    ExitCode.BAD_INPUT,
    ExitCode.NOTHING_SELECTED,
    ExitCode.REGRESSION,
    ExitCode.INCOMPLETE,
)


def _try_verbs(seed: float) -> None:
    """Try a folder of good nights of two machines and a run with a wrong field in each launch and perhaps in its record.

    It is gathered; then all verbs read the runs that were taken, or the folder as it lies there.
    """
    random, texts = Random(seed), list[str]()
    with tempfile.TemporaryDirectory() as root:
        source, target, out = (Path(root) / name for name in ("source", "target", "out"))
        good = [
            write_run(source, [{"rate": 100.0}, {"rate": 100.0}], run=f"2026010{day}T000000Z", folder=name, machine=name * 16)
            for name, day in (("a", 1), ("b", 1), ("a", 2))
        ]
        _write_wrong_run(random, source, texts)
        try:
            result = gather(Results(target), str(source))
            assert all(result.refused.values()) and not result.lost, result
            results = random.choice((source, target))
            for words in _READING:
                assert _invoke(words.format(out=out), results) in _ENDS, words
            store = Results(results)
            read = {(summary.host, summary.id): summary for summary in facts_cache.read(store, store.runs())}
            for run in good:
                rows = read[run.path.parent.name, run.id].launches
                assert [row.throughput for row in rows] == [100.0, 100.0], rows
        except Exception as error:
            error.add_note("\n".join(texts))
            raise


def _write_wrong_run(random: Random, results: Path, texts: list[str]) -> None:
    """Write a run whose lines have every field; `texts` gets what is wrong in it."""
    folder = results / random.choice(("a", "c")) / "20260103T000000Z"
    machine = folder.parent.name * 16
    record = [_declared.whole(kind, {**given, "machine": machine}) for kind, given in _RECORD.items()]
    if random.random() < 0.5:
        number = random.randrange(len(record))
        record[number], what = _declared.changed(random, record[number])
        texts.append(what)
    files = {folder / "run.jsonl": record}
    for number in range(1, LAUNCHES + 1):
        stack = f"stack-{random.choice('ab')}"
        launch = _declared.launch(
            stack=stack, run=folder.name, rate=100.0, machine=machine, round=number, nodes=random.choice((1, 2))
        )
        path = folder / launch[0]["cell"] / f"round{number}-try1.jsonl"
        place = random.choice([place for place, line in enumerate(launch) if line["event"] in HOST_LINES])
        launch[place], what = _declared.changed(random, launch[place])
        texts.append(what)
        files[path] = launch
    for path, written in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in written), encoding="utf-8")


def _invoke(words: str, results: Path) -> int:
    """Carry out a command in this process."""
    printed = io.StringIO()
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            return invoke([*words.split(), "--results", str(results)])
    finally:
        gc.enable()  # which a command turns off: its process would end now


def _spoil(random: Random, folder: Path) -> None:
    for path in [*folder.rglob("*.jsonl")]:
        for _ in range(random.randrange(3)):
            _spoil_file(random, path)


def _spoil_file(random: Random, path: Path) -> None:
    """Change a file, or put something beside it that has the name of a launch file."""
    if not path.is_file():
        return
    if random.random() < 0.5:
        _change_file(random, path)
        return
    other = path.with_name(f"round{random.randrange(3, 99)}-try1.jsonl")
    if not other.exists() and not other.is_symlink():
        make = random.choice(
            (os.mkfifo, os.mkdir, partial(shutil.copy, path), partial(os.symlink, "/dev/zero"), _link_to_itself)
        )
        make(other)


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def _change_file(random: Random, path: Path) -> None:
    how = random.choice(("change", "change", "change", "cut", "null", "bytes"))
    events = lines.lines_of(path.read_bytes()).events
    if how == "change" and events:
        number = random.randrange(len(events))
        events[number] = changed(random, events[number])
        path.write_text("".join(json.dumps(line) + "\n" for line in events), encoding="utf-8")
    elif how == "cut":
        os.truncate(path, random.randrange(path.stat().st_size + 1))
    else:
        path.write_bytes(b"null\n" if how == "null" else random.randbytes(1000))
