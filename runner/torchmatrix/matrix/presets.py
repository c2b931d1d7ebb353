"""The matrices that repeat published benchmarks: runner/presets/NAME.toml."""

from torchmatrix.ground import assets
from torchmatrix.ground.errors import BadInput
from torchmatrix.ground.toml_keys import nearest
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.matrix_file import Matrix


def names() -> tuple[str, ...]:
    """The names of all presets, sorted."""
    return tuple(sorted(path.stem for path in assets.PRESETS.glob("*.toml")))


def text(name: str) -> str:
    """The matrix file of that preset, comments included. Raises BadInput with the nearest name."""
    if name not in names():
        raise BadInput(f'unknown preset "{name}"', hint=f"{nearest(name, names())}; torchmatrix presets describes them")
    return (assets.PRESETS / f"{name}.toml").read_text(encoding="utf-8")


def load(name: str) -> Matrix:
    """The matrix of that preset. Raises BadInput for an unknown name."""
    return matrix_file.parse(text(name), name=f"preset {name}")
