"""No sentence without inference: what a page or a verb says of two follows from a verdict, also where there is none."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from drawn import Tables, cell, tables

from records import write_run
from torchmatrix.analysis import advice, compare, facts_cache, verdicts
from torchmatrix.analysis.bisection import begun
from torchmatrix.analysis.chosen import choose
from torchmatrix.analysis.verdicts import VERDICTS
from torchmatrix.facts.store import Results
from torchmatrix.ground import assets
from torchmatrix.reporting import advised, bisected, cubes, side_by_side, terminal, words
from torchmatrix.reporting.explorers import NONE
from torchmatrix.reporting.explorers.choosing import ALL
from torchmatrix.reporting.explorers.data import data_of
from torchmatrix.reporting.report.headline import fastest as headline_of

ONCE = (1.0,)
CLAIMS = re.compile(r"[0-9] × as fast as|\bfastest\b|\bslower\b|FASTER|SLOWER|times as fast|\bgains\b|is weak|The cheap way")
"""What tells a reader that one is faster than another."""


def titles(found: Tables) -> list[str]:
    """What a report says first of these cells, from its headline to its last explorer."""
    data = data_of(found.table, found.cells, found.scales, found.ratios, NONE)
    panels = [panel.title for name in found.explorers().by_name for panel in found.explorers().panels(name, {"model": ALL})]
    return [*headline_of(data).answers, *panels]


# ---------------------------------------------------------------- words by verdict


def test_every_verdict_has_words_and_anything_else_has_none() -> None:
    said = {verdict: words.compared("b", "a", 1.18, verdict, "one launch each: not tested") for verdict in VERDICTS}
    assert said["FASTER"] == "b is 1.18 × as fast as a" and said["SAME"] == "b and a are equally fast, 1.18 ×,"
    assert said["AMBIGUOUS"] == "Unclear whether b is faster than a, 1.18 ×,"
    assert said["n/a"] == "b over a: 1.18 ×, one launch each: not tested,"
    with pytest.raises(KeyError):
        words.compared("b", "a", 1.18, "", "")


def test_one_launch_each_is_a_ratio_that_was_not_tested() -> None:
    found = tables(cell("a", 100.0), cell("b", 118.0), factors=ONCE)
    assert found.titles("speedup") == ["b over a: 1.18 ×, one launch each: not tested, on H200 SXM with fp32 (one cell)"]
    assert not any(map(CLAIMS.search, titles(found)))


def test_one_launch_of_one_side_is_said() -> None:
    often = [cell("a", rate) for rate in (99.9, 100.0, 100.1)]
    (found,) = tables(*often, cell("b", 118.0), factors=ONCE).titles("speedup")
    assert found.startswith("b over a: 1.18 ×, too few launches: not tested, on H200")


def test_scaling_by_one_launch_is_not_tested() -> None:
    found = tables(cell(rate=100.0), cell(rate=360.0, devices=(0, 1, 2, 3)), factors=ONCE)
    (title,) = found.titles("scaling")
    assert title.endswith("(E = 0.900, s = 0.867), too few launches: not tested")
    assert any("3.60 × as much (E = 0.900, s = 0.867), too few launches: not tested." in said for said in titles(found))


def test_two_lines_without_intervals_are_not_ranked() -> None:
    four = [cell("a", 100.0), cell("a", 180.0, devices=(0, 1)), cell("b", 100.0), cell("b", 190.0, devices=(0, 1))]
    (title,) = tables(*four, factors=ONCE).titles("scaling")
    assert title.endswith("too few launches: not tested")


def test_a_loss_by_single_launches_has_no_cause() -> None:
    both, name = {"devices": (0, 1)}, "resnet50-train-fp32-b4"
    cells = [cell(rate=100.0), cell(rate=100.0, devices=(1,)), cell(rate=160.0, **both)]
    cells += [cell(rate=196.0, parallel="independent", **both) | {"workload": f"{name}-independent"}]
    cells += [cell(rate=190.0, parallel="no-sync", **both) | {"workload": f"{name}-no-sync"}]
    (title,) = [panel.title for panel in tables(*cells, factors=ONCE).explorers().panels("loss", {})]
    assert "; the lowest factor is not tested: E_comm = 0.842 (too few launches for an interval)" in title


def test_the_extreme_of_what_no_test_compares_is_no_claim() -> None:
    found = tables(cell("a", told=[], memory_bytes=1), cell("b"))
    data = data_of(found.table, found.cells, found.scales, found.ratios, NONE)
    for metric in data.metrics[1:]:
        for panel in found.explorers().panels("throughput", {"metric": metric.name}):
            assert not re.search("needs the least|gives the most", panel.title)


def test_settings_by_single_launches_are_not_tested(tmp_path: Path) -> None:
    rows = [
        {"rate": 100.0 * gain * (1.2 if compiled else 1) * (1.005 if layout else 1),
         "workload": f"w-{precision}-{compiled}-{layout}",
         "job": {"precision": precision, "compile": compiled, "channels_last": layout}}
        for precision, gain in (("fp32", 1), ("amp", 2)) for compiled in (False, True) for layout in (False, True)
    ]  # fmt: skip
    folder = write_run(tmp_path, rows)
    digest = facts_cache.digest(Results(tmp_path), folder)
    (section,) = cubes.sections_of(digest.launches)
    best, way = section.sentences[:2]
    assert "The highest of 8 combinations" in best and "×2.41 (not tested) over" in best
    assert "precision amp ×2.00 (not tested), then compile ×1.20 (not tested)" in way
    said = advised.text(advice.advise(digest.launches, "resnet50", "train", advice.AIMS["throughput"], {}), "r", "")
    assert "×2.41 (not tested) over the usual settings" in said and "with no difference shown" in said


def test_a_search_by_single_launches_says_that_it_tested_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{"stack": "old", "rate": 100.0}, {"stack": "new", "rate": 80.0}])
    launches = {name: [one for one in run.launches() if one.stack.name == name] for name in ("old", "new")}
    search = begun(("old", "new"))
    for _ in range(3):
        search = search.told(launches)
    assert "too few launches to see a difference between old and new: ×0.800 (not tested)" in bisected.text(search, "job", None)


def test_machines_by_the_mean_over_cells_are_not_tested() -> None:
    grid = side_by_side.Grid(count=1, gpus=("x", "y"), means=(None, {"n": 3, "ratio": 1.18}), lines=(), alone=0)
    assert side_by_side._sentence(grid, "x") == (
        "Relative to x, on one device each, geometric mean over cells, not tested: y ×1.180 (n = 3)."
    )


# ---------------------------------------------------------------- equal cells


def equal_cells(random: np.random.Generator, run: float) -> Tables:
    """Two stacks on six models, three launches of each, all equally fast in truth; `run`: what all cells of a stack share."""
    shared = {stack: 1 + run * random.normal() for stack in "ab"}
    return tables(
        *(
            cell(stack, 100.0 * shared[stack] * (1 + 0.01 * random.normal()), model=f"m{model}") | {"workload": f"m{model}"}
            for model in range(6) for stack in "ab" for _ in range(3)
        ),
        factors=ONCE,
    )  # fmt: skip


def test_reports_of_equal_cells_claim_a_difference_in_at_most_5_percent() -> None:
    random, reports = np.random.default_rng(32), 60
    claims = [any(map(CLAIMS.search, titles(equal_cells(random, run=0.0)))) for _ in range(reports)]
    assert sum(claims) <= 8, "5 % of 60 are 3; more than 8 are seen in 1 of 300"


def test_the_mean_over_cells_claims_nothing_even_if_all_cells_of_a_stack_moved_together() -> None:
    """The runs of a machine differ by 1 %, and so do all cells of a run: that is no difference of the stacks."""
    random = np.random.default_rng(33)
    said = [title for _ in range(5) for title in equal_cells(random, run=0.05).titles("speedup")]
    assert len(said) == 5 and all("a mean over cells is not tested" in title for title in said)
    assert not any(map(CLAIMS.search, said))


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
    found = compare.compare(choose(results, "last").launches, choose(results, "last~1").launches)
    (mean,) = found.as_record()["means"]
    assert mean["n"] == cells and mean["low"] is None and mean["high"] is None
    (line,) = [line for line in terminal.comparison_in_words(found).splitlines() if line.startswith("geometric mean")]
    assert line.endswith(f"{cells} ratios; a mean over cells is not tested") and "95 %" not in line


# ---------------------------------------------------------------- the code

SPEAKS = re.compile(r"as fast as|\bfaster than\b|\bslower than\b|times as fast")
JUDGED = {
    "words.py": "the words of each verdict",
    "explorers/fastest.py": "named by best.may_be_best",
    "explorers/pairs.py": "the scale of a chart",
    "explorers/lines.py": "a speed-up with its interval; else it says that it isn't tested",
    "published/audit.py": "a reason of the method, about memory formats",
}
"""The files that may say that something is faster than another, and by what."""


def texts_of(path: Path) -> Iterator[str]:
    """The strings in the code of a file, without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.value


def test_only_what_has_a_verdict_says_that_something_is_faster() -> None:
    package = Path(verdicts.__file__).parents[1]
    speaking = {path for path in package.rglob("*.py") if any(map(SPEAKS.search, texts_of(path)))}
    assert {path for path in speaking if not str(path).endswith(tuple(JUDGED))} == set()


def test_the_page_says_of_two_what_print_says_by_the_same_table() -> None:
    scripts = {path.name: path.read_text(encoding="utf-8") for path in (assets.TEMPLATES / "scripts").glob("*.js")}
    assert {name for name, text in scripts.items() if SPEAKS.search(text)} == {"say.js", "fastest.js", "lines.js"}
    table = re.search(r"const COMPARED = \{\n(.*?)\n\};", scripts["say.js"], re.DOTALL)
    assert table and [line.split(":")[0].strip(' "') for line in table[1].splitlines()] == list(VERDICTS)
    for verdict in VERDICTS:
        own = words.compared("${own}", "${other}", 1.25, verdict, "${why}").replace("1.25", "${ratio}")
        assert f"`{own}`" in table[1], verdict
