"""Files of other tools as users have them: requests that failed, closed loops, latencies among bandwidths, odd units."""

import json
from pathlib import Path
from typing import Any

import pytest

from support import Command
from torchmatrix.core.errors import BadInput
from torchmatrix_plugins.foreign import reading
from torchmatrix_plugins.foreign.auditing import Audit, audit, claim_of
from torchmatrix_plugins.foreign.comparing import Comparison, compare

DATA = Path(__file__).parents[1] / "data" / "foreign"


def sample(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def audited(folder: Path, data: Any, *claims: Any) -> Audit:
    (folder / "x.json").write_text(json.dumps(data))
    return audit(reading.read_side(str(folder / "x.json")), claim_of(*claims) if claims else claim_of(None, None, None))


def compared(folder: Path, a: Any, b: Any) -> Comparison:
    for name, data in (("a", a), ("b", b)):
        (folder / f"{name}.json").write_text(json.dumps(data))
    return compare(*(reading.read_side(str(folder / f"{name}.json")) for name in "ab"))


def vllm(completed: int, failed: int, seconds: float, **more: Any) -> dict[str, Any]:
    """Return a run of requests of 128 and 32 tokens, without lists of each."""
    lists = ("input_lens", "output_lens", "ttfts", "itls", "latencies")
    rates = {"request": 1, "output": 32, "total_token": 160}
    return {
        **{key: value for key, value in sample("vllm/cache_on_1.json").items() if key not in lists},
        "num_prompts": completed + failed, "completed": completed, "failed": failed, "duration": seconds,
        "total_input_tokens": completed * 128, "total_output_tokens": completed * 32,
        **{f"{name}_throughput": completed * each / seconds if seconds else 0.0 for name, each in rates.items()}, **more,
    }  # fmt: skip


def found(audited: Audit, check: str) -> list[str]:
    return [finding.level for finding in audited.findings if finding.check == check]


def unmade(audited: Audit, check: str) -> list[str]:
    return [one.reason for one in audited.unchecked if one.check == check]


def test_requests_that_failed_were_sent_too_and_took_their_time(tmp_path: Path) -> None:
    sent = audited(tmp_path, vllm(700, 300, 50.4, request_rate=20.0, max_concurrency=None, mean_e2el_ms=400.0))
    assert not found(sent, "rate") and found(sent, "failed requests")
    busy = audited(tmp_path, vllm(600, 400, 650.0, max_concurrency=8, mean_e2el_ms=2000.0))
    assert not found(busy, "Little's law") and "400 requests failed" in unmade(busy, "Little's law")[0]
    late = audited(tmp_path, vllm(700, 300, 100.0, request_rate=20.0, max_concurrency=None, mean_e2el_ms=400.0))
    assert found(late, "rate")


def test_a_run_without_a_request_passes_nothing(tmp_path: Path, torchmatrix: Command) -> None:
    empty = vllm(0, 0, 0.0)
    empty.update((key, 0) for key in empty if key.endswith("_ms"))
    assert found(audited(tmp_path, empty), "failed requests")
    assert torchmatrix("audit", str(tmp_path / "x.json")).returncode == 1


def inference_perf(requests: int, slower: float) -> dict[str, Any]:
    """Return a stage of 8 at once, of which each request takes 2 s or less; its requested rate is the number of requests."""
    data: dict[str, Any] = sample("inference-perf/stage_0_lifecycle_metrics.json")
    seconds = requests * 2 / 8 / slower
    data["load_summary"] |= {"count": requests, "requested_rate": float(requests), "concurrency": 8}
    data["benchmark_time_seconds"] = seconds
    tokens = {key: {"total": requests * 100} for key in ("prompt_tokens", "output_tokens")}
    latency = {"request_latency": {"mean": 2 / slower}}
    data["successes"] = {
        "count": requests,
        "throughput": {"requests_per_sec": requests / seconds},
        "latency": latency,
        **tokens,
    }
    return data


def test_a_closed_loop_of_inference_perf_has_no_rate(tmp_path: Path) -> None:
    said = audited(tmp_path, inference_perf(1000, 1.0))
    assert not said.findings and not unmade(said, "rate") and not unmade(said, "Little's law")
    both = compared(tmp_path, inference_perf(1000, 1.0), inference_perf(500, 1.1))
    assert not both.refused and {row.figure for row in both.ratios} == {"requests", "mean latency"}


@pytest.mark.parametrize("kind", ["throughput", "constant"])
def test_the_most_requests_at_once_of_guidellm_are_work(kind: str, tmp_path: Path) -> None:
    sides = []
    for most in (8, 64):
        data = sample("guidellm/rep1.json")
        data["benchmarks"][0]["config"]["strategy"] = {"type_": kind, "max_concurrency": most, "rate": 5.0}
        sides.append(data)
    both = compared(tmp_path, *sides)
    assert "concurrency 8 and 64" in both.refused[0].why
    assert not any("sent at once" in reason for reason in unmade(audited(tmp_path, sides[0]), "Little's law"))
    del sides[0]["benchmarks"][0]["config"]["strategy"]
    (case,) = compared(tmp_path, sides[0], sides[0]).unknown[:1]
    assert case.startswith("concurrency") and all("all at once" not in text for text in both.unknown)


def nvbandwidth(**test: Any) -> dict[str, Any]:
    return {"nvbandwidth": {"version": "v0.8", "testcases": [{"status": "Passed", **test}]}}


def test_a_latency_of_nvbandwidth_is_better_if_it_is_lower_and_failures_are_told(tmp_path: Path) -> None:
    told = {"name": "host_device_latency_sm", "bandwidth_description": "memory latency SM CPU(row) <-> GPU(column) (ns)"}
    (row,) = compared(tmp_path, *(nvbandwidth(**told, bandwidth_matrix=[[text]]) for text in ("650", "1300"))).ratios
    assert (row.figure, row.unit, row.a) == (
        "median memory latency",
        "ns",
        pytest.approx(650),
    ) and row.ratio.value == pytest.approx(2)
    data = nvbandwidth(name="a", bandwidth_description="GB/s", bandwidth_matrix=[["50"]])
    data["nvbandwidth"]["warning"] = "GPU 0 is throttled"
    data["nvbandwidth"]["testcases"].append({"name": "b", "status": "Error", "error": "CUDA_ERROR_ECC_UNCORRECTABLE"})
    reasons = " ".join(finding.reason for finding in audited(tmp_path, data).findings)
    assert "GPU 0 is throttled" in reasons and "Error: CUDA_ERROR_ECC_UNCORRECTABLE" in reasons


@pytest.mark.parametrize("name", ["all_reduce_perf", "all_reduce_perf_mpi"])
def test_a_build_of_nccl_tests_with_a_suffix_is_the_same_operation(name: str, tmp_path: Path) -> None:
    row = {"size": 1 << 30, "type": "float", "redop": "sum", "in_place": {}}
    row["out_of_place"] = {"time": 4e3, "alg_bw": 274.3, "bus_bw": 480.0, "nwrong": 0}
    ranks = [{"rank": rank, "hostname": "h", "device_info": "NVIDIA H100 80GB HBM3"} for rank in range(8)]
    data = {"version": 3, "args": [f"./{name}"], "nccl_version": 22903, "config": {}, "ranks": ranks, "results": [row]}
    assert found(audited(tmp_path, data), "links") == ["unclear"]  # switches that reduce explain it


def test_llama_bench_generates_one_sequence_and_names_its_devices(tmp_path: Path) -> None:
    row = sample("llama-bench/run1.json")[2] | {"n_gpu_layers": 99, "model_n_params": 30.5e9, "avg_ts": 5000.0}
    experts = row | {"gpu_info": "NVIDIA GeForce RTX 4090", "model_type": "qwen3moe 30B.A3B Q4_K", "model_size": 17.7e9}
    assert found(audited(tmp_path, [experts], None, 3.3e9, 4.8), "bandwidth") == ["impossible"]
    two = row | {"gpu_info": "RTX 4090, RTX 4090", "model_type": "llama 70B Q4_0", "model_size": 40e9, "avg_ts": 40.0}
    for claim in (None, "GeForce RTX 4090"):
        assert not found(audited(tmp_path, [two], claim, None, None), "bandwidth")


def test_a_model_that_failed_in_timm_leaves_the_others(tmp_path: Path) -> None:
    rows = sample("timm/both.json")
    rows = [*(rows if isinstance(rows, list) else [rows]), {"model": "large", "error": "CUDA out of memory"}]
    both = compared(tmp_path, rows, rows)
    assert both.ratios and any("CUDA out of memory" in doubt for doubt in both.doubts)


def test_a_unit_that_isnt_known_is_named_and_others_are_converted(tmp_path: Path) -> None:
    data = sample("aiperf/single1/profile_export_aiperf.json")
    milliseconds = data["request_latency"]["unit"]
    data["request_latency"]["unit"] = "fortnights"
    with pytest.raises(BadInput, match="the unit fortnights isn't known"):
        audited(tmp_path, data)
    spelt = {**data, "request_latency": {**data["request_latency"], "unit": "milliseconds"}}
    assert milliseconds == "ms" and not compared(tmp_path, spelt, spelt).refused


def test_limits_of_goodput_are_unknown_to_both_tools(tmp_path: Path) -> None:
    data = sample("aiperf/single1/profile_export_aiperf.json") | {"goodput": {"unit": "requests/sec", "avg": 2.0}}
    assert any(text.startswith("limits of goodput") for text in compared(tmp_path, data, data).unknown)


def test_every_percentile_that_both_have_is_compared(tmp_path: Path) -> None:
    data = vllm(100, 0, 10.0) | {"p95_ttft_ms": 30.0}
    assert "p95 TTFT" in {row.figure for row in compared(tmp_path, data, data).ratios}


def test_options_for_runs_are_refused_and_patterns_reach_into_folders(torchmatrix: Command, tmp_path: Path) -> None:
    sides = [str(DATA / f"vllm/cache_{name}_1.json") for name in ("on", "off")]
    for option in (("--metric", "latency"), ("--own-batch",), ("--prices", "none.csv")):
        assert torchmatrix("compare", *sides, *option).returncode == 2
    for number in (1, 2):
        place = tmp_path / f"runs/{number}/deep/x.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps(vllm(100 + number, 0, 10.0, date=str(number))))
    for pattern in ("runs/**/*.json", "runs/*", "runs/*/deep"):
        assert len(reading.read_side(str(tmp_path / pattern))) == 2


def test_a_commit_that_looks_like_a_number_stays_a_text(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("build_commit,n_prompt,n_gen,avg_ts,model_type\n12e4567,512,0,100.0,llama 7B\n")
    (file,) = reading.read_side(str(tmp_path / "x.csv"))
    assert file.version == "12e4567"
