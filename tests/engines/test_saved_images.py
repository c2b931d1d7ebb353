"""Images that a bundle may bring into a real daemon: the listed images under the listed tags, and nothing else."""

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from support import Command
from support.bundled import write
from support.containers import context, remove_images
from torchmatrix.core.errors import BadInput
from torchmatrix.core.settings import Settings
from torchmatrix.engines.docker import DockerEngine
from torchmatrix_plugins.bundle import archive as bundle

FILES = {"wheelhouse/helper-1.0-py3-none-any.whl": b"w", "matrix.toml": b"# a matrix\n", "matrix.lock": b"# a lock\n"}
Make = Callable[[str, int], tuple[str, bytes]]


@pytest.fixture
def make(client: docker.DockerClient, own: str, tmp_path: Path) -> Iterator[Make]:
    """Yield what makes the image of a tag of ours with this content; returns its id, and what `docker save` writes of it."""
    made = []

    def call(version: str, number: int) -> tuple[str, bytes]:
        (tmp_path / "content").mkdir(exist_ok=True)
        (tmp_path / "content" / "file").write_text(f"{own} {number}")
        text = f"FROM scratch\nLABEL torchmatrix.stack={own}\nCOPY wheels/file /file\n"
        file = context(text, tmp_path / "content")
        image, _ = client.images.build(fileobj=file, custom_context=True, tag=f"torchmatrix/{own}:{version}", rm=True)
        made.append(str(image.id))
        archive = client.api.get_image(f"torchmatrix/{own}:{version}")
        return str(image.id), b"".join(archive)

    yield call
    remove_images(client, own)
    here = {str(image.id) for image in client.images.list()}
    for left in here.intersection(made):
        client.images.remove(left, force=True)


@pytest.fixture
def load(client: docker.DockerClient, site: Callable[..., Settings], tmp_path: Path) -> Callable[..., bundle.Imported]:
    """Return what imports a bundle of these images into the folder `over`."""
    site()
    engine = DockerEngine(client)

    def call(archive: bytes, ids: dict[str, str], force: bool = False) -> bundle.Imported:
        # as a hostile bundle would have it, the images come last
        path = write(tmp_path / "b.tar", {**FILES, "images.tar": archive}, images=ids, platform=engine.platform())
        return bundle.load(path, tmp_path / "over", engine, force)

    return call


def changed(archive: bytes, change: Callable[[str, bytes], bytes | None]) -> bytes:
    """Return the archive with other contents; None leaves a file out."""
    result = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=result, mode="w") as new:
        for member in old:
            file = old.extractfile(member)
            data = change(member.name, file.read() if file else b"")
            if data is not None:
                member.size = len(data)
                new.addfile(member, io.BytesIO(data))
    return result.getvalue()


def assert_nothing_written(tmp_path: Path) -> None:
    assert not (tmp_path / "over").exists() and not (tmp_path / "cache").exists()


def test_a_tag_with_other_content_is_moved_only_by_force(
    torchmatrix: Command,
    client: docker.DockerClient,
    make: Make,
    load: Callable[..., bundle.Imported],
    own: str,
    tmp_path: Path,
) -> None:
    tag = f"torchmatrix/{own}:1"
    theirs, archive = make("1", 1)
    client.images.remove(tag)
    ours, _ = make("1", 2)
    with pytest.raises(BadInput) as caught:
        load(archive, {tag: theirs})
    assert str(caught.value) == f"the tag {tag} exists: it is {ours} here, and {theirs} in the bundle"
    assert_nothing_written(tmp_path)
    done = torchmatrix("bundle", "import", "b.tar", "--into", "over", "--engine", "docker")
    assert done.returncode == 2 and tag in done.stderr and ours in done.stderr and theirs in done.stderr
    assert "\nhint: move it to the image of the bundle with --force" in done.stderr and "Traceback" not in done.stderr
    assert client.images.get(tag).id == ours
    assert_nothing_written(tmp_path)
    done = torchmatrix("bundle", "import", "b.tar", "--into", "over", "--engine", "docker", "--force")
    assert done.returncode == 0, done.stderr
    assert client.images.get(tag).id == theirs and (tmp_path / "over" / "matrix.toml").read_bytes() == b"# a matrix\n"
    load(archive, {tag: theirs}, force=True)
    assert client.images.get(tag).id == theirs, "imported twice"


def test_an_image_that_the_index_does_not_list_stays_out_of_the_daemon(
    client: docker.DockerClient, make: Make, load: Callable[..., bundle.Imported], own: str, tmp_path: Path
) -> None:
    listed, archive = make("1", 1)
    tags = [f"torchmatrix/{own}:1", f"torchmatrix/{own}:other"]
    other, _ = make("other", 2)
    url = f"{client.api.base_url}/v{client.api.api_version}/images/get"
    both = client.api.get(url, params={"names": tags}).content
    remove_images(client, own)

    def untagged(name: str, data: bytes) -> bytes:
        if name == "manifest.json":
            entries = json.loads(data)
            return json.dumps([e if tags[0] in e["RepoTags"] else {**e, "RepoTags": None} for e in entries]).encode()
        return json.dumps({f"torchmatrix/{own}": {}}).encode() if name == "repositories" else data

    for hostile, message in (
        (both, f"contains {tags[1]}, which the bundle does not list"),
        (changed(both, untagged), "without a tag"),
    ):
        with pytest.raises(BadInput, match=message):
            load(hostile, {tags[0]: listed})
    with pytest.raises(BadInput, match="does not contain"):
        load(archive, {tags[0]: other})
    assert_nothing_written(tmp_path)
    assert not {listed, other} & {image.id for image in client.images.list()}
    load(archive, {tags[0]: listed})
    assert client.images.get(tags[0]).id == listed and other not in {image.id for image in client.images.list()}


def test_an_incomplete_or_changed_archive_of_images_is_refused_before_anything_is_written(
    client: docker.DockerClient, make: Make, load: Callable[..., bundle.Imported], own: str, tmp_path: Path
) -> None:
    tag = f"torchmatrix/{own}:1"
    image, archive = make("1", 1)
    remove_images(client, own)

    def flipped(name: str, data: bytes) -> bytes:
        return data.replace(own.encode(), own.encode()[::-1]) if data.startswith(b"file\0") or b"file\0" in data[:200] else data

    def without_layers(name: str, data: bytes) -> bytes | None:
        return None if name.endswith("layer.tar") or b"file\0" in data[:200] else data

    spoiled = [
        (archive[: len(archive) // 2], "damaged|incomplete|does not contain"),
        (archive[:512], "damaged|incomplete"),
        (changed(archive, without_layers), "is incomplete: it lacks the layer"),
        (changed(archive, flipped), "Docker refuses the images of the bundle|has another digest"),
    ]
    for data, message in spoiled:
        with pytest.raises(BadInput, match=message) as caught:
            load(data, {tag: image})
        assert caught.value.hint
        assert_nothing_written(tmp_path)
    assert image not in {loaded.id for loaded in client.images.list()}
