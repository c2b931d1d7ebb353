"""The local engine with a real virtualenv: the whole command, DDP included; and processes that misbehave."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS, REAL_MATRIX, Command, processes_of, until
from torchmatrix.core.errors import BuildFailed
from torchmatrix.engines import local
from torchmatrix.engines.processes import LocalExecution, Uses, environment_of, lock_of
from torchmatrix.facts.lines import read_lines
from torchmatrix.facts.store import Results


def test_the_whole_command_measures_real_training_on_one_and_two_processes(
    torchmatrix: Command, real_matrix: Path, tmp_path: Path
) -> None:
    small = "batch = 2\nimage_size = 32\nsequence_length = 16\nsteps = 3\nwarmup_steps = 2\nwarmup_cap = 4\n"
    for model, precision in (("resnet18", "amp-bf16"), ("bert-tiny", "fp32")):
        workload = f'[[workload]]\ndevice = "cpu"\nmodel = "{model}"\nprecision = "{precision}"\n{small}'
        real_matrix.write_text(real_matrix.read_text(encoding="utf-8") + workload, encoding="utf-8")
    done = torchmatrix("run", "*bert-tiny*", "*resnet18*/cpu0")
    assert done.returncode == 0, done.stderr
    (run,) = Results(tmp_path / "results").runs()
    launches = list(run.launches())
    assert len(launches) == 3 and {launch.outcome for launch in launches} == {"ok"}
    assert {launch.devices.label for launch in launches} == {"cpu0", "cpu0+1"}
    two = next(launch for launch in launches if launch.devices.label == "cpu0+1").path
    setup = next(event for event in read_lines(two) if event["event"] == "setup")
    assert [device["cpus"] for device in setup["devices"]] == [[0], [1]] or os.cpu_count() != 2
    page = (tmp_path / "reports/index.html").read_text()
    assert "images/s" in page and "sequences/s" in page and "2 core groups" in page and "probed: bf16" in page
    for launch in launches:
        assert len(launch.telemetry) >= 2 and launch.telemetry[0].readings[0]["device"] == "cpu"
        times = [reading.monotonic_seconds for reading in launch.telemetry]
        ((start, stop),) = (window.edges for window in launch.windows)
        assert times[0] < start < stop <= times[-1]


@pytest.mark.thorough
def test_a_variable_of_the_shell_that_acts_on_a_launch_reaches_it_only_if_it_is_named(
    torchmatrix: Command, real_matrix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    small = "batch = 2\nimage_size = 32\nsteps = 3\nwarmup_steps = 2\nwarmup_cap = 4\n"
    workload = f'[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nmode = "infer"\nrequests = 0\n{small}'
    real_matrix.write_text(real_matrix.read_text(encoding="utf-8") + workload, encoding="utf-8")
    assert torchmatrix("run", "*cpu0").returncode == 0
    monkeypatch.setenv("TORCHMATRIX_VARIABLES", "TORCHDYNAMO_*")
    real_matrix.write_text(real_matrix.read_text(encoding="utf-8") + "compile = true\n", encoding="utf-8")
    assert torchmatrix("run", "*cpu0").returncode == 1
    plain, compiled = (launch for run in Results(tmp_path / "results").runs() for launch in run.launches())
    assert plain.reported and not {"TORCHDYNAMO_DISABLE", "OMP_PROC_BIND"} & plain.reported.facts["variables"].keys()
    assert {"TORCHDYNAMO_DISABLE", "OMP_PROC_BIND"} <= set(plain.started["variables"]["withheld"])
    assert compiled.reported and compiled.reported.facts["variables"]["TORCHDYNAMO_DISABLE"] == "1"
    assert compiled.started["variables"]["passed"] == ["TORCHDYNAMO_DISABLE"]
    assert compiled.outcome == "unsupported" and str(compiled.error).endswith(
        "nothing was compiled: TORCHDYNAMO_DISABLE is set"
    )


@pytest.mark.thorough
def test_a_rank_that_is_killed_is_a_crash_and_leaves_no_process_and_no_file(
    torchmatrix: Command, real_matrix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    workload = '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 2\nsteps = 100000\n'
    real_matrix.write_text(real_matrix.read_text(encoding="utf-8") + workload, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "torchmatrix", "run", "--engine", "local"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    owner = f"TORCHMATRIX_OWNER={Results(tmp_path / 'results').owner}".encode()

    def kill_when_training(devices: str, variable: bytes) -> None:
        until(lambda: any('"warm-up"' in p.read_text() for p in tmp_path.rglob(f"{devices}/round*.jsonl")), process)
        marked = [pid for pid in processes_of(owner) if variable in environment_of(pid)]
        os.kill(marked[-1], signal.SIGKILL)

    kill_when_training("cpu0", owner)
    kill_when_training("cpu0+1", b"LOCAL_RANK=1")
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1, stderr
    (run,) = Results(tmp_path / "results").runs()
    launches = list(run.launches())
    assert [launch.outcome for launch in launches] == ["crashed", "crashed"] and all(launch.error for launch in launches)
    assert not processes_of(owner) and not list((tmp_path / "tmp").iterdir())


@pytest.mark.thorough
@pytest.mark.sweep
def test_a_rank_that_hangs_while_the_other_waits_for_it_is_a_time_out_and_leaves_no_process(
    torchmatrix: Command, real_matrix: Path, tmp_path: Path
) -> None:
    text = real_matrix.read_text(encoding="utf-8").replace("timeout_minutes = 10", "timeout_minutes = 1.5")
    workload = '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 2\nsteps = 100000\nwarmup_cap = 10\n'
    real_matrix.write_text(text + workload, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "torchmatrix", "run", "--fast", "--where", "count=2", "--engine", "local"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    owner = f"TORCHMATRIX_OWNER={Results(tmp_path / 'results').owner}".encode()
    until(lambda: any('"warm-up"' in p.read_text() for p in tmp_path.rglob("cpu0/round*.jsonl")), process)
    os.kill(processes_of(owner)[-1], signal.SIGKILL)  # the baseline, which would take its 90 s, too
    until(lambda: any('"warm-up"' in p.read_text() for p in tmp_path.rglob("cpu0+1/round*.jsonl")), process)
    (victim,) = [pid for pid in processes_of(owner) if b"LOCAL_RANK=1" in environment_of(pid)]
    os.kill(victim, signal.SIGSTOP)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1, stderr
    (run,) = Results(tmp_path / "results").runs()
    outcomes = {launch.devices.label: (launch.outcome, str(launch.error)) for launch in run.launches()}
    assert outcomes["cpu0+1"][0] == "timeout" and "time-out of 90 s" in outcomes["cpu0+1"][1]
    assert not processes_of(owner)


def test_leaving_the_block_ends_grandchildren_in_sessions_of_their_own() -> None:
    child = "[sys.executable, '-c', 'import time; time.sleep(99)']"
    code = f"import subprocess, sys, time; subprocess.Popen({child}, start_new_session=True)"
    code += "; print('ready', flush=True); time.sleep(99)"
    with LocalExecution([sys.executable, "-c", code], {"PATH": os.environ["PATH"]}, owner="test-grandchildren") as execution:
        assert next(iter(execution.lines())) == ("out", b"ready\n")
    until(lambda: not processes_of(b"TORCHMATRIX_OWNER=test-grandchildren"))


def test_a_package_that_does_not_exist_is_a_failed_build_in_uvs_words(
    torchmatrix: Command, real_matrix: Path, tmp_path: Path
) -> None:
    text = real_matrix.read_text(encoding="utf-8").replace(
        "cpu = true", 'cpu = true\nname = "bad"\npackages = ["torchmatrix-no-such-package==9"]'
    )
    real_matrix.write_text(text + '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 2\n', encoding="utf-8")
    done = torchmatrix("run", "*cpu0")
    assert done.returncode == 1
    (run,) = Results(tmp_path / "results").runs()
    (launch,) = run.launches()
    assert launch.outcome == "build-failed" and "torchmatrix-no-such-package" in str(launch.error)
    assert "torchmatrix-no-such-package" in (run.path / "builds" / "bad.log").read_text()


@pytest.mark.parametrize("missing", ["/nowhere/python3"])
def test_an_interpreter_that_is_not_there_is_a_failed_build(torchmatrix: Command, tmp_path: Path, missing: str) -> None:
    (tmp_path / "matrix.toml").write_text(
        f'[[stack]]\npython = "{missing}"\naccelerator = "cpu"\n[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 2\n'
    )
    done = torchmatrix("run", "*cpu0", "--launches", "1")
    assert done.returncode == 1 and "can't be run" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "output", ["", "hello", "[" * 50_000, '[{"torch": "2.5.1"}]', '{"torch": "2.5.1"}', "\\377\\376"], ids=len
)
def test_a_program_that_is_no_python_is_a_failed_build(torchmatrix: Command, tmp_path: Path, output: str) -> None:
    program = tmp_path / "python3"
    program.write_text(f"#!/bin/sh\nprintf '{output}'\n")
    program.chmod(0o755)
    (tmp_path / "matrix.toml").write_text(
        f'[[stack]]\npython = "{program}"\naccelerator = "cpu"\n[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 2\n'
    )
    done = torchmatrix("run", "*cpu0", "--launches", "1")
    assert done.returncode == 1 and "is no Python: it ended without a word on its torch" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("coding", ["utf-16", "ascii:strict", "utf-8-sig"])
def test_an_interpreter_is_understood_whatever_it_would_print_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coding: str
) -> None:
    (tmp_path / "torch.py").write_text("__version__ = '2.5.1'\nprint('hello')\n")
    program = tmp_path / "python3"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PYTHONIOENCODING", coding)
    assert local._inspect_interpreter(str(program)) == {"torch": "2.5.1", "python": sys.version.split()[0]}


def _with_program(tmp_path: Path, *lines: str) -> Path:
    """Make a matrix whose interpreter is a shell script that leaves its process, and a child's, in a file; return that file."""
    program, pids = tmp_path / "python3", tmp_path / "pids"
    program.write_text("\n".join(("#!/bin/sh", f"sleep 1000 > {tmp_path}/null 2>&1 &", f"echo $$ $! > {pids}", *lines)))
    program.chmod(0o755)
    (tmp_path / "matrix.toml").write_text(
        f'[[stack]]\npython = "{program}"\naccelerator = "cpu"\n[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 2\n'
    )
    return pids


def _live(pids: Path) -> list[str]:
    return [pid for pid in pids.read_text(encoding="utf-8").split() if Path("/proc", pid).exists()]


def test_a_program_that_is_no_python_and_prints_without_end_leaves_nothing(torchmatrix: Command, tmp_path: Path) -> None:
    pids = _with_program(tmp_path, "head -c 9000000 /dev/zero | tr '\\0' x")
    done = torchmatrix("run", "*cpu0", "--launches", "1")
    assert done.returncode == 1 and "build-failed" in done.stderr and len(done.stderr) < 9000
    until(lambda: not _live(pids))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interpreter_that_is_looked_at_ends_with_the_command(tmp_path: Path, number: signal.Signals) -> None:
    pids = _with_program(tmp_path, "exec sleep 1000")
    words = [sys.executable, "-m", "torchmatrix", "run", "*cpu0", "--engine", "local"]
    process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: pids.exists() and pids.read_text().endswith("\n"), process)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == (130 if number == signal.SIGINT else -number) and "Traceback" not in stderr
    until(lambda: not _live(pids))


@pytest.mark.thorough
def test_a_stack_is_tested_once_after_its_build_and_one_that_lies_is_a_failed_build(real_python: str, tmp_path: Path) -> None:
    from torchmatrix.engines import recipes
    from torchmatrix.engines.choose import choose
    from torchmatrix.engines.engine import Image
    from torchmatrix.matrix import matrix_file

    (stack,) = matrix_file.parse(REAL_MATRIX + '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 1\n').stacks
    local = choose("local", Results(tmp_path).owner).local
    recipe = recipes.ready_recipe(stack, local)
    assert recipe is not None
    image, lines = Image(reference=real_python, environment=recipe.environment), list[str]()
    first = recipes.ensure_selftest(local, image, recipe, tmp_path / "marks", "test-self", lines.append)
    assert (
        first["torch"].startswith("2.5.1") and first["compiled"] is True and set(first["losses"]) == {"resnet18", "bert-tiny"}
    )
    assert lines and any(package.startswith("torchvision==0.20.1") for package in first["packages"])
    lines.clear()
    assert recipes.ensure_selftest(local, image, recipe, tmp_path / "marks", "test-self", lines.append) == first and not lines
    known = recipes.known_selftest(local, recipe, tmp_path / "marks")
    assert known == first
    with pytest.raises(BuildFailed, match="self-test"):  # what was tested is another one
        recipes.ensure_selftest(
            local, replace(image, reference="/bin/false"), recipe, tmp_path / "marks", "test-self", lines.append
        )
    lying = replace(recipe, requires=("torch==2.5.0",), environment="other")
    with pytest.raises(BuildFailed, match=r"self-test: .*torch is 2\.5\.1.*, not 2\.5\.0"):
        recipes.ensure_selftest(local, image, lying, tmp_path / "marks", "test-self", lines.append)
    assert not list((tmp_path / "marks").glob("*other*"))


def test_a_launch_that_ends_while_the_tool_is_stopped_keeps_its_last_lines(fake_matrix: Path, tmp_path: Path) -> None:
    """As by Ctrl-Z and fg, or by Slurm's suspend and resume."""
    process = subprocess.Popen(
        [sys.executable, "-m", "torchmatrix", "run", "*cpu0", "--launches", "1", "--engine", "local"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "FAKE_SECONDS": "1.5"},
    )  # fmt: skip
    until(lambda: any('"warm-up"' in path.read_text() for path in tmp_path.rglob("cpu0/round*.jsonl")), process)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(5)  # the launch ends meanwhile
    os.kill(process.pid, signal.SIGCONT)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, stderr
    (run,) = Results(tmp_path / "results").runs()
    assert [launch.outcome for launch in run.launches()] == ["ok"]


USES = """
import sys
from pathlib import Path
from torchmatrix.engines.processes import Uses
path, uses = Path(sys.argv[1]), Uses()
uses.make(path, path.is_dir, path.mkdir)
print("in use", flush=True)
sys.stdin.read()
"""


def test_what_a_running_run_uses_is_not_removed_and_goes_when_it_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "stacks" / "a"
    user = subprocess.Popen([sys.executable, "-c", USES, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert user.stdout and user.stdout.readline() == "in use\n"
    uses = Uses()
    uses.make(path, path.is_dir, path.mkdir)  # several may use it, and this process again and again
    uses.make(path, path.is_dir, path.mkdir)
    other = subprocess.run([sys.executable, "-c", REMOVES, str(path)], capture_output=True, text=True, check=True)
    assert other.stdout == "a run makes it or uses it\n" and path.is_dir()
    path.rmdir()
    uses.make(path, path.is_dir, path.mkdir)  # what somebody removed by hand is made again
    assert path.is_dir()
    user.communicate("")
    assert subprocess.run([sys.executable, "-c", REMOVES, str(path)], capture_output=True, text=True).stdout == other.stdout
    del uses
    subprocess.run([sys.executable, "-c", REMOVES, str(path)], check=True)
    assert not path.exists()


REMOVES = """
import sys
from pathlib import Path
from torchmatrix.engines.processes import remove_unused
print(remove_unused(Path(sys.argv[1])))
"""


def test_a_virtualenv_of_somebody_else_is_used_without_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "stacks" / "a"
    path.mkdir(parents=True)
    (path.parent / ".a.used").mkdir()  # as one that can't be opened
    Uses().make(path, path.is_dir, path.mkdir)
    other = path.with_name("b")
    lock_of(other).mkdir()
    with pytest.raises(BuildFailed, match="can't write"):
        Uses().make(other, other.is_dir, other.mkdir)
