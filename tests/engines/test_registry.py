"""Container bases and vendors' images from a real registry by way of a mirror: locked by digest, whatever moves or goes."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from support.containers import BRIDGE, Registry, free_port, listing, remove_images, vendor_image
from support.sites import Authority, mirrors, serving, tiny_matrix, tiny_stack, tiny_wheels
from support.vendors import plain_wheel
from torchmatrix.core.errors import BuildFailed
from torchmatrix.core.settings import Settings
from torchmatrix.engines import recipes
from torchmatrix.engines.docker import DockerEngine
from torchmatrix.engines.engine import Recipe
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.matrix import matrix_file

pytestmark = pytest.mark.thorough

Site = Callable[..., Settings]
VENDOR = "vendors.example/torch:1"
"""A reference whose registry only a mirror stands for."""


def quiet(line: str) -> None:
    """Take a log's lines."""


@pytest.fixture
def vendors(client: docker.DockerClient, small: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Yield two vendor's images with an invented torch and all that the workload needs; they differ in one file, /which."""
    wheels, made = tmp_path_factory.mktemp("vendor-wheels"), []
    for number in (1, 2):
        made.append(f"torchmatrix-test/vendor-small:{number}")
        vendor_image(client, small, wheels, made[-1], number)
    yield made
    for tag in made:
        with suppress(docker.errors.ImageNotFound):  # a test may have removed it
            client.images.remove(tag, force=True)


def vendor_recipe(name: str, lock: StackLock | None = None) -> Recipe:
    text = f'[[stack]]\nname = "{name}"\nimage = "{VENDOR}"\naccelerator = "cpu"\n'
    (stack,) = matrix_file.parse(text + '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 1\n').stacks
    return recipes.recipes(stack, lock)[0]


def which(client: docker.DockerClient, reference: str) -> str:
    return str(client.containers.run(reference, ["cat", "/which"], remove=True, network_mode="none").decode()).strip()


def test_a_vendors_image_is_locked_by_its_registrys_digest_and_built_from_that_whatever_becomes_of_its_tag(
    client: docker.DockerClient, registry: Registry, vendors: list[str], site: Site, own: str
) -> None:
    site(TORCHMATRIX_MIRRORS=f"vendors.example={registry.address}/vendors")
    engine, here = DockerEngine(client), f"{registry.address}/vendors/torch"
    first = registry.push(vendors[0], "vendors/torch:1")
    held = engine.resolve(vendor_recipe(own), quiet, fresh=True)
    assert (held.base, held.digest, held.image_id) == (VENDOR, first, "")
    assert registry.address not in held.text, "the same lock means the same at another site"
    client.images.remove(vendors[0])
    second = registry.push(vendors[1], "vendors/torch:1")
    assert second != first, "the tag was moved"
    lines: list[str] = []
    image = engine.build(vendor_recipe(own, held), lines.append)
    assert which(client, image.reference) == "1" and f"$ docker pull {here}@{first}" in lines
    assert (image.facts["base_digest"], image.facts["locked"], image.lock) == (first, True, held)
    newer = engine.resolve(vendor_recipe(own), quiet, fresh=True)
    assert newer.digest == second and recipes.lock_changes(held, newer) == [f"base {first[:19]} -> {second[:19]}"]
    client.images.remove(f"{here}@{first}")


def test_a_digest_that_is_gone_and_a_registry_that_is_down_are_failed_builds_that_say_so(
    client: docker.DockerClient, registry: Registry, vendors: list[str], site: Site, own: str
) -> None:
    site(TORCHMATRIX_MIRRORS=f"vendors.example={registry.address}/gone")
    digest = registry.push(vendors[1], "gone/torch:1")
    engine = DockerEngine(client)
    held = engine.resolve(vendor_recipe(own), quiet, fresh=True)
    missing = replace(held, digest="sha256:" + "0" * 64)
    with pytest.raises(BuildFailed, match=rf"base image {registry.address}/gone/torch@sha256:0+: .*manifest"):
        engine.build(vendor_recipe(own, missing), quiet)
    registry.forget("gone/torch", digest)
    with pytest.raises(BuildFailed, match=rf"base image {registry.address}/gone/torch@{digest}: .*manifest"):
        engine.build(vendor_recipe(own, held), quiet)
    port = free_port()
    site(TORCHMATRIX_MIRRORS=f"vendors.example=127.0.0.1:{port}/gone")
    with pytest.raises(BuildFailed, match=rf"base image 127.0.0.1:{port}/gone/torch@{digest}: .*connection refused"):
        engine.build(vendor_recipe(own, held), quiet)
    with pytest.raises(BuildFailed, match=rf"base image 127.0.0.1:{port}/gone/torch:1: .*connection refused"):
        engine.resolve(vendor_recipe(own), quiet, fresh=True)
    assert not client.images.list(filters={"label": f"torchmatrix.stack={own}"})


def test_an_image_that_came_from_no_registry_is_locked_by_its_id(
    client: docker.DockerClient, vendors: list[str], site: Site, own: str
) -> None:
    site()
    engine = DockerEngine(client)
    client.images.get(vendors[0]).tag("vendors.example/torch", "1")
    try:
        held = engine.resolve(vendor_recipe(own), quiet, fresh=True)
        assert (held.digest, held.image_id) == ("", client.images.get(vendors[0]).id)
        assert which(client, engine.build(vendor_recipe(own, held), quiet).reference) == "1"
        remove_images(client, own)
        client.images.get(vendors[1]).tag("vendors.example/torch", "1")
        with pytest.raises(BuildFailed, match=rf"is {client.images.get(vendors[1]).id} here, but {held.image_id} in the lock"):
            engine.build(vendor_recipe(own, held), quiet)
    finally:
        client.images.remove("vendors.example/torch:1")


def test_an_invalid_reference_is_a_failed_build_and_not_a_lost_engine(client: docker.DockerClient, own: str) -> None:
    engine = DockerEngine(client)
    recipe = replace(vendor_recipe(own), base="UPPER/case:1")
    assert not engine.is_stored(recipe)
    with pytest.raises(BuildFailed, match=r"base image UPPER/case:1: .*must be lowercase"):
        engine.build(recipe, quiet)


PACKAGES = ["helper==1.0", "setuptools==80.0", "torch==2.5.1", "torchvision==0.20.1", "transformers==4.57.6"]


def test_wheels_on_a_base_from_a_mirror_out_of_a_wheelhouse_with_no_network_at_all(
    client: docker.DockerClient, registry: Registry, small: str, site: Site, own: str, uv_wheel: Path, tmp_path: Path
) -> None:
    wheels = tiny_wheels(tmp_path / "wheels")
    digest = registry.push(small, "bases/small:1")
    site(TORCHMATRIX_MIRRORS=f"bases.example={registry.address}/bases", TORCHMATRIX_WHEELHOUSE=wheels)
    stack, recipe = tiny_stack(tiny_matrix(own, 'base = "bases.example/small:1"\n'))
    engine = DockerEngine(client)
    with pytest.raises(BuildFailed, match=r"uv"):
        engine.resolve(recipe, quiet)
    (wheels / uv_wheel.name).write_bytes(uv_wheel.read_bytes())
    held = engine.resolve(recipe, quiet, fresh=True)
    assert held.digest == digest
    lines: list[str] = []
    image = engine.build(recipes.recipes(stack, held)[0], lines.append)
    assert listing(client, image.reference) == PACKAGES
    assert any("-f wheelhouse.Dockerfile" in line for line in lines)
    history = json.dumps(client.images.get(image.reference).history())
    assert ".whl" not in history and "wheelhouse" not in history, "the wheels stay in the first stage"
    again: list[str] = []
    assert engine.build(recipes.recipes(stack, held)[0], again.append).reference == image.reference and not again


@pytest.mark.sweep
def test_a_mirror_without_tls_a_proxy_with_a_password_and_no_trace_of_either_password_or_proxy_in_the_image(
    client: docker.DockerClient, small: str, site: Site, own: str, uv_wheel: Path, tmp_path: Path
) -> None:
    wheels = tiny_wheels(tmp_path / "wheels", salt=own)
    (wheels / uv_wheel.name).write_bytes(uv_wheel.read_bytes())
    with serving(wheels, address=BRIDGE) as index:
        port = index.url.split(":")[2].split("/")[0]
        proxy = f"http://me:secret-of-the-proxy@{BRIDGE}:{port}"
        site(TORCHMATRIX_MIRRORS=mirrors("http://wheels.internal/simple"), HTTP_PROXY=proxy, http_proxy=proxy, NO_PROXY=None)
        _, recipe = tiny_stack(tiny_matrix(own, f'base = "{small}"\n'))
        lines: list[str] = []
        image = DockerEngine(client).build(recipe, lines.append)
        files = [path for path in index.asked if path.startswith("http://wheels.internal/files/torch-")]
        assert len(files) >= 1, "the container had no other way than the proxy"
    assert listing(client, image.reference) == PACKAGES
    built = client.images.get(image.reference)
    everything = json.dumps([built.attrs, built.history(), built.labels, lines, str(image)])
    assert "secret-of-the-proxy" not in everything and port not in everything
    environment = client.containers.run(image.reference, ["env"], remove=True).decode()
    assert "proxy" not in environment.lower()


def test_the_sites_certificate_authority_reaches_the_build_and_is_not_trusted_later(
    client: docker.DockerClient, small: str, site: Site, own: str, authority: Authority, uv_wheel: Path, tmp_path: Path
) -> None:
    wheels = tiny_wheels(tmp_path / "wheels", salt=own)
    (wheels / uv_wheel.name).write_bytes(uv_wheel.read_bytes())
    with serving(wheels, address=BRIDGE, certificate=authority.certificate) as index:
        site(TORCHMATRIX_MIRRORS=mirrors(index.url), TORCHMATRIX_CA_BUNDLE=authority.bundle)
        _, recipe = tiny_stack(tiny_matrix(own, f'base = "{small}"\n'))
        engine = DockerEngine(client)
        image = engine.build(recipe, quiet)
        assert listing(client, image.reference) == PACKAGES
        code = f"import urllib.request; urllib.request.urlopen('{index.url}/torch/')"
        with pytest.raises(docker.errors.ContainerError, match=r"CERTIFICATE_VERIFY_FAILED|certificate verify failed"):
            client.containers.run(image.reference, ["python3", "-c", code], remove=True)
        environment = client.containers.run(image.reference, ["env"], remove=True).decode()
        assert "CERT" not in environment
        held = image.lock
        assert held is not None
        remove_images(client, own)
        site(TORCHMATRIX_CA_BUNDLE=None)
        (tmp_path / "wheels/helper-1.0-py3-none-any.whl").touch()
        other = replace(recipe, lock=replace(held, packages=held.packages[:-1]), environment=own[-12:], content=own[-12:])
        with pytest.raises(BuildFailed, match=r"(?i)RUN: .*(install|certificate)"):
            engine.build(other, quiet)


def test_a_wheel_that_changed_after_the_lock_fails_the_containers_build_and_names_the_package(
    client: docker.DockerClient, small: str, site: Site, own: str, uv_wheel: Path, tmp_path: Path
) -> None:
    wheels = tiny_wheels(tmp_path / "wheels", salt=own)
    (wheels / uv_wheel.name).write_bytes(uv_wheel.read_bytes())
    site(TORCHMATRIX_WHEELHOUSE=wheels)
    stack, recipe = tiny_stack(tiny_matrix(own, f'base = "{small}"\n'))
    engine = DockerEngine(client)
    held = engine.resolve(recipe, quiet)
    plain_wheel(wheels, "transformers", "4.57.6", requires=("helper", "torch"))
    with pytest.raises(BuildFailed, match=r"transformers"):
        engine.build(recipes.recipes(stack, held)[0], quiet)
    assert not client.images.list(filters={"label": f"torchmatrix.stack={own}"}), "no half image"
