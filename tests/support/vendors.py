"""Invented wheels: packages of a few lines that stand for a vendor's torch and for additions to it."""

import zipfile
from pathlib import Path

TORCH = "2.7.0a0+6c54963f75.nv25.2"
"""A version like those in NVIDIA's images."""


def wheel(folder: Path, name: str, version: str, files: dict[str, str], requires: tuple[str, ...] = ()) -> Path:
    """Write a wheel of the files {path: text} into `folder`."""
    info = f"{name}-{version}.dist-info"
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {need}" for need in requires)]
    parts = {
        **files,
        f"{info}/METADATA": "\n".join(head) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*parts, f"{info}/RECORD"))
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name_inside, text in {**parts, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(name_inside), text)  # with a fixed date, so that layers are cached
    return path


def torch_wheel(folder: Path, version: str = TORCH) -> Path:
    """Write a torch of two files, which needs numpy."""
    files = {"torch/__init__.py": f'__version__ = "{version}"\n', "torch/nn.py": "LAYERS = 1\n"}
    return wheel(folder, "torch", version, files, requires=("numpy",))


def plain_wheel(folder: Path, name: str, version: str, requires: tuple[str, ...] = ()) -> Path:
    """Write a package of one module."""
    return wheel(folder, name, version, {f"{name}/__init__.py": f'__version__ = "{version}"\n'}, requires)
