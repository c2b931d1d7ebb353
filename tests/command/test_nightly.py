"""Whole nights as a timer begins them: the unit's command, cron's lines, kill -9, a reboot, a full disk."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS, Command, cache_in, processes_of, until
from torchmatrix.core.files import lock_holder
from torchmatrix.facts.lines import read_lines
from torchmatrix.facts.store import Results
from torchmatrix.nightly.journal import Journal, Night


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a separate home."""
    folder = tmp_path / "home"
    (folder / "bin").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    monkeypatch.setenv("TORCHMATRIX_CACHE", cache_in(folder))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
    return folder


@pytest.fixture
def quick(fake_matrix: Path) -> Path:
    """Make the stand-in's matrix one launch of one cell."""
    text = (
        fake_matrix.read_text(encoding="utf-8")
        .replace("launches = 2", "launches = 1")
        .replace("counts = [1, 2]", "counts = [1]")
    )
    fake_matrix.write_text(text, encoding="utf-8")
    return fake_matrix


def nights(folder: Path) -> list[Night]:
    return Journal(folder / "results").nights()


def units(torchmatrix: Command, folder: Path, *words: str) -> list[Path]:
    """Print the units, and write them into `folder` as the printed script would; return the service and the timer."""
    done = torchmatrix("nightly", "unit", "--engine", "local", *words)
    assert done.returncode == 0, done.stderr
    folder.mkdir(exist_ok=True)
    paths = []
    for part in done.stdout.split("\ncat >")[1:]:
        name, _, text = part.partition(" <<'END'\n")
        paths.append(folder / Path(name).name)
        paths[-1].write_text(text.partition("\nEND")[0] + "\n")
    return paths


def value(unit: Path, key: str) -> str:
    (text,) = [line.partition("=")[2] for line in unit.read_text(encoding="utf-8").splitlines() if line.startswith(f"{key}=")]
    return text.replace("%%", "%")


def start(unit: Path) -> "subprocess.CompletedProcess[str]":
    """Run a service's command as systemd would: in its folder, with its variables and no others."""
    words = [word.replace("$$", "$") for word in shlex.split(value(unit, "ExecStart"))]
    text = unit.read_text(encoding="utf-8")
    lines = [line.partition("=")[2] for line in text.splitlines() if line.startswith("Environment=")]
    variables = dict(word.replace("%%", "%").split("=", 1) for line in lines for word in shlex.split(line))
    folder = value(unit, "WorkingDirectory")
    return subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def test_a_night_measures_judges_and_shows_and_its_log_has_every_step(
    torchmatrix: Command, quick: Path, home: Path, tmp_path: Path
) -> None:
    first = torchmatrix("nightly", "run", "--engine", "local")
    assert first.returncode == 0, first.stderr
    (night,) = nights(tmp_path)
    assert night.gate == "no baseline yet" and "1 ok" in first.stdout and first.stdout.count("\n") == 1
    assert "log: " in first.stderr and "round 1" not in first.stderr, "what its steps print is in the log"
    assert {page.name for page in (tmp_path / "reports").iterdir()} == {"index.html", "history.html", "gate.md", "gate.xml"}
    bad = torchmatrix("nightly", "run", "--engine", "local", "--quiet", FAKE_BEHAVIOUR="crash")
    assert bad.stderr == "" and bad.stdout.count("\n") == 1
    assert bad.returncode == 5 and "gate: regression" in bad.stdout and "1 crashed" in bad.stdout  # a failed cell counts
    log = Journal(tmp_path / "results").log(nights(tmp_path)[1].id).read_text()
    assert "RuntimeError: crash on purpose" in log and "torchmatrix gate" in log.replace("-m ", "")


@pytest.mark.thorough
def test_a_verbose_night_shows_what_its_steps_print(torchmatrix: Command, quick: Path, home: Path) -> None:
    verbose = torchmatrix("nightly", "run", "--engine", "local", "--verbose")
    assert "round 1" in verbose.stderr and verbose.stdout.count("\n") == 1


@pytest.mark.thorough
def test_the_units_command_runs_the_night_from_a_folder_with_any_name(
    torchmatrix: Command, quick: Path, home: Path, tmp_path: Path
) -> None:
    place = tmp_path / 'a b%h $HOME "q" it\'s'
    place.mkdir()
    quick.rename(place / "matrix.toml")
    pages = ("--matrix", f"{place}/matrix.toml", "--results", f"{place}/results", "--reports", f"{place}/pages")
    more = ("--keep", "2", "--run-with", "--launches 2", "--gate-with", "--strict --hook 'cat > /dev/null'")
    unit, _ = units(torchmatrix, tmp_path / "units", *pages, *more, "--at", hours_ago(0))
    done = start(unit)
    assert done.returncode == 0, done.stderr
    (night,) = nights(place)
    (run,) = Results(place / "results").runs()
    assert night.run == f"{run.path.parent.name}/{run.id}" and len(list(run.launches())) == 2
    assert (place / "pages/history.html").exists()
    late = start(unit)
    assert late.returncode == 0 and "nothing is missed" in late.stdout and len(nights(place)) == 1


@pytest.mark.thorough
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze (Debian's package systemd)")
@pytest.mark.parametrize("scope", ["user", "system"])
def test_the_checker_of_systemd_finds_no_fault(
    torchmatrix: Command, quick: Path, home: Path, tmp_path: Path, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / 'a b%h $HOME "q" it\'s'
    place.mkdir()
    quick.rename(place / "matrix.toml")
    words = ("--matrix", f"{place}/matrix.toml", "--results", f"{place}/results", "--at", "23:59")
    written = units(torchmatrix, tmp_path / "units", *words)
    assert len(written) == 2
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    check = ["systemd-analyze", "verify", "--man=no", *(["--user"] if scope == "user" else []), *map(str, written)]
    checked = subprocess.run(check, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    command = ["systemd-analyze", "calendar", value(written[1], "OnCalendar")]
    when = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert when.returncode == 0 and "23:59:00" in when.stdout


def test_what_is_printed_holds_no_secret_and_nothing_is_written(torchmatrix: Command, quick: Path, home: Path) -> None:
    before, secret = files_below(home.parent), "http://user:secret@proxy.example:3128"
    for words in ((), ("--cron",)):
        done = torchmatrix("nightly", "unit", "--engine", "local", *words, https_proxy=secret, TOKEN="t", no_proxy="inner")
        assert done.returncode == 0 and "secret@" not in done.stdout + done.stderr and "no_proxy=inner" in done.stdout
        assert "may hold secrets" in done.stderr and "https_proxy" in done.stderr and "TOKEN" not in done.stdout + done.stderr
    assert files_below(home.parent) == before


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--at", "25:00"], 2, "is not a time of day"),
        (["--matrix", "none.toml"], 2, "no matrix file"),
        (["--gate-with", "--no-such-option"], 2, "--gate-with: No such option"),
        (["--gate-with", "last"], 2, "--gate-with names a run, which a night sets itself"),
        (["--run-with", "--launches x"], 2, "--run-with: Invalid value"),
        (["--run-with", "--help"], 2, "--run-with asks for help"),
        *(
            (["--run-with", words], 2, "which a night sets itself")
            for words in ("--matrix other.toml", "--results there", "--engine local", "--output page.html", "--new")
        ),
        *(
            (["--gate-with", words], 2, "which a night sets itself")
            for words in ("--results there", "--junit gate.xml", "--markdown gate.md", "--host here")
        ),
        (["--run-with", "'"], 2, "--run-with: No closing quotation"),
        (["--keep", "1"], 2, "Invalid value for '--keep'"),
    ],
)
def test_options_that_would_fail_at_night_are_refused_before(
    torchmatrix: Command, quick: Path, home: Path, words: list[str], code: int, message: str
) -> None:
    done = torchmatrix("nightly", "unit", *words)
    assert done.returncode == code and message in done.stderr and "Traceback" not in done.stderr and not done.stdout


@pytest.mark.thorough
def test_the_lines_for_cron_start_the_night_and_make_up_for_one_that_was_missed(
    torchmatrix: Command, quick: Path, home: Path, tmp_path: Path
) -> None:
    (home / "bin/sleep").write_text(f"#!/bin/sh\necho $1 >{home}/slept\n")
    (home / "bin/sleep").chmod(0o755)
    assert torchmatrix("nightly", "run", "--engine", "local").returncode == 0
    done = torchmatrix("nightly", "unit", "--cron", "--engine", "local", "--at", hours_ago(2))
    tonight, at_boot = done.stdout.splitlines()[-2:]
    long_ago(Journal(tmp_path / "results"))
    for number, line in ((2, at_boot.removeprefix("@reboot ")), (2, tonight.split(maxsplit=5)[5])):
        ended = as_cron_starts_it(line, home)
        assert ended.returncode == 0 and len(nights(tmp_path)) == number, ended.stderr
    assert "was missed" in Journal(tmp_path / "results").log(nights(tmp_path)[1].id).read_text()
    assert (home / "slept").read_text() == "300\n"


def as_cron_starts_it(command: str, home: Path) -> "subprocess.CompletedProcess[str]":
    """Run a crontab line's command as cron would: by a shell, at home, with hardly any variables."""
    variables = {"HOME": str(home), "PATH": f"{home / 'bin'}:/usr/bin:/bin"}
    words = ["/bin/sh", "-c", command.replace("\\%", "%")]
    return subprocess.run(words, cwd=home, env=variables, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def hours_ago(hours: float) -> str:
    return time.strftime("%H:%M", time.localtime(time.time() - 3600 * hours))


# What comes between.


def begin(folder: Path, **variables: str) -> "subprocess.Popen[str]":
    """Start a night in the background, and return once it measures."""
    before = set(folder.rglob("round*.jsonl"))
    process = subprocess.Popen(
        [sys.executable, "-m", "torchmatrix", "nightly", "run", "--engine", "local"],
        cwd=folder, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: any("hello" in path.read_text() for path in set(folder.rglob("round*.jsonl")) - before))
    return process


@pytest.mark.thorough
@pytest.mark.sweep
def test_a_second_night_leaves_the_first_alone(torchmatrix: Command, quick: Path, home: Path, tmp_path: Path) -> None:
    process = begin(tmp_path, FAKE_SECONDS="3")
    second = torchmatrix("nightly", "run", "--engine", "local")
    assert second.returncode == 4 and f"another night holds {tmp_path}/results/nightly: process {process.pid}" in second.stderr
    stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, stderr
    assert "1 ok" in stdout and len(nights(tmp_path)) == 1


def test_a_night_during_a_run_by_hand_measures_nothing(torchmatrix: Command, quick: Path, home: Path, tmp_path: Path) -> None:
    with Results(tmp_path / "results").hold():
        done = torchmatrix("nightly", "run", "--engine", "local")
    assert done.returncode == 4 and f"another run holds {tmp_path}/results: process {os.getpid()}" in done.stderr
    assert not Results(tmp_path / "results").runs() and nights(tmp_path)[0].exit_code == 4


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_night_that_a_reboot_cuts_goes_on_in_the_same_run_and_leaves_no_process(
    torchmatrix: Command, fake_matrix: Path, home: Path, tmp_path: Path, number: signal.Signals
) -> None:
    at = hours_ago(0)
    process = begin(tmp_path, FAKE_SECONDS="2")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == (130 if number == signal.SIGTERM else -9), stderr
    owner = f"TORCHMATRIX_OWNER={Results(tmp_path / 'results').owner}".encode()
    until(lambda: not processes_of(owner) and not lock_holder(Results(tmp_path / "results").lock_file))
    assert nights(tmp_path)[0].was_cut
    begun = len(list(tmp_path.rglob("round*.jsonl")))
    assert begun < 4
    again = torchmatrix("nightly", "run", "--engine", "local", "--if-missed", at)
    assert again.returncode == 0, again.stderr
    (run,) = Results(tmp_path / "results").runs()
    (night,) = nights(tmp_path)
    assert night.run == f"{run.path.parent.name}/{run.id}" and night.exit_code == 0
    outcomes = sorted(launch.outcome for launch in run.launches())
    assert outcomes.count("ok") == 4 and set(outcomes) <= {"ok", "interrupted"}
    assert "continues the night" in Journal(tmp_path / "results").log(night.id).read_text()


@pytest.mark.thorough
def test_a_night_that_the_machine_slept_through_is_made_up_for_once(
    torchmatrix: Command, quick: Path, home: Path, tmp_path: Path
) -> None:
    before = hours_ago(2)
    late = ("nightly", "run", "--engine", "local", "--if-missed", before)
    fresh = torchmatrix(*late)
    assert fresh.returncode == 0 and "no night was measured before" in fresh.stdout and not nights(tmp_path)
    assert torchmatrix(*late[:-2]).returncode == 0
    long_ago(Journal(tmp_path / "results"))
    done = torchmatrix(*late)
    assert done.returncode == 0 and "was missed" in done.stderr and len(nights(tmp_path)) == 2
    again = torchmatrix(*late)
    assert again.returncode == 0 and "nothing is missed" in again.stdout and len(nights(tmp_path)) == 2


def long_ago(book: Journal) -> None:
    """Date all events of the journal two days earlier."""
    events = [{**event, "unix_seconds": event["unix_seconds"] - 48 * 3600} for event in read_lines(book.file)]
    book.file.write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.mark.thorough
@pytest.mark.sweep
def test_old_runs_and_their_logs_go_and_pinned_ones_stay(torchmatrix: Command, quick: Path, home: Path, tmp_path: Path) -> None:
    assert torchmatrix("nightly", "run", "--engine", "local").returncode == 0
    (newest,) = Results(tmp_path / "results").runs()
    book, old = Journal(tmp_path / "results"), ["20260101T023000Z", "20260102T023000Z", "20260103T023000Z"]
    for name in old:
        shutil.copytree(newest.path, newest.path.with_name(name))
        book.log(name).write_text("an old night")
    newest.path.with_name(old[1]).joinpath("pinned").touch()
    listed = torchmatrix("clean", "--runs", "--disk-gb", "0")
    assert [line.split("/")[1].split()[0] for line in listed.stdout.splitlines()] == [old[0], old[2]]
    assert "exceed the limit" in listed.stderr and f"{old[1]}: pinned" in listed.stderr
    by_name = torchmatrix("clean", "--runs", "--disk-gb", "0", "--yes", "--pin", old[0], "--pin", old[2])
    assert by_name.returncode == 0 and len(Results(tmp_path / "results").runs()) == 4
    assert torchmatrix("nightly", "run", "--engine", "local", "--keep", "2").returncode == 0
    first, second = nights(tmp_path)
    kept = [f"{run.path.parent.name}/{run.id}" for run in Results(tmp_path / "results").runs()]
    assert kept == [f"{newest.path.parent.name}/{old[1]}", first.run, second.run] and "2 old runs removed" in str(
        second.summary
    )
    assert [log.stem for log in book.logs()] == [first.id, second.id]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 8 MB."""
    place = tmp_path / "results"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"needs root and the right to mount: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.thorough
@pytest.mark.sweep
def test_a_disk_that_is_nearly_full_ends_the_night_before_it_measures(
    torchmatrix: Command, quick: Path, home: Path, tmp_path: Path, small_disk: Path
) -> None:
    done = torchmatrix("nightly", "run", "--engine", "local")
    assert done.returncode == 4 and f"only 0.008 GB are free for {small_disk}; the limit is 1" in done.stderr
    assert "hint: free space" in done.stderr and not Results(small_disk).runs() and nights(tmp_path)[0].exit_code == 4
    allowed = torchmatrix("nightly", "run", "--engine", "local", "--free-gb", "0.004")
    assert allowed.returncode == 0, allowed.stderr
    free = shutil.disk_usage(small_disk).free
    (small_disk / "filler").write_bytes(b"x" * (free - 16384))
    full = torchmatrix("nightly", "run", "--engine", "local", "--free-gb", "0")
    assert full.returncode == 4 and "Traceback" not in full.stderr
