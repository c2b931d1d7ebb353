"""matrix.lock, settings and price lists."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from faults.borders._mutating import as_bytes, held, in_files, mixed, mutated
from torchmatrix.analysis import prices
from torchmatrix.core import settings
from torchmatrix.engines import lockfile
from torchmatrix.engines.lockfile import StackLock

_DIGEST = "0" * 64
_LOCK = 'version = 1\nstacks = [\n    "own",\n]\n\n' + StackLock(
    name="own", platform="linux/amd64", python="3.11", base="python:3.11", digest=f"sha256:{_DIGEST}",
    index="https://pypi.org/simple", installer=f"uv==0.9.0 --hash=sha256:{_DIGEST}", requires=("torch==2.5.1",),
    packages=(f"numpy==1.26.4 --hash=sha256:{_DIGEST}", f"torch==2.5.1 --hash=sha256:{_DIGEST}"),
).text  # fmt: skip
_SETTINGS = """ca_bundle = "/etc/hostname"
parallel_builds = 2
machine = "the third box"
[mirrors]
"docker.io" = "registry.example:5000/hub"
"""
_PRICES = """[[price]]
gpu = "H100 SXM5 80GB"
price_per_hour = 2.1
currency = "EUR"
source = "an offer"
date = "2026-01-31"
"""
_TABLE = "gpu,price_per_hour,purchase_price,currency,source,date\nH100 SXM5 80GB,2.10,,EUR,an offer,2026-01-31\n"


def cases(random: Random) -> Iterator[Callable[[], None]]:
    """Yield mutated texts of all four; a part of them as files."""

    def of(text: str) -> Callable[[Random], bytes]:
        return lambda random: as_bytes(mutated(text, random))

    return mixed(
        random,
        _locks(random),
        in_files(random, "settings.toml", of(_SETTINGS), _read_settings),
        in_files(random, "prices.toml", of(_PRICES), prices.load),
        in_files(random, "prices.csv", of(_TABLE), prices.load),
        in_files(random, "matrix.lock", of(_LOCK), _read_lock),
    )


def _locks(random: Random) -> Iterator[Callable[[], None]]:
    while True:
        text = mutated(_LOCK, random)
        yield partial(held, partial(lockfile.parse, text), text)


def _read_settings(path: Path) -> None:
    os.environ["TORCHMATRIX_SETTINGS"] = str(path)
    settings.load.cache_clear()
    try:
        settings.load()
    finally:
        del os.environ["TORCHMATRIX_SETTINGS"]
        settings.load.cache_clear()


def _read_lock(path: Path) -> None:
    lockfile.read(path)
    lockfile.from_text(path.read_text(encoding="utf-8", errors="replace"))
