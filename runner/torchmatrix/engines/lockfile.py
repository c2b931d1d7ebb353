"""Read and write matrix.lock: exactly what each stack is made of: the base image by digest, every package by version and
hash.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torchmatrix.core import inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.files import disk_errors, write_to
from torchmatrix.core.toml_keys import shown
from torchmatrix.matrix.stacks import locked_line_problem

VERSION = 1
_HEAD = """\
# What the stacks of the matrix are made of, exactly. Written by `torchmatrix lock`; `--locked` builds this and nothing else.
"""
_HINT = "make it again: torchmatrix lock"
_KEPT = "it was changed or damaged: restore it, or measure again"
_LISTS = ("requires", "packages")


@dataclass(frozen=True, kw_only=True, slots=True)
class StackLock:
    """One stack, resolved. `base`: its container base or vendor image; `digest`: its digest in its registry, or `image_id`
    if it came from none. `requires`: what was requested; `packages`: the result, one requirement with hashes each;
    `installer`: the package that installs them. `platform`: such as linux/amd64.
    """

    name: str
    platform: str
    python: str = ""
    base: str = ""
    digest: str = ""
    image_id: str = ""
    index: str = ""
    installer: str = ""
    requires: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return a TOML table, one line per fact, so that two locks can be compared line by line."""
        lines = ["[[stack]]"]
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                inner = "".join(f"    {json.dumps(item)},\n" for item in value)
                lines.append(f"{field.name} = [\n{inner}]" if value else f"{field.name} = []")
            elif value:
                lines.append(f"{field.name} = {json.dumps(value)}")
        return "\n".join(lines) + "\n"

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of `text`: the identity that launches record."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def parse(text: str, name: str = "matrix.lock") -> dict[str, StackLock]:
    """Return the stacks of a lock file by name. Raises BadInput if it isn't complete."""
    data = inputs.toml_of(text, name, hint=_HINT, complaint=" is not a complete lock file")
    if data.get("version") != VERSION:
        raise BadInput(f"{name} has the version {shown(data.get('version'))}, not {VERSION}", hint=_HINT)
    try:
        every = [from_table(table) for table in data.get("stack", [])]
        listed, present = sorted(map(str, data["stacks"])), sorted(lock.name for lock in every)
    except KeyError as error:
        raise BadInput(f"{name} is not a complete lock file: {error.args[0]} is missing", hint=_HINT) from None
    except TypeError as error:
        raise BadInput(f"{name} is not a complete lock file: {error}", hint=_HINT) from None
    if listed != present:
        difference = ", ".join(map(shown, sorted(set(listed) ^ set(present))[:5])) or "a stack is listed twice"
        raise BadInput(f"{name} is cut short or badly merged: {difference}", hint=_HINT)
    return {lock.name: lock for lock in every}


def from_table(table: Mapping[str, Any]) -> StackLock:
    """Parse a [[stack]] table of a lock. Raises TypeError or KeyError if it is incomplete: `packages` is its last line."""
    if not isinstance(table, Mapping):
        raise TypeError("a stack is no table")
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    for key, value in values.items():
        words = value if isinstance(value, tuple) else (value,)
        if isinstance(value, tuple) is not (key in _LISTS) or not all(isinstance(word, str) for word in words):
            raise TypeError(f"{key} is not {'a list of texts' if key in _LISTS else 'text'}")
    for key in ("name", "platform", *_LISTS):
        if key not in values:
            raise KeyError(key)
    names = {field.name for field in fields(StackLock)}
    if unknown := [key for key in values if key not in names]:
        raise TypeError(f"unknown key {shown(unknown[0])}")
    for line in (*values["packages"], *filter(None, [values.get("installer")])):
        if problem := locked_line_problem(line):
            raise TypeError(f'"{shown(line)}" {problem}')
    if bare := _without_hash(values["packages"]):
        raise TypeError(f'"{shown(bare)}" has lost its hash, which others have: nothing tells whether it is what was locked')
    return StackLock(**values)


def _without_hash(lines: Iterable[str]) -> str | None:
    """Return a version without a hash beside others with one; an address names what it is of."""
    hashed = {line: "--hash=" in line for line in lines if " @ " not in line}
    return next((line for line, has_hash in hashed.items() if not has_hash), None) if any(hashed.values()) else None


def from_text(text: str) -> StackLock | None:
    """Return the stack that `StackLock.text` described, as an image's label stores it; None if it isn't one."""
    with suppress(BadInput, TypeError, KeyError, IndexError):
        return from_table(inputs.toml_of(text, "a lock", hint=_HINT)["stack"][0])
    return None


def of_stack(path: Path) -> StackLock | None:
    """Return the stack whose lock a run kept in a file; None if there is no file. Raises BadInput."""
    try:
        text = inputs.read_text(path, hint=_KEPT, most_bytes=inputs.LARGE_FILE_BYTES)
    except FileNotFoundError:
        return None
    if (lock := from_text(text)) is None:
        raise BadInput(f"{path} is not the lock that was written there", hint=_KEPT)
    return lock


def read(path: Path) -> dict[str, StackLock]:
    """Return the lock file's stacks by name; empty if there is no file. Raises BadInput."""
    try:
        text = inputs.read_text(path, hint="fix its permissions, or remove it", most_bytes=inputs.LARGE_FILE_BYTES)
    except FileNotFoundError:
        return {}
    return parse(text, str(path))


def write(path: Path, locks: Iterable[StackLock]) -> None:
    """Write the whole file or nothing. Raises EngineUnusable if it can't be written."""
    every = sorted(locks, key=lambda lock: lock.name)
    names = "".join(f"    {json.dumps(lock.name)},\n" for lock in every)
    text = f"{_HEAD}version = {VERSION}\nstacks = [\n{names}]\n\n" + "\n".join(lock.text for lock in every)
    with disk_errors(path, hint="free space or choose another --matrix"):
        write_to(path, text.encode())


def drift(lock: StackLock, requested: StackLock) -> list[str]:
    """Describe how the current matrix differs from the lock; `requested` has no packages and no digest."""
    differences = []
    for key, word in {"platform": "platform", "python": "Python", "base": "base image", "index": "index"}.items():
        locked, now = getattr(lock, key), getattr(requested, key)
        if locked != now and not (key == "python" and locked.startswith(f"{now}.")):
            differences.append(f"{word}: {locked or 'none'} in the lock, {now or 'none'} now")
    old, new = set(lock.requires) - set(requested.requires), set(requested.requires) - set(lock.requires)
    if old or new:
        differences.append(f"packages: {', '.join(sorted(old)) or 'none'} in the lock, {', '.join(sorted(new)) or 'none'} now")
    return differences
