"""Facts about PyTorch releases (images/catalog.toml) and models (images/workload/models.json), as typed values."""

import json
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

from torchmatrix import assets

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """One PyTorch release and what goes with it; the fields are described at the top of catalog.toml."""

    torch: str
    torchvision: str
    transformers: str
    python: tuple[str, str]
    default_python: str
    compile_python: str | None
    wheels: tuple[str, ...]
    pypi: str
    also: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Architectures:
    """The GPUs that the wheels of some variants, from one minor release of torch to another, hold code for."""

    oldest: tuple[int, ...]
    newest: tuple[int, ...]
    variants: tuple[str, ...]
    compiled: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalog:
    """All releases by torch version, oldest first, and the facts that concern more than one."""

    releases: dict[str, Release]
    drivers: dict[str, str]
    architectures: tuple[Architectures, ...]
    pytorch_index: str
    wheels_base: str
    vendor_packages: tuple[str, ...]
    vendor_images: dict[str, str]
    layers: dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model that the workload can build; `unit` is what it processes (images or sequences)."""

    name: str
    library: str
    unit: str


@cache
def load() -> Catalog:
    """Read catalog.toml once."""
    data = tomllib.loads((assets.IMAGES / "catalog.toml").read_text())
    return Catalog(
        releases={version: _release(version, table) for version, table in data["torch"].items()},
        drivers=data["driver"],
        architectures=tuple(map(_architectures, data["architectures"])),
        pytorch_index=data["index"]["pytorch"],
        wheels_base=data["base"]["wheels"],
        vendor_packages=tuple(data["vendor"]["usual_packages"]),
        vendor_images=data["vendor_images"],
        layers={name: tuple(globs) for name, globs in data["layers"].items()},
    )


@cache
def models() -> dict[str, Model]:
    """Read models.json once: every model by name."""
    data = json.loads((assets.WORKLOAD / "models.json").read_text())
    return {name: Model(name=name, library=entry["library"], unit=entry["unit"]) for name, entry in data.items()}


def compiled_for(torch: str, variant: str) -> tuple[str, ...] | None:
    """The compute capabilities or gfx names that this wheel holds code for, or None if the catalog doesn't know."""
    minor = version_key(torch)[:2]
    rows = (row for row in load().architectures if variant in row.variants and row.oldest <= minor <= row.newest)
    return next((row.compiled for row in rows), None)


def _architectures(table: dict[str, Any]) -> Architectures:
    oldest, newest = map(version_key, table["torch"])
    variants, compiled = tuple(table["variants"]), tuple(table["compiled"])
    return Architectures(oldest=oldest, newest=newest, variants=variants, compiled=compiled)


def version_key(version: str) -> tuple[int, ...]:
    """Orders dotted version numbers: "3.9" before "3.10"."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _release(version: str, table: dict[str, object]) -> Release:
    def words(key: str) -> tuple[str, ...]:
        value = table.get(key, [])
        assert isinstance(value, list)
        return tuple(map(str, value))

    oldest, newest = words("python")
    return Release(
        torch=version,
        torchvision=str(table["torchvision"]),
        transformers=str(table["transformers"]),
        python=(oldest, newest),
        default_python=str(table["default_python"]),
        compile_python=str(table["compile_python"]) if "compile_python" in table else None,
        wheels=words("wheels"),
        pypi=str(table["pypi"]),
        also=words("also"),
    )
