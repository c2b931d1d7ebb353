"""Real containers: build, run, what a container may not do, and what is left behind when things go wrong."""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import docker
import pytest

from support import OLDEST_MATRIX, PATIENCE_SECONDS, Command, archive_of, until
from torchmatrix.core import assets
from torchmatrix.engines import recipes
from torchmatrix.engines.containers import DockerExecution, container_options
from torchmatrix.engines.docker import DockerEngine
from torchmatrix.engines.engine import Image, LaunchSpec
from torchmatrix.facts.store import Results
from torchmatrix.matrix import matrix_file
from torchmatrix.planning.plan import GpuSet

MATRIX = (
    OLDEST_MATRIX
    + """
[[workload]]
device = "cpu"
model = "resnet18"
batch = 2
image_size = 64
steps = 3
warmup_steps = 2
warmup_cap = 4
"""
)
ONE_CPU = GpuSet(indices=(0,), vendor="cpu", cpus=("0",))


@pytest.fixture(scope="module")
def built(client: docker.DockerClient) -> Image:
    """Return the real image of torch 1.12.1 with torchvision and transformers."""
    (stack,) = matrix_file.parse(MATRIX).stacks
    engine = DockerEngine(client)
    lost = recipes.unreachable_indexes(recipes.indexes_to_probe([stack]))
    return engine.build(recipes.choose_recipe(stack, engine, lost), print)


@pytest.fixture
def docker_matrix(tmp_path: Path, built: Image) -> Path:
    path = tmp_path / "matrix.toml"
    path.write_text(MATRIX)
    return path


def ours(client: docker.DockerClient, tmp_path: Path) -> list[object]:
    owner = Results(tmp_path / "results").owner
    return list(client.containers.list(all=True, filters={"label": f"torchmatrix.owner={owner}"}))


def test_a_resnet_is_trained_in_real_containers_on_one_and_two_processes(
    torchmatrix: Command, client: docker.DockerClient, docker_matrix: Path, tmp_path: Path
) -> None:
    done = torchmatrix("run", engine="docker")
    assert done.returncode == 0, done.stderr
    (run,) = Results(tmp_path / "results").runs()
    launches = list(run.launches())
    assert [launch.outcome for launch in launches] == ["ok", "ok"]
    assert all(launch.image.id.startswith("sha256:") for launch in launches)
    assert all(launch.engine["engine"] == "docker" for launch in launches)
    assert launches[0].command.startswith("docker run --rm")
    assert len(launches[0].image.facts["dockerfile_sha256"]) == 64
    for launch in launches:
        ((start, stop),) = (window.edges for window in launch.windows)
        times = [reading.monotonic_seconds for reading in launch.telemetry]
        assert times[0] < start < stop < times[-1], "clocks are shared"
    assert not ours(client, tmp_path)


@pytest.mark.thorough
def test_the_recorded_command_repeats_the_launch_when_pasted(torchmatrix: Command, docker_matrix: Path, tmp_path: Path) -> None:
    assert torchmatrix("run", "*cpu0", engine="docker").returncode == 0
    (run,) = Results(tmp_path / "results").runs()
    (launch,) = run.launches()
    done = subprocess.run(launch.command, shell=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    assert '"event": "done"' in done.stdout


def inside(client: docker.DockerClient, built: Image, code: str) -> str:
    """Return the output of Python code in a container with exactly a cell's options."""
    spec = LaunchSpec(arguments=(), gpus=ONE_CPU, cache="w", owner="test-inside")
    options = container_options(built, spec) | {"command": ["python3", "-c", code]}
    container = client.containers.create(**options)
    try:
        container.start()
        container.wait()
        return str(container.logs(stdout=True, stderr=True).decode())
    finally:
        container.remove(force=True)


def test_a_cell_has_no_rights(client: docker.DockerClient, built: Image) -> None:
    status = inside(client, built, "print(open('/proc/self/status').read())")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split()[0] == "65532" and fields["NoNewPrivs"] == "1"
    assert {fields[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0000000000000000"}
    assert fields["Cpus_allowed_list"] == "0"
    assert "Read-only file system" in inside(client, built, "open('/opt/workload/x', 'w')")
    assert "[Errno" in inside(client, built, "import socket; socket.create_connection(('1.1.1.1', 80), 2)")
    assert inside(client, built, "import os; print(sorted(os.listdir('/sys/class/net')))").strip() == "['lo']"
    assert "ok" in inside(client, built, "open('/tmp/x','w'); print('ok')")


def test_a_launch_compiles_nothing_that_it_imports_and_what_is_compiled_holds_no_times(
    client: docker.DockerClient, built: Image
) -> None:
    """The fifth byte of a compiled file tells: 3 is a checked hash of its source (PEP 552)."""
    code = """
import os, sys, torch, torchvision, transformers
from importlib.util import cache_from_source
paths = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
sources = [path for path in paths if path.endswith(".py") and "importlib/_bootstrap" not in path]
bare = [path for path in sources if not os.path.exists(cache_from_source(path))]
ours = [path for path in sources if path.startswith("/opt/stack/")]
by_time = [path for path in ours if open(cache_from_source(path), "rb").read(5)[4] != 3]
print(len(ours) > 500, bare, by_time)
"""
    assert inside(client, built, code).splitlines()[-1] == "True [] []"


def test_a_containers_processes_are_told_from_other_peoples(client: docker.DockerClient, built: Image) -> None:
    spec = LaunchSpec(arguments=(), gpus=ONE_CPU, cache="w", owner="test-owns")
    options = container_options(built, spec) | {
        "command": ["python3", "-c", "print('up', flush=True); import time; time.sleep(60)"]
    }
    with DockerExecution(client, options) as execution:
        assert next(iter(execution.lines())) == ("out", b"up\n")
        (container,) = client.containers.list(filters={"label": "torchmatrix.owner=test-owns"})
        pids = [int(row[1]) for row in container.top()["Processes"]]
        assert len(pids) >= 2 and all(execution.owns(pid) for pid in pids)
        assert not execution.owns(os.getpid()) and not execution.owns(1)


@pytest.mark.thorough
def test_a_second_build_finds_the_image_and_an_edited_workload_makes_another(
    client: docker.DockerClient, built: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stack,) = matrix_file.parse(MATRIX).stacks
    engine = DockerEngine(client)
    recipe = recipes.ready_recipe(stack, engine)
    assert recipe is not None
    lines: list[str] = []
    assert engine.build(recipe, lines.append).reference == built.reference and not lines
    copy = tmp_path / "images"
    subprocess.run(["cp", "-r", str(assets.IMAGES), str(copy)], check=True)
    bench = copy / "workload" / "bench.py"
    bench.write_text(bench.read_text() + f"# edited {uuid.uuid4()}\n")
    monkeypatch.setattr(assets, "IMAGES", copy)
    monkeypatch.setattr(assets, "WORKLOAD", copy / "workload")
    recipes.workload_hash.cache_clear()
    try:
        edited = next(r for r in recipes.recipes(stack) if r.index == recipe.index)
        assert edited.environment == recipe.environment and edited.content != recipe.content
        image = engine.build(edited, lines.append)
        (command,) = (line for line in lines if line.startswith("$ docker build"))
        assert "-f workload.Dockerfile" in command, "the environment is not built again"
        assert image.lock == built.lock
        client.images.remove(image.facts["tag"])
    finally:
        recipes.workload_hash.cache_clear()


@pytest.mark.thorough
def test_a_vendors_image_is_kept_as_it_is(
    torchmatrix: Command, client: docker.DockerClient, built: Image, tmp_path: Path
) -> None:
    client.images.get(built.reference).tag("torchmatrix-test/vendor", "1")
    text = MATRIX.replace(
        'torch = "1.12.1"\npython = "3.9"\ncpu = true', 'image = "torchmatrix-test/vendor:1"\naccelerator = "cpu"'
    )
    assert text != MATRIX
    (tmp_path / "matrix.toml").write_text(text)
    try:
        done = torchmatrix("run", "*cpu0", engine="docker")
        assert done.returncode == 0, done.stderr
        (run,) = Results(tmp_path / "results").runs()
        (launch,) = run.launches()
        assert launch.outcome == "ok" and launch.image.facts["dockerfile"] == "vendor.Dockerfile"
        assert launch.reported.torch.startswith("1.12.1")
        vendor = launch.image.facts["self_test"]["vendor"]
        assert vendor["torch"].startswith("1.12.1") and not vendor["added"]
        assert {"torch", "torchvision", "numpy"} <= set(vendor["digests"])
    finally:
        client.images.remove("torchmatrix-test/vendor:1")


def test_a_base_that_cannot_be_pulled_is_a_failed_build_with_dockers_words(
    torchmatrix: Command, client: docker.DockerClient, tmp_path: Path
) -> None:
    text = MATRIX.replace("cpu = true", 'cpu = true\nname = "lost"\nbase = "torchmatrix-test/no-such-base:1"')
    (tmp_path / "matrix.toml").write_text(text)
    done = torchmatrix("run", "*cpu0", engine="docker")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    (run,) = Results(tmp_path / "results").runs()
    (launch,) = run.launches()
    assert launch.outcome == "build-failed" and "base image torchmatrix-test/no-such-base:1: " in str(launch.error)


def test_a_gpu_without_the_vendors_runtime_is_explained(client: docker.DockerClient, built: Image, nvidia_host: object) -> None:
    from torchmatrix.core.errors import LaunchFailed

    if "nvidia" in client.info().get("Runtimes", {}):
        pytest.skip("this daemon has NVIDIA's runtime")
    gpus = GpuSet(indices=(0,), vendor="nvidia", gpus=nvidia_host.gpus[:1])  # type: ignore[attr-defined]
    owner = f"test-{uuid.uuid4().hex}"
    spec = LaunchSpec(arguments=(), gpus=gpus, cache="w", owner=owner)
    with pytest.raises(LaunchFailed, match="NVIDIA Container Toolkit"), DockerEngine(client).start(built, spec):
        pass
    assert not client.containers.list(all=True, filters={"label": f"torchmatrix.owner={owner}"})


def start(tmp_path: Path) -> "subprocess.Popen[str]":
    """Start a launch that would run for hours, and wait until its container works."""
    text = (tmp_path / "matrix.toml").read_text().replace("steps = 3", "steps = 1000000")
    (tmp_path / "matrix.toml").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-m", "torchmatrix", "run", "*cpu0", "--engine", "docker"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: any('"warm-up"' in p.read_text() for p in tmp_path.rglob("round*.jsonl")), process)
    return process


def test_ctrl_c_removes_the_container(client: docker.DockerClient, docker_matrix: Path, tmp_path: Path) -> None:
    process = start(tmp_path)
    assert len(ours(client, tmp_path)) == 1
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130 and "Traceback" not in stderr
    assert not ours(client, tmp_path)


@pytest.mark.thorough
def test_the_next_start_removes_what_kill_9_left_and_nobody_elses_container(
    torchmatrix: Command, client: docker.DockerClient, docker_matrix: Path, built: Image, tmp_path: Path
) -> None:
    labels = {"torchmatrix": "1", "torchmatrix.owner": "somebody-else"}
    other = client.containers.run(built.reference, ["sleep", "300"], detach=True, labels=labels)
    try:
        process = start(tmp_path)
        process.kill()
        process.communicate(timeout=PATIENCE_SECONDS)
        assert len(ours(client, tmp_path)) == 1
        docker_matrix.write_text(MATRIX, encoding="utf-8")
        assert torchmatrix("run", "*cpu0", engine="docker").returncode == 0
        assert not ours(client, tmp_path)
        other.reload()
        assert other.status == "running"
    finally:
        other.remove(force=True)


def test_a_container_that_outgrows_its_memory_is_out_of_memory(client: docker.DockerClient, built: Image) -> None:
    spec = LaunchSpec(arguments=(), gpus=ONE_CPU, cache="w", owner="test-memory")
    grow = "b = []\nwhile True: b.append(bytearray(10_000_000))"
    options = container_options(built, spec) | {
        "command": ["python3", "-c", grow],
        "mem_limit": "200m",
        "memswap_limit": "200m",
    }
    with DockerExecution(client, options) as execution:
        list(execution.lines())
        end = execution.wait()
    assert end.oom_killed and end.returncode != 0
    assert not client.containers.list(all=True, filters={"label": "torchmatrix.owner=test-memory"})


OWN = """\
import pathlib, torch
class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(6, 3)
        try:
            pathlib.Path(__file__).write_text("changed")
            raise SystemExit("a launch can write the user's file")
        except OSError:  # permission denied, or a read-only file system
            pass
def batch(size, generator):
    return torch.randn(size, 6, generator=generator), None
"""


def test_a_users_own_model_is_in_the_container_to_be_read_only(
    torchmatrix: Command, docker_matrix: Path, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "net.py").write_text(OWN)
    docker_matrix.write_text(MATRIX.replace('"resnet18"', '"own/net.py:Net"') + 'mode = "infer"\n', encoding="utf-8")
    done = torchmatrix("run", "*cpu0", engine="docker")
    assert done.returncode == 0, done.stderr
    (launch,) = Results(tmp_path / "results").runs()[0].launches()
    assert launch.workload.own and "-v" in launch.command and "/opt/model/net.py:ro" in launch.command
    pasted = subprocess.run(launch.command, shell=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert pasted.returncode == 0 and '"event": "done"' in pasted.stdout, pasted.stderr


def test_a_users_image_made_from_one_of_ours_is_never_a_leftover(client: docker.DockerClient) -> None:
    name, environment = uuid.uuid4().hex[:12], uuid.uuid4().hex[:12]
    ours, theirs, copy = f"torchmatrix/{name}:1", f"users/{name}:1", f"a-copy/{name}:1"
    for tag, text in (
        (ours, f"FROM scratch\nLABEL torchmatrix.environment={environment}\n"),
        (theirs, f"FROM {ours}\nLABEL a=b\n"),
    ):
        client.images.build(fileobj=archive_of({"Dockerfile": text}), custom_context=True, tag=tag, rm=True)
    client.images.get(ours).tag(*copy.split(":"))
    try:
        engine = DockerEngine(client)
        (left,) = [left for left in engine.leftovers(()) if name in left.name]
        assert left.name == ours and engine.remove(left) is None
        assert not [left for left in engine.leftovers(()) if name in left.name]
        assert client.images.get(theirs) and client.images.get(copy)
    finally:
        client.images.remove(theirs)
        client.images.remove(copy)
