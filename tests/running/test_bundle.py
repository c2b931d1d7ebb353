"""A bundle is read whole before anything changes: cut, damaged, foreign and hostile archives; what an import leaves."""

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import FAKE_PYTHON, Command, configurations
from support.bundled import write
from support.sites import OFFICIAL, mirrors, serving, tiny_matrix, tiny_stack, tiny_wheels
from torchmatrix.core.errors import BadInput
from torchmatrix.core.settings import Settings
from torchmatrix.engines import docker_images
from torchmatrix.engines.local import LocalEngine
from torchmatrix.matrix import matrix_file
from torchmatrix_plugins.bundle import archive as bundle

Site = Callable[..., Settings]
FILES = {
    "wheelhouse/helper-1.0-py3-none-any.whl": b"w" * 3000,
    "matrix.toml": b"# a matrix\n",
    "matrix.lock": b"# a lock\n",
    "presets/mine.toml": b"# a preset\n",
    "own/models/net.py": b"# a model\n",
}


@dataclass
class StandIn:
    """A stand-in for as much of an engine as an import asks."""

    name: str = "local"
    machine: str = "linux/amd64"
    store: Any = None

    def platform(self) -> str:
        return self.machine


@pytest.fixture
def load(site: Site, tmp_path: Path) -> Callable[..., bundle.Imported]:
    """Return what imports an archive into the folder `over-there` of a machine without containers."""
    site()

    def call(archive: Path, force: bool = False, machine: str = "linux/amd64") -> bundle.Imported:
        engine: Any = StandIn(machine=machine)
        return bundle.load(archive, tmp_path / "over-there", engine, force)

    return call


def assert_untouched(tmp_path: Path) -> None:
    assert not (tmp_path / "over-there").exists() and not (tmp_path / "cache").exists()


def test_a_whole_bundle_is_imported_file_by_file(load: Callable[..., bundle.Imported], tmp_path: Path) -> None:
    imported = load(write(tmp_path / "b.tar", FILES))
    there = {str(p.relative_to(imported.folder)): p.read_bytes() for p in imported.folder.rglob("*") if p.is_file()}
    assert there == {name.removeprefix("own/"): data for name, data in FILES.items() if not name.startswith("wheelhouse")}
    assert imported.wheelhouse == tmp_path / "cache" / "wheelhouse"
    assert (imported.wheelhouse / "helper-1.0-py3-none-any.whl").read_bytes() == b"w" * 3000


def test_an_archive_cut_short_anywhere_changes_nothing(load: Callable[..., bundle.Imported], tmp_path: Path) -> None:
    whole = write(tmp_path / "b.tar", FILES).read_bytes()
    with tarfile.open(tmp_path / "b.tar") as tar:
        last = max(member.offset_data + member.size for member in tar)
    cut = tmp_path / "cut.tar"
    for end in (*range(0, last, 97), last - 1):
        cut.write_bytes(whole[:end])
        with pytest.raises(BadInput, match=r"cut\.tar (is cut short or damaged|is not a torchmatrix bundle)") as caught:
            load(cut)
        assert caught.value.hint
    assert_untouched(tmp_path)


def test_a_flipped_byte_in_any_file_changes_nothing(load: Callable[..., bundle.Imported], tmp_path: Path) -> None:
    whole = write(tmp_path / "b.tar", FILES).read_bytes()
    with tarfile.open(tmp_path / "b.tar") as tar:
        places = [(member.name, member.offset_data + member.size // 2) for member in tar]
        headers = [member.offset + 5 for member in tar]
    damaged = tmp_path / "damaged.tar"
    for name, place in [*places, *(("a header", place) for place in headers)]:
        data = bytearray(whole)
        data[place] ^= 0x40
        damaged.write_bytes(data)
        with pytest.raises(
            BadInput, match=r"damaged\.tar (is cut short or damaged|is not a torchmatrix bundle|has the version|is for)"
        ):
            load(damaged)
        assert_untouched(tmp_path), name


@pytest.mark.parametrize("how", ["cut", "zeros", "noise", "another file"])
def test_an_archive_that_changes_while_it_is_imported_is_never_a_success(
    load: Callable[..., bundle.Imported], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    files = {**FILES, "wheelhouse/large-1.0-py3-none-any.whl": bytes(3 << 20), "presets/z.toml": b"# the last one\n"}
    path = write(tmp_path / "b.tar", files)
    with tarfile.open(path) as tar:
        place = tar.getmember("wheelhouse/large-1.0-py3-none-any.whl").offset_data
    real, data = bundle._write_member, bytearray(path.read_bytes())
    tail = bytes(len(data) - place - (2 << 20)) if how == "zeros" else os.urandom(len(data) - place - (2 << 20))
    changed = write(tmp_path / "c.tar", FILES).read_bytes() if how == "another file" else data[: place + (2 << 20)]

    def write_then_change(*args: Any) -> None:
        real(*args)
        with path.open("r+b") as file:
            file.write(changed + (tail if how in ("zeros", "noise") else b""))
            file.truncate()

    monkeypatch.setattr(bundle, "_write_member", write_then_change)
    with pytest.raises(BadInput, match="changed while the bundle was imported") as caught:
        load(path)
    assert "--force" in str(caught.value.hint)


@pytest.mark.parametrize(
    "name",
    [
        "../escaped",
        "/tmp/torchmatrix-escaped",
        "presets/../../escaped.toml",
        ".bashrc",
        "wheelhouse/a.pth",
        "presets/a/b.toml",
        "own/../a.py",
        "own/.a.py",
        "a.py",
    ],
)
def test_a_name_that_no_bundle_has_is_refused(load: Callable[..., bundle.Imported], tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"contains files that no bundle has"):
        load(write(tmp_path / "b.tar", {**FILES, name: b"x"}))
    assert_untouched(tmp_path)


def test_a_file_that_is_not_in_the_index_or_stands_there_twice_is_refused(
    load: Callable[..., bundle.Imported], tmp_path: Path
) -> None:
    extra = write(tmp_path / "extra.tar", FILES, files={})
    with pytest.raises(BadInput, match=r"damaged: matrix\.lock"):
        load(extra)
    path = write(tmp_path / "twice.tar", FILES)
    with tarfile.open(path, "a") as tar:
        info = tarfile.TarInfo("matrix.toml")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"evil"))
    with pytest.raises(BadInput, match=r"matrix\.toml is in it twice"):
        load(path)
    link = write(tmp_path / "link.tar", FILES)
    with tarfile.open(link, "a") as tar:
        info = tarfile.TarInfo("presets/link.toml")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(BadInput, match="damaged"):
        load(link)
    assert_untouched(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"platform": "linux/arm64"}, r"is for linux/arm64, this machine is linux/amd64"),
        ({"version": 2}, r"has the version 2, not 1"),
        ({"platform": None}, r"damaged"),
        ({"images": []}, r"damaged"),
        ({"files": {"matrix.toml": {}}}, r"damaged"),
        ({"files": []}, r"damaged"),
        ({"images": {"torchmatrix/x:1": "sha256:1"}}, r"contains Docker's images, which local can't load"),
    ],
)
def test_a_bundle_for_another_machine_or_of_another_form_is_refused(
    load: Callable[..., bundle.Imported], tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    from torchmatrix.core.errors import ToolError

    with pytest.raises(ToolError, match=message) as caught:
        load(write(tmp_path / "b.tar", FILES, **changes))
    assert caught.value.hint
    assert_untouched(tmp_path)


def test_a_matrix_that_is_there_stays_unless_forced(load: Callable[..., bundle.Imported], tmp_path: Path) -> None:
    folder = tmp_path / "over-there"
    folder.mkdir()
    (folder / "matrix.lock").write_text("mine")
    with pytest.raises(BadInput, match=r"over-there already has matrix\.lock"):
        load(write(tmp_path / "b.tar", FILES))
    assert (folder / "matrix.lock").read_text() == "mine" and not (folder / "matrix.toml").exists()
    load(write(tmp_path / "b.tar", FILES), force=True)
    assert (folder / "matrix.lock").read_bytes() == FILES["matrix.lock"]


def test_what_comes_into_the_folder_during_an_import_stays_unless_forced(site: Site, tmp_path: Path) -> None:
    site()
    folder = tmp_path / "over-there"
    archive = write(tmp_path / "b.tar", FILES | {"images.tar": b"x"}, images={"torchmatrix/a:1": "sha256:0"})

    class Store:
        """Another import, which ends while this one loads its images."""

        def load(self, content: object, images: object, force: bool) -> None:
            folder.mkdir(exist_ok=True)
            (folder / "matrix.toml").write_text("another's")

    engine: Any = StandIn(store=Store())
    with pytest.raises(BadInput, match=r"over-there already has matrix\.toml"):
        bundle.load(archive, folder, engine, False)
    assert (folder / "matrix.toml").read_text() == "another's"
    bundle.load(archive, folder, engine, True)
    assert (folder / "matrix.toml").read_bytes() == FILES["matrix.toml"]


def test_an_import_that_was_killed_is_repeated_and_another_file_of_the_user_stays_unless_forced(
    load: Callable[..., bundle.Imported], tmp_path: Path
) -> None:
    folder, archive = tmp_path / "over-there", write(tmp_path / "b.tar", FILES)
    load(archive)
    (folder / "models" / "net.py").unlink()
    load(archive)
    assert (folder / "models" / "net.py").read_bytes() == FILES["own/models/net.py"]
    for name in ("presets/mine.toml", "models/net.py"):
        (folder / name).write_text("mine")
        with pytest.raises(BadInput, match=rf"over-there already has {name}"):
            load(archive)
        assert (folder / name).read_text() == "mine"
        load(archive, force=True)
    (folder / "matrix.toml").unlink()
    (folder / "matrix.toml").symlink_to("/nowhere/matrix.toml")
    with pytest.raises(BadInput, match=r"over-there already has matrix\.toml"):
        load(archive)


@pytest.mark.parametrize("obstacle", ["over-there", "over-there/matrix.lock", "over-there/presets", "cache/wheelhouse"])
@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, os.mkfifo])
def test_what_is_in_the_way_is_named_before_anything_is_written(
    load: Callable[..., bundle.Imported], tmp_path: Path, obstacle: str, make: Callable[[Path], None]
) -> None:
    path = tmp_path / obstacle
    path.parent.mkdir(exist_ok=True)
    make(path)
    before = sorted(tmp_path.rglob("*"))
    is_fine = path.is_file() == (path.name == "matrix.lock") and not path.is_fifo()
    for force in (True,) if is_fine else (False, True):
        with nullcontext() if is_fine else pytest.raises(BadInput, match=f"{path.name} is in the way|already has") as caught:
            load(write(tmp_path / "b.tar", FILES), force)
        if not is_fine:
            assert caught.value.hint and sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "b.tar"])


@pytest.mark.parametrize(
    "name",
    [
        "own/matrix.toml/a.py", "own/models/net.py/a.py", "own/presets/mine.toml/a.py", f"presets/{'a' * 300}.toml",
        f"wheelhouse/{'a' * 300}.whl", f"own/{'a' * 300}/a.py", f"own/{'a/' * 3000}a.py",
    ],
)  # fmt: skip
def test_files_that_no_folder_can_hold_are_refused_before_anything_is_written(
    load: Callable[..., bundle.Imported], tmp_path: Path, name: str
) -> None:
    with pytest.raises(BadInput, match=r"contains files that no bundle has|has a file below another file") as caught:
        load(write(tmp_path / "b.tar", {**FILES, name: b"x"}))
    assert caught.value.hint
    assert_untouched(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["import", "nothing.tar"], "can't read nothing.tar: No such file"),
        (["import", "matrix.toml"], "matrix.toml is cut short or damaged"),
        (["import", "."], "can't read ."),
    ],
)
def test_what_is_no_archive_is_refused_by_the_command(
    torchmatrix: Command, fake_matrix: Path, words: list[str], message: str
) -> None:
    done = torchmatrix("bundle", *words, "--engine", "local")
    assert done.returncode == 2 and message in done.stderr and "\nhint: " in done.stderr and "Traceback" not in done.stderr


def test_only_what_is_locked_and_built_is_exported_and_it_says_what_to_do(
    torchmatrix: Command, site: Site, tmp_path: Path
) -> None:
    def export(*words: str, archive: str = "b.tar", code: int = 2) -> str:
        done = torchmatrix("bundle", "export", archive, "--engine", "local", *words)
        assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
        return done.stderr

    with serving(tiny_wheels(tmp_path / "wheels")) as index:
        site(TORCHMATRIX_MIRRORS=mirrors(index.url))
        (tmp_path / "matrix.toml").write_text(
            tiny_matrix(rest=f'[[stack]]\nname = "mine"\npython = "{FAKE_PYTHON}"\naccelerator = "cpu"\n')
        )
        assert "no stack is selected" in export("mine/*", code=3)
        assert "not in the lock: tiny" in export()
        assert torchmatrix("lock").returncode == 0
        assert "not built: tiny" in export()
        torchmatrix("build", "--locked")
        assert "can't write /nowhere/b.tar" in export(archive="/nowhere/b.tar", code=4)
        done = torchmatrix("bundle", "export", "b.tar", "--engine", "local")
        assert done.returncode == 0, done.stderr
        index.wheels.joinpath("helper-1.0-py3-none-any.whl").unlink()
        failed = torchmatrix("bundle", "export", "c.tar", "--engine", "local", "--wheels", UV_CACHE_DIR=str(tmp_path / "c"))
        assert failed.returncode == 4 and "helper" in failed.stderr and "Traceback" not in failed.stderr
        assert sorted(path.name for path in tmp_path.glob("*.tar")) == ["b.tar"], "no half archive"
    over = tmp_path / "over"
    elsewhere = {"TORCHMATRIX_CACHE": str(tmp_path / "cache-over"), "UV_CACHE_DIR": str(tmp_path / "uv-over")}
    done = torchmatrix("bundle", "import", "b.tar", "--into", "over", "--engine", "local", **elsewhere)
    assert done.returncode == 0 and done.stdout.strip() == "over/matrix.toml", done.stderr
    assert f"export TORCHMATRIX_WHEELHOUSE={tmp_path}/cache-over/wheelhouse" in done.stderr
    site(TORCHMATRIX_MIRRORS=mirrors("http://127.0.0.1:9"), TORCHMATRIX_WHEELHOUSE=tmp_path / "cache-over" / "wheelhouse")
    built = torchmatrix("build", "--locked", "--matrix", str(over / "matrix.toml"), **elsewhere)
    assert "build failed tiny: self-test: " in built.stderr, "built without a network; its torch is an invented one"
    assert OFFICIAL in (over / "matrix.lock").read_text()
    _, recipe = tiny_stack(tiny_matrix())
    assert LocalEngine(tmp_path / "cache-over", "").is_ready(recipe) is False, "what was built is the locked recipe"
    assert len(list((tmp_path / "cache-over" / "stacks").glob("tiny-*"))) == 1


def spoil(path: Path, member: tarfile.TarInfo, data: bytes = b"") -> Path:
    """Return the archive with one more member."""
    with tarfile.open(path, "a", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(data))
    return path


def test_hostile_members_are_refused_by_name(load: Callable[..., bundle.Imported], tmp_path: Path) -> None:
    for member_type in (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
        member = tarfile.TarInfo("presets/odd.toml")
        member.type, member.linkname = member_type, "matrix.toml"
        with pytest.raises(BadInput, match=r"presets/odd\.toml is not a plain file"):
            load(spoil(write(tmp_path / "b.tar", FILES), member))
    assert_untouched(tmp_path)


def test_a_header_of_gigabytes_a_packed_archive_and_a_large_index_are_refused(
    load: Callable[..., bundle.Imported], tmp_path: Path
) -> None:
    for header_type in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE):
        path = write(tmp_path / "b.tar", FILES)
        header = tarfile.TarInfo("x")
        header.type, header.size = header_type, 3 << 30
        with path.open("r+b") as file:
            file.seek(-10240, io.SEEK_END)
            file.write(header.tobuf(tarfile.GNU_FORMAT))
            file.truncate(4 << 30)
        with pytest.raises(BadInput, match="a header of 3221225472 bytes"):
            load(path)
    packed = tmp_path / "packed.tar"
    packed.write_bytes(gzip.compress(write(tmp_path / "b.tar", FILES).read_bytes()))
    with pytest.raises(BadInput, match="damaged"):
        load(packed)
    large = tarfile.TarInfo("bundle.json")
    large.size = 3 << 30
    with (tmp_path / "large.tar").open("wb") as file:
        file.write(large.tobuf())
        file.truncate(4 << 30)
    with pytest.raises(BadInput, match=r"bundle\.json is larger than 8 MiB"):
        load(tmp_path / "large.tar")
    assert_untouched(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"images": {"python:3.11": "sha256:1"}},
        {"images": {"torchmatrix/x:1": 7}},
        {"files": {"matrix.toml": {"sha256": 7}}},
        {"files": {"matrix.toml": {"sha256": "zz"}}},
        {"version": [[[]]]},
        {"platform": {}},
    ],
)
def test_an_index_of_another_form_is_refused(load: Callable[..., bundle.Imported], tmp_path: Path, changes: Any) -> None:
    with pytest.raises(BadInput) as caught:
        load(write(tmp_path / "b.tar", FILES, **changes))
    assert caught.value.hint
    assert_untouched(tmp_path)


CONFIGURATION = b'{"architecture": "amd64", "os": "linux"}'
ID = hashlib.sha256(CONFIGURATION).hexdigest()


def saved(tag: str = "torchmatrix/x:1", content: bytes = CONFIGURATION, **more: bytes) -> io.BytesIO:
    """Return what `docker save` writes of an image without layers."""
    listed = [{"Config": f"blobs/sha256/{ID}", "RepoTags": [tag], "Layers": []}]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in {f"blobs/sha256/{ID}": content, "manifest.json": json.dumps(listed).encode(), **more}.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    archive.seek(0)
    return archive


def test_images_that_the_bundle_does_not_list_are_refused() -> None:
    ids = {"torchmatrix/x:1": f"sha256:{ID}"}
    docker_images.verify_saved(saved(), ids)
    with pytest.raises(BadInput, match=r"contains python:3\.11-slim, which the bundle does not list"):
        docker_images.verify_saved(saved("python:3.11-slim"), ids)
    hidden = json.dumps({"python": {"3.11-slim": ID}}).encode()
    with pytest.raises(BadInput, match=r"contains python:3\.11-slim"):
        docker_images.verify_saved(saved(repositories=hidden), ids)
    with pytest.raises(BadInput, match="has another digest"):
        docker_images.verify_saved(saved(content=b"{}"), ids)
    with pytest.raises(BadInput, match=r"does not contain torchmatrix/x:1 as the image"):
        docker_images.verify_saved(saved(), {"torchmatrix/x:1": "sha256:" + "0" * 64})
    with pytest.raises(BadInput, match="no part of an image"):
        docker_images.verify_saved(saved(evil=b"x"), ids)


def test_every_kind_of_own_model_is_exported_and_imported(load: Callable[..., bundle.Imported], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    configurations.written(tmp_path / "mine", "llama")
    (tmp_path / "mine" / "net.py").write_text("def build():\n    return None\n\n\ndef batch(size, generator):\n    return {}\n")
    models = "".join(f'[[workload]]\nmodel = "mine/{name}"\nbatch = 1\n' for name in ("llama.json", "net.py:build"))
    (tmp_path / "matrix.toml").write_text(f'[[stack]]\ntorch = "2.7.1"\ncpu = true\n{models}')
    (tmp_path / "matrix.lock").write_text("x")
    matrix, nowhere = tmp_path / "matrix.toml", SimpleNamespace(builder=SimpleNamespace(store=None))
    s: Any = SimpleNamespace(engines=nowhere, matrix=matrix_file.load(matrix))
    recipe: Any = SimpleNamespace(stack="x", lock=SimpleNamespace(platform="linux/amd64"), source="image")
    bundle._write(s, [recipe], matrix, tmp_path / "o.tar", False, lambda line: None)
    imported = load(tmp_path / "o.tar")
    for name in ("llama.json", "net.py"):
        assert (imported.folder / "mine" / name).read_bytes() == (tmp_path / "mine" / name).read_bytes()
