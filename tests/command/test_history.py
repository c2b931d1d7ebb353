"""`torchmatrix history`: its lines, its JSON and its page."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import Command
from support.records import nights, write_run
from torchmatrix.analysis import facts_cache
from torchmatrix.analysis.history import Change, Trend, series, trends
from torchmatrix.analysis.intervals import Interval
from torchmatrix.analysis.metrics import BY_NAME, THROUGHPUT, Metric
from torchmatrix.facts.environments import Compared
from torchmatrix.facts.store import Results
from torchmatrix.reporting import history_page
from torchmatrix.reporting.charts import lines as drawing

EVIL = "<script>alert(1)</script>\x1b[31m\n"


def trends_of(root: Path) -> list[Trend]:
    results = Results(root)
    return trends(series(facts_cache.each(results, results.runs())))


def write_nights(root: Path, rates: list[float], **more: Any) -> None:
    for run, rate in zip(nights(len(rates)), rates, strict=True):
        driver = {"name": "testhost", "driver": "575.2" if rate < 100 else "570.1"}
        write_run(root, [{"rate": rate * scatter, "host": driver, **more} for scatter in (0.999, 1.0, 1.001)], run=run)


def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_shown(torchmatrix: Command, tmp_path: Path) -> None:
    write_nights(tmp_path / "results", [100.0] * 3)
    broken = next((tmp_path / "results").rglob("round1-try1.jsonl"))
    broken.write_text('{"event": "launch", "run": 7}')
    for _ in range(2):
        done = torchmatrix("history")
        assert done.returncode == 0 and "stack-a" in done.stdout
        assert f"{broken} can't be read and is left out: run is 7, not a text" in done.stderr


def test_the_command_prints_each_cell_and_its_changes_and_writes_the_page(torchmatrix: Command, tmp_path: Path) -> None:
    write_nights(tmp_path / "results", [100.0] * 8 + [95.0] * 5)
    done = torchmatrix("history")
    assert done.returncode == 0, done.stderr
    header, cell, change = done.stdout.splitlines()
    assert header.split() == ["cell", "measured", "first", "last", "change"]
    assert cell.split() == [
        "stack-a/resnet50-train-fp32-b4/gpu0", "13", "of", "13", "100.0", "95.00", "−5.0", "%", "images/s",
    ]  # fmt: skip
    assert change.strip().startswith(f"since {nights(13)[8]}: −5.0 % (95 %: −5")
    assert change.endswith("; host driver 570.1 -> 575.2")
    page = (tmp_path / "reports/history.html").read_text()
    assert "13 runs: reports/history.html" in done.stderr and "−5.0\u202f%" in page and "host driver 570.1 -&gt; 575.2" in page


def test_json_is_the_whole_table_and_writes_no_page(torchmatrix: Command, tmp_path: Path) -> None:
    write_nights(tmp_path / "results", [100.0] * 6 + [90.0] * 3)
    (cell,) = json.loads(torchmatrix("history", "--json", "--since", "2026-01-03").stdout)["cells"]
    assert [row["run"] for row in cell["runs"]] == nights(9)[2:]
    assert cell["changes"][0]["run"] == nights(9)[6] and cell["changes"][0]["ratio"]["value"] == pytest.approx(0.9)
    assert not (tmp_path / "reports").exists()


@pytest.mark.parametrize("words", [["nosuch"], ["last-1h"], ["--since", "soon"], ["--host", "mars"]])
def test_runs_that_there_are_not_are_a_users_mistake(torchmatrix: Command, tmp_path: Path, words: list[str]) -> None:
    write_run(tmp_path / "results", [{}])
    done = torchmatrix("history", *words)
    assert done.returncode == 2 and "\nhint: " in done.stderr and "Traceback" not in done.stderr and not done.stdout


def test_hostile_strings_are_inert(torchmatrix: Command, tmp_path: Path) -> None:
    names = {"stack": "a<script>", "workload": "w<script>"}
    for run, driver in zip(nights(2), ("570", EVIL), strict=True):
        failed = {"stack": "b", "outcome": "crashed", "error": EVIL.strip()}
        host = {"name": EVIL, "driver": driver}
        write_run(tmp_path / "results", [{**names, "host": host}, failed], skips=[(EVIL, EVIL)], run=run)
    done = torchmatrix("history")
    page = (tmp_path / "reports/history.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page and page.count("<script>") == 2
    assert done.returncode == 0 and "\x1b" not in done.stdout and "never launched (1 cell): <script>" in done.stdout


def test_the_page_needs_no_network_and_is_whole_without_a_script(tmp_path: Path) -> None:
    write_nights(tmp_path, [100.0, 101.0])
    page = history_page.render(trends_of(tmp_path))
    without = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert (
        not re.search(r"(?:src|href)=[\"'](?!#)", without) and "@import" not in without and without.count("<svg role=img") == 1
    )


def test_nights_without_a_figure_are_marked_and_never_bridged(tmp_path: Path) -> None:
    for number, run in enumerate(nights(9)):
        launch = {"rate": 100.0 + number, "outcome": "oom" if number == 4 else "ok"}
        skips = [("stack-a/resnet50-train-fp32-b4/gpu0", "too hot")] if number == 6 else []
        write_run(tmp_path, [] if skips else [launch], skips=skips, run=run)
    (chart,) = drawing.charts(trends_of(tmp_path))[0]
    assert chart.curve().count("M") == 3
    crosses = [(mark.note, mark.tone) for mark in chart.marks if mark.kind == "cross"]
    failed, skipped = "out of memory: RuntimeError: boom", "skipped: too hot"
    assert crosses == [(f"{nights(9)[4]}: {failed}", "bad"), (f"{nights(9)[6]}: {skipped}", "soft")]
    notes = [list(row.values())[-1] for row in chart.table]
    assert notes[4] == failed and notes[6] == skipped and math.isnan(chart.table[4]["images/s"])
    page = history_page.render(trends_of(tmp_path))
    assert page.count("<svg x=") == 2 and f"<title>{crosses[0][0]}</title>" in page


def test_the_figures_drawn_are_those_of_the_table(tmp_path: Path) -> None:
    write_nights(tmp_path, [100.0] * 8 + [90.0] * 5)
    (chart,) = drawing.charts(trends_of(tmp_path))[0]
    page = history_page.render(trends_of(tmp_path))
    path = re.search(r'class=curve d="M([^"]*)h0"', page)
    assert path is not None
    drawn = [chart.high - (chart.high - chart.low) * float(place.split()[1]) / 100 for place in path[1].split("L")]
    assert drawn == pytest.approx([row["images/s"] for row in chart.table], abs=0.01) == [100.0] * 8 + [90.0] * 5
    ticks = {text: float(y) for y, text in re.findall(r'<text class=tick x=-8 y="([\d.]+)%" dy=4>([^<]*)<', page)}
    assert len(ticks) >= 3 and all(chart.y(float(text)) == f"{y:g}" for text, y in ticks.items())
    (level,) = [mark for mark in chart.marks if mark.kind == "level"]
    assert level.text == "−10.0\u202f%" and chart.x(level.x) == path[1].split("L")[8].split()[0]
    assert f"{nights(13)[-1]}: 90.0\u00a0images/s ±\u00a00.3\u202f%" in page


def test_nothing_measured_one_run_and_all_failed_still_render(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [], complete=False)
    assert "Nothing has been launched." in history_page.render(trends_of(tmp_path / "a"))
    write_run(tmp_path / "b", [{}])
    assert "measured in more than one" in history_page.render(trends_of(tmp_path / "b"))
    for run in nights(3):
        write_run(tmp_path / "c", [{"outcome": "crashed"}], run=run)
    page = history_page.render(trends_of(tmp_path / "c"))
    assert "boom" in page and "<figure" not in page and '<dt>failures, all runs</dt><dd class="bad">3</dd>' in page


def test_cells_beyond_the_most_charts_are_in_the_table_and_the_page_says_so(tmp_path: Path) -> None:
    count = drawing.MOST_CHARTS + 2
    for run in nights(2):
        write_run(tmp_path, [{"stack": f"s{number}"} for number in range(count)], run=run)
    trends = trends_of(tmp_path)
    assert len(drawing.charts(trends)[0]) == drawing.MOST_CHARTS
    page = history_page.render(trends)
    assert "These charts leave out 4 rows of the tables" in page and page.count('<td class="id">') == count


def test_the_largest_newest_change_comes_first(tmp_path: Path) -> None:
    for number, run in enumerate(nights(10)):
        rates = {"steady": 100.0, "slightly": 100.0 if number < 5 else 97.0, "much": 100.0 if number < 5 else 80.0}
        launches = [{"stack": name, "rate": rate * x} for name, rate in rates.items() for x in (0.999, 1.001)]
        write_run(tmp_path, launches, run=run)
    charts = drawing.charts(trends_of(tmp_path))[0]
    titles = [chart.title for chart in charts]
    assert titles[0] == "much/resnet50-train-fp32-b4/gpu0: −20.0\u202f% since 2026-01-06"
    assert charts[0].sub == "images/s on testhost: 80.0 in the last run."
    assert titles[1].startswith("slightly/") and titles[2].endswith(": the same level in 10 runs")


def test_headlines_say_since_when_how_many_cells_and_what_else_changed(tmp_path: Path) -> None:
    for number, run in enumerate(nights(10)):
        rate, driver = (100.0, "1") if number < 5 else (95.0, "2")
        host = {"name": "testhost", "driver": driver}
        launches = [{"stack": s, "rate": rate * x, "host": host} for s in ("a", "b") for x in (0.999, 1.001)]
        write_run(tmp_path, [*launches, {"stack": "c"}], run=run)
    page = history_page.render(trends_of(tmp_path))
    before, run = nights(6)[4:]
    more = f"More: torchmatrix compare {before} {run}"
    said = "2 of 3 cells became 5\u202f% slower on 2026-01-06. What changed then: host driver 1 → 2."
    assert f"<li>{said} {more}</li>" in page


@pytest.mark.parametrize(
    ("ratios", "metric", "words"),
    [
        ([0.94, 0.941], THROUGHPUT, "became 5.9 to 6\u202f% slower"),
        ([1.5], THROUGHPUT, "became 50\u202f% faster"),
        ([1.5], BY_NAME["latency_p50"], "became 50\u202f% slower"),
        ([0.9], BY_NAME["memory"], "became 10\u202f% lower"),
        ([0.9, 1.2], THROUGHPUT, "changed by −10.0\u202f% to +20.0\u202f%"),
    ],
)
def test_a_headline_says_slower_of_less_throughput_and_of_more_time(ratios: list[float], metric: Metric, words: str) -> None:
    trend = Trend(metric=metric, host="h", cell="c", workload="w", unit="images", rows=(), changes=())
    changes = [
        (trend, Change(run="2", before="1", started=0.0, ratio=Interval(value=ratio, low=ratio, high=ratio), runs=(3, 3),
                       environment={}, environment_run=None, compared=Compared(recorded=1, of=2, missing=())))
        for ratio in ratios
    ]  # fmt: skip
    assert words in history_page.headline(changes, 9) and "Nothing recorded changed then (1 of 2" in history_page.headline(
        changes, 9
    )


def test_a_run_whose_name_is_not_utf_8_is_named_and_left_out(torchmatrix: Command, tmp_path: Path) -> None:
    for run in nights(2):
        write_run(tmp_path / "results", [{}], run=run)
    odd = tmp_path / os.fsdecode(b"results/caf\xe9")
    (tmp_path / "results/testhost").rename(odd)
    write_run(tmp_path / "results", [{}], run=nights(3)[2])
    for words in ("history --json", "gate", "compare last last~0", "export out --no-charts"):
        done = torchmatrix(*words.split())
        assert "results/caf\\xe9/20260101T000000Z is left out: its name is not UTF-8; rename it" in done.stderr
        assert done.returncode in (0, 2, 3), done.stderr
    (tmp_path / "results/testhost").rename(tmp_path / os.fsdecode(b"b\xfc")), odd.rename(tmp_path / "results/testhost")
    Path(tmp_path / "results").rename(tmp_path / os.fsdecode(b"r\xe9"))
    for words in ("history --json", "gate", "export out2 --no-charts"):
        done = torchmatrix(*words.split(), "--results", os.fsdecode(b"r\xe9"))
        assert done.returncode in (0, 3) and "left out" not in done.stderr, done.stderr


@pytest.mark.parametrize("verb", ["report --machines", "export --machines out --no-charts"])
def test_machines_without_a_launch_are_compared_to_nothing(torchmatrix: Command, tmp_path: Path, verb: str) -> None:
    for folder in ("a", "b"):
        write_run(tmp_path / "results", [], folder=folder, machine=16 * folder)
    done = torchmatrix(*verb.split())
    assert done.returncode == 0 and done.stdout


@pytest.mark.thorough
def test_names_the_terminal_cant_show_are_printed_in_escapes_also_without_docstrings(tmp_path: Path) -> None:
    results = tmp_path / os.fsdecode(b"r\xe9")
    for run in nights(2):
        write_run(results, [{"rate": 100.0}], run=run)
    command = [
        sys.executable,
        "-m",
        "torchmatrix",
        "export",
        "--results",
        results,
        tmp_path / os.fsdecode(b"\xfc"),
        "--no-charts",
    ]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONOPTIMIZE": "2"}, capture_output=True, check=False
    )
    assert done.returncode == 0 and b"Traceback" not in done.stderr and done.stdout.rstrip().endswith(rb"\udcfc")
