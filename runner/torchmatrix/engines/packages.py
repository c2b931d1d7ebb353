"""Resolve a stack's Python requirements exactly: with uv, for the container's Python, every file with its hash."""

import hashlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from torchmatrix.core import settings
from torchmatrix.core.errors import BuildFailed
from torchmatrix.core.files import replacing, scratch
from torchmatrix.engines import containment
from torchmatrix.matrix import catalog
from torchmatrix.matrix.stacks import PYPI

# Programs whose output belongs into a build's log.


def run_logged(
    command: Sequence[str], log: Callable[[str], None], variables: Mapping[str, str], folder: Path
) -> tuple[int, list[str]]:
    """Run `command` in `folder` with these variables alone and log it; return its exit code and its lines. Raises OSError.

    However this process ends, the command ends with it.
    """
    log("$ " + shlex.join(command))
    lines: list[str] = []

    def keep(line: str) -> None:
        lines.append(line)
        log(line)

    return containment.run(command, keep, variables=variables, folder=folder), lines


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PLATFORMS = {"linux/amd64": "x86_64-manylinux_2_28", "linux/arm64": "aarch64-manylinux_2_28"}
"""uv's name for the wheels of a container's platform; every base in use has a newer glibc than 2.28."""
WHEELS_ONLY = ("--only-binary", ":all:")
"""uv's options on this machine: a source package is a program, which would run as this user to be resolved or built."""
_NO_SOURCES = "; only wheels are used, since a package's source would run on this machine: ask for a version that has a wheel"
LAYERS = ("toolkit", "libraries", "rest", "torch")
NEUTRAL_FOLDER = Path("/")
"""Where uv runs: settings in the folder of a matrix (uv.toml, pyproject.toml) could name other indexes. The user's apply."""


def resolve(
    requirements: Iterable[str],
    index: str,
    python: str,
    log: Callable[[str], None],
    platform: str | None = None,
    alone: bool = False,
) -> tuple[str, ...]:
    """Return every package with its version and hashes, as lines that pip and uv install from, sorted by name.

    `python`: a version such as "3.11" together with `platform` (a key of PLATFORMS), or an interpreter's path alone.
    `alone`: without their dependencies. Raises BuildFailed with uv's own message.
    """
    target = ["--python", python] if platform is None else _platform_options(python, platform)
    target += ["--no-deps"] if alone else []
    return tuple(sorted(map(_requirement, _resolve_entries(target, requirements, index, log))))


def _platform_options(python: str, platform: str) -> list[str]:
    if platform not in PLATFORMS:
        raise BuildFailed(f"unknown platform {platform} (known: {', '.join(PLATFORMS)})")
    return ["--python-version", python, "--python-platform", PLATFORMS[platform]]


def _resolve_entries(target: list[str], lines: Iterable[str], index: str, log: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return the packages of the pylock.toml (PEP 751) that uv makes of requirements."""
    with scratch() as folder:
        requirements, pylock = folder / "requirements.in", folder / "pylock.toml"
        requirements.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        options = [*WHEELS_ONLY, "--format", "pylock.toml", "--no-header", "--quiet", "--output-file", str(pylock)]
        run_uv(["pip", "compile", str(requirements), *target, *index_options(index), *options], log)
        return list(tomllib.loads(pylock.read_text(encoding="utf-8"))["packages"])


def download(lines: Iterable[str], index: str, python: str, platform: str, folder: Path, log: Callable[[str], None]) -> None:
    """Put the wheels of locked packages into `folder`, each checked against its hashes. Raises BuildFailed."""
    folder.mkdir(parents=True, exist_ok=True)
    every = list(lines)
    locked = {name_of(line): set(re.findall(r"--hash=sha256:(\w+)", line)) for line in every}
    for entry in _resolve_entries(["--no-deps", *_platform_options(python, platform)], every, index, log):
        if not entry.get("wheels"):
            why = "is named by an address" if "archive" in entry else "has no wheel, only its source"
            raise BuildFailed(f"{entry['name']} {why}, which can't be bundled")
        wheels = [wheel for wheel in entry["wheels"] if wheel["hashes"]["sha256"] in locked[name_of(entry["name"])]]
        if not wheels:
            raise BuildFailed(f"{entry['name']} {entry['version']}: no file has a locked hash; it was changed after the lock")
        for wheel in wheels:
            place = str(wheel.get("url") or wheel["path"])
            path = folder / str(wheel.get("name") or unquote(urlsplit(place).path.rpartition("/")[2]))
            if not path.exists():
                log(f"downloading {path.name}")
                _fetch(place, wheel["hashes"]["sha256"], path)


def _fetch(place: str, sha256: str, path: Path) -> None:
    """Download a file. `place`: a URL, or a path on this machine, as a wheelhouse gives it."""
    digest = hashlib.sha256()
    try:
        with replacing(path) as file:
            for block in _read_blocks(place):
                digest.update(block)
                file.write(block)
            if digest.hexdigest() != sha256:
                raise BuildFailed(f"{path.name}: its hash is not the locked one")
    except OSError as error:  # the base class of requests' exceptions, too
        raise BuildFailed(f"{path.name} could not be downloaded: {error}") from None


def _read_blocks(place: str) -> Iterator[bytes]:
    if not place.startswith(("http://", "https://")):
        yield from [Path(unquote(place.removeprefix("file://"))).read_bytes()]
        return
    import requests  # a sixth of the time that a node of a cluster would need for all its imports

    bundle = settings.load().ca_bundle
    with requests.get(place, stream=True, timeout=60, verify=str(bundle) if bundle else True) as answer:
        answer.raise_for_status()
        yield from answer.iter_content(1 << 20)


def _requirement(entry: Mapping[str, Any]) -> str:
    """Return a package of a pylock.toml (PEP 751) as a requirement: its wheels for this platform, or what an address names."""
    if "vcs" in entry:
        return f"{entry['name']} @ {entry['vcs']['type']}+{entry['vcs']['url']}@{entry['vcs']['commit-id']}"
    files = entry.get("wheels") or [entry[kind] for kind in ("sdist", "archive") if kind in entry]
    hashes = [f"--hash={kind}:{value}" for file in files for kind, value in sorted(file.get("hashes", {}).items())]
    address = entry.get("archive", {}).get("url")
    what = f"{entry['name']} @ {address}" if address else f"{entry['name']}=={entry['version']}"
    return " ".join((what, *dict.fromkeys(hashes)))


def layers(packages: Iterable[str]) -> dict[str, list[str]]:
    """Group `packages` by the image layer that installs them, in order: toolkit, libraries, rest, torch (see the catalog).

    Layers that are equal in two stacks, up to the first one that differs, are on disk once.
    """
    globs = catalog.load().layers
    by_layer: dict[str, list[str]] = {name: [] for name in LAYERS}
    for line in packages:
        name = name_of(line)
        layer = next((layer for layer in globs if any(fnmatchcase(name, glob) for glob in globs[layer])), "rest")
        by_layer[layer].append(line)
    return by_layer


def name_of(line: str) -> str:
    """Return the package that a locked line or a wheel's file name names, spelt as in a lock."""
    first = line.partition("-")[0] if line.endswith(".whl") else re.split(r"[=@ ]", line, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", first).lower()


def index_options(index: str, for_container: bool = False) -> list[str]:
    """Return uv's options for a stack's index, with PyPI for what that index doesn't have; through this site's mirrors.

    A wheelhouse replaces both. A mirror of PyPI that the user set for uv or pip is used, in a container only if it holds no
    password.
    """
    site = settings.load()
    if site.wheelhouse and not for_container:
        return ["--no-index", "--find-links", str(site.wheelhouse)]
    mirror = _user_mirror()
    if for_container:
        default = ["--default-index", mirror if mirror and "@" not in mirror else site.index(PYPI)]
    else:
        default = [] if mirror else ["--default-index", site.index(PYPI)]
    return default if index == PYPI else ["--index", site.index(index), *default, "--index-strategy", "unsafe-best-match"]


def _user_mirror() -> str | None:
    names = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
    return next((os.environ[name] for name in names if name in os.environ), None)


def installer() -> str:
    """Return the installer of the packages in a container: the version of uv that resolved them. Raises BuildFailed."""
    try:
        return f"uv=={metadata.version('uv')}"
    except metadata.PackageNotFoundError:
        raise BuildFailed(f"uv isn't installed for {sys.executable}; hint: {sys.executable} -m pip install uv") from None


def run_uv(arguments: list[str], log: Callable[[str], None], mark: Mapping[str, str] | None = None) -> list[str]:
    """Run uv, log its lines and return them; `mark`: more variables for it. Raises BuildFailed with uv's own message.

    uv runs in NEUTRAL_FOLDER, so paths in `arguments` are absolute.
    """
    command = [sys.executable, "-m", "uv", *arguments]
    returncode, lines = run_logged(command, log, environment() | dict(mark or {}), NEUTRAL_FOLDER)
    if returncode:
        refused = any("disabled" in line for line in lines)
        raise BuildFailed(first_error(lines) + (_NO_SOURCES if refused else ""))
    return lines


def environment() -> dict[str, str]:
    """Return the user's variables without another Python's; a mirror set for pip, and the site's CA bundle, apply to uv too."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON") and k != "VIRTUAL_ENV"}
    mirror, bundle = _user_mirror(), settings.load().ca_bundle
    variables["UV_NO_WRAP"] = "1"  # its messages are read line by line, whatever the width of the terminal
    variables |= {"UV_DEFAULT_INDEX": mirror} if mirror else {}
    return variables | ({"SSL_CERT_FILE": str(bundle)} if bundle else {})


def first_error(lines: list[str]) -> str:
    """Return uv's error: its error line and the last of the causes on the following lines, which is the root cause."""
    stripped = [line.strip(" ×╰─▶") for line in lines if line.strip()]
    start = next((i for i, line in enumerate(stripped) if "error" in line.lower() or "no solution" in line.lower()), 0)
    causes = stripped[start:]
    mismatch = [line for line in causes if "hash mismatch" in line.lower()]
    parts = dict.fromkeys((*causes[:1], *mismatch, *causes[-1:]))
    return " ".join(map(_shorten, parts)) or "uv failed without a message"


def _shorten(line: str, most: int = 400) -> str:
    """Shorten a line, but keep both ends: the subject comes first, and the system's message last."""
    return line if len(line) <= most else f"{line[: most // 2]} ... {line[-most // 2 :]}"


# Which Pythons this machine has, and where uv downloads others from.

UV_PYTHONS = ("https://github.com/astral-sh/python-build-standalone/releases", "https://releases.astral.sh")
"""Where uv's own Pythons come from: all versions of uv use the first address, newer ones also the second."""


def lacks_python(request: str) -> bool:
    """Check whether uv says that there is no such Python here; where it can't look, the build will fail with its reason.

    `request`: a version ("3.11"), a range (">=3.9,<3.13") or a path.
    """
    command = [sys.executable, "-m", "uv", "python", "find", "--no-cache", "--no-project", "--no-python-downloads", request]
    found = subprocess.run(command, env=environment(), cwd=NEUTRAL_FOLDER, capture_output=True)
    return found.returncode != 0 and b"No interpreter found" in found.stderr


def python_sources() -> list[str]:
    """Return the addresses that uv may download a Python from; none if the user switched that off.

    https://docs.astral.sh/uv/reference/environment/ names the variables.
    """
    variables = environment()
    if variables.get("UV_PYTHON_DOWNLOADS") in ("never", "manual") or variables.get("UV_OFFLINE") in ("1", "true"):
        return []
    mirror = variables.get("UV_PYTHON_INSTALL_MIRROR") or variables.get("UV_ASTRAL_MIRROR_URL")
    return [mirror] if mirror else list(UV_PYTHONS)
