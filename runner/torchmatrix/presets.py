"""The matrices that repeat published benchmarks: runner/presets/NAME.toml."""

from torchmatrix import assets, matrix
from torchmatrix.errors import BadInput
from torchmatrix.matrix import Matrix
from torchmatrix.schema import nearest


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
    return matrix.parse(text(name), name=f"preset {name}")
