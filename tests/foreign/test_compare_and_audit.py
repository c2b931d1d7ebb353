"""compare FILE FILE and audit FILE: what is compared, what is refused and why, what an audit finds, a stranger's reader."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import Command
from support.strangers import call, install
from torchmatrix.core.errors import BadInput
from torchmatrix_plugins.foreign import reading
from torchmatrix_plugins.foreign.auditing import OF_RATES, OF_REQUESTS, Audit, audit, claim_of
from torchmatrix_plugins.foreign.comparing import Comparison, compare

DATA = Path(__file__).parents[1] / "data" / "foreign"
NOTHING = claim_of(None, None, None)


def compared(a: str, b: str) -> Comparison:
    return compare(reading.read_side(str(DATA / a)), reading.read_side(str(DATA / b)))


def audited(path: Path, *claims: Any) -> Audit:
    return audit(reading.read_side(str(path)), claim_of(*claims) if claims else NOTHING)


def test_fresh_processes_of_pyperf_give_an_interval_and_the_faster_side_wins() -> None:
    comparison = compared("pyperf/before.json", "pyperf/after.json")
    rows = {row.case: row for row in comparison.ratios}
    data = {side: json.loads((DATA / f"pyperf/{side}.json").read_text(encoding="utf-8")) for side in ("before", "after")}
    for number, name in enumerate(("sum_range", "sort_list")):
        runs = [[run["values"] for run in data[side]["benchmarks"][number]["runs"] if "values" in run] for side in data]
        means = [sum(map(sum, side)) / sum(map(len, side)) for side in runs]
        row = rows[name]
        assert row.ratio.value == pytest.approx(means[1] / means[0], rel=0.02)  # of times B's over A's: above 1, A is better
        assert row.runs == (4, 4) and row.ratio.low > 1 and row.verdict.verdict == "FASTER"
    back = compared("pyperf/after.json", "pyperf/before.json").ratios[0]
    assert back.verdict.verdict == "SLOWER" and back.ratio.value == pytest.approx(1 / comparison.ratios[0].ratio.value)


def test_one_run_has_no_interval_and_several_have(tmp_path: Path) -> None:
    alone = compared("aiperf/single1", "aiperf/single2")
    assert {row.verdict.verdict for row in alone.ratios} == {"n/a"} and all(row.runs == (1, 1) for row in alone.ratios)
    for side, numbers in (("a", (1, 2)), ("b", (1, 2))):
        for number in numbers:
            data = json.loads((DATA / f"vllm/cache_on_{number}.json").read_text(encoding="utf-8"))
            data["request_throughput"] *= 1.5 if side == "a" else 1
            data["date"] = f"{side}{number}"
            (tmp_path / side).mkdir(exist_ok=True)
            (tmp_path / side / f"{number}.json").write_text(json.dumps(data))
    several = compare(reading.read_side(str(tmp_path / "a")), reading.read_side(str(tmp_path / "b")))
    row = next(row for row in several.ratios if row.figure == "requests")
    assert row.runs == (2, 2) and row.ratio.value == pytest.approx(1.5) and row.ratio.low < 1.5 < row.ratio.high


def test_other_definitions_are_refused_with_the_difference(tmp_path: Path) -> None:
    report = json.loads((DATA / "guidellm/rep1.json").read_text(encoding="utf-8"))
    metrics = report["benchmarks"][0]["metrics"]
    for word, each in (("prompt", 57.2), ("output", 16.0)):  # as many tokens as AIPerf's run
        metrics[f"{word}_token_count"]["successful"]["total_sum"] = 24 * each
    (tmp_path / "same.json").write_text(json.dumps(report))
    comparison = compare(reading.read_side(str(tmp_path / "same.json")), reading.read_side(str(DATA / "aiperf/servertok")))
    refused = {row.what: row.why for row in comparison.refused}
    assert "the first one included" in refused["mean TPOT"] and "(tokens − 1), over requests" in refused["mean TPOT"]
    figures = {row.figure for row in comparison.ratios}
    assert {"requests", "output tokens", "mean TTFT", "mean latency"} <= figures and "mean TPOT" not in figures


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        (
            "vllm/rate5.json",
            "vllm/cache_on_1.json",
            "not the same work: concurrency without a limit and 2; rate 5 and all at once",
        ),
        ("vllm/one_token.json", "vllm/cache_on_1.json", "output tokens per request 1 and 32"),
        ("loadgen/server_valid", "loadgen/server_invalid", "asked queries/s 200 and 300"),
    ],
)
def test_other_work_is_refused(a: str, b: str, why: str) -> None:
    comparison = compared(a, b)
    assert not comparison.ratios and why in comparison.refused[0].why


def test_files_of_one_side_must_be_the_same_work(tmp_path: Path) -> None:
    for name in ("rate5", "cache_on_1"):
        data = json.loads((DATA / f"vllm/{name}.json").read_text(encoding="utf-8"))
        data |= {"request_rate": "inf", "max_concurrency": 2, "total_input_tokens": 3840 * (1 + (name == "rate5"))}
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    comparison = compare(reading.read_side(str(tmp_path)), reading.read_side(str(DATA / "vllm/cache_on_1.json")))
    assert "the files of A are not the same work: input tokens per request" in comparison.refused[0].why


def test_cases_of_a_sweep_are_told_apart_by_what_varies() -> None:
    comparison = compared("llama-bench/threads_fa.json", "llama-bench/threads_fa.json")
    labels = [row.case for row in comparison.ratios]
    assert len(labels) == len({*labels}) == 12 and "pp64, threads 1, flash attention 0" in labels
    comparison = compared("llama-bench/run1.json", "llama-bench/run.csv")
    assert [row.case for row in comparison.ratios] == ["pp64", "pp128", "tg16", "tg32"]
    one_sided = compared("guidellm/rep1.json", "guidellm/two_levels.json")
    assert one_sided.only_one == ("B: concurrency 1",)


# Each check of an audit: a file of the tool itself, in which one thing is changed that can't be


def vllm(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        data = json.loads((DATA / "vllm/cache_on_1.json").read_text(encoding="utf-8"))
        change(data)
        (folder / "changed.json").write_text(json.dumps(data))
        return folder / "changed.json"

    return make


def without_details(data: dict[str, Any]) -> None:
    for key in ("input_lens", "output_lens", "ttfts", "itls", "latencies"):
        data.pop(key)


def slower(data: dict[str, Any]) -> None:
    data["latencies"] = [2 * value for value in data["latencies"]]


def of_means(data: dict[str, Any]) -> None:
    without_details(data)
    data |= {"mean_e2el_ms": 1.5 * (data["mean_ttft_ms"] + 31 * data["mean_tpot_ms"])}


def idle(data: dict[str, Any]) -> None:
    data["request_throughput"], data["duration"] = data["request_throughput"] / 2, 2 * data["duration"]
    data["output_throughput"] /= 2


def faster_than_counted(data: dict[str, Any]) -> None:
    data["output_throughput"] *= 1.2


def short(data: dict[str, Any]) -> None:
    data["output_lens"][:3], data["request_goodput"] = [1, 1, 1], 10.0


def several_tokens_per_event(data: dict[str, Any]) -> None:
    data["mean_itl_ms"] *= 2.5


PLANTED = {
    "events": (vllm(several_tokens_per_event), "ITL is 2.500 times TPOT"),
    "sum of times": (vllm(slower), "TTFT and gaps are"),
    "sum of times of means": (vllm(of_means), "TTFT + (tokens − 1) × TPOT ="),
    "Little's law": (vllm(slower), "but at most 2 were sent at once"),
    "Little's law, idle": (vllm(idle), "left the server idle"),
    "totals": (vllm(faster_than_counted), "960 output tokens in"),
    "short outputs": (vllm(short), "3 of 30 requests gave one token"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_contradiction_is_found(name: str, tmp_path: Path) -> None:
    make, words = PLANTED[name]
    check = name.split(",")[0].removesuffix(" of means")
    before = [one.reason for one in audited(DATA / "vllm/cache_on_1.json").findings if one.check == check]
    after = [one.reason for one in audited(make(tmp_path)).findings if one.check == check]
    assert not before and any(words in reason for reason in after), after


REAL = {
    "failed requests": ("vllm/failing.json", "4 of 30 requests failed"),
    "percentiles": ("vllm/rate5.json", "p99 of 30 requests is little else than their maximum (p99 needs 100)"),
    "rate": ("guidellm/poisson_duration.json", "15.33 requests/s, 8 were asked for: the client sent more"),
    "lengths": ("aiperf/single1", "57.20 input tokens per request, 64 were asked for"),
        "short outputs": ("vllm/one_token.json", "requests gave one token each"),
    "the file itself": ("optimum-benchmark/run1", "per_token holds 1045 times, but 11 calls of 16 tokens have 165"),
    "cache": ("vllm-cache-on", "as if the same prompts came from the server's prefix cache"),
}  # fmt: skip


def test_the_cache_is_named_where_it_was_on_alone(tmp_path: Path) -> None:
    for state in ("on", "off"):
        (tmp_path / state).mkdir()
        for number in (1, 2, 3):
            (tmp_path / state / f"{number}.json").write_bytes((DATA / f"vllm/cache_{state}_{number}.json").read_bytes())
        found = [one for one in audited(tmp_path / state).findings if one.check == "cache"]
        assert len(found) == (state == "on")
    assert "cache" in {one.check for one in audited(DATA / "sglang/two_reps.jsonl").findings}
    comparison = compare(reading.read_side(str(tmp_path / "on")), reading.read_side(str(tmp_path / "off")))
    assert {row.runs for row in comparison.ratios} == {(3, 3)} and not comparison.refused
    assert next(row for row in comparison.ratios if row.figure == "mean TTFT").ratio.value > 1  # the cache's side is faster


@pytest.mark.parametrize("check", REAL)
def test_what_is_wrong_in_real_files_is_found(check: str, tmp_path: Path) -> None:
    name, words = REAL[check]
    path = DATA / name
    if name == "vllm-cache-on":
        path = tmp_path
        for number in (1, 2, 3):
            (path / f"{number}.json").write_bytes((DATA / f"vllm/cache_on_{number}.json").read_bytes())
    found = [one.reason for one in audited(path).findings if one.check == check]
    assert any(words in reason for reason in found), found


def test_every_check_is_planted_or_real() -> None:
    checked = {name.split(",")[0].removesuffix(" of means") for name in PLANTED} | {*REAL}
    assert {*OF_REQUESTS} <= checked and {*OF_RATES} == {"bandwidth", "MFU", "links"}


def test_roofs_of_a_named_gpu(tmp_path: Path) -> None:
    path = DATA / "vllm/cache_on_1.json"  # 435 output tokens/s of two requests at once, 2,174 tokens/s in all
    assert not [one for one in audited(path, "L4", 8e9, 16).findings if one.check in OF_RATES and one.check != "bandwidth"]
    found = {one.check: one.reason for one in audited(path, "L4", 8e9, 16).findings}
    assert "at most 37.50 tokens/s of 2 at once, not 434.7" in found["bandwidth"]  # 300 GB/s / 16 GB × 2
    found = {one.check: one.reason for one in audited(path, "8x L4", 800e9, 16).findings}
    assert "times the peak of 8 × L4" in found["MFU"]
    made = audited(path, "8x H100 SXM5 80GB", 1e6, 16)
    assert not {one.check for one in made.findings} & {*OF_RATES} and made.made == 10
    assert {one.check for one in audited(path).unchecked} == {"lengths", "cache", "bandwidth", "MFU"}
    with pytest.raises(BadInput, match="no GPU is called"):
        claim_of("H100", None, None)
    with pytest.raises(BadInput, match="above 0"):
        claim_of(None, -1.0, None)


@pytest.mark.parametrize(
    ("operation", "bandwidth", "level"),
    [
        ("all_reduce", 440, None),
        ("all_reduce", 500, "unclear"),
        ("all_reduce", 950, "impossible"),
        ("all_gather", 500, "impossible"),
    ],
)
def test_bus_bandwidth_is_held_against_the_links(operation: str, bandwidth: float, level: str | None, tmp_path: Path) -> None:
    report = {  # in the form that src/util.cu of nccl-tests writes (format 3)
        "version": 3, "start_time": "2026-11-30", "args": [f"./{operation}_perf", "-g", "8"], "env": ["TOKEN=secret"],
        "nccl_version": 22903, "config": {},
        "ranks": [{"rank": r, "hostname": "h", "device": r, "device_info": "NVIDIA H100 80GB HBM3"} for r in range(8)],
        "results": [
            {
                "size": 1 << 30, "count": 1 << 28, "type": "float", "redop": "sum", "root": "    -1",
                "out_of_place": {"time": 4000.0, "alg_bw": 268.4, "bus_bw": bandwidth, "nwrong": 0},
                "in_place": {"time": "nan", "alg_bw": 0.0, "bus_bw": 0.0, "nwrong": None},
            }
        ],
    }  # fmt: skip
    (tmp_path / "r.json").write_text(json.dumps(report))
    made = audited(tmp_path / "r.json")
    assert [one.level for one in made.findings if one.check == "links"] == ([level] if level else [])
    (file,) = reading.read_side(str(tmp_path / "r.json"))
    assert len(file.cases) == 1 and "secret" not in repr(file)
    report["results"][0]["out_of_place"]["nwrong"] = 3.0
    (tmp_path / "r.json").write_text(json.dumps(report))
    assert "3 elements are wrong" in {one.reason for one in audited(tmp_path / "r.json").findings}


def test_nvbandwidth_and_timm(tmp_path: Path) -> None:
    matrix = [["N/A", "276.07"], ["276.19", "N/A"]]  # texts, as json_output.cpp writes them
    test = {"name": "device_to_device_memcpy_write_ce", "status": "Passed", "bandwidth_matrix": matrix, "sum": 552.26,
            "bandwidth_description": "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)"}  # fmt: skip
    waived = {"name": "multinode", "status": "Waived"}
    (tmp_path / "n.json").write_text(json.dumps({"nvbandwidth": {"version": "v0.8", "testcases": [test, waived]}}))
    (file,) = reading.read_side(str(tmp_path / "n.json"))
    assert [(case.name[-6:], case.figures[0].value) for case in file.cases] == [("[0, 1]", 276.07), ("[1, 0]", 276.19)]
    assert "device" not in file.cases[0].setup
    (tmp_path / "t.csv").write_text(
        "model,infer_samples_per_sec,infer_step_time,infer_batch_size,infer_img_size,param_count\nresnet10t,1000.5,63.9,64,176,5.4\n"
    )
    (file,) = reading.read_side(str(tmp_path / "t.csv"))
    assert {figure.name: figure.value for figure in file.cases[0].figures} == {"inference": 1000.5, "mean step": 63.9}


def test_a_file_that_nvbandwidth_wrote(tmp_path: Path) -> None:
    """Values, texts and form of NVIDIA/DCGM's recorded output of v0.5; the device as pull request 54 shows v0.8's."""
    every = [
        ("host_to_device_memcpy_ce", "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s) ", 12.396361291250001),
        ("host_device_latency_sm", "memory latency SM CPU(row) <-> GPU(column) (ns) ", 649.87858038348088),
    ]
    tests: list[dict[str, Any]] = [
        {"average": value, "bandwidth_description": text, "bandwidth_matrix": [[f"{value:g}"]], "max": value, "min": value,
         "name": name, "status": "Passed", "sum": value} for name, text, value in every
    ]  # fmt: skip
    tests.append({"name": "device_to_device_latency_sm", "status": "Waived"})
    root = {"CUDA Runtime Version": 12070, "Driver Version": "565.02", "git_version": "", "testcases": tests, "version": "v0.5"}
    devices = [f"{place}: NVIDIA GB200 (0000000{8 + place}:06:00): (host-{place})" for place in range(2)]
    (tmp_path / "n.json").write_text(json.dumps({"nvbandwidth": root | {"GPU Device list": devices}}))
    (file,) = reading.read_side(str(tmp_path / "n.json"))
    latency = file.cases[1]
    assert [(case.figures[0].quantity, case.figures[0].value) for case in file.cases] == [
        ("bandwidth", 12.3964), ("memory latency", 649.879),
    ]  # fmt: skip
    assert dict(latency.setup) == {"driver": "565.02", "CUDA": "12070", "device": "NVIDIA GB200"} and not latency.problems
    assert file.version == "0.5" and not file.note and "host-1" not in repr(file)


# What is no finding, and what is told


def vllm_file(folder: Path, name: str, **changes: Any) -> Path:
    data = json.loads((DATA / "vllm/cache_on_1.json").read_text(encoding="utf-8"))
    without_details(data)
    (folder / f"{name}.json").write_text(json.dumps(data | changes))
    return folder / f"{name}.json"


def test_honest_runs_raise_no_alarm(tmp_path: Path) -> None:
    latency = {"mean_e2el_ms": 10_000.0}
    drained = vllm_file(
        tmp_path, "drained", request_rate=10.0, max_concurrency=None, num_prompts=100, completed=100, duration=20.0,
        request_throughput=5.0, total_output_tokens=3200, output_throughput=160.0, total_token_throughput=800.0, **latency,
    )  # fmt: skip
    few = vllm_file(
        tmp_path, "few", max_concurrency=256, num_prompts=100, completed=100, duration=1.0, request_throughput=100.0,
        total_output_tokens=3200, output_throughput=3200.0, total_token_throughput=16000.0, mean_e2el_ms=800.0,
    )  # fmt: skip
    for path in (drained, few):
        assert not {one.check for one in audited(path).findings} & {"rate", "Little's law", "totals"}, path
    slow = vllm_file(
        tmp_path, "slow", request_rate=10.0, max_concurrency=None, num_prompts=100, completed=100, duration=40.0,
        request_throughput=2.5, total_output_tokens=3200, output_throughput=80.0, total_token_throughput=400.0, **latency,
    )  # fmt: skip
    assert "kept up with less" in {one.check: one.reason for one in audited(slow).findings}["rate"]
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    for number, tokens in enumerate((2048, 1024, 512)):  # other work, not the same prompts
        vllm_file(sweep, f"{number}", date=f"{number}", total_input_tokens=30 * tokens, mean_ttft_ms=tokens / 10,
                  median_ttft_ms=tokens / 10)  # fmt: skip
    assert "cache" not in {one.check for one in audited(sweep).findings}
    stage = audited(DATA / "inference-perf/stage_0_lifecycle_metrics.json")  # rates and TPOT are by the client's own count
    assert {one.check for one in stage.findings} == {"the file itself", "percentiles"}


def test_what_was_sent_all_at_once_is_as_much_work_as_its_requests(tmp_path: Path) -> None:
    a, b = (
        vllm_file(tmp_path, f"{number}", max_concurrency=None, num_prompts=number, completed=number, failed=0,
                  total_input_tokens=128 * number, total_output_tokens=32 * number)
        for number in (30, 1000)
    )  # fmt: skip
    comparison = compare(reading.read_side(str(a)), reading.read_side(str(b)))
    assert not comparison.ratios and "requests at once 30 and 1000" in comparison.refused[0].why
    ramp = vllm_file(tmp_path, "ramp", ramp_up_strategy="linear", ramp_up_start_rps=1, ramp_up_end_rps=20, mean_e2el_ms=50.0)
    (file,) = reading.read_side(str(ramp))
    assert "linear ramp, 1 to 20 requests/s" in str(file.cases[0].work["rate"])
    assert "Little's law" not in {one.check for one in audited(ramp).findings}
    good = [vllm_file(tmp_path, f"good{number}", request_goodput=number) for number in (5.0, 10.0)]
    unknown = compare(*(reading.read_side(str(path)) for path in good)).unknown
    assert "limits of goodput (A and B)" in unknown


def test_peaks_of_types_that_the_table_lacks_are_no_lower_ones(tmp_path: Path) -> None:
    for gpu, bits, tokens, is_impossible in (
        ("A100 80GB SXM4", 8, 25_000, False), ("A100 80GB SXM4", 8, 40_000, True), ("A100 80GB SXM4", 16, 25_000, True),
        ("B200", 4, 350_000, False), ("H100 SXM5 80GB", 4, 200_000, False),
    ):  # fmt: skip
        path = vllm_file(tmp_path, "p", total_token_throughput=float(tokens))
        found = {one.check for one in audited(path, gpu, 8.03e9, bits).findings}
        assert ("MFU" in found) == is_impossible, (gpu, bits, tokens)


def test_results_below_other_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    vllm_file(tmp_path / "a" / "b", "r")
    (tmp_path / "note.json").write_text("[1]")
    (tmp_path / "a" / "log.txt").write_text("text")
    assert len(reading.read_side(str(tmp_path))) == 1


def test_experts_use_a_part_of_the_weights(tmp_path: Path) -> None:
    row = json.loads((DATA / "llama-bench/run1.json").read_text(encoding="utf-8"))[2]
    row |= {
        "gpu_info": "NVIDIA GeForce RTX 4090",
        "model_size": 17_700_000_000,
        "model_n_params": 30_500_000_000,
        "avg_ts": 190.0,
    }
    for kind, findings in (("qwen3moe 30B.A3B Q4_K - Medium", 0), ("llama 8x7B Q4_K", 0), ("llama 30B Q4_K", 1)):
        (tmp_path / "m.json").write_text(json.dumps([row | {"model_type": kind}]))
        assert len(audited(tmp_path / "m.json").findings) == findings, kind


def test_what_speaks_against_a_side_is_told() -> None:
    doubts = compared("loadgen/single_invalid", "loadgen/single_valid").doubts
    assert doubts == ("A: the result is INVALID: not satisfied: min duration, min queries",)
    assert (
        "B: 4 of 30 requests of a run failed, and are in no figure" in compared("vllm/rate5.json", "vllm/failing.json").doubts
    )


def test_failed_runs_stay_runs(tmp_path: Path) -> None:
    for number in (6, 7):
        data = json.loads((DATA / "vllm/all_failing.json").read_text(encoding="utf-8")) | {
            "failed": number,
            "num_prompts": number,
        }
        (tmp_path / f"{number}.json").write_text(json.dumps(data))
    assert len([one for one in audited(tmp_path).findings if one.check == "failed requests"]) == 2


def test_repetitions_may_differ_in_their_number_of_requests(tmp_path: Path) -> None:
    lines = (DATA / "sglang/two_reps.jsonl").read_text(encoding="utf-8").splitlines()
    for side in "ab":
        rows = [json.loads(line) for line in lines]
        for number, row in enumerate(rows):
            for key in ("completed", "total_input_tokens", "total_output_tokens"):
                row[key] = row[key] * (30 - number) // 30
        (tmp_path / f"{side}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + " " * (side == "b"))
    comparison = compare(*(reading.read_side(str(tmp_path / f"{side}.jsonl")) for side in "ab"))
    assert {row.runs for row in comparison.ratios} == {(2, 2)} and not comparison.only_one


def test_settings_of_a_build_are_its_set_up(tmp_path: Path) -> None:
    rows = json.loads((DATA / "llama-bench/run1.json").read_text(encoding="utf-8"))
    for name, value in (("a", 0), ("b", 1)):
        (tmp_path / f"{name}.json").write_text(json.dumps([row | {"flash_attn": value} for row in rows]))
    comparison = compare(*(reading.read_side(str(tmp_path / f"{name}.json")) for name in "ab"))
    assert len(comparison.ratios) == 4 and comparison.setup["flash attention"] == ("0", "1")


# The commands


def test_secrets_and_hostile_texts_reach_no_terminal(torchmatrix: Command, tmp_path: Path) -> None:
    secret = {"model_id": "http://bob:hunter2secret@host/v1", "label": "OPENAI_API_KEY=sk-abcdefghijklmnopqrstuvwx"}
    vllm_file(tmp_path, "a", **secret, backend="\x1b[31mred\u202e")
    vllm_file(tmp_path, "b", mean_ttft_ms=1e300)
    sentence = "requests gave one token each"
    assert sentence in torchmatrix("audit", str(DATA / "vllm/one_token.json")).stdout  # which holds no credential
    for words in (("compare", "a.json", "b.json"), ("compare", "a.json", "b.json", "--json"), ("audit", "a.json")):
        done = torchmatrix(*words)
        shown = done.stdout + done.stderr
        assert "hunter2secret" not in shown and "sk-abcdefg" not in shown and "\x1b" not in shown and "\u202e" not in shown
        assert max(map(len, done.stdout.splitlines())) < 300 or "--json" in words
    record = json.loads(torchmatrix("compare", "a.json", "b.json", "--json").stdout, parse_constant=pytest.fail)
    assert record["rows"][0]["ratio_low"] is None and record["rows"][0]["runs"] == [1, 1]


def test_what_lies_beside_results_stops_nothing(torchmatrix: Command, tmp_path: Path) -> None:
    (tmp_path / "side").mkdir()
    vllm_file(tmp_path / "side", "a")
    (tmp_path / "side" / "compose.yaml").write_text("a: &x 1\nb: *x\n")
    (tmp_path / "side" / "broken.json").write_text("{")
    (tmp_path / "side" / "log.txt").write_text("[1] started\n")
    done = torchmatrix("audit", "side")
    assert "1 case: " in done.stderr and "note: left out: side/broken.json is not valid JSON" in done.stderr, done.stderr
    many = tmp_path / "many" / "host"
    for number in range(205):
        (many / f"{number}").mkdir(parents=True)
        (many / f"{number}" / "run.jsonl").write_text('{"event": "run"}\n')
    assert "names 205 files" not in torchmatrix("compare", "many/host", "many/host").stderr


def test_the_commands(torchmatrix: Command, tmp_path: Path) -> None:
    before, after = (str(DATA / f"pyperf/{side}.json") for side in ("before", "after"))
    done = torchmatrix("compare", before, after, "--reasons")
    assert done.returncode == 0 and "FASTER" in done.stdout and "above 1, A is better" in done.stdout, done.stderr
    record = json.loads(torchmatrix("compare", before, after, "--json").stdout)
    assert record["rows"][0]["verdict"] == "FASTER" and record["rows"][0]["ratio_low"] > 1
    assert max(map(len, done.stdout.splitlines())) <= 128
    done = torchmatrix("audit", str(DATA / "vllm/failing.json"))
    assert done.returncode == 1 and "4 of 30 requests failed" in done.stdout and "not checked: bandwidth" in done.stderr
    record = json.loads(torchmatrix("audit", str(DATA / "vllm/failing.json"), "--json").stdout)
    assert {one["check"] for one in record["findings"]} == {"failed requests", "percentiles"}
    assert torchmatrix("audit", str(DATA / "loadgen/single_valid/mlperf_log_summary.txt")).returncode == 0
    done = torchmatrix("compare", str(DATA / "vllm/rate5.json"), str(DATA / "vllm/cache_on_1.json"))
    assert done.returncode == 2 and "not the same work" in done.stdout
    done = torchmatrix("compare", before, "last")
    assert done.returncode == 2 and "last is no file of another tool" in done.stderr
    (tmp_path / "own.json").write_text("{}")
    done = torchmatrix("compare", "own.json", before)
    assert done.returncode == 2 and "files of AIPerf, " in done.stderr
    done = torchmatrix("audit", "own.json")
    assert done.returncode == 2 and "nor a file of another tool that is read" in done.stderr and "other-tools.md" in done.stderr
    done = torchmatrix("audit", "last", "--gpu", "L4")
    assert done.returncode == 2 and "are about a file of another tool" in done.stderr
    assert torchmatrix("audit", str(DATA / "vllm" / "*_failing.json")).stdout.count("requests failed") == 1


def test_timms_tables_stay_published_tables_to_an_audit(torchmatrix: Command, tmp_path: Path) -> None:
    name = "benchmark-infer-amp-nhwc-pt240-cu124-rtx4090.csv"
    row = "resnet50,{},1.0,256,224,4.09,25.56\n"
    head = "model,infer_samples_per_sec,infer_step_time,infer_batch_size,infer_img_size,infer_gmacs,param_count\n"
    (tmp_path / name).write_text(head + row.format("90000.0"))
    done = torchmatrix("audit", name)
    assert done.returncode == 1 and "impossible" in done.stdout and "1 figure" in done.stderr, done.stdout
    other = name.replace("rtx4090", "rtx3090")
    (tmp_path / other).write_text(head + row.format("45000.0"))
    done = torchmatrix("compare", name, other)
    assert done.returncode == 0 and "2.000×" in done.stdout


READER = """\
from torchmatrix_plugins.foreign.results import Case, Figure, ForeignFile


def read(document):
    if "my_rate" not in document.object:
        return None
    figure = Figure(quantity="samples", value=document.object.positive("my_rate"), definition="mine")
    return ForeignFile(path=document.path, tool="mine", cases=(Case(figures=(figure,)),), version="1", tried=("1",))


def fail(document):
    raise SystemExit(3)
"""


def test_a_strangers_reader_is_one_like_others_and_a_broken_one_stops_nothing(tmp_path: Path) -> None:
    install(tmp_path, READER, readers="mine = strange:read\nAAA = strange:fail")
    for name, rate in (("a", 20.0), ("b", 10.0)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"my_rate": rate}))
    done = call(tmp_path, "compare", "a.json", "b.json")
    assert done.returncode == 0 and "2.000×" in done.stdout and "note: the plugin AAA failed: SystemExit: 3" in done.stderr
