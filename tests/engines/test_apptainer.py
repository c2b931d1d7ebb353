"""A real Apptainer: images become files by way of Docker, launches are as closed as Docker's, nothing is left of them."""

import json
import os
import shlex
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from support import Command, processes_of
from support.containers import remove_images, vendor_image
from torchmatrix.engines import recipes
from torchmatrix.engines.engine import Image, Isolation, LaunchSpec, Rendezvous, pasted
from torchmatrix.facts.store import Results
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.planning.plan import GpuSet
from torchmatrix_plugins.cluster import file_engine
from torchmatrix_plugins.cluster.file_engine import Apptainer, FileEngine, binds_of

needs_it = pytest.mark.skipif(not file_engine.find_apptainer(), reason="no apptainer here: tests/install-apptainer")
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


@pytest.fixture(scope="module")
def stack(client: docker.DockerClient, small: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a stack's name, in whose invented vendor's image, called torchmatrix-test/NAME:1, the tests' stand-in answers."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    vendor_image(client, small, tmp_path_factory.mktemp("wheels"), f"torchmatrix-test/{name}:1", 1)
    yield name
    remove_images(client, name)
    client.images.remove(f"torchmatrix-test/{name}:1", force=True)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> FileEngine:
    return FileEngine(tmp_path_factory.mktemp("apptainer"), "test-apptainer", Apptainer(str(file_engine.find_apptainer())))


@pytest.fixture(scope="module")
def image(engine: FileEngine, stack: str) -> Image:
    """Return that stack's file."""
    (wanted,) = matrix_file.parse(MATRIX.format(name=stack, image=f"torchmatrix-test/{stack}:1")).stacks
    return engine.build(recipes.choose_recipe(wanted, engine, ()), print)


@needs_it
@pytest.mark.thorough
def test_a_stack_becomes_a_file_that_later_runs_need_no_docker_for(
    torchmatrix: Command, stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = f"torchmatrix-test/{stack}:1"
    (tmp_path / "matrix.toml").write_text(MATRIX.format(name=stack, image=base))
    monkeypatch.setenv("TORCHMATRIX_CACHE", str(tmp_path / "cache"))
    without = {"DOCKER_HOST": f"unix://{tmp_path}/nobody.sock"}
    refused = torchmatrix("run", engine="apptainer", **without)
    assert refused.returncode == 3 and "isn't built, and no Docker answers here" in refused.stderr
    assert torchmatrix("build", engine="apptainer").returncode == 0
    done = torchmatrix("run", engine="apptainer", **without)
    assert done.returncode == 0, done.stderr
    (run,) = Results(tmp_path / "results").runs()
    launches = list(run.launches())
    assert [(launch.outcome, launch.devices.label) for launch in launches] == [("ok", "cpu0"), ("ok", "cpu0+1")]
    (file,) = (tmp_path / "cache" / "apptainer").glob("[!.]*.sif")
    for launch in launches:
        assert launch.engine["engine"] == "apptainer" and launch.engine["version"][0].isdigit()
        assert launch.image and launch.image.reference == str(file) and str(launch.image.id).startswith("sha256:")
        assert len(launch.image.facts["file_sha256"]) == 64 and launch.image.facts["base"] == base
        assert launch.started["isolation"] == {"network": "none", "note": None}
    pasted = subprocess.run(launches[0].command, shell=True, capture_output=True, text=True, timeout=120)
    assert pasted.returncode == 0 and '"event": "done"' in pasted.stdout, "the recorded command can be pasted"
    cleaned = torchmatrix("clean", "--all", "--yes", engine="apptainer")
    assert cleaned.returncode == 0 and not file.exists() and not file.with_suffix(".json").exists()


def inside(engine: FileEngine, image: Image, home: Path, code: str) -> str:
    """Return what Python code prints where a launch would run."""
    spec = LaunchSpec(arguments=(), gpus=ONE_CPU, cache="", owner="test-apptainer", program="../python")
    with engine.start(image, spec) as execution:
        words = shlex.split(execution.command.replace('"$(mktemp -d)"', str(home)))
        assert words[words.index(image.reference) + 1] == "python3"
    options = words[: words.index(image.reference) + 1]
    done = subprocess.run([*options, "python3", "-c", code], capture_output=True, text=True, timeout=120)
    return done.stdout


@needs_it
def test_a_launch_has_no_rights_no_network_and_no_folders_or_variables_of_the_machines(
    engine: FileEngine, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "a secret")
    code = "import json, os, socket; status = dict(line.split(':', 1) for line in open('/proc/self/status'))"
    code += "\nfor path in ('/x', '/opt/workload/x'):\n try: open(path, 'w')\n except OSError as error: print(error.errno)"
    code += "\nopen('/tmp/x', 'w')"
    code += "\nprint(json.dumps([{k: status[k].strip() for k in ('CapEff', 'CapPrm', 'CapBnd', 'NoNewPrivs')},"
    code += " [name for _, name in socket.if_nameindex()], dict(os.environ), os.listdir(os.environ['HOME']), os.getppid(),"
    code += " sorted(os.listdir('/opt/workload'))]))"
    *errors, facts = inside(engine, image, tmp_path, code).splitlines()
    assert errors == ["30", "30"], "read-only file systems"
    rights, interfaces, variables, home, parent, workload = json.loads(facts)
    assert {rights[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16} and rights["NoNewPrivs"] == "1"
    assert interfaces == ["lo"] and home == ["x"] and parent < 20 and "bench.py" in workload
    assert "HF_TOKEN" not in variables and variables["HOME"] == "/tmp" and variables["USER"] == "bench"


@needs_it
def test_what_a_user_says_to_apptainer_does_not_open_the_container(
    engine: FileEngine, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("APPTAINER_BIND", f"{tmp_path}/mine:/mine")
    monkeypatch.setenv("APPTAINERENV_SECRET", "x")
    spec = LaunchSpec(arguments=("x",), gpus=ONE_CPU, cache="", owner="test-apptainer", program="show.py")
    shown = tmp_path / "show.py"
    shown.write_text("import os; print(os.path.exists('/mine'), 'SECRET' in os.environ)")
    with engine.start(image, replace(spec, program="cache.py", model_file=shown)) as execution:
        assert "--bind" in execution.command and f"{shown}:/opt/model/show.py:ro" in execution.command
    with engine.start(image, replace(spec, program="/opt/model/show.py", model_file=shown)) as execution:
        assert [line.strip() for stream, line in execution.lines() if stream == "out"] == [b"False False"]
        assert execution.wait().returncode == 0


@needs_it
def test_leaving_the_block_ends_all_processes_of_the_container(engine: FileEngine, image: Image, tmp_path: Path) -> None:
    code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)'], "
    code += "start_new_session=True); print('ready', flush=True); time.sleep(99)"
    model = tmp_path / "hang.py"
    model.write_text(code)
    spec = LaunchSpec(
        arguments=(),
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
    """Return the processes with this word in their command line."""
    ids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            ids += [int(path.parent.name)] if word in path.read_bytes() else []
    return ids


def test_gpus_and_the_network_of_several_nodes_are_asked_for(nvidia_host: Host, tmp_path: Path) -> None:
    gpus = GpuSet(indices=(2, 0), vendor="nvidia", gpus=(nvidia_host.gpus[2], nvidia_host.gpus[0]))
    rendezvous = Rendezvous(node=0, nodes=2, address="10.0.0.1", port=1, interface="ib0", devices=("/dev/infiniband",))
    spec = LaunchSpec(arguments=(), gpus=gpus, cache="", owner="o", rendezvous=rendezvous)
    program = Apptainer("apptainer")
    words = program.command_prefix("x.sif", spec, tmp_path, binds_of(spec), Isolation(network="machine"))
    assert "--nv" in words and "CUDA_VISIBLE_DEVICES=GPU-222,GPU-000" in words and "--net" not in words
    assert "/dev/infiniband:/dev/infiniband" in words and "NCCL_SOCKET_IFNAME=ib0" in words and words[-1] == "x.sif"
    alone = LaunchSpec(arguments=(), gpus=GpuSet(indices=(1,), vendor="amd"), cache="", owner="o")
    amd = program.command_prefix("x.sif", alone, tmp_path, (), Isolation(network="none"))
    assert "--rocm" in amd and "--net" in amd
    assert pasted(["a", f"{tmp_path}:/tmp", "b c"], tmp_path) == "a \"$(mktemp -d)\":/tmp 'b c'"
