"""Units of systemd and lines of cron: texts, escaping, and which files are ours."""

import shlex
import subprocess
from pathlib import Path

import pytest

from torchmatrix.core.errors import BadInput
from torchmatrix.machine import masks
from torchmatrix.nightly import timers
from torchmatrix.nightly.journal import Timetable, environment_text, name_for, timetable, variables_taken

HOSTILE = ("a b", "100%", "$HOME", "$$", "%h", 'say "x"', "it's", "back\\slash", "ünï", "#", ";", "*?[x]", "", "--x={y}")
"""Words that mean something else to systemd, cron or a shell."""


def table(folder: str = "/srv/lab", program: str = "/opt/venv/bin/python", *more: str, at: str = "02:05") -> Timetable:
    command = (program, "-m", "torchmatrix", "nightly", "run", *more)
    return Timetable(
        matrix=Path(folder, "matrix.toml"), results=Path(folder, "results"), at=at, command=command, folder=Path(folder),
        is_system=True,
    )  # fmt: skip


def value(unit: str, key: str) -> str:
    (text,) = [line.partition("=")[2] for line in unit.splitlines() if line.startswith(f"{key}=")]
    return text


def as_systemd_reads_it(line: str) -> list[str]:
    """Parse quotes and backslashes as in a shell's double quotes, then %% and $$ (systemd.service(5), COMMAND LINES)."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line)]


def test_the_service_runs_the_very_words_whatever_is_in_them() -> None:
    plan = table("/srv/a b%c", "/opt/v 1/bin/python", *HOSTILE)
    units = timers.unit_texts(plan)
    assert as_systemd_reads_it(value(units[f"{plan.name}.service"], "ExecStart")) == list(plan.command)
    late = value(units[f"{plan.name}-catch-up.service"], "ExecStart")
    assert as_systemd_reads_it(late) == [*plan.command, "--if-missed", "02:05"]
    assert value(units[f"{plan.name}.service"], "WorkingDirectory") == "/srv/a b%%c/"


@pytest.mark.parametrize("program", ["/opt/$v/python", "/opt/it's/python", '/opt/"v"/python', "/opt/v\\w/python"])
def test_a_program_whose_path_systemd_refuses_is_started_by_a_shell(program: str) -> None:
    line = timers.exec_start([program, "-m", "torchmatrix"])
    shell, *rest = as_systemd_reads_it(line)
    assert shell == "/bin/sh" and rest[:3] == ["-c", 'exec "$@"', "sh"] and rest[3:] == [program, "-m", "torchmatrix"]


def test_the_units_wait_without_end_for_the_night_and_pass_one_stop_to_it_alone() -> None:
    plan = table()
    units = timers.unit_texts(plan)
    service, timer = units[f"{plan.name}.service"], units[f"{plan.name}.timer"]
    assert value(service, "Type") == "oneshot" and value(service, "TimeoutStartSec") == "infinity"
    assert value(service, "KillMode") == "mixed" and "Nice" not in service
    assert value(timer, "OnCalendar") == "*-*-* 02:05:00" and value(timer, "RandomizedDelaySec") == "0"
    assert value(units[f"{plan.name}-catch-up.timer"], "OnBootSec") == "300"
    assert set(units) == {path.name for path in timers.unit_files(plan.name, Path("/x"))}


def test_each_matrix_file_has_a_name_of_its_own() -> None:
    names = {name_for(Path(path)) for path in ("/a/matrix.toml", "/b/matrix.toml", "/a/other.toml")}
    assert len(names) == 3 and all(name.startswith("torchmatrix-night-") and len(name) == 26 for name in names)


@pytest.mark.parametrize("at", ["24:00", "2:5", "02:60", "noon", "02:30:00", "", "٠٢:٣٠"])
def test_what_is_no_time_of_day_is_refused(at: str) -> None:
    with pytest.raises(BadInput, match="is not a time of day"):
        timetable(Path("matrix.toml"), Path("results"), at, [], is_system=False)


@pytest.mark.parametrize("word", ["a\nb", "a\rb", "a\0b", "\udcff"])
def test_what_no_unit_and_no_crontab_can_hold_is_refused(word: str) -> None:
    with pytest.raises(BadInput, match="can't"):
        timetable(Path("matrix.toml"), Path("results"), "02:30", ["--results", word], is_system=False)


def test_the_variables_that_decide_what_is_measured_go_along_and_no_others() -> None:
    wanted = {
        "PATH": "/bin", "DOCKER_HOST": "ssh://x", "TORCHMATRIX_CACHE": "/c", "https_proxy": "http://u:p@h", "NO_PROXY": "x",
        **dict.fromkeys(masks.VARIABLES, "0"), "UV_DEFAULT_INDEX": "https://i", "XDG_CACHE_HOME": "/x", "HOME": "/h",
    }  # fmt: skip
    others = {"AWS_SECRET_ACCESS_KEY": "s", "OLDPWD": "/", "GITHUB_TOKEN": "t", "MYPATH": "x", "XDG_SESSION_ID": "1", "_": "x"}
    assert variables_taken({**others, **wanted}) == wanted


def test_a_shell_reads_the_file_of_variables_as_it_was_meant(tmp_path: Path) -> None:
    values = {f"TORCHMATRIX_{n}": word for n, word in enumerate((*HOSTILE, "`id`", "two\nlines", "trailing\\", "'", '"'))}
    (tmp_path / "env").write_text(environment_text(values))
    script = f"set -a; . {tmp_path}/env; env -0"
    output = subprocess.run(["/bin/sh", "-c", script], env={}, capture_output=True, check=True).stdout.decode()
    variables = dict(pair.split("=", 1) for pair in output.split("\0") if pair.startswith("TORCHMATRIX_"))
    assert variables == values


def test_the_script_of_cron_runs_the_very_words_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "con fig"))
    place = tmp_path / "it's 100% $HOME"
    place.mkdir()
    plan = table(str(place), "/usr/bin/printf", *HOSTILE)
    plan.environment.parent.mkdir(parents=True)
    plan.environment.write_text(environment_text({"TORCHMATRIX_X": "taken"}))
    text = timers.cron_script(plan).replace(
        "/usr/bin/printf", '/bin/sh -c \'pwd; echo "$TORCHMATRIX_X"; printf "%s\\n" "$@"\' sh'
    )
    done = subprocess.run(["/bin/sh", "-s", "--", "--if-missed", "02:05"], input=text, capture_output=True, text=True, env={})
    words = [*plan.command[1:], "--if-missed", "02:05"]
    assert done.stdout.splitlines() == [str(place), "taken", *words], done.stderr


def test_cron_reads_its_two_lines_as_they_were_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/home/a b/100%/it's")
    plan = table(at="02:05")
    clock, start = timers.cron_lines(plan).splitlines()
    assert clock.startswith("5 2 * * * ") and start.startswith("@reboot ")
    assert "%" not in clock.replace("\\%", "")
    command = clock.removeprefix("5 2 * * * ").replace("\\%", "%")
    assert shlex.split(command, comments=True) == ["/bin/sh", f"/home/a b/100%/it's/torchmatrix/nightly/{plan.name}.sh"]
    late = shlex.split(start.removeprefix("@reboot ").replace("\\%", "%"), comments=True)
    assert late[:2] == ["sleep", "300;"] and late[2:4] == shlex.split(command, comments=True) and late[4:] == [
        "--if-missed", "02:05",
    ]  # fmt: skip
