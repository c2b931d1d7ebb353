"""Compile caches: filled by the first launch, then sealed; what changes one is seen, and the cache made anew."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from support import archive_of
from torchmatrix.core import settings
from torchmatrix.engines import volumes
from torchmatrix.engines.docker import DockerEngine
from torchmatrix.engines.engine import Engine, Exit, Image, LaunchSpec
from torchmatrix.engines.local import LocalEngine
from torchmatrix.planning.plan import GpuSet

BOX = """
import os, sys
sys.path.insert(0, sys.argv[sys.argv.index("--box") + 1])
import cache
def value(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else ""
folder, sealed, how = value("--cache"), value("--sealed-cache"), value("--how")
print(cache.prepare(folder, 0, sealed))
def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
kernel = os.path.join(os.environ["TRITON_CACHE_DIR"], "key", "kernel.so")
print(open(kernel).read() if os.path.exists(kernel) else "compiled")
write(kernel, "kernel")
write(os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "locks", "key.lock"), str(os.getpid()))
if how == "link":
    os.symlink("/etc/passwd", os.path.join(folder, "link"))
if how == "sparse":
    write(os.path.join(folder, "sparse"), "")
    os.truncate(os.path.join(folder, "sparse"), 1 << 42)
if how == "deep":
    os.chdir(folder)
    for _ in range(3000):
        os.mkdir("d")
        os.chdir("d")
if how == "fail":
    sys.exit(1)
if how == "poison":
    try:
        victim = os.path.join(sealed, "triton", "key", "kernel.so")
        os.chmod(victim, 0o600)
        write(victim, "poison")
        print("poisoned")
    except OSError as error:
        print(type(error).__name__, error.errno)
cache.seal(folder, 0)
"""
"""A workload that uses its compile cache through the box's own code, as torch does, and then does what --how says."""
WORKLOAD = Path(__file__).parents[2] / "images" / "workload"
Launch = Callable[..., tuple[str, list[str], Exit]]


def launched(engine: Engine, image: Image, box: str, how: str, name: str) -> tuple[str, list[str], Exit]:
    """Return the state of the cache as the header has it (and why), what the workload printed, and how it ended."""
    gpus = GpuSet(indices=(0,), vendor="cpu")
    spec = LaunchSpec(arguments=("--how", how, "--box", box), gpus=gpus, cache=name, owner="test-caches")
    with engine.start(image, spec) as execution:
        printed = [line.decode().strip() for stream, line in execution.lines() if stream == "out"]
        facts = execution.started["compile_cache"]
        return f"{facts['state']} {facts['note'] or ''}".strip(), printed, execution.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder where the local engine keeps the caches of its one environment."""
    return tmp_path / "compile" / "env"


@pytest.fixture
def local(tmp_path: Path) -> Launch:
    """Return what launches that workload on the local engine."""
    python, box = tmp_path / "python", tmp_path / "box.py"
    box.write_text(BOX)
    python.write_text(f'#!/bin/sh\nshift\nexec python3 -S {box} "$@"\n')
    python.chmod(0o755)
    image = Image(reference=str(python), environment="env")
    engine = LocalEngine(tmp_path, "test-caches")
    return lambda how="", name="w": launched(engine, image, str(WORKLOAD), how, name)


@pytest.fixture
def image(client: docker.DockerClient, small: str) -> Iterator[Image]:
    """Build an image with that workload, in an environment of its own."""
    tag, environment = f"torchmatrix-test/caches:{uuid.uuid4().hex[:8]}", uuid.uuid4().hex[:12]
    run = "RUN mkdir /cache && chown 65532:65532 /cache"  # as in the images of stacks
    parts = {"Dockerfile": f"FROM {small}\n{run}\nCOPY bench.py cache.py /opt/workload/\n", "bench.py": BOX}
    parts["cache.py"] = (WORKLOAD / "cache.py").read_text()
    client.images.build(fileobj=archive_of(parts), custom_context=True, tag=tag, rm=True, forcerm=True)
    yield Image(reference=tag, environment=environment)
    for volume in volumes_of(client, environment):
        volumes.discard_volume(client, volume)
    client.images.remove(tag, force=True)


@pytest.fixture
def contained(client: docker.DockerClient, image: Image) -> Launch:
    """Return what launches that workload in containers."""
    engine = DockerEngine(client)
    return lambda how="", name="w": launched(engine, image, "/opt/workload", how, name)


def poison(client: docker.DockerClient, image: Image) -> None:
    """Change every cache of the image, as somebody with access to the daemon could."""
    for name in volumes_of(client, image.environment):
        change = ["sh", "-c", "printf poison > /x/triton/key/kernel.so"]
        client.containers.run(image.reference, change, volumes={name: {"bind": "/x"}}, remove=True, network_mode="none")


def volumes_of(client: docker.DockerClient, environment: str) -> list[str]:
    """Return the caches of an environment."""
    names = [str(volume.name) for volume in client.volumes.list(filters={"label": "torchmatrix"})]
    return [name for name in names if volumes.volume_environment(name) == environment]


COLD, WARM = ["cold", "compiled"], ["warm", "kernel"]


def test_the_first_launch_fills_the_cache_and_later_ones_only_read_it(local: Launch, folder: Path) -> None:
    assert local() == ("new", COLD, Exit(returncode=0, oom_killed=False))
    kernel = folder / "w" / "sealed" / "triton" / "key" / "kernel.so"
    assert not kernel.stat().st_mode & 0o222 and not kernel.parent.stat().st_mode & 0o222
    before = (folder / "w" / "seal").read_text()
    for _ in range(2):
        assert local() == ("sealed", WARM, Exit(returncode=0, oom_killed=False))
    assert (folder / "w" / "seal").read_text() == before
    assert sorted(path.name for path in (folder / "w").iterdir()) == ["seal", "sealed"]
    assert local(name="other") == ("new", COLD, Exit(returncode=0, oom_killed=False)), "each workload has its own"


ODD = ["fail", "link", "sparse", "deep"]


@pytest.mark.parametrize("how", ODD)
def test_a_launch_that_fails_or_leaves_something_odd_seals_nothing(local: Launch, how: str) -> None:
    assert local(how)[:2] == ("new", COLD)
    assert local()[:2] == ("new", COLD)


def test_a_launch_that_changes_its_sealed_cache_does_not_count_and_the_next_compiles_again(local: Launch) -> None:
    local()
    state, printed, end = local("poison")
    assert state == "sealed" and printed == [*WARM, "poisoned"]
    assert end.problem and "compile cache was changed while the launch ran" in end.problem
    assert local()[:2] == ("new", COLD)
    assert local()[:2] == ("sealed", WARM)


def test_a_cache_that_was_changed_in_between_is_thrown_away(local: Launch, folder: Path) -> None:
    local()
    sealed = folder / "w" / "sealed"
    sealed.chmod(0o700)
    (sealed / "more.so").write_text("poison")
    assert local()[:2] == ("new it differed from its seal and was thrown away", COLD)
    assert local()[:2] == ("sealed", WARM)


@pytest.mark.parametrize("done", ["renamed", "half protected", "seal half written", "not even renamed"])
def test_a_seal_that_was_interrupted_is_none(local: Launch, folder: Path, done: str) -> None:
    """Leave what kill -9 leaves at each step of sealing."""
    local()
    (folder / "w" / "seal").rename(folder / "w" / ".seal.part")
    if done == "half protected":
        (folder / "w" / "sealed" / "triton").chmod(0o700)
    if done == "not even renamed":
        (folder / "w" / "sealed").rename(folder / "w" / "work")
    if done != "seal half written":
        (folder / "w" / ".seal.part").unlink()
    assert local()[:2] == ("new", COLD)
    assert local()[:2] == ("sealed", WARM)


def test_a_cache_in_use_is_left_alone(tmp_path: Path, local: Launch, folder: Path) -> None:
    from torchmatrix.engines.caches import LocalCache

    local()
    other = LocalCache(folder, "w")
    assert other.facts.state == "sealed"
    assert local()[:2] == ("none another launch is using it", COLD)
    other.release()
    assert local()[:2] == ("sealed", WARM)
    assert not list(folder.glob(".own-*"))


@pytest.mark.parametrize("how", ["fail", "link", "sparse"])
def test_a_container_that_fails_or_leaves_something_odd_seals_nothing(contained: Launch, how: str) -> None:
    assert contained(how)[:2] == ("new", COLD)
    assert contained()[:2] == ("new", COLD)


@pytest.mark.thorough
def test_a_containers_cache_is_sealed_read_only_and_made_anew_when_it_differs(
    client: docker.DockerClient, image: Image, contained: Launch
) -> None:
    assert contained() == ("new", COLD, Exit(returncode=0, oom_killed=False))
    state, printed, end = contained("poison")
    assert (state, printed, end.problem) == ("sealed", [*WARM, "OSError 30"], None), "a read-only file system"
    assert contained(name="other")[:2] == ("new", COLD), "each workload has its own"
    poison(client, image)
    assert contained()[:2] == ("new it differed from its seal and was thrown away", COLD)
    assert contained()[:2] == ("sealed", WARM)


def test_clean_lists_the_caches_of_an_environment_and_removes_them_with_their_seals(
    client: docker.DockerClient, image: Image, contained: Launch
) -> None:
    contained()
    engine = DockerEngine(client)
    (mine,) = [left for left in engine.leftovers(()) if image.environment in left.name]
    assert mine.kind == "volume" and not [left for left in engine.leftovers([image.environment]) if left.name == mine.name]
    assert engine.remove(mine) is None
    assert not [volume for volume in client.volumes.list() if image.environment in str(volume.name)]


def test_an_upgraded_interpreter_and_other_variables_compile_anew(
    tmp_path: Path, local: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    python, box, engine = tmp_path / "python", str(WORKLOAD), LocalEngine(tmp_path, "test-caches")
    for version, state in (("2.7.1", "new"), ("2.7.1", "sealed"), ("2.15.0", "new"), ("2.7.1", "sealed")):
        image = Image(reference=str(python), environment="env", facts={"torch": version, "python": "3.11.7"})
        assert launched(engine, image, box, "", "w")[0] == state, version
    assert not engine.leftovers(["env"]), "they are of an environment that is kept"
    assert len(engine.leftovers([])) == 2
    assert local()[0] == "new"
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    assert local()[0] == "sealed", "it doesn't reach a launch"
    monkeypatch.setattr(settings, "load", lambda: replace(settings.Settings(), variables=("ATEN_CPU_CAPABILITY",)))
    assert [local()[0], local()[0]] == ["new", "sealed"]
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert local()[0] == "new"
