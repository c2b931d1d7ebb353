"""Units of systemd and lines of cron: texts, escaping, and which files are ours."""

import shlex
import subprocess
from pathlib import Path

import pytest

from torchmatrix.core.errors import BadInput
from torchmatrix.machine import masks
from torchmatrix_plugins.nights import timers
from torchmatrix_plugins.nights.timers import Timetable, name_for, timetable

HOSTILE = ("a b", "100%", "$HOME", "$$", "%h", 'say "x"', "it's", "back\\slash", "ünï", "#", ";", "*?[x]", "", "--x={y}")
"""Words that mean something else to systemd, cron or a shell."""


def table(
    folder: str = "/srv/lab", program: str = "/opt/venv/bin/python", *more: str, at: str = "02:05", **variables: str
) -> Timetable:
    command = (program, "-m", "torchmatrix", "nightly", "run", *more, "--if-missed", at)
    return Timetable(
        name="torchmatrix-night-1a2b3c4d", at=at, command=command, folder=Path(folder), variables=variables, withheld=()
    )


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
    assert value(timer, "OnStartupSec") == "300"


def test_each_matrix_file_has_a_name_of_its_own() -> None:
    names = {name_for(Path(path)) for path in ("/a/matrix.toml", "/b/matrix.toml", "/a/other.toml")}
    assert len(names) == 3 and all(name.startswith("torchmatrix-night-") and len(name) == 26 for name in names)


@pytest.mark.parametrize("at", ["24:00", "2:5", "02:60", "noon", "02:30:00", "", "٠٢:٣٠"])
def test_what_is_no_time_of_day_is_refused(at: str) -> None:
    with pytest.raises(BadInput, match="is not a time of day"):
        timetable(Path("matrix.toml"), at, [], {})


@pytest.mark.parametrize("word", ["a\nb", "a\rb", "a\0b", "\udcff"])
def test_what_no_unit_and_no_crontab_can_hold_is_refused(word: str) -> None:
    with pytest.raises(BadInput, match="can't"):
        timetable(Path("matrix.toml"), "02:30", ["--results", word], {})
    assert timetable(Path("m"), "02:30", [], {"PATH": word}).withheld == ("PATH",)


def test_the_variables_that_decide_what_is_measured_go_along_and_no_secrets() -> None:
    wanted = {
        "PATH": "/bin", "DOCKER_HOST": "ssh://x", "TORCHMATRIX_CACHE": "/c", "NO_PROXY": "x", "HTTP_PROXY": "http://h:1",
        **dict.fromkeys(masks.VARIABLES, "0"), "XDG_CACHE_HOME": "/x", "HOME": "/h",
    }  # fmt: skip
    secret = {
        "https_proxy": "http://u:p@h", "UV_DEFAULT_INDEX": "https://token@i", "TORCHMATRIX_HOOK_KEY": "k",
        "UV_INDEX_A_PASSWORD": "p", "TORCHMATRIX_API": "ghp_" + 36 * "a", "DOCKER_AUTH_CONFIG": '{"auths":{}}', "UV_AUTH": "x",
        "DOCKER_PASS": "hunter2", "UV_FIND_LINKS": "https://h/x?api_key=k", "UV_INDEX": "https://h/simple?token=t",
        "http_proxy": "//u:pw@h:1", "all_proxy": "u:pw@h:1", "TORCHMATRIX_HOOK_URL": "https://hooks.example/services/T0/B0/short",
        "DOCKER_CONFIG": "", "LANG": " C", "PYTHONPATH": '"q',
    }  # fmt: skip
    others = {"AWS_SECRET_ACCESS_KEY": "s", "OLDPWD": "/", "GITHUB_TOKEN": "t", "MYPATH": "x", "XDG_SESSION_ID": "1", "_": "x"}
    plan = timetable(Path("m"), "2:05", [], {**others, **wanted, **secret})
    assert plan.variables == wanted and set(plan.withheld) == set(secret) and plan.at == "02:05"


def test_systemd_reads_the_variables_as_they_were_meant() -> None:
    values = {f"TORCHMATRIX_{n}": word for n, word in enumerate(HOSTILE)}
    unit = timers.unit_texts(table(**values))["torchmatrix-night-1a2b3c4d.service"]
    lines = [line.partition("=")[2] for line in unit.splitlines() if line.startswith("Environment=")]
    assert [word.replace("%%", "%") for line in lines for word in shlex.split(line)] == [f"{n}={v}" for n, v in values.items()]


def test_the_script_writes_both_units_and_starts_the_timer(tmp_path: Path) -> None:
    """A stand-in for systemctl: no systemd runs here."""
    (tmp_path / "systemctl").write_text('#!/bin/sh\necho "$*" >>"$HOME/asked"\n')
    (tmp_path / "systemctl").chmod(0o755)
    plan = table("/srv/a b%c $HOME 'q'", "/opt/python", *HOSTILE)
    script = timers.systemd_script(plan, False)
    environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    for _ in range(2):
        subprocess.run(["/bin/sh"], input=script, text=True, env=environment, check=True)
    written = tmp_path / ".config/systemd/user"
    assert {path.name: path.read_text() for path in written.iterdir()} == timers.unit_texts(plan)
    asked = (tmp_path / "asked").read_text().splitlines()
    name = f"{plan.name}.timer"
    assert asked == ["--user daemon-reload", f"--user enable {name}", f"--user restart {name}"] * 2
    assert ">/etc/systemd/system/torchmatrix-night-1a2b3c4d.timer " in timers.systemd_script(plan, True)


def test_cron_reads_its_lines_as_they_were_meant(tmp_path: Path) -> None:
    place = tmp_path / "it's 100% $HOME"
    place.mkdir()
    words = [word for word in HOSTILE if word]
    plan = table(str(place), "/usr/bin/printf", "%s\\n", *words, TORCHMATRIX_X="a b")
    _, variable, clock, start = timers.cron_lines(plan).splitlines()
    assert variable == "TORCHMATRIX_X=a b" and clock.startswith("5 2 * * * ") and start.startswith("@reboot sleep 300; ")
    command = clock.removeprefix("5 2 * * * ")
    assert start.removeprefix("@reboot sleep 300; ") == command and "%" not in command.replace("\\%", "")
    shown = command.replace("\\%", "%").replace("/usr/bin/printf -m torchmatrix nightly run", "pwd; /usr/bin/printf")
    done = subprocess.run(["/bin/sh", "-c", shown], capture_output=True, text=True, env={}, cwd="/")
    assert done.stdout.splitlines() == [str(place), *words, "--if-missed", "02:05"], done
