"""Nights: when one is due, the exit code after each ended step, locks, and the runs that stay on the disk."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS, until
from torchmatrix.core.errors import EngineUnusable, ExitCode
from torchmatrix.facts.store import Results, RunFolder, keep_model
from torchmatrix.nightly import journal, keeping
from torchmatrix.nightly.journal import Journal, decide
from torchmatrix_plugins.nights.night import NOT_STARTED, TIMED_OUT, Log, NightOptions, carry_out, run_night

HOUR = 3600.0


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a time zone with summer time, in which 02:30 is missing once a year and there twice once a year."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_the_last_time_of_a_clock() -> None:
    noon = time.mktime((2026, 1, 15, 12, 0, 0, 0, 0, -1))
    assert time.localtime(journal.last_time("02:30", noon))[:5] == (2026, 1, 15, 2, 30)
    assert time.localtime(journal.last_time("12:00", noon))[:5] == (2026, 1, 15, 12, 0)
    assert time.localtime(journal.last_time("12:01", noon))[:5] == (2026, 1, 14, 12, 1)


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("day", [(2026, 3, 29), (2026, 10, 25)])
def test_on_the_days_when_the_clock_is_changed_there_is_one_night(day: tuple[int, int, int]) -> None:
    begin = time.mktime((*day, 0, 0, 0, 0, 0, -1))
    moments = {journal.last_time("02:30", begin + hour * HOUR) for hour in range(4, 24)}
    assert len(moments) == 1 and begin < moments.pop() < begin + 4 * HOUR


def began(name: str, at: float) -> dict[str, object]:
    return {"event": "night", "night": name, "unix_seconds": at}


def ended(name: str, code: int, run: str | None = "h/r") -> dict[str, object]:
    return {"event": "night-exit", "night": name, "exit_code": code, "run": run, "unix_seconds": 0.0}


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("hours_ago", "code", "run", "at", "due", "continues"),
    [
        (1, 0, "h/r", None, True, False),  # by hand: always a night
        (1, None, None, None, True, True),  # killed an hour ago
        (1, 130, "h/r", None, True, True),  # ended by a reboot in order
        (13, None, None, None, True, False),  # too long ago to be the same night
        (9, None, None, "02:30", True, True),  # cut by a reboot
        (9, 0, "h/r", "02:30", False, False),  # 03:00: tonight's, and done
        (9, 5, "h/r", "02:30", False, False),  # a regression is a night, too
        (9, 4, None, "02:30", True, False),  # measured nothing: tried again
        (10, 0, "h/r", "02:30", True, False),  # 02:00: that was another one
        (33, 0, "h/r", "02:30", True, False),  # the machine was off tonight
    ],
)
def test_what_is_due_at_noon(
    hours_ago: float, code: int | None, run: str | None, at: str | None, due: bool, continues: bool
) -> None:
    noon = time.mktime((2026, 1, 15, 12, 0, 0, 0, 0, -1))
    events = [began(day(1), noon - hours_ago * HOUR), *([] if code is None else [ended(day(1), code, run)])]
    decision = decide(events, noon, at)
    assert (decision.is_due, decision.continues is not None) == (due, continues)


@pytest.mark.usefixtures("berlin")
def test_a_first_night_begins_at_its_time_and_none_before_it_is_missed() -> None:
    noon = time.mktime((2026, 1, 15, 12, 0, 0, 0, 0, -1))
    assert decide([], noon, None).is_due
    assert [decide([], noon + seconds, "12:00").is_due for seconds in (-1, 0, 1, 599, 601, HOUR)] == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]
    assert decide([began(day(9), noon - 30 * HOUR), ended(day(9), 0, "h/r")], noon, "02:30").is_due


@pytest.mark.usefixtures("berlin")
def test_a_night_dated_into_the_future_is_not_taken_as_measured() -> None:
    noon = time.mktime((2026, 1, 15, 12, 0, 0, 0, 0, -1))
    events = [began("n1", noon + 9000 * HOUR), ended("n1", 0, "h/r")]
    assert decide(events, noon, "02:30").is_due


@pytest.mark.parametrize(
    "line", ['{"event": "night", "night": "n2"}', '{"event": "night", "unix_seconds": "now"}', '{"event": 1}']
)
def test_a_line_of_the_journal_without_a_time_is_passed_over(tmp_path: Path, line: str) -> None:
    held = Journal(tmp_path)
    held.append("night", night="n1", matrix="m")
    held.file.write_text(held.file.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    assert [night.id for night in held.nights()] == ["n1"]


def test_a_continued_night_is_one_night_that_has_no_end_yet() -> None:
    (night,) = journal.nights([began("n", 1.0), ended("n", 130), began("n", 2.0)])
    assert night.began == 1.0 and night.was_cut and night.exit_code is None
    (night,) = journal.nights([began("n", 1.0), ended("n", 130), began("n", 2.0), ended("n", 5)])
    assert not night.was_cut and night.exit_code == 5


def test_a_line_of_the_journal_that_was_cut_costs_nothing_but_itself(tmp_path: Path) -> None:
    book = Journal(tmp_path)
    book.append("night", night="a")
    with book.file.open("a") as file:
        file.write('{"event": "night-ex')
    book.append("night", night="b")
    assert [night.id for night in book.nights()] == ["a", "b"]


# A whole night, with a stand-in for the tool: its steps end with the exit codes of TOLD.

STAND_IN = """
import json, os, sys, time
from pathlib import Path
words = sys.argv[1:]
name = words[1] if words[0] == "nightly" else words[0]
told = json.loads(os.environ["TOLD"]).get(name, 0)
results = Path(words[words.index("--results") + 1])
with (results / "asked").open("a") as file:
    file.write(json.dumps(words) + "\\n")
print("said by", name, flush=True)
if name == "run" and told not in (2, 3, 4):
    import shlex
    cut = [path.parent for path in results.glob("testhost/*/run.jsonl") if "run-exit" not in path.read_text()]
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + float(os.environ.get("JUMP", "0"))))
    free = [path for n in ("", "-2", "-3") if not (path := results / "testhost" / (stamp + n)).exists()]
    folder = cut[0] if cut and "--new" not in words else free[0]
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"event": "run", "command": shlex.join(["torchmatrix", *words])}]
    lines += [] if told in (4.5, 130) else [{"event": "run-exit", "complete": True}]
    (folder / "run.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))
sys.exit(int(told))
"""


def options_for(tmp_path: Path, **more: object) -> NightOptions:
    (tmp_path / "results").mkdir(exist_ok=True)
    places = {"matrix": tmp_path / "matrix.toml", "results": tmp_path / "results", "reports": tmp_path / "reports"}
    return NightOptions(**{**places, "engine": "local", "free_gb": 0.0, **more})


def night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_codes: dict[str, float], **more: object
) -> tuple[ExitCode, list[str], str]:
    """Return the exit code, the steps that were called, and the summary."""
    options = options_for(tmp_path, **more)
    monkeypatch.setenv("TOLD", json.dumps(exit_codes))
    (tmp_path / "stand-in.py").write_text(STAND_IN)
    (options.results / "asked").write_text("")
    end = run_night(options, lambda line: None, lambda data: None, tool=[sys.executable, str(tmp_path / "stand-in.py")])
    lines = map(json.loads, (options.results / "asked").read_text().splitlines())
    return end.exit_code, [words[1] if words[0] == "nightly" else words[0] for words in lines], end.summary


@pytest.mark.parametrize(
    ("exit_codes", "code", "words"),
    [
        ({}, 0, "gate: pass"),
        ({"gate": 3}, 0, "gate: no baseline yet"),
        ({"gate": 5}, 5, "gate: regression"),
        ({"run": 1}, 1, "gate: pass"),
        ({"run": 1, "gate": 5}, 5, "gate: regression"),
        ({"gate": 5, "report": 4, "clean": 4}, 5, "report failed with exit 4; clean failed with exit 4"),
        ({"gate": 2}, 1, "gate: failed with exit 2"),
        ({"gate": 1}, 1, "gate: failed with exit 1"),
        ({"report": 4}, 1, "report failed with exit 4"),
        ({"history": 1}, 1, "history failed with exit 1"),
        ({"clean": 4}, 1, "clean failed with exit 4"),
        ({"run": 4.5, "gate": 5}, 4, "not complete"),
        ({"run": 4.25}, 1, "gate: pass"),  # measured to the end; its page could not be written
    ],
)
def test_a_step_that_fails_stops_no_other_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_codes: dict[str, float], code: int, words: str
) -> None:
    exit_code, steps, summary = night(tmp_path, monkeypatch, exit_codes, keep=2)
    assert exit_code == code and words in summary and summary.count("\n") == 0
    assert steps == ["run", "gate", "report", "history", "clean"]
    (last,) = Journal(tmp_path / "results").nights()
    assert last.exit_code == code and last.run and last.run.startswith("testhost/") and last.summary == summary


@pytest.mark.parametrize("code", [2, 3, 4])
def test_where_nothing_could_be_measured_nothing_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    exit_code, steps, summary = night(tmp_path, monkeypatch, {"run": code}, keep=2)
    assert exit_code == code and steps == ["run"] and "no run" in summary


@pytest.mark.parametrize("name", ["20991231T235959Z", "release-2.7"])
def test_a_run_of_the_same_command_that_is_dated_into_the_future_or_renamed_is_not_this_nights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    began = 4102444799.0 if name[0] == "2" else 1.7e9
    night(tmp_path, monkeypatch, {})
    (run,) = Results(tmp_path / "results").runs()
    text = run.record.read_text().replace('"event": "run"', f'"event": "run", "unix_seconds": {began}')
    run.path.rename(run.path.with_name(name)).joinpath("run.jsonl").write_text(text)
    exit_code, steps, summary = night(tmp_path, monkeypatch, {"run": 4})
    assert (exit_code, steps) == (4, ["run"]) and "no run" in summary


@pytest.mark.parametrize("seconds", [-7200, -2 * 86400, 3 * 86400])
def test_a_clock_that_jumps_costs_a_night_neither_its_run_nor_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    night(tmp_path, monkeypatch, {})
    earlier = {run.path for run in Results(tmp_path / "results").runs()}
    monkeypatch.setenv("JUMP", str(seconds))
    exit_code, steps, summary = night(tmp_path, monkeypatch, {})
    (run,) = {run.path for run in Results(tmp_path / "results").runs()} - earlier
    assert exit_code == 0 and steps == ["run", "gate", "report", "history"] and f"testhost/{run.name}: " in summary


def test_a_run_that_is_interrupted_by_itself_interrupts_the_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        night(tmp_path, monkeypatch, {"run": 130})
    (last,) = Journal(tmp_path / "results").nights()
    assert last.exit_code == 130 and last.was_cut


def test_the_log_holds_every_command_in_a_form_that_can_be_pasted_and_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    night(tmp_path, monkeypatch, {}, gate_words=("--hook", "mail -s 'a b'"))
    (log,) = Journal(tmp_path / "results").logs()
    text = log.read_text()
    assert "said by history" in text and "exit 0 after" in text.splitlines()[-1]
    commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    again = subprocess.run(commands[1], shell=True, capture_output=True, text=True)
    assert again.stdout == "said by gate\n"
    last = json.loads((tmp_path / "results/asked").read_text().splitlines()[-1])
    assert last[:3] == ["gate", "--hook", "mail -s 'a b'"]


def test_a_night_goes_on_with_its_own_run_and_does_not_measure_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        night(tmp_path, monkeypatch, {"run": 130})
    exit_code, steps, _ = night(tmp_path, monkeypatch, {})
    assert exit_code == 0 and steps == ["run", "gate", "report", "history"] and len(Journal(tmp_path / "results").nights()) == 1
    words = json.loads((tmp_path / "results/asked").read_text().splitlines()[0])
    assert "--new" not in words
    book = Journal(tmp_path / "results")
    book.append(
        "night-exit", night=book.nights()[0].id, exit_code=130, matrix=str(tmp_path / "matrix.toml")
    )  # as if it had been cut while the gate judged
    exit_code, steps, _ = night(tmp_path, monkeypatch, {})
    assert exit_code == 0 and steps == ["gate", "report", "history"] and len(Results(tmp_path / "results").runs()) == 1


@pytest.mark.parametrize("name", ["../../evil", "a/b", "x\0y", "", "n" * 300, None, 7])
def test_a_cut_night_whose_name_is_damaged_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: object
) -> None:
    Journal(options_for(tmp_path).results).append("night", night=name, matrix=str(tmp_path / "matrix.toml"))
    exit_code, steps, _ = night(tmp_path, monkeypatch, {})
    assert exit_code == 0 and steps == ["run", "gate", "report", "history"]
    assert not list(tmp_path.glob("*.log")) and len(list(tmp_path.rglob("*.log"))) == 1


@pytest.mark.parametrize("obstacle", ["disk", "run"])
def test_a_cut_night_that_cannot_go_on_yet_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    with pytest.raises(KeyboardInterrupt):
        night(tmp_path, monkeypatch, {"run": 130})
    (cut,) = Journal(tmp_path / "results").nights()
    for _ in range(2):
        held = Results(tmp_path / "results").hold() if obstacle == "run" else nullcontext()
        with held, pytest.raises(EngineUnusable):
            night(tmp_path, monkeypatch, {}, free_gb=1e9 if obstacle == "disk" else 0.0)
        assert Journal(tmp_path / "results").nights() == [cut] and cut.run
    exit_code, steps, _ = night(tmp_path, monkeypatch, {})
    assert exit_code == 0 and steps[0] == "run" and len(Results(tmp_path / "results").runs()) == 1
    assert len(Journal(tmp_path / "results").nights()) == 1


def test_a_night_of_another_matrix_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        night(tmp_path, monkeypatch, {"run": 130}, matrix=tmp_path / "other.toml")
    exit_code, steps, _ = night(tmp_path, monkeypatch, {})
    assert exit_code == 0 and steps[0] == "run"
    assert "--new" in json.loads((tmp_path / "results/asked").read_text().splitlines()[0])
    book = Journal(tmp_path / "results")
    assert [night.exit_code for night in book.nights()] == [130, 0]
    assert [night.exit_code for night in book.nights(tmp_path / "matrix.toml")] == [0]


def test_two_nights_at_once_and_a_night_beside_a_run_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_for(tmp_path)
    with (
        Journal(options.results).lock(),
        pytest.raises(EngineUnusable, match=rf"another night holds .*: process {os.getpid()} on "),
    ):
        run_night(options, print, lambda data: None)
    assert not Journal(options.results).nights()
    with Results(options.results).hold(), pytest.raises(EngineUnusable, match="another run holds"):
        night(tmp_path, monkeypatch, {})
    (last,) = Journal(options.results).nights()
    assert last.exit_code == 4 and last.run is None and "another run holds" in str(last.summary)


def test_catching_up_while_a_night_is_under_way_is_no_error(tmp_path: Path) -> None:
    options = options_for(tmp_path)
    with Journal(options.results).lock():
        end = run_night(options, print, lambda data: None, at="02:30")
    assert end.exit_code == 0 and f"a night is under way: process {os.getpid()}" in end.summary


def test_without_the_demanded_disk_space_nothing_is_measured_and_old_runs_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    night(tmp_path, monkeypatch, {})
    with pytest.raises(EngineUnusable, match=r"only .* GB are free .* the limit is 1e\+09") as caught:
        night(tmp_path, monkeypatch, {}, free_gb=1e9, keep=2)
    assert caught.value.exit_code == 4 and "--keep" in caught.value.hint
    assert [json.loads(line)[:2] for line in (tmp_path / "results/asked").read_text().splitlines()] == [["clean", "--runs"]]


def test_the_arguments_of_a_night_are_its_options(tmp_path: Path) -> None:
    words = options_for(
        tmp_path, run_words=("--launches", "5"), gate_words=("--hook", "a b"), keep=3, disk_gb=0.5, pins=("x",)
    ).words()
    assert words[:2] == ["nightly", "run"]
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert options["--run-with"] == "--launches 5" and options["--gate-with"] == "--hook 'a b'"
    assert options["--keep"] == "3" and options["--disk-gb"] == "0.5" and options["--pin"] == "x"


# One step.


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log_file = Log(tmp_path / "log", lambda data: None)
    yield log_file
    log_file.close()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_step_that_hangs_is_ended_and_one_that_is_not_there_is_no_crash(log: Log, tmp_path: Path) -> None:
    assert carry_out(["/bin/sh", "-c", "echo begun; exec sleep 6000"], log, 2.0) == TIMED_OUT
    assert carry_out(["/nowhere/python"], log) == NOT_STARTED
    text = (tmp_path / "log").read_text()
    assert "begun" in text and "/nowhere/python" in text


def test_a_daemon_that_a_step_leaves_behind_does_not_hold_the_night(log: Log, tmp_path: Path) -> None:
    code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(6000)']); print(p.pid)"
    assert carry_out(python(code), log, PATIENCE_SECONDS) == 0
    os.kill(int((tmp_path / "log").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_step_ends_with_the_night(tmp_path: Path, number: signal.Signals) -> None:
    """Steps tidy up: they get the night's SIGTERM, or that of the kernel when the night was killed, just once."""
    tidied = tmp_path / "tidied"
    step = f"""
import signal, sys, time
def tidy(*_):
    open({str(tidied)!r}, "a").write("begun ")
    time.sleep(0.5)
    open({str(tidied)!r}, "a").write("done")
    sys.exit(130)
signal.signal(signal.SIGTERM, tidy)
print("ready", flush=True)
time.sleep(99)
"""
    whole = f"""
import signal, sys
from pathlib import Path
from torchmatrix_plugins.nights import night
signal.signal(signal.SIGTERM, signal.default_int_handler)
log = night.Log(Path({str(tmp_path / "log")!r}), lambda data: None)
try:
    night.carry_out([sys.executable, "-c", {step!r}], log)
except KeyboardInterrupt:
    sys.exit(7)
"""
    process = subprocess.Popen(python(whole))
    until(lambda: (tmp_path / "log").exists() and "ready" in (tmp_path / "log").read_text())
    process.send_signal(number)
    assert process.wait(timeout=PATIENCE_SECONDS) == (7 if number == signal.SIGTERM else -9)
    until(lambda: tidied.exists() and tidied.read_text().endswith("done"))
    assert tidied.read_text() == "begun done"


# Runs that stay on the disk.


def a_run(root: Path, name: str, complete: bool = True, host: str = "testhost", kilobytes: int = 4) -> RunFolder:
    folder = RunFolder(root / host / name)
    cell = folder.path / "stack" / "workload" / "gpu0"
    cell.mkdir(parents=True)
    folder.append("run", key="k", host={"name": host})
    (cell / "round1-try1.jsonl").write_bytes(b"x" * 1024 * kilobytes)
    (cell / "round1-try1.log").write_text("log")
    (cell / "batch64-try1.jsonl").write_text("{}")
    (folder.path / "builds").mkdir()
    (folder.path / "builds/stack.log").write_text("log")
    folder.keep_lock("stack", "torch==2.5.1")
    keep_model(folder.models, "nets/mine.py", b"import torch")
    for killed in (".run.jsonl.0.part", "locks/.stack.lock.1.part"):  # while they were written
        (folder.path / killed).touch()
    if complete:
        folder.append("run-exit", complete=True)
    return folder


def day(number: int) -> str:
    return f"202601{number:02}T023000Z"


def runs_of(root: Path, kinds: str) -> list[keeping.Stored]:
    """Return one run of a gigabyte per character, oldest first: complete, incomplete or pinned."""
    return [
        keeping.Stored(
            run=RunFolder(root / "h" / day(number + 1)),
            is_complete=state != "i",
            bytes=10**9,
            stays="pinned" if state == "p" else None,
        )
        for number, state in enumerate(kinds)
    ]


@pytest.mark.parametrize(
    ("kinds", "keep", "limit", "gone"),
    [
        ("cccc", 2, None, [1, 2]),
        ("cccc", 4, None, []),
        ("cccc", 9, None, []),
        ("cicic", 2, None, [1, 2]),  # what lies between those that are kept stays
        ("iiicc", 2, None, [1, 2, 3]),
        ("pccc", 2, None, [2]),
        ("cpcc", 3, None, [1]),
        ("cccc", None, 2, [1, 2]),
        ("cccc", None, 0, [1, 2, 3]),  # never the newest
        ("ccci", None, 0, [1, 2]),  # nor the newest that is complete
        ("cpcc", None, 1, [1, 3]),
        ("cccccc", 4, 3, [1, 2, 3]),
        ("", 2, 0, []),
    ],
)
def test_which_runs_are_removed(tmp_path: Path, kinds: str, keep: int | None, limit: int | None, gone: list[int]) -> None:
    runs = runs_of(tmp_path, kinds)
    used = len(kinds) * 10**9
    choice = keeping.choose(runs, keep, None if limit is None else limit * 10**9, used)
    assert [run.run.id for run in choice.remove] == [day(number) for number in gone]
    left = used - len(gone) * 10**9
    assert choice.over_bytes == (max(left - limit * 10**9, 0) if limit is not None else 0)


def test_what_is_pinned_renamed_linked_or_holds_what_is_not_ours_stays(tmp_path: Path) -> None:
    results = Results(tmp_path)
    for number in range(1, 7):
        a_run(tmp_path, day(number))
    host = tmp_path / "testhost"
    (host / day(1) / keeping.PIN).touch()
    (host / day(2) / "notes.md").write_text("mine")
    (host / day(3) / "stack" / "link").symlink_to("/etc")
    a_run(tmp_path / "elsewhere", day(7)).path.rename(tmp_path / "moved")
    (host / day(7)).symlink_to(tmp_path / "moved")
    a_run(tmp_path, "before-the-driver")
    a_run(tmp_path, "20991231T235959Z").record.write_text('{"event": "run", "unix_seconds": 4102444799.0}\n')
    a_run(tmp_path, day(1), host="another")
    reasons = {run.run.id: run.stays for run in keeping.stored_runs(results, "testhost", [f"testhost/{day(4)}", day(6)])}
    assert reasons == {
        "before-the-driver": "renamed", day(1): "pinned", day(2): "holds files that are not ours: notes.md",
        day(3): "holds files that are not ours: stack/link", day(4): "pinned", day(5): None, day(6): "pinned", day(7): "a link",
        "20991231T235959Z": "when it began is still to come",
    }  # fmt: skip


def test_a_run_stays_while_there_is_a_copy_of_it_that_would_take_its_place(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        a_run(tmp_path, day(number))
    shutil.copytree(tmp_path / "testhost" / day(1), tmp_path / "testhost" / f"{day(1)}.bak")
    stored = keeping.stored_runs(Results(tmp_path), "testhost", [])
    assert [run.stays for run in stored] == [f"copied to testhost/{day(1)}.bak, which would then count", None, None]
    assert [run.run.id for run in keeping.choose(stored, 1, None, 0).remove] == [day(2)]


def test_removing_takes_whole_runs_and_their_logs_and_nothing_else(tmp_path: Path) -> None:
    results, book = Results(tmp_path), Journal(tmp_path)
    for number in range(1, 5):
        a_run(tmp_path, day(number), complete=number != 2)
        if number != 2:
            book.append("night", night=day(number))
            book.append("night-exit", night=day(number), exit_code=0, run=f"testhost/{day(number)}")
        book.folder.mkdir(exist_ok=True)
        book.log(day(number)).write_text("log")
    a_run(tmp_path, day(1), host="another")
    (book.folder / "mine.log").write_text("mine")
    (tmp_path / "testhost" / "notes.md").write_text("mine")
    stored = keeping.stored_runs(results, "testhost", [])
    lines = list(keeping.remove_chosen(results, book, stored, keeping.choose(stored, 2, None, 0)))
    assert sorted(p.name for p in (tmp_path / "testhost").iterdir()) == [day(3), day(4), "notes.md"]
    assert sorted(p.name for p in book.folder.glob("*.log")) == [f"{day(3)}.log", f"{day(4)}.log", "mine.log"]
    assert not (book.folder / "removed").exists() and (tmp_path / "another" / day(1) / "run.jsonl").exists()
    assert sum(line.startswith("removed testhost/") for line in lines) == 2


def test_a_removal_that_was_interrupted_is_finished_and_what_came_meanwhile_is_left(tmp_path: Path) -> None:
    results = Results(tmp_path)
    a_run(tmp_path, day(1))
    a_run(tmp_path, day(2))
    for run in keeping.stored_runs(results, "testhost", []):
        keeping.set_aside(results, run)
    (tmp_path / "nightly/removed/testhost" / day(2) / "stack" / "notes.md").write_text("mine")
    assert not results.runs()
    keeping.sweep(results)
    left = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert left == [Path("nightly/removed/testhost", day(2), "stack/notes.md")]


def test_a_run_in_which_something_cannot_be_read_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path, day(1))
    walk = os.walk

    def refused(folder: Path, onerror: Any = None) -> Any:
        if onerror:
            onerror(PermissionError(13, "Permission denied", str(run.path / "notes")))
        return walk(folder)

    monkeypatch.setattr(os, "walk", refused)
    (stored,) = keeping.stored_runs(Results(tmp_path), "testhost", [])
    assert stored.stays == f"can't be read: {run.path / 'notes'}"


@pytest.mark.usefixtures("berlin")
def test_a_time_that_clocks_skip_or_show_twice_is_due_once() -> None:
    change = time.mktime((2026, 3, 29, 1, 0, 0, 0, 0, 0)) + HOUR  # 02:00 CET is 03:00 CEST
    for later, due in ((-1, change - 23.5 * HOUR), (0, change), (20 * 60, change), (31 * 60, change)):
        assert journal.last_time("02:30", change + later) == due
    first = time.mktime((2026, 10, 25, 2, 30, 0, 0, 0, 1))
    for later in (0, 40 * 60, HOUR, HOUR + 300, 5 * HOUR):  # the second 02:10, 02:30 and 02:35
        assert journal.last_time("02:30", first + later) == first
    events = [began(day(1), first + 5), ended(day(1), 0)]
    assert not decide(events, first + HOUR + 300, "02:30").is_due
    assert decide([began(day(9), first - 24 * HOUR), ended(day(9), 0)], first + 40 * 60, "02:30").is_due


@pytest.mark.usefixtures("berlin")
def test_a_night_that_begins_at_its_time_makes_up_for_none() -> None:
    noon = time.mktime((2026, 1, 15, 12, 0, 0, 0, 0, -1))
    events = [began(day(9), noon - 24 * HOUR), ended(day(9), 0)]
    assert "missed" not in decide(events, noon + 5, "12:00").why and "missed" in decide(events, noon + HOUR, "12:00").why


@pytest.mark.parametrize("scheduler", ["slurm", "kubernetes"])
def test_a_run_stays_while_jobs_of_a_cluster_measure_for_it(tmp_path: Path, scheduler: str) -> None:
    for number in (1, 2, 3):
        a_run(tmp_path, day(number))
        (tmp_path / f".{scheduler}" / day(number)).mkdir(parents=True)
        (tmp_path / f".{scheduler}" / day(number) / "order.json").write_text("{}")
    (tmp_path / f".{scheduler}" / day(2) / "done").touch()
    stored = keeping.stored_runs(Results(tmp_path), "testhost", [])
    assert [run.stays for run in stored] == ["its jobs aren't done", None, "its jobs aren't done"]
