"""A run in the formats of other tools: export --format hud, junit, llm-d, prometheus, pull-request."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from support import Command
from support.records import write_run
from support.strangers import call, install
from torchmatrix.core.errors import BadInput
from torchmatrix.reporting.exports import Tables
from torchmatrix_plugins.foreign import formats

RECORDED = str(Path(__file__).parents[1] / "data" / "recorded")
NAMES = ("hud", "junit", "prometheus", "pull-request")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    words = [part for name in NAMES for part in ("--format", name)]
    done = call(folder, "export", "last", "out", "--results", RECORDED, "--no-charts", *words, "--format", "json")
    assert done.returncode == 0, done.stderr
    return folder / "out"


def cells_of(exported: Path) -> list[dict[str, object]]:
    return list(json.loads((exported / "cells.json").read_text(encoding="utf-8")))


def test_every_cell_is_a_record_of_hud_with_the_figures_of_its_launches(exported: Path) -> None:
    records = json.loads((exported / "pytorch-hud.json").read_text(encoding="utf-8"))
    cells = cells_of(exported)
    assert len(records) == len(cells) == 4
    for record, cell in zip(records, cells, strict=True):
        assert record["model"]["name"] == "resnet50" and record["benchmark"]["mode"] == "training"
        assert len(record["metric"]["benchmark_values"]) == cell["launches_ok"]
        assert min(record["metric"]["benchmark_values"]) <= float(str(cell["items_per_second"]))
        for part in ("benchmark", "metric"):  # the database takes texts there
            assert all(isinstance(value, str) for value in record[part]["extra_info"].values())


def test_junit_has_a_test_for_each_cell_and_skip(exported: Path) -> None:
    suite = ElementTree.fromstring((exported / "junit.xml").read_bytes())
    tests = suite.findall("testcase")
    assert suite.get("tests") == str(len(tests)) == "10" and suite.get("skipped") == "6" and suite.get("failures") == "0"
    assert len({(test.get("classname"), test.get("name")) for test in tests}) == len(tests)


def test_prometheus_has_a_sample_for_each_figure(exported: Path) -> None:
    lines = (exported / "torchmatrix.prom").read_text(encoding="utf-8").splitlines()
    samples = [line for line in lines if line[0] != "#"]
    assert all(re.fullmatch(r'torchmatrix_\w+\{(\w+="(\\.|[^"\\])*",?)+\} [\d.e+-]+', line) for line in samples)
    values = [float(line.rsplit(" ", 1)[1]) for line in samples if line.startswith("torchmatrix_items_per_second{")]
    assert values == [cell["items_per_second"] for cell in cells_of(exported)]
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len({*names}) == 6  # one group of lines for each


def test_a_comment_for_a_pull_request_says_figures_and_verdicts(exported: Path) -> None:
    text = (exported / "pull-request.md").read_text(encoding="utf-8")
    assert (
        "| resnet50-train-fp32-b4-64px-compile | cpu0 | torch2.7.1-cpu |" in text and "AMBIGUOUS" in text and "images/s" in text
    )
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {6, 7}  # two tables, none with a column too many


HOSTILE = {
    "cell": ["s/<b>@me|`x`</b>\x1b[31m/cpu0"], "stack": ["s"], "workload": ['w"\\ #12 https://a.example'], "devices": ["cpu0"],
    "model": ["<script>|x"],
    "mode": ["generate"], "precision": ["fp32"], "runtime": [None], "compile": [False], "batch_per_device": [2], "torch": ["2"],
    "device_name": ['a"b\\c\nd'], "unit": ["tokens"], "device_count": [1], "outcome": ["ok"], "error": [None],
    "items_per_second": [5.0], "items_per_second_low": [float("nan")], "items_per_second_high": [float("nan")],
    "launches_ok": [1], "launches_not_ok": [0], "parallel": [""],
    "first_token_p50_seconds": [0.5], "per_output_token_p50_seconds": [0.1],
}  # fmt: skip


def tables(**changes: list[object]) -> Tables:
    values: Any = {"cells": HOSTILE | changes, "launches": {}, "skips": {}, "speedups": {}}
    return Tables(run="r<1>", values=values)


def test_names_from_elsewhere_break_no_format() -> None:
    text = formats.pull_request(tables())["pull-request.md"].decode()
    text += formats.pull_request(tables(outcome=["oom"]))["pull-request.md"].decode()
    assert "<b>" not in text and "@&#8203;me" in text and "@me" not in text and "\x1b" not in text and r'w"\\' in text
    assert "https://" not in text and "#12" not in text
    line = next(
        line for line in formats.prometheus(tables())["torchmatrix.prom"].decode().splitlines() if "device_name" in line
    )
    assert r'device_name="a\"b\\c d"' in line and "\n" not in line
    ElementTree.fromstring(formats.junit(tables(outcome=["crashed"], error=["\x00<&\ud800"]))["junit.xml"])
    assert "nan" not in formats.prometheus(tables())["torchmatrix.prom"].decode().lower()
    json.loads(formats.hud(tables())["pytorch-hud.json"])


def test_a_launch_that_failed_is_told_though_others_did_not() -> None:
    partly = tables(launches_not_ok=[1], runtime=["onnxruntime"])
    (test,) = ElementTree.fromstring(formats.junit(partly)["junit.xml"]).findall("testcase")
    failure = test.find("failure")
    assert failure is not None and failure.get("message") == "1 of 2 launches failed" and test.find("system-out") is not None
    assert test.find("system-out").text == "5.000 tokens/s, no interval, 1 launch"  # type: ignore[union-attr]
    partly.values["failures"] = {"cell": HOSTILE["cell"] * 2, "outcome": ["oom", "crashed"]}  # type: ignore[index]
    (failed,) = ElementTree.fromstring(formats.junit(partly)["junit.xml"]).iter("failure")
    assert failed.get("type") == "oom, crashed"
    assert "1 of 2 launches failed" in formats.pull_request(partly)["pull-request.md"].decode()
    assert json.loads(formats.hud(partly)["pytorch-hud.json"])[0]["model"]["backend"] == "onnxruntime"


def test_a_stack_that_failed_is_told_beside_a_baseline_that_did_not(tmp_path: Path) -> None:
    write_run(tmp_path, [*({"rate": 100.0 + n, "stack": "a"} for n in range(3)), {"outcome": "oom", "stack": "b"}])
    done = call(tmp_path, "export", "last", "out", "--results", str(tmp_path), "--no-charts", "--format", "pull-request")
    assert done.returncode == 0, done.stderr
    assert "1 of 2 cells have no figure" in (tmp_path / "out/pull-request.md").read_text()


@pytest.mark.parametrize("failed", [0, 1])
@pytest.mark.parametrize("launches", [(1, 1), (1, 2), (2, 1), (3, 1), (0, 1), (2, 3)])
def test_every_format_takes_cells_of_any_number_of_launches(tmp_path: Path, launches: tuple[int, int], failed: int) -> None:
    cells = [{"rate": 100.0 + n, "stack": stack} for stack, count in zip("ab", launches, strict=True) for n in range(count)]
    write_run(tmp_path, [*cells, *({"outcome": "oom", "stack": stack} for stack in "ab" for _ in range(failed))])
    words = [part for name in (*NAMES, "json", "csv") for part in ("--format", name)]
    done = call(tmp_path, "export", "last", "out", "--results", str(tmp_path), "--no-charts", *words)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out/pull-request.md").read_text(encoding="utf-8")
    assert "nan" not in text.lower() and "None" not in text and "– to" not in text and "to –" not in text
    assert ("× | – |" in text) == (min(launches) == 1)


def test_series_go_on_from_run_to_run() -> None:
    texts = [formats.prometheus(Tables(run=run, values=tables().values))["torchmatrix.prom"].decode() for run in ("1", "2")]
    series = [{line.rsplit(" ", 1)[0] for line in text.splitlines() if "_info" not in line} for text in texts]
    assert series[0] == series[1] and texts[0] != texts[1]


def test_a_failed_cell_has_no_figure_anywhere() -> None:
    failed = tables(outcome=["oom"], error=["out of memory"], items_per_second=[None])
    assert json.loads(formats.hud(failed)["pytorch-hud.json"]) == []
    assert "items_per_second{" not in formats.prometheus(failed)["torchmatrix.prom"].decode()
    assert b'failure type="oom" message="out of memory"' in formats.junit(failed)["junit.xml"]
    assert "1 of 1 cells have no figure" in formats.pull_request(failed)["pull-request.md"].decode()
    with pytest.raises(BadInput, match="generates text"):
        formats.llm_d(failed)


def test_a_report_of_llm_d_is_read_back(tmp_path: Path) -> None:
    from torchmatrix_plugins.foreign import reading

    for name, content in formats.llm_d(tables()).items():
        (tmp_path / name).write_bytes(content)
    (file,) = reading.read_side(str(tmp_path))
    figures = {figure.name: figure.value for figure in file.cases[0].figures}
    assert file.note == "" and figures == {"output tokens": 5.0, "median TTFT": 500.0, "median TPOT": 100.0}


def test_formats_of_strangers_and_bad_ones(tmp_path: Path, torchmatrix: Command) -> None:
    module = "def good(tables): return {'one.txt': tables.run.encode()}\ndef bad(tables): return {'../x': b''}\n"
    install(tmp_path, module, formats="good = strange:good\nbad = strange:bad")
    words = ("export", "last", "out", "--results", RECORDED, "--no-charts", "--format")
    assert call(tmp_path, *words, "good").returncode == 0 and (tmp_path / "out/one.txt").read_bytes().startswith(b"2026")
    done = call(tmp_path, *words, "bad", "--force")
    assert done.returncode == 4 and "the plugin bad failed" in done.stderr and not (tmp_path / "x").exists()
    done = call(tmp_path, *words, "hudd")
    assert done.returncode == 2 and 'did you mean "hud"?' in done.stderr
    with pytest.raises(BadInput, match="of a run, not of several machines"):
        formats.hud(Tables(run="of machines", values={"cells": {"machine": ["a"]}}))  # type: ignore[arg-type]
