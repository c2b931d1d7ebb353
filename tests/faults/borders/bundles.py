"""Archives that somebody hands over as a bundle, and the images in them."""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

from faults.borders._mutating import ODD, as_bytes, held, in_files, mixed, mutated
from torchmatrix.engines import docker_images
from torchmatrix_plugins.bundle import archive as bundle

_FILES = {"matrix.toml": b"# a matrix\n", "matrix.lock": b"# a lock\n", "presets/mine.toml": b"# a preset\n"}
_KINDS = (
    tarfile.REGTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.CHRTYPE,
    tarfile.FIFOTYPE,
    tarfile.GNUTYPE_SPARSE,
    b"x",
    b"L",
)
_CONFIGURATION = b'{"architecture": "amd64", "os": "linux"}'
_ID = hashlib.sha256(_CONFIGURATION).hexdigest()
_TAG = "torchmatrix/x:1"


class _Elsewhere:
    """An engine of another platform: an archive that is whole and well-formed is refused at last, with nothing written."""

    store = None

    def platform(self) -> str:
        return "linux/none"


def cases(random: Random) -> Iterator[Callable[[], None]]:
    """Yield archives with a mutated index, a mutated or hostile member, flipped or lost bytes; the same for saved images."""
    nowhere = Path(mkdtemp(prefix="torchmatrix-faults-")) / "over-there"
    engine: Any = _Elsewhere()

    def load(path: Path) -> None:
        bundle.load(path, nowhere, engine, False)

    return mixed(random, in_files(random, "b.tar", _bundle, load), _images(random))


def _images(random: Random) -> Iterator[Callable[[], None]]:
    while True:
        content = _spoilt(random, _saved(random))
        yield partial(held, partial(docker_images.verify_saved, io.BytesIO(content), {_TAG: f"sha256:{_ID}"}), content)


def _bundle(random: Random) -> bytes:
    entries = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in _FILES.items()}
    index = {"version": 1, "tool": "0", "platform": "linux/amd64", "workload_hash": "w", "images": {}, "files": entries}
    text = json.dumps(index)
    written = as_bytes(mutated(text, random)) if random.random() < 0.5 else text.encode()
    return _spoilt(random, _tar(random, {"bundle.json": written, **_FILES}))


def _saved(random: Random) -> bytes:
    text = json.dumps([{"Config": f"blobs/sha256/{_ID}", "RepoTags": [_TAG], "Layers": []}])
    written = as_bytes(mutated(text, random)) if random.random() < 0.5 else text.encode()
    names = json.dumps({"torchmatrix/x": {"1": _ID}})
    return _tar(
        random,
        {f"blobs/sha256/{_ID}": _CONFIGURATION, "manifest.json": written, "repositories": as_bytes(mutated(names, random))},
    )


def _tar(random: Random, files: dict[str, bytes]) -> bytes:
    """Return an archive of the files; a third of them with one more member of any kind, name and size."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        if random.random() < 0.3:
            odd = tarfile.TarInfo(random.choice(("presets/odd.toml", "../odd", "/odd", "odd", *files)))
            odd.type, odd.linkname = random.choice(_KINDS), random.choice(("matrix.toml", "/etc/passwd"))
            odd.size = random.choice((0, 1, 1 << 20, 1 << 33))
            archive.write(odd.tobuf(tarfile.GNU_FORMAT) + random.choice(ODD).encode(errors="replace")[:512])
    return archive.getvalue()


def _spoilt(random: Random, content: bytes) -> bytes:
    """Return the content, a third each as it is, cut, with some bytes flipped."""
    damage = random.randrange(3)
    if damage == 0:
        return content[: random.randrange(len(content))]
    data = bytearray(content)
    for _ in range(random.randint(1, 4) if damage == 1 else 0):
        data[random.randrange(len(data))] = random.randrange(256)
    return bytes(data)
