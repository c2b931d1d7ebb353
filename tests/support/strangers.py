"""A stranger's package with entry points, and the command beside it."""

import os
import subprocess
import sys
from pathlib import Path


def call(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "torchmatrix", *words]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def install(folder: Path, module: str, **hooks: str) -> None:
    """Install a stranger's package with one `module`. `hooks`: by group, lines such as "name = strange:function"."""
    (folder / "strange.py").write_text(module)
    about = folder / "strange-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("".join(f"[torchmatrix.{group}]\n{lines}\n" for group, lines in hooks.items()))
