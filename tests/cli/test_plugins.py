"""Plugins of strangers: a verb by an entry point; one that is broken is named and stops nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

VERB = """\
from torchmatrix.cli.options import ResultsOption, RESULTS
from torchmatrix.facts.store import Results


def count_runs(results: ResultsOption = RESULTS) -> None:
    '''Count the runs.'''
    print(len(Results(results).runs()))
"""


def call(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "torchmatrix", *words]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Install a stranger's package into a folder, with three verbs: good, not there, and named as one of the core."""
    (tmp_path / "strange_verbs.py").write_text(VERB)
    about = tmp_path / "strange-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit(7)\n")
    verbs = (
        "count-runs = strange_verbs:count_runs",
        "lost = strange_verbs:no_such",
        "run = strange_verbs:count_runs",
        "x = leaving:x",
    )
    (about / "entry_points.txt").write_text("\n".join(("[torchmatrix.verbs]", *verbs)) + "\n")
    return tmp_path


def test_a_strangers_verb_is_one_like_others_and_a_broken_one_stops_nothing(installed: Path) -> None:
    done = call(installed, "count-runs")
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    notes = done.stderr.splitlines()
    assert notes[0].startswith("note: the plugin lost is left out: AttributeError: ") and len(notes) == 3
    assert notes[2] == "note: the plugin x is left out: SystemExit: 7"
    assert notes[1] == "note: the plugin run is left out: ValueError: the core, or another plugin, has a verb of that name"
    shown = call(installed, "--help").stdout
    assert "Count the runs." in shown and "lost" not in shown
    assert shown.index("  run ") < shown.index("Plugins:") < shown.index("  count-runs ")


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("f = 5", "TypeError: it names neither a function nor a typer.Typer"),
        ("def f(a: 'Nope'): pass", "NameError"),
        ("class E(Exception):\n    __str__ = None\nraise E", "E"),
        ("print('NOISE')\ndef f(): print('done')", ""),
    ],
)
def test_whatever_a_plugins_module_does_the_other_verbs_work(tmp_path: Path, module: str, why: str) -> None:
    (tmp_path / "odd_module.py").write_text(f"{module}\n")
    about = tmp_path / "odd-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[torchmatrix.verbs]\nodd = odd_module:f\n")
    done = call(tmp_path, "presets", "--json")
    assert done.returncode == 0 and done.stdout.startswith(("[", "{")), done.stderr
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: the plugin")]
    assert len(notes) == bool(why) and all(line.startswith(f"note: the plugin odd is left out: {why}") for line in notes), notes


def test_our_own_plugins_are_found_the_same_way(tmp_path: Path) -> None:
    shown = call(tmp_path, "--help").stdout
    assert all(f" {verb} " in shown for verb in ("bundle", "gather", "nightly")), shown
    assert call(tmp_path, "gather", "--help").returncode == 0
