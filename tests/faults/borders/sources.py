"""Sources of facts, damaged, hostile or carried over other systems: what is taken is right, what is missing is named."""

import io
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from support.records import launch_lines, write_run
from torchmatrix.core.errors import BadInput
from torchmatrix.facts import lines
from torchmatrix.facts.store import Results
from torchmatrix_plugins.gather import Limits, gather

RUN = "20260101T000000Z"
GATHERED = 0.02
"""The share of cases that are a whole source, each as long as a hundred of the others."""
LIMITS = Limits(files=200, bytes=1 << 20, seconds=20.0)
MARKS = (b"\xef\xbb\xbf", b" ", b"\t", b"\r", b"\x00", b"\xff")


def cases(random: Random) -> Iterator[Callable[[], None]]:
    while True:
        yield partial(_try if random.random() < GATHERED else _try_text, random.random())


def _try_text(seed: float) -> None:
    """Try a file of facts as another tool rewrites it: the same facts, verified, or refused; never without its checksums."""
    random, good = Random(seed), launch_lines()
    stored = lines.lines_of(_rewritten(random, lines.packed(good)))
    assert stored.damage or (stored.verified and stored.events == good[: len(stored.events)]) or not stored.events, seed


def _try(seed: float) -> None:
    random = Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        there, here = Path(folder) / "there", Path(folder) / "here"
        run = write_run(there, [{"rate": 100.0}, {"rate": 101.0}], folder="gpu01", run=RUN)
        for path in run.path.rglob("round*.jsonl"):
            path.write_bytes(lines.packed(lines.read(path).events))
        right = {path.relative_to(there).as_posix(): path.read_bytes() for path in there.rglob("*.jsonl")}
        for path in random.sample(sorted(there.rglob("*.jsonl")), random.randrange(3)):
            _change(random, path)
        try:
            gathered = gather(Results(here), str(random.choice((_as_it_is, _tar))(random, there)), limits=LIMITS)
        except BadInput as error:
            assert str(error) and error.hint
            return
        came = {path.relative_to(here).as_posix(): path.read_bytes() for path in here.rglob("*.jsonl")}
        for name, content in came.items():
            assert right[name].startswith(content), (seed, name)
        assert len(came) == len(right) or gathered.refused or gathered.others, seed  # another name is another file


def _change(random: Random, path: Path) -> None:
    """Change a file as transports, editors and other tools do; or put a pipe in its place."""
    data = _rewritten(random, path.read_bytes())
    path.unlink()
    if random.random() < 0.2:
        os.mkfifo(path)
    else:
        path.write_bytes(data)


def _rewritten(random: Random, data: bytes) -> bytes:
    how = random.randrange(5)
    if how == 0:
        data = data.replace(b"\n", b"\r\n")
    elif how == 1:
        data = random.choice(MARKS) + data
    elif how == 2:
        data = data.replace(b"\n", random.choice(MARKS) + b"\n")
    elif how == 3:
        data = data[: random.randrange(len(data))]
    elif how == 4:
        data = data.replace(b'"steps": 10', b'"steps": 11')
    return data


def _as_it_is(random: Random, there: Path) -> Path:
    return there


def _tar(random: Random, there: Path) -> Path:
    path = there.with_suffix(".tar")
    with tarfile.open(path, "w") as tar:
        tar.add(there, "results")
        if random.random() < 0.3:
            info = tarfile.TarInfo("././@LongLink")
            info.type, info.size = tarfile.GNUTYPE_LONGNAME, random.choice((5, 1 << 40))
            tar.addfile(info, io.BytesIO(b"x" * 5) if info.size == 5 else None)
    return _flipped(random, path)


def _flipped(random: Random, path: Path) -> Path:
    if random.random() < 0.3:
        data = bytearray(path.read_bytes())
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        path.write_bytes(data)
    return path
