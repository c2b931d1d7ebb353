"""Every verb works in a folder whose name is no UTF-8, with such a home, results, caches and output; and without a home."""

import pwd
from functools import partial
from pathlib import Path

import pytest

from support import FAKE_PYTHON, invoke
from support.slurm_cluster import FAKE_STACK

CELL = "fake/resnet18-train-fp32-b2-224px/cpu0"
LINES = (
    "presets", "init --output m\udce9.toml", "doctor --json", "plan", "plan --matrix {here}/matrix.toml",
    "build --engine local", "run --engine local",
    "run --engine local --new --results r\udce9s --output \udcfcout/run.html", "batch --engine local",
    f"profile {CELL} --engine local --profiles pr\udce9 --output \udcfcout/profile.html",
    f"why {CELL} {CELL} --engine local --output \udcfcout/why.html", f"reproduce {CELL} --engine local",
    "reproduce {launch} --engine local --print", "report --output \udcfcout/report.html", "report --redact",
    "report --publish \udcfcout/site", "gather r\udce9s --results g\udce4", "gather g\udce4 --dry-run",
    "compare last last~1", "compare {here}/r\udce9s last", "advise resnet18 --write advice\udce9.toml",
    "history --output \udcfcout/history.html", "history --json", "audit last", "audit f\udce9.csv",
    "export \udcfcout/tables", "export --redact \udcfcout/shared --format json",
    "gate --junit \udcfcout.xml --markdown \udcfcout.md", "nightly run --engine local",
    "nightly unit --cron", "clean --runs --keep 2",
    "lock --engine local", "bundle export b\udcfc.tar --engine local", "bundle import b\udcfc.tar --into i\udcfc",
    "clean --engine local --all", "clean --engine local --yes",
)  # fmt: skip


@pytest.mark.thorough
def test_names_that_are_no_utf_8_are_names(tmp_path: Path) -> None:
    base = tmp_path / "caf\udce9"
    here = base / "w\udcf6rk"
    (base / "h\udcf6me").mkdir(parents=True)
    here.mkdir()
    text = f'[run]\nlaunches = 2\n{FAKE_STACK}model = "resnet18"\nbatch = 2\nsteps = 5\nwindows = 2\n'
    (here / "matrix.toml").write_text(text.format(python=FAKE_PYTHON))
    call = partial(invoke, here, HOME=str(base / "h\udcf6me"), TORCHMATRIX_CACHE=str(base / "c\udce4che"))
    for line in LINES:
        launch = next(here.glob(f"results/*/*/{CELL}/*.jsonl"), None)
        done = call(*line.format(here=here, launch=launch).split(" "))
        assert (done.returncode <= 5 and "error: " not in done.stderr) or "\nhint: " in done.stderr, (line, done.stderr)
    for name in ("run.html", "report.html", "history.html", "profile.html", "site/index.html", "tables"):
        assert (here / "\udcfcout" / name).exists(), name
    assert list((here / "g\udce4").iterdir())


def test_a_user_without_a_home_can_do_what_others_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a user whom nobody knows, without HOME."""
    asked: list[int] = []

    def unknown(number: int) -> None:
        asked.append(number)
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    text = f'[run]\nlaunches = 1\n{FAKE_STACK}model = "resnet18"\nbatch = 2\nsteps = 5\nwindows = 2\n'
    (tmp_path / "matrix.toml").write_text(text.format(python=FAKE_PYTHON))
    lines = ("presets", "plan --engine local", "run --engine local", "report --redact")
    for line in (*lines, "nightly unit --cron", "clean --engine local"):
        done = invoke(tmp_path, *line.split(" "), TORCHMATRIX_CACHE=str(tmp_path / "cache"))
        assert done.returncode == 0, (line, done.stderr)
    assert asked
