"""Wheels that a [[stack]] pins by address and hash: the way to what no release is, such as a nightly, which is soon deleted."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from torchmatrix.ground.toml_keys import shown

NEEDED = ("torch", "torchvision")
"""What the self-test trains with."""
_ADDRESS = re.compile(
    r"(?P<folder>https://[A-Za-z0-9][A-Za-z0-9.-]*(?::\d+)?(?:/[^\s\\?&;#]*)?)/(?P<file>[^\s\\?&;#/]+\.whl)", re.ASCII
)
_HASH = re.compile(r"sha256=([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinned:
    """One wheel. `variant`: such as cu126, "" if its version doesn't say; `python`: such as "3.12", "" for any; `folder`: its
    address without the file's name; `requirement`: as pip and uv read it (PEP 508), with the hash."""

    name: str
    version: str
    variant: str
    python: str
    folder: str
    requirement: str


def read(texts: Iterable[str]) -> tuple[dict[str, Pinned], list[str]]:
    """The wheels by name, and what is wrong with them."""
    every = [_read(text) for text in texts]
    wrong = [one for one in every if isinstance(one, str)]
    wheels = {one.name: one for one in every if isinstance(one, Pinned)}
    missing = [name for name in NEEDED if name not in wheels]
    if missing and not wrong:
        wrong.append(f"lacks {' and '.join(missing)}")
    elif len(wheels) + len(wrong) < len(every):
        wrong.append("names a package twice")
    return wheels, wrong


def _read(text: str) -> Pinned | str:
    """The wheel at an address such as https://…/torch-2.8.0.dev20250601%2Bcu126-cp312-cp312-….whl#sha256=…; else why not."""
    address, _, fragment = text.partition("#")
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return f'"{shown(text)}" is not the address of a wheel, https://….whl#sha256=…'
    if not _HASH.fullmatch(fragment):
        return f'"{shown(found["file"])}" has no hash to tell whether it is the same file: add #sha256= and 64 digits'
    try:
        name, version, _, tags = parse_wheel_filename(unquote(found["file"]))
    except InvalidWheelFilename:
        return f'"{shown(found["file"])}" is not the name of a wheel'
    if not any(tag.platform == "any" or "linux" in tag.platform for tag in tags):
        return f'"{shown(found["file"])}" is not for Linux'
    python = next((f"{tag.interpreter[2]}.{tag.interpreter[3:]}" for tag in tags if tag.interpreter.startswith("cp3")), "")
    return Pinned(
        name=name, version=version.public, variant=version.local or "", python=python, folder=found["folder"],
        requirement=f"{name} @ {text}",
    )  # fmt: skip


def architecture_of(requirement: str) -> str | None:
    """What the wheel at a requirement's address is for, such as x86_64; None if it runs on any, or there is no address."""
    found = re.search(r"_(x86_64|aarch64)\.whl#", requirement)
    return found[1] if found else None
