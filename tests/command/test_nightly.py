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
from torchmatrix.nightly.journal import Journal, Night, name_for

SYSTEMCTL = """#!/bin/sh
# Stands in for systemctl, since no systemd runs here: remembers what it was asked for.
echo "$*" >>"$SYSTEMCTL_LOG"
case "$*" in
    *NextElapseUSecRealtime*) echo "Sat 2026-01-31 02:30:00 UTC" ;;
esac
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a separate home, with a stand-in for systemctl."""
    folder = tmp_path / "home"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/systemctl").write_text(SYSTEMCTL)
    (folder / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / ".config"))
    monkeypatch.setenv("TORCHMATRIX_CACHE", cache_in(folder))
    monkeypatch.setenv("SYSTEMCTL_LOG", str(folder / "systemctl.log"))
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


def install(torchmatrix: Command, *words: str) -> Path:
    """Install the nights; return the service that was written for this user."""
    done = torchmatrix("nightly", "install", "--user", "--backend", "systemd", "--engine", "local", *words)
    assert done.returncode == 0, done.stderr
    (service,) = [Path(line) for line in done.stdout.splitlines() if line.endswith(".service") and "catch-up" not in line]
    return service


def value(unit: Path, key: str) -> str:
    (text,) = [line.partition("=")[2] for line in unit.read_text(encoding="utf-8").splitlines() if line.startswith(f"{key}=")]
    return text.replace("%%", "%")


def start(unit: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    """Run a service's command as systemd would: in its folder, with its variables and no others."""
    words = [word.replace("$$", "$") for word in shlex.split(value(unit, "ExecStart"))]
    script = 'set -a; . "$0"; set +a; cd "$1"; shift; exec "$@"'
    command = ["/bin/sh", "-c", script, value(unit, "EnvironmentFile"), value(unit, "WorkingDirectory"), *words, *more]
    return subprocess.run(command, env={}, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


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
    status = torchmatrix("nightly", "status")
    assert status.returncode == 0 and "exit 5" in status.stdout and "installed   no" in status.stdout
    assert f"{nights(tmp_path)[1].id}.log" in status.stdout and "under way   no night" in status.stdout


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
    unit = install(
        torchmatrix, *pages, "--keep", "2", "--run-with", "--launches 2", "--gate-with", "--strict --hook 'cat > /dev/null'"
    )
    done = start(unit)
    assert done.returncode == 0, done.stderr
    (night,) = nights(place)
    (run,) = Results(place / "results").runs()
    assert night.run == f"{run.path.parent.name}/{run.id}" and len(list(run.launches())) == 2
    assert (place / "pages/history.html").exists()
    catch_up = unit.with_name(f"{unit.stem}-catch-up.service")
    late = start(catch_up)
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
    words = ("--matrix", f"{place}/matrix.toml", "--results", f"{place}/results", f"--{scope}", "--at", "23:59")
    done = torchmatrix("nightly", "install", "--backend", "systemd", "--print", *words)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "units"
    folder.mkdir()
    for text in done.stdout.split("# /")[1:]:
        path, _, rest = text.partition("\n")
        (folder / Path(path).name).write_text(rest)
    assert len(list(folder.iterdir())) == 4
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    check = ["systemd-analyze", "verify", "--man=no", *(["--user"] if scope == "user" else []), *map(str, folder.iterdir())]
    checked = subprocess.run(check, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    when = subprocess.run(
        ["systemd-analyze", "calendar", "*-*-* 23:59:00"], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert when.returncode == 0 and "23:59:00" in when.stdout


def test_nights_of_the_machine_may_run_as_an_ordinary_user(torchmatrix: Command, quick: Path, home: Path) -> None:
    words = ("nightly", "install", "--backend", "systemd", "--print")
    done = torchmatrix(*words, "--system", "--run-as", "nobody")
    assert done.returncode == 0 and done.stdout.count("\nUser=nobody\n") == 2, done.stderr
    assert "User=" not in torchmatrix(*words, "--system").stdout
    for more, message in {
        ("--system", "--run-as", "no such user"): "there is no user 'no such user'",
        ("--system", "--run-as", "root"): "--run-as names root",
        ("--user", "--run-as", "nobody"): "--run-as needs systemd and --system",
    }.items():
        refused = torchmatrix(*words, *more)
        assert refused.returncode == 2 and message in refused.stderr and "\nhint: " in refused.stderr


def test_install_replaces_status_reports_and_remove_takes_away_just_what_install_made(
    torchmatrix: Command, quick: Path, home: Path, tmp_path: Path
) -> None:
    units = home / ".config/systemd/user"
    units.mkdir(parents=True)
    (units / "mine.service").write_text("[Service]\nExecStart=/bin/true\n")
    before = files_below(home)
    secret = "http://user:secret@proxy.example:3128"
    done = torchmatrix("nightly", "install", "--user", "--engine", "local", https_proxy=secret, TOKEN="t")
    assert done.returncode == 0, done.stderr
    made = [Path(line) for line in done.stdout.splitlines()]
    assert len(made) == 6 and all(path.exists() for path in made) and "https_proxy" in done.stderr
    assert all(secret not in path.read_text() for path in made if path.suffix != ".env") and secret not in done.stderr
    (variables,) = [path for path in made if path.suffix == ".env"]
    assert (
        variables.stat().st_mode & 0o777 == 0o600 and secret in variables.read_text() and "TOKEN" not in variables.read_text()
    )
    other = torchmatrix("nightly", "install", "--user", "--engine", "local", "--at", "4:05")
    assert other.returncode == 0 and other.stdout == done.stdout
    requests = (home / "systemctl.log").read_text()
    assert "--user daemon-reload" in requests and "--user enable " in requests
    status = json.loads(torchmatrix("nightly", "status", "--json").stdout)
    assert status["installed"] and status["at"] == "04:05" and status["backend"] == "systemd" and status["last"] is None
    (clock,) = [path for path in made if path.suffix == ".timer" and "catch-up" not in path.name]
    assert "OnCalendar=*-*-* 04:05:00" in clock.read_text()
    gone = torchmatrix("nightly", "remove")
    assert gone.returncode == 0 and set(gone.stdout.splitlines()) == set(other.stdout.splitlines())
    assert files_below(home) - {home / "systemctl.log"} == before
    again = torchmatrix("nightly", "remove")
    assert again.returncode == 0 and "nothing is installed" in again.stderr and again.stdout == ""
    assert "installed   no" in torchmatrix("nightly", "status").stdout and Journal(tmp_path / "results").file.exists()


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--at", "25:00"], 2, "is not a time of day"),
        (["--matrix", "none.toml"], 2, "no matrix file"),
        (["--gate-with", "--no-such-option"], 2, "--gate-with: No such option"),
        (["--gate-with", "last"], 2, "--gate-with: Got unexpected extra argument"),
        (["--run-with", "--launches x"], 2, "--run-with: Invalid value"),
        (["--run-with", "'"], 2, "--run-with: No closing quotation"),
        (["--backend", "launchd"], 2, "unknown backend"),
        (["--backend", "cron", "--system"], 2, "--system needs systemd"),
        (["--keep", "1"], 2, "Invalid value for '--keep'"),
    ],
)
def test_options_that_would_fail_at_night_are_refused_at_install(
    torchmatrix: Command, quick: Path, home: Path, words: list[str], code: int, message: str
) -> None:
    done = torchmatrix("nightly", "install", *words)
    assert done.returncode == code and message in done.stderr and "Traceback" not in done.stderr
    assert not list(home.rglob("*.service"))


def test_without_systemd_install_says_what_else_to_do(torchmatrix: Command, quick: Path, home: Path) -> None:
    (home / "bin/systemctl").write_text("#!/bin/sh\necho 'not booted with systemd' >&2\nexit 1\n")
    done = torchmatrix("nightly", "install")
    assert done.returncode == 4 and "not booted with systemd" in done.stderr
    assert "--backend cron" in done.stderr and "--print" in done.stderr and "torchmatrix nightly run" in done.stderr
    assert not list((home / ".config").rglob("*"))


@pytest.mark.thorough
def test_the_lines_for_cron_start_the_night_and_make_up_for_one_that_was_missed(
    torchmatrix: Command, quick: Path, home: Path, tmp_path: Path
) -> None:
    (home / "bin/crontab").write_text(f"#!/bin/sh\ntouch {home}/crontab-was-called\n")
    (home / "bin/sleep").write_text(f"#!/bin/sh\necho $1 >{home}/slept\n")
    for name in ("crontab", "sleep"):
        (home / "bin" / name).chmod(0o755)
    settings = home / ".config/torchmatrix/nightly"
    lines_for_cron = ("nightly", "install", "--backend", "cron", "--engine", "local", "--at", hours_ago(2))
    printed = torchmatrix(*lines_for_cron, "--print")
    assert printed.returncode == 0 and not settings.exists(), printed.stderr
    done = torchmatrix(*lines_for_cron, https_proxy="http://user:secret@proxy.example")
    assert done.returncode == 0 and "paste them with crontab -e" in done.stderr, done.stderr
    assert printed.stdout.endswith(f"# crontab\n{done.stdout}") and "secret" not in done.stdout + done.stderr
    script, variables, record = (settings / f"{name_for(quick)}.{kind}" for kind in ("sh", "env", "jsonl"))
    assert set(settings.iterdir()) == {script, variables, record} and variables.stat().st_mode & 0o777 == 0o600
    tonight, at_boot = done.stdout.splitlines()
    long_ago(Journal(tmp_path / "results"))
    for number, line in enumerate((at_boot.removeprefix("@reboot "), tonight.split(maxsplit=5)[5]), 1):
        ended = as_cron_starts_it(line, home)
        assert ended.returncode == 0 and len(nights(tmp_path)) == number, ended.stderr
    assert "was missed" in Journal(tmp_path / "results").log(nights(tmp_path)[0].id).read_text()
    assert (home / "slept").read_text() == "300\n"
    status = torchmatrix("nightly", "status").stdout
    assert "the crontab is not looked at" in status and "next" not in status and nights(tmp_path)[1].id in status
    facts = json.loads(torchmatrix("nightly", "status", "--json").stdout)
    assert (facts["backend"], facts["installed"], facts["next"]) == ("cron", None, None) and facts["at"]
    gone = torchmatrix("nightly", "remove")
    assert (
        set(gone.stdout.split()) == {str(script), str(variables), str(record)}
        and "take them out with crontab -e" in gone.stderr
    )
    assert not list(settings.iterdir()) and not (home / "crontab-was-called").exists()


def as_cron_starts_it(command: str, home: Path) -> "subprocess.CompletedProcess[str]":
    """Run a crontab line's command as cron would: by a shell, at home, with hardly any variables."""
    variables = {"HOME": str(home), "PATH": f"{home / 'bin'}:/usr/bin:/bin"}
    words = ["/bin/sh", "-c", command.replace("\\%", "%")]
    return subprocess.run(words, cwd=home, env=variables, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


def hours_ago(hours: float) -> str:
    return time.strftime("%H:%M", time.localtime(time.time() - 3600 * hours))


@pytest.mark.thorough
def test_a_change_from_cron_to_systemd_says_that_the_lines_stay(torchmatrix: Command, quick: Path, home: Path) -> None:
    assert torchmatrix("nightly", "install", "--backend", "cron").returncode == 0
    done = torchmatrix("nightly", "install", "--user")
    assert done.returncode == 0 and "take them out with crontab -e" in done.stderr
    assert json.loads(torchmatrix("nightly", "status", "--json").stdout)["backend"] == "systemd"


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
    assert f"under way   process {process.pid}" in torchmatrix("nightly", "status").stdout
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
    at = time.strftime("%H:%M")
    assert install(torchmatrix, "--at", at).exists()
    process = begin(tmp_path, FAKE_SECONDS="2")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == (130 if number == signal.SIGTERM else -9), stderr
    owner = f"TORCHMATRIX_OWNER={Results(tmp_path / 'results').owner}".encode()
    until(lambda: not processes_of(owner) and not lock_holder(Results(tmp_path / "results").lock_file))
    status = torchmatrix("nightly", "status").stdout
    assert "cut" in status or "interrupted" in status
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
    install(torchmatrix, "--at", before)
    late = ("nightly", "run", "--engine", "local", "--if-missed", before)
    fresh = torchmatrix(*late)
    assert fresh.returncode == 0 and "was before the installation" in fresh.stdout and not nights(tmp_path)
    long_ago(Journal(tmp_path / "results"))
    done = torchmatrix(*late)
    assert done.returncode == 0 and "was missed" in done.stderr and len(nights(tmp_path)) == 1
    again = torchmatrix(*late)
    assert again.returncode == 0 and "nothing is missed" in again.stdout and len(nights(tmp_path)) == 1


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
    listed = torchmatrix("nightly", "keep", "--disk-gb", "0")
    assert [line.split("/")[1].split()[0] for line in listed.stdout.splitlines()] == [old[0], old[2]]
    assert "exceed the limit" in listed.stderr and f"{old[1]}: pinned" in listed.stderr
    by_name = torchmatrix("nightly", "keep", "--disk-gb", "0", "--yes", "--pin", old[0], "--pin", old[2])
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
