"""The suite for real GPUs (`make gpu`) works: here on an invented one, which shows that its tests and its record do."""

import json
import os
import runpy
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
pytestmark = [pytest.mark.thorough]


def test_a_part_of_the_suite_holds_on_an_invented_gpu_and_keeps_what_it_saw(real_python: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "gpu", "gpu/test_gpu_identity.py", "gpu/test_sabotage.py"]
    chosen = ["-k", "sensors or mask or refused or TF32", "--stand-in", real_python, "--output", str(tmp_path)]
    done = subprocess.run([*command, *chosen, "-p", "no:cacheprovider"], cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "gpu: 4 of 4 held, 0 skipped" in done.stdout, done.stdout + done.stderr
    seen = json.loads((tmp_path / "seen.json").read_text(encoding="utf-8"))
    assert not seen["machine"]["is_real"]
    tests = {name: test["outcome"] for name, test in seen["tests"].items()}
    assert len(tests) == 4 and set(tests.values()) == {"passed"}
    cheat = next(test["seen"] for name, test in seen["tests"].items() if "TF32" in name)
    assert cheat["outcome"] == "unsupported" and "allow_tf32 from False to True" in cheat["error"]


def test_a_bare_machines_python_has_the_packs_packages_and_what_the_invented_gpu_adds(tmp_path: Path) -> None:
    day = runpy.run_path(str(TESTS / "gpu" / "day"))
    with zipfile.ZipFile(tmp_path / "lacking_here-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("lacking_here.py", "")
    (tmp_path / "added").mkdir()
    (tmp_path / "added" / "sitecustomize.py").write_text("import builtins; builtins.was_added = True\n")
    site = day["unpacked"](tmp_path)
    (of_the_site,) = metadata.distributions(path=[str(site)])
    installed = {point for point in metadata.distribution("torchmatrix").entry_points if point.group != "console_scripts"}
    assert set(of_the_site.entry_points) == installed
    command = [str(day["with_site"](site)), "-c", "import lacking_here; print(was_added)"]
    added = {**os.environ, "PYTHONPATH": str(tmp_path / "added")}
    assert subprocess.run(command, env=added, capture_output=True, text=True, check=True).stdout == "True\n"
