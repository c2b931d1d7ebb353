"""No sentence without inference: a page or a verb compares two cells only by their verdict, also where there is none."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.drawn import Tables, cell, tables
from support.records import write_run
from torchmatrix.analysis import compare, facts_cache, verdicts
from torchmatrix.analysis.machines import choose_launches
from torchmatrix.analysis.verdicts import VERDICTS
from torchmatrix.facts.store import Results
from torchmatrix.reporting import cubes, terminal, words
from torchmatrix_plugins.advise import advice
from torchmatrix_plugins.advise import words as advice_words
from torchmatrix_plugins.profile import words as bisection_words
from torchmatrix_plugins.profile.search import begun

ONCE = (1.0,)


def claims(report: Tables) -> bool:
    """Tell whether any cell of a report is called faster or slower than another."""
    return any(pair.verdict in ("FASTER", "SLOWER") for pair in report.explorers().data.pairs)


# ---------------------------------------------------------------- words by verdict


def test_every_verdict_has_words_and_anything_else_has_none() -> None:
    assert set(words.VERDICTS) == set(VERDICTS) and all(words.verdict(verdict) for verdict in VERDICTS)
    assert words.verdict("") == "" == words.verdict("no-such")


def test_one_launch_is_a_ratio_that_was_not_tested() -> None:
    often = [cell("a", rate) for rate in (99.9, 100.0, 100.1)]
    for launches in ([cell("a", 100.0)], often):
        (pair,) = tables(*launches, cell("b", 118.0), factors=ONCE).explorers().data.pairs
        assert pair.verdict == "n/a" and pair.low is None


def test_settings_by_single_launches_are_not_tested(tmp_path: Path) -> None:
    rows = [
        {"rate": 100.0 * gain * (1.2 if compiled else 1) * (1.005 if layout else 1),
         "workload": f"w-{precision}-{compiled}-{layout}",
         "job": {"precision": precision, "compile": compiled, "channels_last": layout}}
        for precision, gain in (("fp32", 1), ("amp", 2)) for compiled in (False, True) for layout in (False, True)
    ]  # fmt: skip
    folder = write_run(tmp_path, rows)
    (read,) = facts_cache.read(Results(tmp_path), [folder])
    (section,) = cubes.sections_of(read.launches)
    best, way = section.sentences[:2]
    assert "The highest of 8 combinations" in best and "2.41× (not tested) over" in best
    assert "precision amp 2.00× (not tested), then compile 1.20× (not tested)" in way
    throughput = advice.metric_of("throughput", "train")
    text = advice_words.advice_text(advice.advise(read.launches, "resnet50", "train", throughput, {}), "r", "")
    assert "2.41× (not tested) over the usual settings" in text
    assert "not tested against it, by one launch (7 combinations):" in text and "no difference shown" not in text


def test_a_search_by_single_launches_says_that_it_tested_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{"stack": "old", "rate": 100.0}, {"stack": "new", "rate": 80.0}])
    launches = {name: [launch for launch in run.launches() if launch.stack.name == name] for name in ("old", "new")}
    search = begun(("old", "new"))
    for _ in range(3):
        search = search.told(launches)
    assert "too few launches to see a difference between old and new: 0.80× (not tested)" in bisection_words.bisection_text(
        search, "job", None
    )


# ---------------------------------------------------------------- equal cells


def equal_cells(random: np.random.Generator) -> Tables:
    """Return two stacks on six models, three launches of each, all equally fast in truth."""
    return tables(
        *(
            cell(stack, 100.0 * (1 + 0.01 * random.normal()), model=f"m{model}") | {"workload": f"m{model}"}
            for model in range(6) for stack in "ab" for _ in range(3)
        ),
        factors=ONCE,
    )  # fmt: skip


def test_reports_of_equal_cells_claim_a_difference_in_at_most_5_percent() -> None:
    random, reports = np.random.default_rng(32), 60
    claimed = [claims(equal_cells(random)) for _ in range(reports)]
    assert sum(claimed) <= 8, "5 % of 60 are 3; more than 8 are seen in 1 of 300"


@pytest.mark.parametrize("cells", [3, 10, 40])
def test_two_equal_runs_have_no_mean_that_excludes_1(tmp_path: Path, cells: int) -> None:
    random = np.random.default_rng(cells)
    for run, shift in (("20260101T000000Z", 1.0), ("20260102T000000Z", 1.02)):
        rows = [
            {"rate": 100.0 * shift * (1 + 0.01 * random.normal()), "workload": f"w{place}", "job": {"batch": place + 1}}
            for place in range(cells) for _ in range(2)
        ]  # fmt: skip
        write_run(tmp_path, rows, run=run)
    results = Results(tmp_path)
    comparison = compare.compare(choose_launches(results, "last").launches, choose_launches(results, "last~1").launches)
    (mean,) = comparison.as_record()["means"]
    assert mean["n"] == cells and mean["low"] is None and mean["high"] is None
    (line,) = [line for line in terminal.comparison_in_words(comparison).splitlines() if line.startswith("geometric mean")]
    assert line.endswith(f"{cells} ratios; not tested: how runs differ is unknown") and "95 %" not in line


# ---------------------------------------------------------------- the code

SPEAKS = re.compile(r"as fast as|\bfaster than\b|\bslower than\b|times as fast")
JUDGED = {
    "analysis/glossary.py": "defines the verdicts",
    "words.py": "the words of each verdict",
    "published/audit.py": "a reason of the method, about memory formats",
}
"""The files that may say that something is faster than another, and by what."""


def texts_of(path: Path) -> Iterator[str]:
    """Yield the strings in the code of a file, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.value


def test_only_what_has_a_verdict_says_that_something_is_faster() -> None:
    package = Path(verdicts.__file__).parents[1]
    speaking = {path for path in package.rglob("*.py") if any(map(SPEAKS.search, texts_of(path)))}
    assert {path for path in speaking if not str(path).endswith(tuple(JUDGED))} == set()
