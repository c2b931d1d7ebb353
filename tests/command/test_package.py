"""The wheel in a clean virtualenv, outside the clone: its own assets are found, and its command works."""

import subprocess
import sys
from pathlib import Path

import pytest

from torchmatrix.core import assets
from torchmatrix.matrix import variants

pytestmark = pytest.mark.thorough


def test_a_wheel_in_a_clean_virtualenv_inits_and_plans(tmp_path: Path) -> None:
    def uv(*words: str) -> None:
        subprocess.run([sys.executable, "-m", "uv", *words], cwd=tmp_path, check=True, capture_output=True)

    uv("build", "--wheel", "--out-dir", str(tmp_path), str(assets.ROOT))
    (wheel,) = tmp_path.glob("*.whl")
    uv("venv", "--python", sys.executable, "venv")
    uv("pip", "install", "--python", "venv/bin/python", str(wheel))
    command = str(tmp_path / "venv/bin/torchmatrix")
    assert subprocess.run([command, "init"], cwd=tmp_path, capture_output=True).returncode == 0
    done = subprocess.run([command, "plan", "--engine", "local"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith(("* ", "- ")), done.stderr
    words = [command, "init", "--preset", "bourke-2023", "--output", "preset.toml"]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True).returncode == 0
    assert (tmp_path / "preset.toml").read_text() == variants.preset_text("bourke-2023")
    where = "import torchmatrix.core.assets as a, sys; sys.exit(not (a.WORKLOAD / 'bench.py').is_file())"
    assert subprocess.run([str(tmp_path / "venv/bin/python"), "-c", where]).returncode == 0
