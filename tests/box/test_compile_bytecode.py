"""Files that a container imports are compiled when its image is built, and two builds give the same bytes."""

import os
import subprocess
import sys
from pathlib import Path

from torchmatrix.core import assets

SOURCES = {
    "one.py": "KINDS = {'a', 'b', 'c', 'd'}\ndef told(kind):\n    return kind in {'x', 'y', 'z'}\n",
    "sub/two.py": "import one\nWORDS = one.KINDS\n",
    "sub/template.py": "{% not Python %}\n",
    "sub/text.txt": "not a module\n",
}


def compiled(folder: Path, seed: str) -> dict[str, bytes]:
    """Return what compiling these sources in `folder` makes, by path; `seed`: of the process that begins it."""
    for name, text in SOURCES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (int(seed) + 1,) * 2)
    program = [sys.executable, "-B", str(assets.IMAGES / "compile_bytecode.py"), str(folder)]
    done = subprocess.run(program, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.pyc")}


def test_two_builds_give_the_same_bytes_whatever_the_times_and_the_order_of_sets(tmp_path: Path) -> None:
    first = compiled(tmp_path / "opt", "1")
    assert {Path(name).name.split(".")[0] for name in first} == {"one", "two"}, "what is not Python is left alone"
    (tmp_path / "opt").rename(tmp_path / "elsewhere")
    assert compiled(tmp_path / "opt", "2") == first


def test_a_source_that_is_replaced_later_is_what_counts(tmp_path: Path) -> None:
    compiled(tmp_path, "1")
    (tmp_path / "one.py").write_text("KINDS = 'other'\n")
    os.utime(tmp_path / "one.py", (2, 2))
    done = subprocess.run([sys.executable, "-c", "import one; print(one.KINDS)"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "other\n"


def test_compiled_files_are_left_as_they_are(tmp_path: Path) -> None:
    first = compiled(tmp_path, "1")
    (kept,) = tmp_path.glob("__pycache__/one.*.pyc")
    kept.write_bytes(b"made by the vendor")
    assert compiled(tmp_path, "2") == first | {str(kept.relative_to(tmp_path)): b"made by the vendor"}
