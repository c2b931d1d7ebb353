"""Lock, run, repeat and carry: the whole command with containers that measure known times, and no PyTorch in them."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import docker
import pytest

from support import FAKE_PYTHON, PATIENCE_SECONDS, Command, until
from support.containers import Registry, listing, remove_images, vendor_image
from support.sites import CLOSED, NO_NETWORK, mirrors, tiny_matrix, tiny_stack, tiny_wheels
from torchmatrix.core.settings import Settings
from torchmatrix.engines import lockfile, recipes
from torchmatrix.engines.docker import DockerEngine
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results

pytestmark = pytest.mark.thorough

Site = Callable[..., Settings]
WORKLOAD = """
[run]
launches = {launches}
[cpus]
counts = [1]
[[workload]]
device = "cpu"
model = "resnet50"
batch = 4
steps = 5
"""


def stack(name: str) -> str:
    return f'[[stack]]\nname = "{name}"\nimage = "vendors.example/stand-in:1"\naccelerator = "cpu"\n'


@pytest.fixture
def vendor(client: docker.DockerClient, registry: Registry, small: str, site: Site, own: str, tmp_path: Path) -> Iterator[str]:
    """Write a matrix of a stack whose vendor's image only a mirror holds; yield the name of its image there, by digest."""
    vendor_image(client, small, tmp_path / "wheels", "torchmatrix-test/stand-in:1", 1)
    digest = registry.push("torchmatrix-test/stand-in:1", "stand-ins/stand-in:1")
    client.images.remove("torchmatrix-test/stand-in:1")
    site(TORCHMATRIX_MIRRORS=f"vendors.example={registry.address}/stand-ins")
    (tmp_path / "matrix.toml").write_text(WORKLOAD.format(launches=1) + stack(own))
    reference = f"{registry.address}/stand-ins/stand-in@{digest}"
    yield reference
    forget(client, own, reference)


def forget(client: docker.DockerClient, name: str, base: str) -> None:
    """Remove everything of a stack from this machine, its base included."""
    remove_images(client, name)
    for image in client.images.list(name=base.partition("@")[0]):
        for reference in (*image.tags, *image.attrs["RepoDigests"]):
            with suppress(docker.errors.ImageNotFound):  # it went with the reference before
                client.images.remove(reference)


def newest(tmp_path: Path) -> Launch:
    return [launch for run in Results(tmp_path / "results").runs() for launch in run.launches()][-1]


def test_a_launch_records_the_lock_it_ran_under_and_is_repeated_from_that_when_image_and_lock_are_gone(
    torchmatrix: Command, client: docker.DockerClient, vendor: str, own: str, tmp_path: Path
) -> None:
    assert torchmatrix("lock", engine="docker").returncode == 0
    held = lockfile.read(tmp_path / "matrix.lock")[own]
    assert held.digest == vendor.partition("@")[2] and not client.images.list(name=vendor), "nothing was pulled for that"
    done = torchmatrix("run", "--locked", engine="docker")
    assert done.returncode == 0, done.stderr
    (run,) = Results(tmp_path / "results").runs()
    first = newest(tmp_path)
    image = first.image.facts
    assert (image["lock_sha256"], image["base_digest"], image["locked"]) == (held.sha256, held.digest, True)
    assert lockfile.from_text(run.lock_of(own).read_text()) == held
    assert f"already built: {own}" in torchmatrix("build", "--locked", engine="docker").stderr

    again = torchmatrix("reproduce", f"{own}/*", engine="docker")
    assert again.returncode == 0 and "the same image" in again.stderr, again.stderr

    (tmp_path / "matrix.lock").unlink()
    forget(client, own, vendor)
    again = torchmatrix("reproduce", str(first.path), engine="docker")
    assert again.returncode == 0 and f"built    {own}" in again.stderr, again.stderr
    assert newest(tmp_path).image.facts["lock_sha256"] == held.sha256
    *builds, launch = again.stdout.splitlines()
    assert [line.partition(" && ")[2][:24] for line in builds] == ["docker build -f vendor.D", "docker build -f workload"]

    runs = list((tmp_path / "results").rglob("*"))
    printed = torchmatrix("reproduce", str(first.path), "--print", engine="docker").stdout.splitlines()
    assert len(printed) == 3 and printed[2] == launch and list((tmp_path / "results").rglob("*")) == runs
    forget(client, own, vendor)
    for line in printed:
        pasted = subprocess.run(line, shell=True, capture_output=True, text=True, env=os.environ)
        assert pasted.returncode == 0, pasted.stderr
    assert '"event": "done"' in pasted.stdout
    assert len(client.images.list(filters={"label": f"torchmatrix.stack={own}"})) == 2, "clean finds what was pasted"


@pytest.mark.sweep
def test_what_cannot_be_made_again_is_refused_with_the_reason(
    torchmatrix: Command, client: docker.DockerClient, vendor: str, own: str, tmp_path: Path
) -> None:
    assert torchmatrix("run", engine="docker").returncode == 0
    (run,) = Results(tmp_path / "results").runs()
    forget(client, own, vendor)
    kept = run.lock_of(own)
    kept.write_text(kept.read_text().replace("linux/amd64", "linux/riscv64").replace("linux/arm64", "linux/riscv64"))
    done = torchmatrix("reproduce", f"{own}/*", engine="docker")
    assert done.returncode == 2 and "is gone" in done.stderr and "platform: linux/riscv64 in the lock" in done.stderr


def test_a_bundle_brings_everything_to_a_machine_without_a_network(
    torchmatrix: Command, client: docker.DockerClient, vendor: str, own: str, site: Site, tmp_path: Path
) -> None:
    assert torchmatrix("lock", engine="docker").returncode == 0
    assert torchmatrix("build", "--locked", engine="docker").returncode == 0
    ids = {tag: image.id for image in client.images.list(filters={"label": f"torchmatrix.stack={own}"}) for tag in image.tags}
    done = torchmatrix("bundle", "export", "b.tar", "--engine", "docker")
    assert done.returncode == 0 and done.stdout.strip() == "b.tar", done.stderr
    forget(client, own, vendor)
    cut = tmp_path / "cut.tar"
    with (tmp_path / "b.tar").open("rb") as whole:
        cut.write_bytes(whole.read(5_000_000))
    refused = torchmatrix("bundle", "import", "cut.tar", "--into", "over", "--engine", "docker")
    assert refused.returncode == 2 and "is cut short or damaged" in refused.stderr
    assert not client.images.list(filters={"label": f"torchmatrix.stack={own}"}) and not (tmp_path / "over").exists()

    site(
        TORCHMATRIX_MIRRORS=f"vendors.example=127.0.0.1:9,{mirrors(CLOSED)}",
        TORCHMATRIX_CACHE=tmp_path / "over-cache",
        **NO_NETWORK,
    )
    lost = torchmatrix("run", "--locked", "--results", "lost", engine="docker")
    assert lost.returncode == 1 and "connection refused" in lost.stderr, "there is no other way to the image"
    done = torchmatrix("bundle", "import", "b.tar", "--into", "over", "--engine", "docker")
    assert done.returncode == 0, done.stderr
    there = {tag: image.id for image in client.images.list(filters={"label": f"torchmatrix.stack={own}"}) for tag in image.tags}
    assert there == ids
    done = torchmatrix("run", "--locked", "--matrix", "over/matrix.toml", engine="docker")
    assert done.returncode == 0 and "1 ok" in done.stderr, done.stderr
    assert newest(tmp_path).image.facts["lock_sha256"] == lockfile.read(tmp_path / "matrix.lock")[own].sha256


@pytest.mark.sweep
def test_an_image_that_is_removed_during_a_run_costs_its_own_later_launches_only(
    torchmatrix: Command, client: docker.DockerClient, vendor: str, own: str, tmp_path: Path
) -> None:
    other = f'[[stack]]\nname = "fake"\npython = "{FAKE_PYTHON}"\naccelerator = "cpu"\n'
    (tmp_path / "matrix.toml").write_text(WORKLOAD.format(launches=9) + stack(own) + other)
    command = [sys.executable, "-m", "torchmatrix", "run", "--engine", "docker"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begun = f"results/*/*/{own}/*/*/round*.jsonl"
    until(lambda: any('"exit"' in path.read_text() for path in tmp_path.rglob(begun)), process)
    while images := client.images.list(filters={"label": f"torchmatrix.stack={own}"}):
        assert process.poll() is None
        with suppress(docker.errors.APIError):  # a container uses it just now
            client.images.remove(str(images[0].id), force=True)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1 and "Traceback" not in stderr
    (run,) = Results(tmp_path / "results").runs()
    outcomes: dict[str, list[str]] = {own: [], "fake": []}
    for launch in run.launches():
        outcomes[launch.stack.name].append(launch.outcome)
        if launch.outcome != "ok":
            assert "No such image" in str(launch.error) and "build it again: torchmatrix build" in str(launch.error)
    assert outcomes["fake"] == ["ok"] * 9
    assert set(outcomes[own]) == {"ok", "crashed"} and len(outcomes[own]) == 9


def test_ctrl_c_during_a_build_leaves_no_image_of_ours_and_no_container_and_the_next_build_works(
    torchmatrix: Command, client: docker.DockerClient, vendor: str, own: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    base = "torchmatrix-test/slow:1"
    dockerfile = f"FROM {vendor}\nRUN echo > /slow\n"
    client.images.build(fileobj=io.BytesIO(dockerfile.encode()), tag=base, rm=True, forcerm=True)
    request.addfinalizer(lambda: client.images.remove(base, force=True))
    text = (tmp_path / "matrix.toml").read_text()
    (tmp_path / "matrix.toml").write_text(text.replace("vendors.example/stand-in:1", base))
    before = {container.id for container in client.containers.list(all=True, ignore_removed=True)}
    process = subprocess.Popen(
        [sys.executable, "-m", "torchmatrix", "build", "--engine", "docker"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    step = "RUN export PYTHONDONTWRITEBYTECODE=1 PYTHONNOUSERSITE=1 guard"
    logs = "builds/*.log"
    until(lambda: any("Running in" in path.read_text().partition(step)[2] for path in tmp_path.rglob(logs)), process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130 and "interrupted" in stderr and "Traceback" not in stderr
    assert not client.images.list(filters={"label": f"torchmatrix.stack={own}"}), "no half image under our tag"
    until(lambda: not {container.id for container in client.containers.list(all=True, ignore_removed=True)} - before)
    done = torchmatrix("build", engine="docker")
    assert done.returncode == 0 and f"built    {own}" in done.stderr, done.stderr


def test_the_printed_builds_of_wheels_give_the_same_packages_when_pasted(
    client: docker.DockerClient, small: str, site: Site, own: str, uv_wheel: Path, tmp_path: Path
) -> None:
    wheels = tiny_wheels(tmp_path / "wheels")
    (wheels / uv_wheel.name).write_bytes(uv_wheel.read_bytes())
    site(TORCHMATRIX_WHEELHOUSE=wheels)
    its_stack, recipe = tiny_stack(tiny_matrix(own, f'base = "{small}"\n'))
    engine = DockerEngine(client)
    made = engine.build(recipe, lambda line: None)
    assert made.lock
    packages = listing(client, made.reference)
    again = engine.rebuild(recipes.recipes(its_stack, made.lock)[0], made.lock, tmp_path / "a folder")
    for line in again.commands:
        subprocess.run(line, shell=True, check=True, capture_output=True)
    assert listing(client, again.reference) == packages and "torch==2.5.1" in packages
    rebuilt = engine.build(recipes.recipes(its_stack, made.lock)[0], lambda line: None)
    assert rebuilt.facts["tag"] == again.reference and rebuilt.lock == made.lock, "what was pasted is what --locked builds"
