"""Plugins of strangers: a verb, an engine, a scheduler or a page by an entry point; one that is broken is named and stops
nothing.
"""

from pathlib import Path

import pytest

from support.records import write_run
from support.strangers import call, install

VERB = """\
from torchmatrix.cli.options import ResultsOption, RESULTS
from torchmatrix.facts.store import Results


def count_runs(results: ResultsOption = RESULTS) -> None:
    '''Count the runs.'''
    print(len(Results(results).runs()))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Install a stranger's package into a folder, with four verbs: good, not there, named as one of the core, leaving."""
    (tmp_path / "leaving.py").write_text("raise SystemExit(7)\n")
    verbs = "count-runs = strange:count_runs\nlost = strange:no_such\nrun = strange:count_runs\nx = leaving:x"
    install(tmp_path, VERB, verbs=verbs)
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
        ("f = 5", "TypeError: it names nothing that can be called"),
        ("def f(a: 'Nope'): pass", "NameError"),
        ("class E(Exception):\n    __str__ = None\nraise E", "E"),
        ("print('NOISE')\ndef f(): print('done')", ""),
    ],
)
def test_whatever_a_plugins_module_does_the_other_verbs_work(tmp_path: Path, module: str, why: str) -> None:
    install(tmp_path, f"{module}\n", verbs="odd = strange:f")
    done = call(tmp_path, "presets", "--json")
    assert done.returncode == 0 and done.stdout.startswith(("[", "{")), done.stderr
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: the plugin")]
    assert len(notes) == bool(why) and all(line.startswith(f"note: the plugin odd is left out: {why}") for line in notes), notes


def test_our_own_plugins_are_found_the_same_way_and_loaded_only_for_their_verbs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, sys\natexit.register(lambda: print('gather', 'torchmatrix_plugins.gather' in sys.modules))\n"
    )
    loaded = {words: call(tmp_path, *words).stdout for words in (("presets",), ("gather", "--help"), ("--help",), ("nope",))}
    assert [text.rstrip().endswith("gather True") for text in loaded.values()] == [False, True, True, True]
    shown = loaded["--help",]
    assert all(f" {verb} " in shown for verb in ("bundle", "gather", "nightly")), shown
    assert call(tmp_path, "gather", "--help").returncode == 0


ENGINE = """\
from torchmatrix.engines.local import LocalEngine


class Mine(LocalEngine):
    name = "mine"


def mine(folder, owner):
    return Mine(folder, owner)
"""
PAGE = """\
def counts(asked):
    asked.target.write_text(f"{len(asked.runs)} runs")
    return asked.target
"""
SCHEDULER = """\
from torchmatrix.core.errors import BadInput


def farm(asked):
    raise BadInput(f"{asked.matrix} is too much for the farm", hint="buy machines")
"""


def test_a_strangers_engine_is_a_choice_of_engine(tmp_path: Path) -> None:
    install(tmp_path, ENGINE, engines="mine = strange:mine\ndocker = strange:mine\nlost = strange:no_such")
    assert "docker, podman, apptainer, lost, mine, pyxis or local" in " ".join(
        call(tmp_path, "doctor", "--help").stdout.split()
    )
    assert call(tmp_path, "init").returncode == 0
    assert "mine (as requested)" in call(tmp_path, "doctor", "--engine", "mine").stdout
    broken = call(tmp_path, "build", "--engine", "lost")
    assert broken.returncode == 4 and "error: the plugin lost can't be used: AttributeError" in broken.stderr
    assert "mine" not in call(tmp_path, "doctor", "--engine", "docker").stdout


def test_a_strangers_scheduler_is_a_choice_of_run_alone(tmp_path: Path) -> None:
    install(tmp_path, SCHEDULER, schedulers="farm = strange:farm\nslurm = strange:farm")
    done = call(tmp_path, "run", "--engine", "farm", "--matrix", "m.toml")
    assert (done.returncode, done.stderr) == (2, "error: m.toml is too much for the farm\n\nhint: buy machines\n")
    assert call(tmp_path, "init").returncode == 0
    assert "only `torchmatrix run` works on a cluster" in call(tmp_path, "build", "--engine", "farm").stderr
    ours = call(tmp_path, "run", "--engine", "slurm", "--matrix", "none.toml")  # which fails before a controller is asked
    assert "the farm" not in ours.stderr and "no matrix file at none.toml" in ours.stderr


def test_a_strangers_page_is_written_by_report(tmp_path: Path) -> None:
    install(tmp_path, PAGE, pages="counts = strange:counts\nlost = strange:no_such")
    write_run(tmp_path / "results", [])
    done = call(tmp_path, "report", "--page", "counts=c.txt")
    assert (done.returncode, done.stdout) == (0, "c.txt\n"), done.stderr
    assert (tmp_path / "c.txt").read_text() == "1 runs"
    wrong = {"counts": "names no path", "count=c": 'did you mean "counts"', "counts=": "names no path"}
    for words, why in wrong.items():
        done = call(tmp_path, "report", "--page", words)
        assert done.returncode == 2 and why in done.stderr, done.stderr
    assert call(tmp_path, "report", "--page", "lost=x").returncode == 4
    assert call(tmp_path, "report", "--page", "counts=x", "--publish", "y").returncode == 2


def test_a_job_that_is_named_like_a_verb_replaces_none(tmp_path: Path) -> None:
    install(
        tmp_path,
        "def job(words):\n    print('HIJACKED', words)\n    return 0\n",
        jobs="gate = strange:job\nwhy = strange:job\nmine = strange:job",
    )
    done = call(tmp_path, "gate", "--results", "none")
    assert "HIJACKED" not in done.stdout and done.returncode != 0
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: the plugin")]
    assert notes == [
        f"note: the plugin {name} is left out: ValueError: its job is named like a verb" for name in ("gate", "why")
    ]
    assert call(tmp_path, "mine", "a").stdout == "HIJACKED ['a']\n"


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("engines", ("build", "--engine", "mine")), ("schedulers", ("run", "--engine", "mine")),
        ("pages", ("report", "--page", "mine=x")), ("jobs", ("mine",)),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "body", ["raise SystemExit(0)", "raise KeyError('k')", "return None", "return int", "return 'text'", "raise RecursionError"]
)
def test_a_hook_that_fails_or_gives_something_else_is_named(
    tmp_path: Path, group: str, words: tuple[str, ...], body: str
) -> None:
    """It is never taken for success, nor for the failure of a cell."""
    install(tmp_path, f"def mine(*given):\n    {body}\n", **{group: "mine = strange:mine"})
    assert call(tmp_path, "init").returncode == 0
    write_run(tmp_path / "results", [])
    done = call(tmp_path, *words)
    assert done.returncode == 4 and "error: the plugin mine failed: " in done.stderr and "Traceback" not in done.stderr, (
        done.stderr
    )
