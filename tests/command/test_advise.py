"""`advise`: what it recommends from facts with a known truth, what that rests on, the matrix that measures the rest."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support import Command
from support.records import write_run
from torchmatrix.matrix import matrix_file

MATRIX = """
[run]
launches = 1

[[stack]]
name = "stack-a"
python = "/usr/bin/python3"

[[workload]]
model = "resnet18"
batch = 2
"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Record precision × compile × channels_last of resnet50 in inference: AMP × 2 with half the latency; one cell failed."""
    launches: list[dict[str, Any]] = []
    for precision, compiled, layout in itertools.product(("fp32", "amp"), (False, True), (False, True)):
        rate = 100.0 * (2 if precision == "amp" else 1) * (1.5 if compiled else 1) * (1.1 if layout else 1)
        job = {"precision": precision, "compile": compiled, "channels_last": layout, "grad": "no_grad", "device": "gpu"}
        for pace in (0.999, 1.0, 1.001):
            if (precision, compiled, layout) == ("amp", True, True):
                fields: dict[str, Any] = {"outcome": "oom", "error": "out of memory", "job": job | {"mode": "infer"}}
            else:
                fields = {"rate": rate * pace, "job": job}
                fields["served"] = {kind: [4 / rate / pace] * 100 for kind in ("latency", "end-to-end")}
            launches.append({"workload": f"w-{precision}-{compiled}-{layout}", **fields})
    write_run(tmp_path / "results", launches, matrix=MATRIX)
    return tmp_path / "results"


def advice(torchmatrix: Command, results: Path, *words: str) -> dict[str, Any]:
    done = torchmatrix("advise", "resnet50", "--mode", "infer", "--results", str(results), "--json", *words)
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def test_the_fastest_combination_is_recommended_with_what_it_rests_on(torchmatrix: Command, results: Path) -> None:
    record = advice(torchmatrix, results)
    assert record["take"]["settings"] == {"precision": "amp", "compile": True, "channels_last": False}
    assert record["take"]["value"] == pytest.approx(300.0) and record["take"]["launches"] == 3 and record["as_good"] == []
    assert record["over_usual"]["value"] == pytest.approx(3.0) and record["left_out"]["failed"] == 1
    assert record["unmeasured"] == [{"precision": "amp", "compile": True, "channels_last": True}]
    assert "grad" in record["never_varied"] and "compile" not in record["never_varied"]
    done = torchmatrix("advise", "resnet50", "--mode", "infer", "--results", str(results))
    assert "take: stack-a: precision amp, compile, without channels_last" in done.stdout
    assert (
        "1 without a figure" in done.stdout
        and "to measure that: add --write FILE, then torchmatrix run --matrix FILE" in done.stdout
    )


def test_an_aim_and_limits_choose_another(torchmatrix: Command, results: Path) -> None:
    assert advice(torchmatrix, results, "--aim", "latency")["take"]["value"] == pytest.approx(4 / 300)
    limited = advice(torchmatrix, results, "--max-latency", "19")
    assert limited["take"]["value"] == pytest.approx(300.0) and limited["left_out"]["over_limit"] == 5


def test_the_matrix_that_it_writes_has_the_missing_combination(torchmatrix: Command, results: Path, tmp_path: Path) -> None:
    path = tmp_path / "more.toml"
    advice(torchmatrix, results, "--write", str(path))
    made = matrix_file.load(path)
    wanted = [workload for workload in made.workloads if (workload.precision, workload.compile) == ("amp", True)]
    assert {workload.factors["channels_last"] for workload in wanted} == {False, True} and {
        workload.mode for workload in wanted
    } == {"infer"}
    assert [stack.name for stack in made.stacks] == ["stack-a"] and {workload.stacks for workload in wanted} == {("stack-a",)}
    again = torchmatrix("advise", "resnet50", "--mode", "infer", "--results", str(results), "--write", str(path))
    assert again.returncode == 2 and "exists" in again.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("resnet50",), "--mode infer"),
        (("resnet5", "--mode", "infer"), 'did you mean "resnet50"?'),
        (("resnet50", "--mode", "infer", "--aim", "speed"), "unknown aim"),
        (("resnet50", "--mode", "infer", "--aim", "energy"), "tells its energy per item"),
        (("resnet50", "--mode", "infer", "--max-latency", "0.1"), "the least latency (p50) is"),
    ],
)
def test_a_question_without_an_answer_is_an_error_with_a_hint(
    torchmatrix: Command, results: Path, words: Sequence[str], message: str
) -> None:
    done = torchmatrix("advise", *words, "--results", str(results))
    assert done.returncode == 2 and message in done.stderr and "hint:" in done.stderr and "Traceback" not in done.stderr


def test_a_setting_that_only_some_models_take_counts_for_these(torchmatrix: Command, tmp_path: Path) -> None:
    for model, taken in (("bert-tiny", True), ("resnet50", False)):
        job = {"model": model, "mode": "train", "device": "cpu", **({"attention": "eager"} if taken else {})}
        write_run(tmp_path / model, [{"workload": f"{model}-train", "rate": 100.0, "job": job}], matrix=MATRIX)
        done = torchmatrix("advise", model, "--results", str(tmp_path / model), "--json")
        assert done.returncode == 0, done.stderr
        assert ("attention" in json.loads(done.stdout)["never_varied"]) == taken


def test_the_cheapest_is_not_the_fastest_where_electricity_costs_most(torchmatrix: Command, tmp_path: Path) -> None:
    launches = []
    for precision, rate, watts in (("fp32", 100.0, 100.0), ("amp", 150.0, 700.0)):
        readings = [(t, {"device": "GPU-0", "power_watts": watts, "energy_joules": watts * t}) for t in range(99, 131)]
        job = {"precision": precision, "device": "gpu"}
        launches += [
            {"workload": f"w-{precision}", "rate": rate * pace, "readings": readings, "job": job}
            for pace in (0.999, 1.0, 1.001)
        ]
    write_run(tmp_path / "results", launches, matrix=MATRIX)
    table = tmp_path / "prices.csv"
    columns = "gpu,price_per_hour,electricity_price,currency,source,date\n"
    for electricity, taken in (("1", "fp32"), ("0.001", "amp")):
        table.write_text(f"{columns}H200 SXM,0.05,{electricity},EUR,us,2026-01-31\n")
        words = ("advise", "resnet50", "--aim", "cost", "--prices", str(table), "--results", str(tmp_path / "results"))
        record = json.loads(torchmatrix(*words, "--json").stdout)
        assert record["take"]["settings"]["precision"] == taken and record["unit"] == "EUR"
        assert record["take"]["low"] < record["take"]["value"] < record["take"]["high"]
        assert "EUR per million images" in torchmatrix(*words).stdout
    done = torchmatrix("advise", "resnet50", "--aim", "cost", "--results", str(tmp_path / "results"))
    assert done.returncode == 2 and "takes a price list" in done.stderr and "--prices FILE" in done.stderr


def test_the_latency_of_generation_is_the_time_per_output_token(torchmatrix: Command, tmp_path: Path) -> None:
    launches = []
    for batch, pace in ((1, 0.010), (4, 0.015)):
        pieces = {"phase": "decode", "unit": "tokens", "rank": 0, "items": [batch] * 3, "seconds": [pace] * 3,
                  "start_monotonic_seconds": 120.0, "stop_monotonic_seconds": 121.0}  # fmt: skip
        job = {"model": "lm-10m", "mode": "generate", "unit": "tokens", "batch": batch, "device": "gpu"}
        told = [{"event": "stream", **pieces | {"requests": [number] * 3}} for number in range(2)]
        launches.append({"workload": f"w-b{batch}", "rate": batch / pace, "model": "lm-10m", "job": job, "told": told})
    write_run(tmp_path / "results", launches, matrix=MATRIX)
    words = ("advise", "lm-10m", "--mode", "generate", "--results", str(tmp_path / "results"), "--json")
    quick, fast = (json.loads(torchmatrix(*words, *more).stdout) for more in (("--aim", "latency"), ()))
    assert quick["take"]["settings"] == {"batch": 1} and quick["take"]["value"] == pytest.approx(0.010)
    assert fast["take"]["settings"] == {"batch": 4}
    limited = json.loads(torchmatrix(*words, "--max-latency", "12").stdout)
    assert limited["take"]["settings"] == {"batch": 1} and limited["left_out"]["over_limit"] == 1


def test_the_matrix_keeps_numbers_that_were_never_varied(torchmatrix: Command, tmp_path: Path) -> None:
    job = {"device": "gpu", "accumulate": 2, "checkpointing": False}
    write_run(tmp_path / "results", [{"rate": 100.0, "job": job}], matrix=MATRIX)
    done = torchmatrix("advise", "resnet50", "--write", "more.toml")
    assert done.returncode == 0, done.stderr
    workloads = matrix_file.load(tmp_path / "more.toml").workloads
    assert {workload.factors["accumulate"] for workload in workloads} == {2}
    assert {workload.factors["checkpointing"] for workload in workloads} == {False, True}


@pytest.mark.parametrize(
    "matrix",
    ["workload = 5", "workload = [1]", '[workload]\nmodel = "x"', "[[workload]]\nbatch = 4", "[[workload]]\nmodel = 5",
     "[[workload]]\nmodel = [5]", "[[workload]]\nmodel = {a = 1}", "[report]\ntitle = 5", ""],
)  # fmt: skip
def test_a_recorded_matrix_that_is_none_is_bad_input_at_most(torchmatrix: Command, tmp_path: Path, matrix: str) -> None:
    write_run(tmp_path / "results", [{"rate": 100.0}, {"rate": 101.0}], matrix=matrix)
    done = torchmatrix("advise", "resnet50", "--write", "m.toml")
    assert done.returncode in (0, 2) and "Traceback" not in done.stderr, done.stderr
