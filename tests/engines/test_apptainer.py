"""A real Apptainer: images become files by way of Docker, launches are as closed as Docker's, nothing is left of them."""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import docker
import pytest

from containers import vendor_image
from support import Command, processes_of
from torchmatrix.engines import apptainer, recipes
from torchmatrix.engines.apptainer import ApptainerEngine
from torchmatrix.engines.engine import Image, LaunchSpec, Meeting
from torchmatrix.facts.store import Results
from torchmatrix.matrix import matrix_file
from torchmatrix.planning.plan import GpuSet

needs_it = pytest.mark.skipif(not apptainer.find(), reason="no apptainer here: tests/install-apptainer")
ONE_CPU = GpuSet(indices=(0,), vendor="cpu", cpus=("0",))
MATRIX = """
[run]
launches = 1
[cpus]
counts = [1, 2]
[[stack]]
name = "{name}"
image = "{image}"
accelerator = "cpu"
[[workload]]
device = "cpu"
model = "resnet50"
batch = 4
steps = 5
"""


@pytest.fixture
def stand_in(client: docker.DockerClient, small: str, own: str, tmp_path: Path) -> Iterator[Path]:
    """A matrix of an invented vendor's image, in which the tests' stand-in answers for the workload."""
    image = f"torchmatrix-test/{own}:1"
    vendor_image(client, small, tmp_path / "wheels", image, 1)
    (tmp_path / "matrix.toml").write_text(MATRIX.format(name=own, image=image))
    yield tmp_path
    client.images.remove(image, force=True)


@pytest.fixture
def engine(tmp_path: Path) -> ApptainerEngine:
    return ApptainerEngine(tmp_path / "cache" / "apptainer", "test-apptainer", str(apptainer.find()))


@pytest.fixture
def image(engine: ApptainerEngine, stand_in: Path) -> Image:
    """That stack's file."""
    (stack,) = matrix_file.load(stand_in / "matrix.toml").stacks
    return engine.build(recipes.choose_recipe(stack, engine, ()), print)


@needs_it
def test_a_stack_becomes_a_file_that_later_runs_need_no_docker_for(
    torchmatrix: Command, stand_in: Path, own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHMATRIX_CACHE", str(stand_in / "cache"))
    without = {"DOCKER_HOST": f"unix://{stand_in}/nobody.sock"}
    refused = torchmatrix("run", engine="apptainer", **without)
    assert refused.returncode == 3 and "isn't built, and no Docker answers here" in refused.stderr
    assert torchmatrix("build", engine="apptainer").returncode == 0
    done = torchmatrix("run", engine="apptainer", **without)
    assert done.returncode == 0, done.stderr
    (run,) = Results(stand_in / "results").runs()
    found = list(run.launches())
    assert [(launch.outcome, launch.devices.label) for launch in found] == [("ok", "cpu0"), ("ok", "cpu0+1")]
    (file,) = (stand_in / "cache" / "apptainer").glob("[!.]*.sif")
    for launch in found:
        assert launch.engine["engine"] == "apptainer" and launch.engine["version"].startswith("apptainer version")
        assert launch.image and launch.image.reference == str(file) and str(launch.image.id).startswith("sha256:")
        assert len(launch.image.facts["file_sha256"]) == 64 and launch.image.facts["base"] == f"torchmatrix-test/{own}:1"
        assert launch.started["isolation"] == {"network": "none", "note": None}
    told = subprocess.run(found[0].command, shell=True, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0 and '"event": "done"' in told.stdout, "the recorded command can be pasted"
    cleaned = torchmatrix("clean", "--all", "--yes", engine="apptainer")
    assert cleaned.returncode == 0 and not file.exists() and not file.with_suffix(".json").exists()


def inside(engine: ApptainerEngine, image: Image, code: str, meeting: Meeting | None = None) -> str:
    """What Python code prints where a launch would run."""
    spec = LaunchSpec(
        arguments=(), processes=1, gpus=ONE_CPU, cache="", owner="test-apptainer", program="../python", meeting=meeting
    )
    with engine.start(image, spec) as execution:
        words = shlex.split(execution.command.replace('"$(mktemp -d)"', "/tmp/nothing"))
        assert words[words.index(image.reference) + 1] == "python3"
    options = words[: words.index(image.reference) + 1]
    done = subprocess.run([*options, "python3", "-c", code], capture_output=True, text=True, timeout=120)
    return done.stdout


@needs_it
def test_a_launch_has_no_rights_no_network_and_no_folders_or_variables_of_the_machines(
    engine: ApptainerEngine, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "a secret")
    code = "import json, os, socket; status = dict(line.split(':', 1) for line in open('/proc/self/status'))"
    code += "\nfor path in ('/x', '/opt/workload/x'):\n try: open(path, 'w')\n except OSError as error: print(error.errno)"
    code += "\nopen('/tmp/x', 'w')"
    code += "\nprint(json.dumps([{k: status[k].strip() for k in ('CapEff', 'CapPrm', 'CapBnd', 'NoNewPrivs')},"
    code += " [name for _, name in socket.if_nameindex()], dict(os.environ), os.listdir(os.environ['HOME']), os.getppid(),"
    code += " sorted(os.listdir('/opt/workload'))]))"
    Path("/tmp/nothing").mkdir(exist_ok=True)
    *errors, told = inside(engine, image, code).splitlines()
    assert errors == ["30", "30"], "read-only file systems"
    rights, interfaces, variables, home, parent, workload = json.loads(told)
    assert {rights[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16} and rights["NoNewPrivs"] == "1"
    assert interfaces == ["lo"] and home == ["x"] and parent < 20 and "bench.py" in workload
    assert "HF_TOKEN" not in variables and variables["HOME"] == "/tmp" and variables["USER"] == "bench"


@needs_it
def test_what_a_user_says_to_apptainer_does_not_open_the_box(
    engine: ApptainerEngine, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("APPTAINER_BIND", f"{tmp_path}/mine:/mine")
    monkeypatch.setenv("APPTAINERENV_SECRET", "x")
    spec = LaunchSpec(arguments=("x",), processes=1, gpus=ONE_CPU, cache="", owner="test-apptainer", program="show.py")
    shown = tmp_path / "show.py"
    shown.write_text("import os; print(os.path.exists('/mine'), 'SECRET' in os.environ)")
    with engine.start(image, LaunchSpec(**{**_fields(spec), "program": "cache.py", "model_file": shown})) as execution:
        assert "--bind" in execution.command and f"{shown}:/opt/model/show.py:ro" in execution.command
    with engine.start(
        image, LaunchSpec(**{**_fields(spec), "program": "/opt/model/show.py", "model_file": shown})
    ) as execution:
        assert [line.strip() for stream, line in execution.lines() if stream == "out"] == [b"False False"]
        assert execution.wait().returncode == 0


def _fields(spec: LaunchSpec) -> dict[str, object]:
    return {name: getattr(spec, name) for name in spec.__slots__}


@needs_it
def test_leaving_the_block_ends_all_processes_of_the_container(engine: ApptainerEngine, image: Image, tmp_path: Path) -> None:
    code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'], "
    code += "start_new_session=True); print('ready', flush=True); time.sleep(99)"
    model = tmp_path / "hang.py"
    model.write_text(code)
    spec = LaunchSpec(
        arguments=(),
        processes=1,
        gpus=ONE_CPU,
        cache="",
        owner="test-apptainer",
        program="/opt/model/hang.py",
        model_file=model,
    )
    with engine.start(image, spec) as execution:
        assert ("out", b"ready\n") in iter(execution.lines())
        inner = _running(b"/opt/model/hang.py")
        assert inner and all(execution.owns(pid) for pid in inner) and not execution.owns(os.getpid())
    assert not _running(b"/opt/model/hang.py")
    assert not processes_of(b"test-apptainer")


def _running(word: bytes) -> list[int]:
    """The processes with this in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [int(path.parent.name)] if word in path.read_bytes() else []
    return found


def test_gpus_and_the_network_of_several_nodes_are_asked_for(nvidia_host: object, tmp_path: Path) -> None:
    gpus = GpuSet(indices=(2, 0), vendor="nvidia", gpus=(nvidia_host.gpus[2], nvidia_host.gpus[0]))  # type: ignore[attr-defined]
    meeting = Meeting(node=0, nodes=2, address="10.0.0.1", port=1, interface="ib0", devices=("/dev/infiniband",))
    spec = LaunchSpec(arguments=(), processes=2, gpus=gpus, cache="", owner="o", meeting=meeting)
    words = apptainer.options(spec, tmp_path, "machine", ())
    assert "--nv" in words and "CUDA_VISIBLE_DEVICES=GPU-222,GPU-000" in words and "--net" not in words
    assert "/dev/infiniband:/dev/infiniband" in words and "NCCL_SOCKET_IFNAME=ib0" in words
    amd = apptainer.options(
        LaunchSpec(arguments=(), processes=1, gpus=GpuSet(indices=(1,), vendor="amd"), cache="", owner="o"),
        tmp_path,
        "none",
        (),
    )
    assert "--rocm" in amd and "ROCR_VISIBLE_DEVICES=" in amd and "--net" in amd
    assert apptainer.pasted(["a", f"{tmp_path}:/tmp", "b c"], tmp_path) == "a \"$(mktemp -d)\":/tmp 'b c'"
