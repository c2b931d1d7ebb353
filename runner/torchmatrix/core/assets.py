"""Paths of the project's own files: next to the source in a clone, under ``_assets`` in a wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_BUNDLED = _PACKAGE / "_assets"
ROOT = _BUNDLED if _BUNDLED.is_dir() else _PACKAGE.parent.parent

IMAGES = ROOT / "images"
"""The Docker build context: Dockerfiles, catalog.toml, workload/."""
WORKLOAD = IMAGES / "workload"
TEMPLATES = ROOT / "reports" / "templates"
PUBLISHED = ROOT / "reports" / "published"
PRESETS = ROOT / "runner" / "presets"
DEFAULT_MATRIX = ROOT / "matrix.toml"


def sources_in(folder: Path) -> list[Path]:
    """List the Python and JSON files at any depth, sorted: those of images/workload are hashed and get into the image."""
    return sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".json"))


def build_files(dockerfile: str) -> list[Path]:
    """List a Dockerfile and the scripts that it runs: with its arguments and the workload, they make the image."""
    scripts = ["vendor_guard.py"] if dockerfile == "vendor.Dockerfile" else ["install.sh", "compile_bytecode.py"]
    return [IMAGES / name for name in (dockerfile, *scripts)]
