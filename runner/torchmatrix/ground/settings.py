"""Site settings: mirrors, a folder of wheels, a CA bundle. They come from the user's settings file and the environment,
never from the matrix, because a matrix must mean the same everywhere.

The file is ~/.config/torchmatrix/settings.toml (or TORCHMATRIX_SETTINGS):

    wheelhouse = "/srv/wheels"                                  # or TORCHMATRIX_WHEELHOUSE
    ca_bundle = "/etc/ssl/certs/site.pem"                       # or TORCHMATRIX_CA_BUNDLE
    parallel_builds = 2                                         # or TORCHMATRIX_PARALLEL_BUILDS
    [mirrors]                                                   # or TORCHMATRIX_MIRRORS="docker.io=HOST/hub,URL=URL"
    "docker.io" = "registry.example:5000/hub"
    "https://download.pytorch.org/whl" = "https://mirror.example/pytorch"
"""

import os
import re
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.toml_keys import Key, Place, Problems, check

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HUB = "docker.io"
_EXPLAINED = "docs/airgap.md explains its keys, under Site settings"
_MIRROR = Key(
    kind=str,
    pattern=r"[^@?\s]+",
    explanation="is no address, or it contains credentials or a query, which would reach logs and images; use ~/.netrc "
    "(indexes) or docker login (registries)",
)
_KEYS = {
    "wheelhouse": Key(kind=str),
    "ca_bundle": Key(kind=str),
    "parallel_builds": Key(kind=int, default=2, minimum=1, maximum=64),
    "mirrors": Key(kind=dict, default={}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """`mirrors`: the beginning of an image reference or index URL -> what stands for it here. `wheelhouse`: a folder of
    wheels that replaces all indexes. `ca_bundle`: certificate authorities that builds and resolving trust."""

    mirrors: dict[str, str] = field(default_factory=dict)
    wheelhouse: Path | None = None
    ca_bundle: Path | None = None
    parallel_builds: int = 2

    def index(self, url: str) -> str:
        """The URL that serves a package index here."""
        return self._replaced(url) or url

    def image(self, reference: str) -> str:
        """The reference under which an image is pulled here: "python:3.11" is docker.io/library/python:3.11."""
        return self._replaced(full_reference(reference)) or reference

    def _replaced(self, address: str) -> str | None:
        fitting = [start for start in self.mirrors if address == start or address.startswith(start.rstrip("/") + "/")]
        start = max(fitting, key=len, default=None)
        return None if start is None else self.mirrors[start].rstrip("/") + address[len(start.rstrip("/")) :]


def full_reference(reference: str) -> str:
    """An image reference with its registry: Docker's own is left out by convention, and so is its folder `library`."""
    first, slash, _ = reference.partition("/")
    if slash and re.search(r"[.:]|^localhost$", first):
        return reference
    return f"{HUB}/{reference}" if slash else f"{HUB}/library/{reference}"


@cache
def load() -> Settings:
    """Read the file and the environment once. Raises BadInput."""
    values = _from_file(_path())
    for key in _KEYS:
        said = os.environ.get(f"TORCHMATRIX_{key.upper()}")
        if said:
            values[key] = _from_environment(key, said)
    return Settings(
        mirrors=dict(values["mirrors"] or {}),
        wheelhouse=_existing("wheelhouse", values["wheelhouse"]),
        ca_bundle=_existing("ca_bundle", values["ca_bundle"]),
        parallel_builds=values["parallel_builds"],
    )


def _path() -> Path:
    usual = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "torchmatrix" / "settings.toml"
    return Path(os.environ.get("TORCHMATRIX_SETTINGS") or usual)


def _from_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
        data = tomllib.loads(text)
    except FileNotFoundError:
        text, data = "", {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"can't read {path}: {error}", hint="fix or remove the settings file") from None
    problems = Problems(text)
    values = check(data, _KEYS, Place(header="the top"), problems)
    mirrors = values["mirrors"] or {}
    check(mirrors, dict.fromkeys(mirrors, _MIRROR), Place(header="[mirrors]"), problems)
    if problems.messages:
        listing = "\n".join(f"  {message}" for message in problems.messages)
        raise BadInput(f"{path}:\n{listing}", hint=_EXPLAINED)
    return values


def _from_environment(key: str, said: str) -> Any:
    if key == "mirrors":
        pairs = [pair.partition("=") for pair in said.split(",") if pair.strip()]
        if not all(name.strip() and value.strip() for name, _, value in pairs):
            raise BadInput("TORCHMATRIX_MIRRORS is not a list of A=B", hint="such as docker.io=registry.example:5000/hub")
        mirrors = {name.strip(): value.strip() for name, _, value in pairs}
        refused = [name for name, value in mirrors.items() if not re.fullmatch(_MIRROR.pattern, value)]
        if refused:
            raise BadInput(
                f"TORCHMATRIX_MIRRORS: the mirror of {refused[0]} {_MIRROR.explanation}", hint="remove the credentials"
            )
        return mirrors
    if key == "parallel_builds":
        if not said.isdigit() or int(said) < 1:
            raise BadInput(f"TORCHMATRIX_PARALLEL_BUILDS is not a number of builds: {said}", hint="such as 2")
        return int(said)
    return said


def _existing(key: str, said: str | None) -> Path | None:
    if not said:
        return None
    path = Path(said).expanduser()
    if not path.exists():
        raise BadInput(f"{key}: there is no {path}", hint=f"fix {key} in the settings or TORCHMATRIX_{key.upper()}")
    return path.absolute()


def cache_folder() -> Path:
    """Where virtualenvs, compile caches and everything else that can be made again are kept."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchmatrix"
    return Path(os.environ.get("TORCHMATRIX_CACHE") or usual)
