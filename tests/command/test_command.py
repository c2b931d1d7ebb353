"""The command from end to end with a stand-in interpreter of known times: every verb, outcome and exit code."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from support import FAKE_PYTHON, PATIENCE_SECONDS, Command, processes_of, until
from support.records import write_run
from torchmatrix.facts import lines
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results
from torchmatrix.reporting import words


def launches(folder: Path) -> list[Launch]:
    return [launch for run in Results(folder / "results").runs() for launch in run.launches()]


def test_a_run_measures_exactly_what_happened_and_its_last_line_names_the_report(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    done = torchmatrix("run")
    assert done.returncode == 0, done.stderr
    report = Path(done.stdout.splitlines()[-1])
    page = (tmp_path / report).read_text()
    assert "10000</b> images/s" in page  # an image takes 0.1 ms on one device
    assert "15000</b> images/s" in page  # 1.5 times as many on two
    assert "<td class=strong>1.500" in page and "<td class=strong>0.750" in page and "<td class=strong>0.500" in page
    assert len(launches(tmp_path)) == 4
    assert "4 ok" in done.stderr and "Traceback" not in done.stderr


def test_after_completion_a_new_run_starts(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    assert torchmatrix("run").returncode == 0
    assert torchmatrix("run").returncode == 0
    assert len(Results(tmp_path / "results").runs()) == 2


def test_an_interrupted_run_continues_and_repeats_only_the_launch_in_flight(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    assert torchmatrix("run").returncode == 0
    (run,) = Results(tmp_path / "results").runs()
    run.record.write_text(
        "".join(line for line in run.record.read_text().splitlines(keepends=True) if '"run-exit"' not in line)
    )
    victim = sorted(run.path.rglob("*.jsonl"))[0]
    lines = victim.read_text().splitlines(keepends=True)
    victim.write_text("".join(lines[:-2]) + lines[-2][:20])  # as kill -9 leaves it: no exit line, the last line cut
    again = torchmatrix("run")
    assert again.returncode == 0 and "1 launch to do (3 done before)" in again.stderr
    (run,) = Results(tmp_path / "results").runs()
    outcomes = {launch.path.name: launch.outcome for launch in run.launches() if launch.path.parent == victim.parent}
    assert outcomes[victim.name] == "lost" and "ok" in outcomes.values() and len(launches(tmp_path)) == 5


def test_another_matrix_or_selection_does_not_continue_the_run(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    assert torchmatrix("run", "*cpu0").returncode == 0
    (run,) = Results(tmp_path / "results").runs()
    run.record.write_text(
        "".join(line for line in run.record.read_text().splitlines(keepends=True) if '"run-exit"' not in line)
    )
    assert torchmatrix("run").returncode == 0
    assert len(Results(tmp_path / "results").runs()) == 2


@pytest.mark.parametrize(
    ("behaviour", "outcome", "error"),
    [
        ("oom", "oom", "RuntimeError: oom on purpose"),
        ("crash", "crashed", "RuntimeError: crash on purpose"),
        ("unsupported", "unsupported", "RuntimeError: unsupported on purpose"),
        ("numerics", "numerics", "Numerics: loss is not finite"),
        ("old-protocol", "crashed", "the image speaks protocol 2, this tool speaks 1: rebuild it (torchmatrix build)"),
        ("killed", "crashed", "ended by SIGKILL"),
        ("precision", "numerics", "precision fp32 was requested, but matmul computes in bf16"),
        ("frozen-clock", "crashed", "a timed window took no time: the workload's clock is broken"),
        ("stalled-clock", "crashed", "a timed window took no time: the workload's clock is broken"),
        ("boastful", "crashed", "the workload reported timed windows of 120.004 s in a launch of"),
    ],
)
def test_a_failed_launch_has_its_outcome_its_first_error_line_and_never_a_number(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path, behaviour: str, outcome: str, error: str
) -> None:
    done = torchmatrix("run", "*cpu0", FAKE_BEHAVIOUR=behaviour)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    failed = launches(tmp_path)
    assert [launch.outcome for launch in failed] == [outcome] * (1 if outcome == "unsupported" else 2)
    assert all(error in str(launch.error) for launch in failed)
    page = (tmp_path / "reports/index.html").read_text()
    assert "images/s" not in page and f'<span class="tag">{words.OUTCOMES[outcome]}</span>' in page
    assert "bench.py --model resnet50" in page


def test_a_hanging_launch_is_ended_at_the_time_out(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    fake_matrix.write_text(
        fake_matrix.read_text(encoding="utf-8").replace("launches = 2", "launches = 1\ntimeout_minutes = 0.02"),
        encoding="utf-8",
    )
    done = torchmatrix("run", "*cpu0", FAKE_BEHAVIOUR="hang")
    assert done.returncode == 1
    (launch,) = launches(tmp_path)
    assert launch.outcome == "timeout" and "time-out of 1.2 s" in str(launch.error)


def test_a_megabyte_of_prints_goes_to_the_log_and_harms_nothing(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    assert torchmatrix("run", "*cpu0", FAKE_BEHAVIOUR="chatty").returncode == 0
    launch = launches(tmp_path)[0]
    assert launch.path.with_suffix(".log").stat().st_size > 1_900_000
    assert launch.path.stat().st_size < 20_000


def test_a_stack_that_does_not_build_costs_only_its_own_cells(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken-python"
    broken.write_text("#!/bin/sh\necho 'ModuleNotFoundError: no torch here' >&2\nexit 1\n")
    broken.chmod(0o755)
    extra = f'[[stack]]\nname = "broken"\npython = "{broken}"\naccelerator = "cpu"\n'
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8") + extra, encoding="utf-8")
    done = torchmatrix("run", "*cpu0")
    assert done.returncode == 1
    outcomes = {launch.stack.name: launch.outcome for launch in launches(tmp_path)}
    assert outcomes == {"fake": "ok", "broken": "build-failed"}
    page = (tmp_path / "reports/index.html").read_text()
    assert "no usable torch: ModuleNotFoundError: no torch here" in page and "10000</b> images/s" in page


def start(tmp_path: Path, behaviour: str) -> "subprocess.Popen[str]":
    """Start the command in the background, and return once its launch is under way."""
    process = subprocess.Popen(
        [sys.executable, "-m", "torchmatrix", "run", "*cpu0", "--engine", "local"],
        cwd=tmp_path, env={**os.environ, "FAKE_BEHAVIOUR": behaviour}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    until(lambda: any("hello" in p.read_text() for p in tmp_path.rglob("round*.jsonl")))
    return process


def fakes_alive(tmp_path: Path) -> list[int]:
    """Return the processes of stand-in interpreters that work for this test's results folder."""
    return processes_of(f"TORCHMATRIX_OWNER={Results(tmp_path / 'results').owner}".encode())


WRAPPED = """
try:
    raise KeyboardInterrupt
except KeyboardInterrupt as error:
    raise RuntimeError("Error calling __set_name__ on 'PydanticDescriptorProxy' instance 'check' in 'Model'") from error
"""


@pytest.mark.parametrize("text", ["exec('raise KeyboardInterrupt')", WRAPPED])
def test_an_interruption_while_a_library_makes_classes_has_the_exit_code_of_any_other(
    fake_matrix: Path, tmp_path: Path, text: str
) -> None:
    """They evaluate text: `python -m` then dies of SIGINT if nothing else is evaluated. Before 3.12 Python wraps it."""
    (tmp_path / "docker.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "torchmatrix", "plan", "--engine", "docker"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, text=True, capture_output=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr.splitlines()[0]) == (130, "error: interrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("when", "code"),
    [
        ("atexit.register(os.kill, os.getpid(), number)", None),  # after all that is to be done, Python itself still works
        ("sys.stderr = types.SimpleNamespace(write=lambda text: os.kill(os.getpid(), number), flush=int)", 130),
        (
            "sys.stderr = types.SimpleNamespace(write=lambda text: (time.sleep(0.2), os.kill(os.getpid(), number)), flush=int)",
            130,
        ),
    ],
)
def test_an_interruption_once_more_while_or_after_the_first_is_reported_makes_no_traceback(
    fake_matrix: Path, tmp_path: Path, when: str, code: int | None, number: signal.Signals
) -> None:
    text = f"import atexit, os, sys, time, types\nnumber = {int(number)}\n{when}\nraise KeyboardInterrupt"
    (tmp_path / "docker.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "torchmatrix", "plan", "--engine", "docker"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == (code or -number) and "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.parametrize(
    "numbers", [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGHUP,), (signal.SIGTERM, signal.SIGHUP), (signal.SIGINT,) * 5]
)
def test_an_interruption_ends_the_launch_says_so_and_leaves_nothing_behind(
    fake_matrix: Path, tmp_path: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    process = start(tmp_path, "hang")
    assert fakes_alive(tmp_path)
    for number in numbers:
        process.send_signal(number)
    stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, stderr
    assert stdout.splitlines() == ["reports/index.html"] and re.search(r"^fake/\S+/cpu0 .* interrupted$", stderr, re.MULTILINE)
    assert "interrupted" in stderr and "the same command continues" in stderr and "Traceback" not in stderr
    until(lambda: not fakes_alive(tmp_path))
    assert [launch.outcome for launch in launches(tmp_path)] == ["interrupted"]
    assert "interrupted" in (tmp_path / "reports/index.html").read_text()


def test_ctrl_c_while_a_run_imports_a_library_is_an_interruption_though_no_report_can_import_it_again(
    fake_matrix: Path, tmp_path: Path
) -> None:
    """NumPy refuses: what is in C is initialized once per process."""
    (tmp_path / "numpy.py").write_text(
        "import sys\nif hasattr(sys, 'once'):\n    raise ImportError('cannot load module more than once per process')\n"
        "sys.once = True\nraise KeyboardInterrupt\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torchmatrix", "run", "--engine", "local"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 130 and "error: interrupted" in done.stderr and "library" not in done.stderr
    assert "stopped; writing a report" in done.stderr


def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(600)\n")
    with subprocess.Popen(
        [sys.executable, "-m", "torchmatrix", "plan"], env={**os.environ, "PYTHONPATH": str(tmp_path)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout and process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == -signal.SIGINT and stderr == ""


@pytest.mark.parametrize(
    ("verb", "limit", "enough"),
    [
        ("report", resource.RLIMIT_AS, 450 << 20),
        ("export last out", resource.RLIMIT_AS, 450 << 20),
        ("report", resource.RLIMIT_FSIZE, 20_000),
        ("report", resource.RLIMIT_NOFILE, 5),
    ],
)
def test_what_the_machine_lacks_is_an_error_with_a_hint(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path, verb: str, limit: int, enough: int
) -> None:
    assert torchmatrix("run", "*cpu0").returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "torchmatrix", *verb.split()], cwd=tmp_path, capture_output=True, text=True,
        preexec_fn=partial(resource.setrlimit, limit, (enough, enough)),
    )  # fmt: skip
    assert done.returncode == 4 and "Traceback" not in done.stderr, done.stderr
    assert re.search("^error: .*\n\nhint: ", done.stderr, re.MULTILINE), done.stderr


@pytest.mark.thorough
def test_charts_are_exported_with_little_address_space(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    """A renderer that brings a browser's engine would reserve tens of GiB."""
    assert torchmatrix("run", "*cpu0").returncode == 0
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (4 << 30, 4 << 30))
    words = [sys.executable, "-m", "torchmatrix", "export", "last", "out"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/charts/throughput.png").read_bytes().startswith(b"\x89PNG")


def test_closed_standard_streams_change_nothing(fake_matrix: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchmatrix", "run", "*cpu0", "--engine", "local"]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], cwd=tmp_path)
    assert done.returncode == 0 and [launch.outcome for launch in launches(tmp_path)] == ["ok", "ok"]


@pytest.mark.parametrize("words", [("plan",), ("run", "*cpu0")])
def test_progress_that_cant_be_printed_ends_nothing_and_a_result_that_cant_is_an_error(
    fake_matrix: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    command = [sys.executable, "-m", "torchmatrix", *words, "--engine", "local"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        quiet = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=full, text=True)
        lost = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert quiet.returncode == 0 and quiet.stdout
    assert lost.returncode == 4 and "No space left" in lost.stderr and "hint: " in lost.stderr
    assert [launch.outcome for launch in launches(tmp_path)] == ["ok"] * (4 if words[0] == "run" else 0)


def test_nohup_is_honoured(fake_matrix: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchmatrix", "run", "*cpu0", "--engine", "local"]
    with subprocess.Popen(["nohup", *command], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: any(tmp_path.rglob("round*.jsonl")))
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=PATIENCE_SECONDS) == 0


def test_a_build_that_fails_on_continuing_is_no_success(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    interpreter = tmp_path / "mine"
    interpreter.symlink_to(FAKE_PYTHON)
    fake_matrix.write_text(
        fake_matrix.read_text(encoding="utf-8").replace(str(FAKE_PYTHON), str(interpreter)), encoding="utf-8"
    )
    assert torchmatrix("run", "*cpu0").returncode == 0
    (run,) = Results(tmp_path / "results").runs()
    run.record.write_text(
        "".join(line for line in run.record.read_text().splitlines(keepends=True) if '"run-exit"' not in line)
    )
    next(run.path.rglob("round2-*.jsonl")).unlink()
    interpreter.unlink()
    again = torchmatrix("run", "*cpu0")
    assert again.returncode == 1 and "build-failed" in again.stderr


def test_kill_9_loses_the_launch_in_flight_only_and_its_processes_end_at_once(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    process = start(tmp_path, "hang")
    process.kill()
    process.communicate(timeout=PATIENCE_SECONDS)
    until(lambda: not fakes_alive(tmp_path))
    assert [launch.outcome for launch in launches(tmp_path)] == ["lost"]
    assert torchmatrix("run", "*cpu0").returncode == 0
    assert sorted(launch.outcome for launch in launches(tmp_path)) == ["lost", "ok", "ok"]


def test_the_second_run_on_one_folder_says_who_holds_it(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    process = start(tmp_path, "hang")
    second = torchmatrix("run")
    process.kill()
    process.communicate(timeout=PATIENCE_SECONDS)
    assert second.returncode == 4
    assert re.search(rf"another run holds .*: process {process.pid} on ", second.stderr)
    assert "--results DIR" in second.stderr


def test_a_page_is_not_written_over_what_a_link_leads_to(torchmatrix: Command, fake_matrix: Path) -> None:
    assert torchmatrix("run").returncode == 0
    (record,) = fake_matrix.parent.rglob("run.jsonl")
    before = record.read_bytes()
    (fake_matrix.parent / "latest.html").symlink_to(record)
    done = torchmatrix("report", "--output", "latest.html")
    assert done.returncode == 2 and "leads to one: it isn't written over" in done.stderr and record.read_bytes() == before
    with (fake_matrix.parent / "night.log").open("w") as log:  # as a line of cron has it
        words = [sys.executable, "-m", "torchmatrix", "gate", "--markdown", "/dev/stdout"]
        code = subprocess.run(words, cwd=fake_matrix.parent, stdout=log, check=False).returncode
    assert code == 3 and "|" in (fake_matrix.parent / "night.log").read_text()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "--matrix", "none.toml"], 2, "no matrix file at none.toml"),
        (["run", "--where", "colour=red"], 2, "is not a condition"),
        (["run", "--launches", "0"], 2, "Invalid value for '--launches'"),
        (["runn"], 2, "No such command"),
        (["run", "nothing*"], 3, "the selection matches no cell"),
        (["plan", "nothing*"], 3, "the selection matches no cell"),
        (["run", "--results", "matrix.toml"], 4, "can't write"),
        (["report"], 2, "no runs in"),
        (["report", "--run", "x"], 2, "no run x in"),
        (["run", "--results", "/proc/results"], 4, "can't write /proc/results"),
        (["init"], 2, "already exists"),
        (["gather", ""], 2, '"" names no source'),
        *(
            ([*verb.split(), path], 2, "isn't written over")
            for verb in ("report --output", "history --output", "gate --junit", "gate --markdown", "init --output")
            for path in (
                "results/h/R/run.jsonl",
                "results/.lock",
                "matrix.lock",
                "round1-try1.log",
                "model.py",
                "r/.pseudonyms.json",
            )
        ),
        *(([*verb.split(), "matrix.toml"], 2, "isn't written over") for verb in ("report --output", "gate --markdown")),
    ],
)
def test_a_users_mistake_gets_a_message_a_hint_and_its_exit_code(
    torchmatrix: Command, fake_matrix: Path, words: list[str], code: int, message: str
) -> None:
    done = torchmatrix(*words)
    assert done.returncode == code, done.stderr
    assert message in done.stderr and "\nhint: " in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["plan", "run", "build", "batch", "explain", "profile", "why nothing*", "reproduce llm-cpu"])
@pytest.mark.parametrize("selection", [["nothing*"], ["nothing*", "--where", "mode=train"], ["*", "--where", "model=none"]])
def test_a_selection_of_no_cell_is_said_by_every_verb(
    torchmatrix: Command, fake_matrix: Path, verb: str, selection: list[str]
) -> None:
    done = torchmatrix(*verb.split(), *selection)
    assert done.returncode == 3 and "Traceback" not in done.stderr, done.stderr
    assert "no cell" in done.stderr and "\nhint: " in done.stderr


@pytest.mark.parametrize("where", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:9", "nonsense://x"])
def test_an_unreachable_engine_that_was_asked_for_is_an_error(torchmatrix: Command, fake_matrix: Path, where: str) -> None:
    done = torchmatrix("run", engine="auto", DOCKER_HOST=where)
    assert (
        done.returncode == 4
        and f"Docker does not answer at {where}" in done.stderr
        and "Errno" not in done.stderr
        and "Error(" not in done.stderr
        and "--engine local" in done.stderr
    )
    assert "Traceback" not in done.stderr


def test_all_skipped_is_nothing_to_run_and_says_why(torchmatrix: Command, fake_matrix: Path) -> None:
    fake_matrix.write_text(
        '[[stack]]\ntorch = "2.5.1"\nrocm = "6.2"\n[[workload]]\nmodel = "resnet50"\nbatch = 1\n', encoding="utf-8"
    )
    done = torchmatrix("run")
    assert done.returncode == 3 and "needs an AMD GPU" in done.stderr


def test_a_full_disk_stops_the_run_and_what_was_measured_stays(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        (disk / "ballast").write_bytes(b"x" * 36_000)
        done = torchmatrix("run", "--results", str(disk), "--launches", "9")
        assert done.returncode == 4 and "No space left on device" in done.stderr and "Traceback" not in done.stderr
        (disk / "ballast").unlink()
        kept = [launch.outcome for run in Results(disk).runs() for launch in run.launches()]
        assert "ok" in kept and kept.count("ok") >= len(kept) - 1
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_init_writes_a_matrix_for_this_machine_that_plan_accepts(torchmatrix: Command, tmp_path: Path) -> None:
    done = torchmatrix("init", "--output", "own.toml", "--python", str(FAKE_PYTHON))
    assert done.returncode == 0, done.stderr
    plan = torchmatrix("plan", "--matrix", "own.toml")
    assert plan.returncode == 0 and "* mine/resnet50" in plan.stdout
    assert torchmatrix("init", "--output", "usual.toml").returncode == 0
    assert torchmatrix("plan", "--matrix", "usual.toml").returncode == 0


@pytest.mark.parametrize("name", ['d"q', "back\\slash", "d'q ü"])
def test_init_writes_any_interpreter_s_path_as_toml(torchmatrix: Command, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "python").symlink_to(FAKE_PYTHON)
    assert torchmatrix("init", "--output", "own.toml", "--python", f"{name}/python").returncode == 0
    assert torchmatrix("plan", "--matrix", "own.toml").returncode == 0


@pytest.mark.parametrize("name", [b"d\xff", b"d\x1b[2J", b"d\nq"])
def test_init_refuses_an_interpreter_s_path_that_no_matrix_can_hold(torchmatrix: Command, tmp_path: Path, name: bytes) -> None:
    (tmp_path / os.fsdecode(name)).mkdir()
    (tmp_path / os.fsdecode(name) / "python").symlink_to(FAKE_PYTHON)
    done = torchmatrix("init", "--output", "own.toml", "--python", f"{os.fsdecode(name)}/python")
    assert done.returncode == 2 and "path has characters that no matrix can hold" in done.stderr
    assert not (tmp_path / "own.toml").exists()


def test_doctor_says_that_what_only_other_hardware_can_run_is_normal(torchmatrix: Command, fake_matrix: Path) -> None:
    fake_matrix.write_text(
        fake_matrix.read_text(encoding="utf-8")
        + '[[stack]]\ntorch = "2.5.1"\nrocm = "6.2"\n[[workload]]\nmodel = "resnet50"\nbatch = 1\n',
        encoding="utf-8",
    )
    done = torchmatrix("doctor")
    assert done.returncode == 0
    assert "skipped: 4 cells of torch2.5.1-rocm6.2: needs an AMD GPU" in done.stdout and "normal here" in done.stdout
    marks = {check["mark"] for check in json.loads(torchmatrix("doctor", "--json").stdout)}
    assert marks <= {"ok", "note", "bad"}


def test_doctor_checks_the_machine_before_there_is_a_matrix(torchmatrix: Command, tmp_path: Path) -> None:
    done = torchmatrix("doctor", "--json")
    checks = {check["subject"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 2 and "torchmatrix init" in checks["setup"]["fix"]
    assert {"engine", "machine", "GPU", "disk", "results", "plan"} <= checks.keys() and "would run" in checks["plan"]["finding"]
    assert list(tmp_path.iterdir()) == [], "it writes none"
    (tmp_path / "matrix.toml").write_text("[nonsense]")
    done = torchmatrix("doctor", "--json")
    assert done.returncode == 2 and {check["subject"] for check in json.loads(done.stdout)} == {"setup"}, "one that is wrong"


def test_doctor_counts_the_facts_with_checksums(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    assert "files of launches" not in torchmatrix("doctor").stdout
    run = write_run(tmp_path / "results", [{"rate": 100.0}, {"rate": 101.0}, {"rate": 102.0}])
    _, whole, damaged = (launch.path for launch in run.launches())
    assert "files of launches: 3 unverified" in torchmatrix("doctor").stdout
    for path in (whole, damaged):
        path.write_bytes(lines.packed(lines.read(path).events))
    damaged.write_bytes(damaged.read_bytes().replace(b"resnet50", b"resnet51"))
    output = torchmatrix("doctor").stdout
    assert "1 verified by checksum, 1 unverified: without checksums, from earlier versions, 1 unreadable, the first: " in output
    assert damaged.name in output and "fix: gather the run again" in output


def test_clean_lists_what_the_matrix_no_longer_needs_and_removes_only_that(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    text = fake_matrix.read_text(encoding="utf-8") + '[[stack]]\ntorch = "2.5.1"\ncpu = true\n'
    fake_matrix.write_text(text, encoding="utf-8")
    from torchmatrix.engines import recipes
    from torchmatrix.matrix import matrix_file

    needed = recipes.recipes(matrix_file.parse(text).stacks[1])[0].environment
    stacks = tmp_path / "cache" / "stacks"
    for name in (f"torch2.5.1-cpu-{needed}", "torch2.5.1-cpu-000000000000"):
        (stacks / name).mkdir(parents=True)
        (stacks / name / "file").write_text("x" * 5000)
    cache = {"TORCHMATRIX_CACHE": str(tmp_path / "cache")}
    listed = torchmatrix("clean", **cache)
    assert listed.returncode == 0 and "000000000000" in listed.stdout and needed not in listed.stdout
    assert "nothing was removed" in listed.stderr and len(list(stacks.glob("[!.]*"))) == 2
    assert torchmatrix("clean", "--yes", **cache).returncode == 0
    assert [path.name for path in stacks.glob("[!.]*")] == [f"torch2.5.1-cpu-{needed}"]
