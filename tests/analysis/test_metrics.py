"""Metrics: percentiles of requests by the nearest rank, their tables, and what compares and judges them."""

import math
from pathlib import Path
from typing import Any

import pytest

from support.records import ROOF, launch_lines, nights, write_run
from torchmatrix.analysis import facts_cache, history, metrics
from torchmatrix.analysis.compare import compare
from torchmatrix.analysis.launch_row import row_of
from torchmatrix.analysis.time_split import latency_rows
from torchmatrix.core.errors import BadInput
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launch_of
from torchmatrix.facts.store import Results
from torchmatrix.facts.wire import END_TO_END, LATENCY
from torchmatrix.nightly import gate
from torchmatrix.nightly.gate import GateOptions, judge, verdicts
from torchmatrix.reporting import exports, report, words
from torchmatrix_plugins.advise import advice

PACES = (0.99, 1.0, 1.01)


def served(seconds: float, pace: float = 1.0) -> dict[str, Any]:
    """Return the requests of a launch: 100 on a ramp whose median is `seconds`; end to end twice as long."""
    latencies = [seconds * pace * (0.51 + 0.01 * number) for number in range(100)]
    return {"served": {LATENCY: latencies, END_TO_END: [2 * latency for latency in latencies]}}


def launch(**fields: Any) -> Launch:
    parsed = launch_of(Path("a/round1-try1.jsonl"), launch_lines(**fields))
    assert isinstance(parsed, Launch)
    return parsed


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [(100, 50, 50), (100, 90, 90), (100, 99, 99), (101, 99, 100), (7, 50, 4), (3, 100, 3), (10, 90, 9)],
)
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(count: int, share: int, expected: int) -> None:
    assert metrics.percentile([float(i + 1) for i in range(count)], share) == expected


@pytest.mark.parametrize(("count", "share"), [(99, 99), (9, 90), (1, 50), (0, 100)])
def test_a_percentile_of_too_few_requests_is_unknown(count: int, share: int) -> None:
    assert math.isnan(metrics.percentile([1.0] * count, share))


def test_a_launch_that_failed_has_no_latency_and_one_that_trains_has_none() -> None:
    assert metrics.named("latency_p50").value(launch(**served(0.05))) == pytest.approx(0.05)
    refused = launch(**served(0.05), job={"requests": 50})
    assert refused.outcome == "crashed" and math.isnan(metrics.named("latency_p50").value(refused))
    assert math.isnan(metrics.named("latency_p50").value(launch())) and row_of(launch()).requests == 0
    with pytest.raises(BadInput, match="unknown metric"):
        metrics.named("speed")


def test_percentiles_are_over_the_requests_of_all_ranks() -> None:
    two = launch(devices=(0, 1), served={LATENCY: [0.1] * 10, END_TO_END: [0.3] * 10})
    (row,) = latency_rows([row_of(two)], END_TO_END)
    assert (row["requests"], row["n"], row["p50"], row["p90"], row["max"]) == (20, 1, 0.3, 0.3, 0.3)
    assert math.isnan(row["p99"]) and math.isnan(row["p50_low"])


def test_each_figure_of_the_table_is_the_median_over_launches_inside_its_interval() -> None:
    rows = [row_of(launch(**served(0.05, pace))) for pace in PACES]
    (row,) = latency_rows(rows, LATENCY)
    assert row["p50"] == pytest.approx(0.05) and row["p99"] == pytest.approx(0.0745) and row["max"] == pytest.approx(0.075)
    assert row["p50_low"] < row["p50"] < row["p50_high"] and row["requests"] == 300


def test_less_latency_is_faster_and_the_throughput_is_another_question(tmp_path: Path) -> None:
    quick, slow = (
        list(write_run(tmp_path / name, [{"rate": 100.0 * pace, **served(seconds, pace)} for pace in PACES]).launches())
        for name, seconds in (("a", 0.05), ("b", 0.075))
    )
    (row,) = compare(quick, slow, metric=metrics.named("latency_p50")).rows
    assert row.verdict == "FASTER" and row.ratio == pytest.approx(1.5) and 1.4 < row.low < 1.5 < row.high
    (row,) = compare(quick, slow).rows
    assert row.verdict != "FASTER" and row.ratio == pytest.approx(1.0)
    trained = list(write_run(tmp_path / "c", [{"rate": 100.0 * pace} for pace in PACES]).launches())
    comparison = compare(trained, trained, metric=metrics.named("latency_p50"))
    assert comparison.rows[0].refused == "A has no latency (p50): it trains, or timed too few requests"


def test_the_gate_judges_latencies_beside_throughputs(tmp_path: Path) -> None:
    """The throughput stays; single requests take 10 % longer on the last two nights."""
    for run, seconds in zip(nights(10), [0.05] * 8 + [0.055] * 2, strict=True):
        write_run(tmp_path, [{"rate": 100.0 * pace, **served(seconds, pace)} for pace in PACES], run=run)
    tonight = judge(gate.read_runs(Results(tmp_path), nights=7))
    by_metric = {cell.metric: cell for cell in tonight.cells}
    assert {name: cell.verdict for name, cell in by_metric.items()} == {
        "throughput": "ok", "latency_p50": "regression", "end_to_end_p50": "regression",
    }  # fmt: skip
    slower = by_metric["latency_p50"]
    assert slower.ratio == pytest.approx(1 / 1.1) and slower.value == pytest.approx(0.055)
    assert slower.center == pytest.approx(0.05)
    text = verdicts.text(tonight)
    assert "REGRESSION 1 of 1 cell" in text and "(latency_p50)" in text and "--metric latency_p50" in text
    assert judge(gate.read_runs(Results(tmp_path), nights=7), GateOptions(tolerance=0.2)).verdict == "PASS"


def test_shares_of_roofs_are_of_what_the_launch_measured_and_of_the_data_sheet(tmp_path: Path) -> None:
    pieces = {"unit": "tokens", "rank": 0, "start_monotonic_seconds": 120.0, "stop_monotonic_seconds": 125.0}
    told = [
        {"event": "stream", "phase": "prefill", "items": [8], "seconds": [0.005], "requests": [0], **pieces},
        {"event": "stream", "phase": "decode", "items": [1] * 2, "seconds": [0.01, 0.03], "requests": [0, 0], **pieces},
        ROOF,
    ]
    (launch,) = write_run(tmp_path, [{"told": told}]).launches()
    values = {name: metrics.named(name).value(launch) for name in ("decode_bandwidth", "decode_of_roof", "prefill_of_roof")}
    assert values == pytest.approx({"decode_bandwidth": 1e12, "decode_of_roof": 0.4, "prefill_of_roof": 3e12 / 0.005 / 7e14})
    peak = 4800e9  # of the H200 that the run has, by its data sheet
    assert metrics.named("decode_of_data_sheet").value(launch) == pytest.approx(1e12 / peak)


def test_a_page_draws_the_time_per_output_token_against_the_least_that_the_bandwidth_allows(tmp_path: Path) -> None:
    pieces = {"unit": "tokens", "rank": 0, "start_monotonic_seconds": 120.0, "stop_monotonic_seconds": 125.0}
    told = [
        {"event": "stream", "phase": "prefill", "items": [8] * 3, "seconds": [0.005] * 3, "requests": [0, 1, 2], **pieces},
        {"event": "stream", "phase": "decode", "items": [1] * 3, "seconds": [0.02] * 3, "requests": [0, 1, 2], **pieces},
        ROOF,
    ]
    page = report.render(report.view_of(write_run(tmp_path, [{"told": told}] * 3)))
    assert '<a href="#generation">Generation</a>' in page
    assert "a token every 20.0" in page and "decode reads at 40" in page  # 2e10 bytes in 20 ms of 2.5e12 per second
    drawn = page.partition('id="generation"')[2].partition("</section>")[0]
    assert drawn.count("class=ideal") == 1 and "prefill" in drawn


def test_a_metric_is_one_entry(tmp_path: Path) -> None:
    """Whatever a reader sees of the metrics at the end of METRICS follows from their entries."""
    joules = [(t, {"device": "GPU-0", "power_watts": 500.0, "energy_joules": 500.0 * t}) for t in range(99, 131)]
    phase = {"event": "phase", "phase": "first-step", "seconds": 2.0}
    requests = list(range(100))
    pieces = {"unit": "tokens", "rank": 0, "start_monotonic_seconds": 120.0, "stop_monotonic_seconds": 125.0}
    told = [
        phase,
        {"event": "stream", "phase": "prefill", "items": [8] * 100, "seconds": [0.01] * 100, "requests": requests, **pieces},
        {"event": "stream", "phase": "decode", "items": [1] * 200, "seconds": [0.01] * 200, "requests": requests * 2, **pieces},
        ROOF,
    ]
    runs = [write_run(tmp_path, [{"readings": joules, "told": told}] * 3, run=night) for night in nights(2)]
    view = report.view_of(runs[0])
    tables, page = exports.of(view), report.render(view)
    (shown,) = view.every_cell
    (read,) = facts_cache.read(Results(tmp_path), runs[:1])
    for metric in metrics.MORE:
        assert shown.value(metric.column) > 0 and metric.title.capitalize() in page and f'"name":"{metric.name}"' in page
        assert all(metric.exported in tables.values[name] for name in ("cells", "launches"))
        (row,) = compare(*(run.launches() for run in runs), metric=metric).rows
        assert row.ratio == pytest.approx(1.0)
        (trend,) = history.trends(history.series(facts_cache.read(Results(tmp_path), runs), metric), metric)
        assert trend.last == pytest.approx(shown.value(metric.column)) and metric.name in trend.as_record()["runs"][0]
        assert metric.name in advice.AIMS and metric in metrics.METRICS and read.launches[0].value(metric.column) > 0


def test_a_judged_metric_without_a_value_is_refused() -> None:
    with pytest.raises(TypeError, match="of"):
        metrics.Metric(name="x", title="x", unit="s", shown_unit="s", column="x", exported="x", gated=True)  # type: ignore[call-arg]


def test_only_a_rate_or_a_time_is_faster_and_all_else_better() -> None:
    others = {metric.name for metric in metrics.METRICS if not metric.is_speed}
    assert {"memory", "energy", "per_joule", "cost"} <= others and not {"throughput", "latency_p50", "first_step"} & others
    assert [words.verdict(name, metrics.COST.is_speed) for name in ("FASTER", "SLOWER", "SAME")] == [
        "better", "worse", words.verdict("SAME"),
    ]  # fmt: skip
