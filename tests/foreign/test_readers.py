"""Read the files of other tools: real ones (tests/data/foreign/README.md), and the same ones cut, damaged and changed."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from torchmatrix.core.errors import BadInput
from torchmatrix_plugins.foreign import reading
from torchmatrix_plugins.foreign.results import QUANTITIES, Case, ForeignFile

DATA = Path(__file__).parents[1] / "data" / "foreign"
FILES = sorted(path for path in DATA.rglob("*.*") if path.name != "README.md" and "aggregate" not in path.parts)
LOADS = "vllm/pt.pytorch.json"
"""A file beside others that holds records of a database, of no reader."""


def one(name: str) -> ForeignFile:
    found = reading.read_file(DATA / name)
    assert found is not None
    return found


def figure(case: Case, quantity: str, statistic: str = "") -> float:
    found = case.figure(quantity, statistic)
    assert found is not None, (quantity, statistic, case.figures)
    return found.value


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(DATA).as_posix())
def test_a_file_of_a_tool_is_read_by_its_own_reader_alone(path: Path) -> None:
    found = [name for name in reading.plugins.names(reading.READERS) if reading.reader_of(name)(reading.read(path))]
    assert len(found) == (0 if path == DATA / LOADS else 1)
    if found:
        file = reading.read_file(path)
        assert file and (file.tool == found[0] or (file.tool, found[0]) == ("llm-d report", "inference-perf"))
        for case in file.cases:
            assert all(figure.value > 0 and figure.quantity in QUANTITIES for figure in case.figures)


def test_units_and_definitions() -> None:
    (case,) = one("vllm/cache_on_1.json").cases
    data = json.loads((DATA / "vllm/cache_on_1.json").read_text(encoding="utf-8"))
    assert case.name == "concurrency 2" and figure(case, "TTFT", "mean") == data["mean_ttft_ms"]
    assert figure(case, "latency", "mean") == pytest.approx(1e3 * sum(data["latencies"]) / 30)
    assert case.requests and case.requests.is_closed_loop and case.requests.concurrency == 2
    (case,) = one("guidellm/rep1.json").cases
    metrics = json.loads((DATA / "guidellm/rep1.json").read_text(encoding="utf-8"))["benchmarks"][0]["metrics"]
    assert figure(case, "latency", "mean") == pytest.approx(1e3 * metrics["request_latency"]["successful"]["mean"])
    assert figure(case, "TPOT", "mean") == metrics["time_per_output_token_ms"]["successful"]["mean"]
    (case,) = one("inference-perf/stage_0_lifecycle_metrics.json").cases
    assert case.name == "6 requests/s" and figure(case, "TTFT", "mean") == pytest.approx(24.8337, rel=1e-4)
    (report,) = one("inference-perf/inference-perf.partial.stage_0.yaml").cases
    assert figure(report, "TTFT", "mean") == pytest.approx(figure(case, "TTFT", "mean"))
    (case,) = one("loadgen/single_valid/mlperf_log_summary.txt").cases
    assert figure(case, "latency", "p90") == pytest.approx(4.788063)
    assert figure(case, "latency", "estimated p90") == pytest.approx(4.828627)
    (case,) = one("optimum-benchmark/run1/benchmark.json").cases
    assert figure(case, "prefill", "mean") == pytest.approx(18.2997, rel=1e-4) and case.work["new tokens"] == 16


def test_failed_requests_are_no_figures() -> None:
    (case,) = one("guidellm/chat_failing.json").cases
    whole = json.loads((DATA / "guidellm/chat_failing.json").read_text(encoding="utf-8"))["benchmarks"][0]["metrics"][
        "request_latency"
    ]
    assert whole["total"]["mean"] < 0.8 * whole["successful"]["mean"]  # failed ones count as 0 there
    assert figure(case, "latency", "mean") == pytest.approx(1e3 * whole["successful"]["mean"])
    (case,) = one("aiperf/failing/profile_export_aiperf.json").cases
    assert case.requests and (case.requests.completed, case.requests.failed) == (14, 6)
    (case,) = one("vllm/all_failing.json").cases
    assert case.requests and case.requests.failed == 6 and not case.figures


def test_the_window_of_rates_is_that_of_the_tool() -> None:
    for name in ("single1", "failing"):
        (case,) = one(f"aiperf/{name}/profile_export_aiperf.json").cases
        assert case.requests and case.requests.duration and case.requests.completed
        assert figure(case, "requests") == pytest.approx(case.requests.completed / case.requests.duration, rel=1e-5)


def test_repetitions_in_a_file() -> None:
    for case in one("pyperf/before.json").cases:
        runs = case.figures[0].runs
        assert len(runs) == 4 and case.figures[0].value == pytest.approx(sum(runs) / 4)  # processes, without the calibration
    names = [case.name for case in one("llama-bench/threads_fa.json").cases]
    assert sum("(2)" in name for name in names) == 4  # an option that was given twice: no runs of their own


def test_lines_of_one_file_are_runs() -> None:
    assert [case.name for case in one("vllm/append.json").cases] == ["concurrency 2"] * 2
    (rate,) = one("sglang/rate5.jsonl").cases
    assert rate.name == "5 requests/s" and rate.requests and rate.requests.asked_output == 32
    text = (DATA / "sglang/two_reps.jsonl").read_text(encoding="utf-8")
    assert '"request_rate": Infinity' in text and len(one("sglang/two_reps.jsonl").cases) == 2
    (case,) = one("sglang/failing.jsonl").cases
    assert case.requests and (case.requests.completed, case.requests.failed) == (13, 7)


def test_timm_has_both_modes() -> None:
    figures = {figure.name: figure.value for case in one("timm/both.json").cases for figure in case.figures}
    assert figures["inference"] == 16.52 and figures["training"] == 5.93
    assert [case.figures[1].value for case in one("timm/both.json").cases] == [1346.844, 483.996] and [
        case.work["batch"] for case in one("timm/both.json").cases
    ] == [8, 8]


def test_copies_and_aggregates_count_once(tmp_path: Path) -> None:
    assert len(reading.read_side(str(DATA / "optimum-benchmark" / "run1"))) == 1
    assert reading.read_side(str(DATA / "optimum-benchmark" / "run1"))[0].cases[0].work["batch"] == 2
    assert len(reading.read_side(str(DATA / "aiperf" / "multi"))) == 2
    with pytest.raises(BadInput, match="sums up 2 runs"):
        reading.read_side(str(DATA / "aiperf" / "multi" / "aggregate"))


def test_versions_are_told() -> None:
    assert one("guidellm/rep1.json").note == "" and "doesn't say" in one("vllm/cache_on_1.json").note
    changed = json.loads((DATA / "guidellm/rep1.json").read_text(encoding="utf-8"))
    changed["metadata"]["guidellm_version"] = "0.9.0"
    note = read_text(changed, DATA / "guidellm/rep1.json").note
    assert note == "guidellm 0.9.0 wasn't tried; read as 0.8 writes it"


def read_text(data: Any, like: Path) -> ForeignFile:
    document = reading.Document(like, json.dumps(data))
    found = [made for name in reading.plugins.names(reading.READERS) if (made := reading.reader_of(name)(document))]
    assert len(found) == 1
    return found[0]


def test_a_time_below_zero_is_refused() -> None:
    changed = json.loads((DATA / "vllm/one_token.json").read_text(encoding="utf-8"))
    changed["latencies"][0] = -1
    with pytest.raises(BadInput, match="latencies holds -1, which is less than nothing"):
        read_text(changed, DATA / "vllm/one_token.json")


JSONS = [path for path in FILES if path.suffix == ".json" and path not in (DATA / LOADS, DATA / "vllm/append.json")]
WRONG: tuple[Any, ...] = ("text", [], {}, True, -1, 0, 1e400, [[1]], ["x"], None, 10**30)


@pytest.mark.parametrize("path", JSONS, ids=lambda path: path.relative_to(DATA).as_posix())
def test_any_field_may_be_of_another_type(path: Path, tmp_path: Path) -> None:
    chance = random.Random(path.relative_to(DATA).as_posix())  # the same wherever the tests lie
    whole = path.read_text(encoding="utf-8")
    for number in range(60):
        data = json.loads(whole)
        place = data
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = chance.choice(list(keys))
            if not isinstance(place[key], (dict, list)) or not place[key] or chance.random() < 0.15:
                break
            place = place[key]
        if chance.random() < 0.3 and isinstance(place, dict):
            del place[key]
        else:
            place[key] = chance.choice(WRONG)
        changed = tmp_path / f"{number}.json"
        changed.write_text(json.dumps(data))
        try:
            file = reading.read_file(changed)
        except BadInput:
            continue
        assert file is None or all(0 < figure.value < 1e40 for case in file.cases for figure in case.figures)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(DATA).as_posix())
def test_a_cut_file_is_refused_or_nobodys(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    for share in (0.1, 0.5, 0.9, 0.99):
        cut = tmp_path / path.name
        cut.write_bytes(whole[: int(share * len(whole))])
        try:
            file = reading.read_file(cut)
        except BadInput as error:
            assert str(cut) in str(error) or path.name in str(error)
            continue
        assert file is None or path.suffix in (".txt", ".csv", ".yaml", ".jsonl")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchmatrix_plugins.foreign.document.MOST_BYTES", 100)
    with pytest.raises(BadInput, match="larger than"):
        reading.read_file(DATA / "pyperf/before.json")


def test_yaml_without_aliases_alone(tmp_path: Path) -> None:
    file = tmp_path / "report.yaml"
    file.write_text("version: &v '0.2'\nrun: {uid: *v}\n")
    with pytest.raises(BadInput, match="aliases"):
        reading.read_file(file)
    for text in ("a: [", "- 1\n", ": : :", "x: !!python/object:os.system {}"):
        file.write_text(text)
        try:
            assert reading.read_file(file) is None
        except BadInput as error:
            assert "not valid YAML" in str(error)


def test_folders_of_ours_are_left_to_the_core(tmp_path: Path) -> None:
    run = Path(__file__).parents[1] / "data" / "recorded"
    folders = [path.parent for path in run.rglob("*.jsonl")]
    assert folders and all(reading.read_side(str(folder)) == () for folder in folders)
    launches = [path for path in run.rglob("round*.jsonl")]
    assert launches and all(reading.read_side(str(path)) == () for path in launches)
