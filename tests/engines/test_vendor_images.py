"""Real containers from invented vendors' images: what is added, what is refused, and that torch stays as it was delivered."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace

import docker
import pytest

from support.containers import context, remove_images
from support.vendors import TORCH, plain_wheel, torch_wheel, wheel
from torchmatrix.core.errors import BuildFailed
from torchmatrix.engines import recipes
from torchmatrix.engines.docker import DockerEngine
from torchmatrix.engines.engine import Image
from torchmatrix.matrix import catalog, matrix_file

pytestmark = pytest.mark.thorough

(USUAL,) = catalog.load().vendor_packages
BASE = "python:3.11-slim-bookworm"
HEAD = f"""
FROM {BASE}
ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels
COPY wheels/ /wheels/
"""
SYSTEM = """
RUN site=$(python3 -c 'import site; print(site.getsitepackages()[0])') \
    && cd /wheels && for wheel in torch-{torch}-*.whl numpy-1*.whl held-1*.whl; do python3 -m zipfile -e $wheel $site; done \
    && install -m 600 /dev/null $site/torch/only-root
RUN mkdir /etc/pip && echo 'fresh<2' > /etc/pip/constraint.txt
ENV PIP_CONSTRAINT=/etc/pip/constraint.txt
"""
"""Like NVIDIA's: torch in the system's Python, and constraints of its own. If it is Debian's: PEP 668, and no pip."""
CONDA = """
RUN python3 -m venv /opt/conda/envs/py_3.11 && cd /opt/conda/envs/py_3.11 \
    && bin/pip install numpy==1.26.4 && mkdir /opt/pytorch && python3 -m zipfile -e /wheels/torch-{torch}-*.whl /opt/pytorch \
    && mv /opt/pytorch/torch-*.dist-info lib/python3.11/site-packages/ && rm lib/python3.11/site-packages/torch-*/RECORD \
    && echo /opt/pytorch > lib/python3.11/site-packages/torch.pth \
    && echo '{{"url": "file:///opt/pytorch", "dir_info": {{"editable": true}}}}' \
       > $(echo lib/python3.11/site-packages/torch-*.dist-info)/direct_url.json
"""
"""Like AMD's older ones: torch in an environment that is not on PATH, where it is installed from its source folder."""


@pytest.fixture(scope="module")
def make(client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], str]]:
    """Yield what makes of (name, Dockerfile) a vendor's image of that content, all the wheels in /wheels.

    Removed after the tests.
    """
    wheels = tmp_path_factory.mktemp("wheels")
    name, version = USUAL.split("==")
    torch_wheel(wheels)
    torch_wheel(wheels, "2.8.0")
    plain_wheel(wheels, "numpy", "1.26.4")
    plain_wheel(wheels, "numpy", "2.3.0")
    plain_wheel(wheels, "held", "1.0")
    plain_wheel(wheels, "held", "2.0")
    plain_wheel(wheels, name, version, requires=("numpy", "torch", "held"))
    plain_wheel(wheels, name, "4.0.0")
    plain_wheel(wheels, "greedy", "1.0", requires=("torch>=2.8",))
    plain_wheel(wheels, "fresh", "1.0")
    plain_wheel(wheels, "fresh", "2.0")
    wheel(wheels, "rude", "1.0", {"rude/__init__.py": "", "torch/nn.py": "LAYERS = 2\n"})
    wheel(wheels, "usurper", "1.0", {"torch/__init__.py": f'__version__ = "{TORCH}"\n'})
    made = []

    def build(name: str, dockerfile: str) -> str:
        tag = f"torchmatrix-test/{name}:1"
        client.images.build(fileobj=context(dockerfile, wheels), custom_context=True, tag=tag, rm=True, forcerm=True)
        made.append(tag)
        return tag

    yield build
    for tag in made:
        client.images.remove(tag)


@pytest.fixture(scope="module")
def system(make: Callable[[str, str], str]) -> str:
    return make("system", HEAD + SYSTEM.format(torch=TORCH))


@pytest.fixture(scope="module")
def conda(make: Callable[[str, str], str]) -> str:
    return make("conda", HEAD + CONDA.format(torch=TORCH))


@pytest.fixture
def build(client: docker.DockerClient) -> Iterator[Callable[..., Image]]:
    """Yield the tool's own build of a stack from a vendor's image, with its log in `lines`; removed after the test."""
    made = []

    def call(base: str, *packages: str, lines: list[str] | None = None, locked: tuple[str, ...] = ()) -> Image:
        text = f'[[stack]]\nimage = "{base}"\naccelerator = "cpu"\npackages = {json.dumps(packages)}\n'
        text += '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 1\n'
        (stack,) = matrix_file.parse(text).stacks
        engine = DockerEngine(client)
        (recipe,) = recipes.recipes(stack)
        if locked:
            (recipe,) = recipes.recipes(stack, replace(engine.resolve(recipe, print), packages=locked))
        remove_images(client, stack.name)  # of a test run that was killed
        made.append(stack.name)
        return engine.build(recipe, print if lines is None else lines.append)

    yield call
    for name in made:
        remove_images(client, name)


def said_in(client: docker.DockerClient, image: Image, command: str) -> str:
    """Return what a shell command prints in the image, as the image's own user."""
    output = client.containers.run(image.reference, ["sh", "-c", command], remove=True, network_mode="none", read_only=True)
    return str(output.decode())


def said_in_base(client: docker.DockerClient, tag: str, command: str) -> str:
    """Return what a shell command prints in a vendor's image."""
    return str(client.containers.run(tag, ["sh", "-c", command], remove=True, network_mode="none").decode())


def checked(client: docker.DockerClient, image: Image) -> dict[str, object]:
    """Return what the guard says of the finished image, as the self-test asks it."""
    return dict(json.loads(said_in(client, image, "python3 /opt/torchmatrix/vendor_guard.py check")))


def test_what_is_missing_is_added_and_the_vendors_stays(
    client: docker.DockerClient, system: str, build: Callable[..., Image]
) -> None:
    image = build(system)
    facts = checked(client, image)
    assert facts["torch"] == TORCH and facts["added"] == [USUAL]
    assert isinstance(facts["digests"], dict) and set(facts["digests"]) == {"torch", "numpy"}
    ask = "import importlib.metadata as m; print(m.version('torch'), m.version('numpy'), m.version('held'))"
    assert said_in(client, image, f"python3 -c {shlex.quote(ask)}").split() == [TORCH, "1.26.4", "1.0"]


def test_where_nothing_is_wanted_nothing_is_installed(
    client: docker.DockerClient, make: Callable[[str, str], str], system: str, build: Callable[..., Image]
) -> None:
    site = "$(python3 -c 'import site; print(site.getsitepackages()[0])')"
    lines: list[str] = []
    image = build(
        make("complete", f"FROM {system}\nRUN python3 -m zipfile -e /wheels/transformers-4.0.0-*.whl {site}\n"), lines=lines
    )
    assert "nothing is missing: nothing to install" in lines
    assert checked(client, image)["added"] == []


@pytest.mark.sweep
def test_the_vendors_own_constraints_hold_besides(
    client: docker.DockerClient, system: str, build: Callable[..., Image]
) -> None:
    assert checked(client, build(system, "fresh"))["added"] == ["fresh==1.0", USUAL]
    with pytest.raises(BuildFailed, match=r"pip can't add fresh==2.0 .*fresh<2"):
        build(system, "fresh==2.0")


def test_what_is_locked_is_added_by_its_hash_and_nothing_else(
    client: docker.DockerClient, system: str, build: Callable[..., Image]
) -> None:
    sha256 = said_in_base(client, system, "sha256sum /wheels/fresh-1.0-*.whl").split()[0]
    image = build(system, locked=(f"fresh==1.0 --hash=sha256:{sha256}",))
    facts = checked(client, image)
    assert facts["added"] == ["fresh==1.0"] and facts["torch"] == TORCH, "not even the usual packages come besides"
    assert image.lock and image.lock.packages and image.lock.image_id.startswith("sha256:")
    with pytest.raises(BuildFailed, match="THESE PACKAGES DO NOT MATCH THE HASHES"):
        build(system, locked=(f"fresh==1.0 --hash=sha256:{'0' * 64}",))


@pytest.mark.sweep
def test_a_package_that_overwrites_a_file_of_torch_is_refused(system: str, build: Callable[..., Image]) -> None:
    with pytest.raises(BuildFailed, match=r"were changed: torch: .*/torch/nn.py was changed"):
        build(system, "rude")


def test_torch_in_an_environment_that_is_not_on_the_path(
    client: docker.DockerClient, conda: str, build: Callable[..., Image]
) -> None:
    image = build(conda)
    facts = checked(client, image)
    assert facts["torch"] == TORCH and facts["added"] == ["held==2.0", USUAL]
    assert facts["python"] == "/opt/conda/envs/py_3.11/bin/python"
    ask = "import sys, torch, transformers; print(sys.prefix, torch.__file__)"
    places = said_in(client, image, f"python3 -c '{ask}'").split()
    assert places == ["/opt/conda/envs/py_3.11", "/opt/pytorch/torch/__init__.py"]


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("greedy", rf"pip can't add greedy .* greedy 1.0 depends on torch>=2.8 .*\(constraint\) torch=={re.escape(TORCH)}$"),
        ("torch==2.8.0", rf"requested torch==2.8.0 .*\(constraint\) torch=={re.escape(TORCH)}$"),
        ("numpy==2.3.0", r"requested numpy==2.3.0 .*\(constraint\) numpy==1.26.4$"),
        ("no-such-package", "No matching distribution found for no-such-package"),
        ("usurper", r"torch: /opt/conda/envs/\S+/site-packages/torch/__init__.py was added"),
    ],
)
def test_what_does_not_go_with_the_vendors_packages_is_refused(
    conda: str, build: Callable[..., Image], package: str, message: str
) -> None:
    with pytest.raises(BuildFailed, match=message):
        build(conda, package)


def test_an_image_without_torch_is_no_vendors(make: Callable[[str, str], str], build: Callable[..., Image]) -> None:
    with pytest.raises(BuildFailed, match="no Python of this image can import torch; python3: ModuleNotFoundError"):
        build(make("empty", HEAD))
