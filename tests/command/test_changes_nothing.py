"""A command line that only shows something leaves every file of the user's folder as it is."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from support import Command
from torchmatrix import cli

CELL = "fake/resnet50-train-fp32-b4-224px/cpu0"
SHOWING = (
    "plan", "plan --json", "plan --skipped", "doctor", "doctor --json", "presets", "presets --json", "clean", "clean --all",
    f"reproduce {CELL} --print", "reproduce {launch} --print", "reproduce llm-cpu --print", "compare last last~1",
    "compare last last~1 --json", "advise resnet50", "advise resnet50 --json", "audit last", "audit last --json",
    "history --json", "gate", "gate --json", "gather {results} --dry-run", "gather {results} --dry-run --json --results other",
    f"why {CELL} {CELL} --recorded", "nightly unit", "nightly unit --cron", "clean --runs --keep 2",
    "report --output {elsewhere}/report.html", "history --output {elsewhere}/history.html", "export {elsewhere}/tables",
)  # fmt: skip
"""Command lines that say, by their verb or an option, that they measure and remove nothing and write nothing here."""
OF_THAT_KIND = ("--print", "--dry-run", "--recorded")


def content(folder: Path) -> dict[str, object]:
    """Return what is in a folder: of each file its content, rights and time of change, but nothing of the caches."""
    caches = folder / "caches", folder / "results" / ".cache"
    paths = (path for path in folder.rglob("*") if not any(map(path.is_relative_to, caches)))
    return {str(path): _state(path) for path in paths}


def _state(path: Path) -> object:
    if path.is_dir():
        return "a folder"
    status = path.stat()
    return hashlib.sha256(path.read_bytes()).hexdigest(), status.st_mtime_ns, status.st_mode


@pytest.fixture
def measured(
    torchmatrix: Command,
    fake_matrix: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Return a folder with two runs and their page."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for _ in range(2):
        assert torchmatrix("run", "*cpu0", "--new").returncode == 0
    return tmp_path


def test_what_only_shows_something_changes_no_file(
    measured: Path, torchmatrix: Command, tmp_path_factory: pytest.TempPathFactory
) -> None:
    launch = next(measured.glob(f"results/*/*/{CELL}/*.jsonl"))
    names = {"launch": str(launch), "results": str(measured / "results"), "elsewhere": str(tmp_path_factory.mktemp("e"))}
    home = Path(os.environ["HOME"])
    before, before_home = content(measured), set(home.rglob("*"))
    for line in SHOWING:
        done = torchmatrix(*line.format(**names).split())
        assert done.returncode in (0, 1, 2), (line, done.stderr)
        assert "No such option" not in done.stderr and content(measured) == before, line
        assert set(home.rglob("*")) == before_home, line
    done = torchmatrix("report", "--output", "last.html")
    assert done.returncode == 0 and "Nothing has been launched" not in done.stderr, "the newest run is still the last"


def test_every_option_of_that_kind_is_tried() -> None:
    tried = {(line.split(" ", 1)[0], word) for line in SHOWING for word in line.split()}
    for verb, option in _options(cli.plugins.command()):
        assert option not in OF_THAT_KIND or (verb, option) in tried, f"{verb} {option}"


def _options(group: click.Command) -> Iterator[tuple[str, str]]:
    """Yield each verb with each of its options; of a verb with verbs of its own, the first word."""
    for name, command in getattr(group, "commands", {}).items():
        for _, option in _options(command):
            yield name, option
        yield from ((name, option) for parameter in command.params for option in parameter.opts)
