"""What a launch says besides its throughput, held against what the GPU and its driver say: memory, energy, clocks, kernels."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from cells import CELLS
from gpu_machine import Machine, Run

GIB = 1 << 30


def needs(machine: Machine, library: str) -> None:
    """Skip where the interpreter lacks a library."""
    code = f"import json, importlib.util; print(json.dumps(importlib.util.find_spec({library!r}) is not None))"
    if not machine.asked(code):
        pytest.skip(f"{library} is not installed for {machine.python}")


def test_the_peak_of_memory_is_what_the_driver_sees(
    machine: Machine, measured: Callable[[str], Run], seen: dict[str, Any]
) -> None:
    run = measured("bert-large-cased-amp-bf16")
    assert run.done.returncode == 0, run.done.stderr
    (launch,) = run.launches
    peak = max(memory["peak_bytes"][0] for memory in run.events() if memory["event"] == "memory")
    reserved = max(memory["peak_reserved_bytes"][0] for memory in run.events() if memory["event"] == "memory")
    used = max(reading.get("memory_used_bytes", 0) for readings in launch.telemetry for reading in readings.readings)
    seen |= {"allocated": peak, "reserved": reserved, "used by the driver's count": used}
    assert 0 < peak <= reserved
    if machine.is_real:
        assert reserved <= used <= reserved + 4 * GIB, "the driver counts the context and libraries besides"


def test_energy_power_and_clocks_agree(machine: Machine, seen: dict[str, Any]) -> None:
    """The driver's counter needs windows of ten seconds."""
    run = machine.run(machine.workload("resnet50", 128, precision="amp-bf16", channels_last=True, seconds=10, windows=1))
    assert run.done.returncode == 0, run.done.stderr
    (launch,), (row,) = run.launches, run.rows
    readings = [reading for each in launch.telemetry for reading in each.readings if reading["device"] != "cpu"]
    seen |= {
        "power_watts": row.power_watts, "energy_problem": row.value("energy_problem"), "clock_mhz": row.value("clock_mhz"),
        "temperatures": [row.value("temperature_first"), row.value("temperature_last")], "throttled": row.throttled,
        "reasons": sorted({word for reading in readings for word in reading.get("reasons") or ()}),
        "fields": sorted({key for reading in readings for key in reading}),
    }  # fmt: skip
    assert row.power_watts > 0 and row.value("clock_mhz") > 0
    if machine.is_real:
        limit = launch.devices.gpus[0].power_limit_watts
        assert row.value("energy_problem") is None
        assert limit is None or 0.15 * limit < row.power_watts < 1.1 * limit


def test_a_launch_warms_up_until_its_steps_are_steady(
    machine: Machine, measured: Callable[[str], Run], seen: dict[str, Any]
) -> None:
    run = measured("resnet50-amp-bf16")
    warm_up = run.event("warm-up")
    seen |= {"warm-up": warm_up, "steady": run.rows[0].value("steady"), "drift": run.rows[0].value("drift")}
    assert warm_up["steps"] >= 2
    if machine.is_real:
        assert run.rows[0].value("steady")


def test_the_second_launch_finds_its_compiled_code(machine: Machine, seen: dict[str, Any]) -> None:
    if not machine.is_real:
        pytest.skip("torch.compile compiles nothing for the invented device")
    run = machine.run(machine.workload("resnet50", 64, precision="amp-bf16", compile=True, channels_last=True), launches=2)
    assert run.done.returncode == 0, run.done.stderr
    first, second = run.rows
    seen |= {"states": [first.compile_cache, second.compile_cache],
             "first_step_seconds": [first.first_step_seconds, second.first_step_seconds]}  # fmt: skip
    assert first.compile_cache == "cold" and second.compile_cache != "cold"
    assert second.first_step_seconds < first.first_step_seconds


def test_the_kernels_of_attention_are_named(machine: Machine, measured: Callable[[str], Run], seen: dict[str, Any]) -> None:
    row = measured("bert-large-cased-amp-bf16").rows[0]
    seen["attention_kernels"] = row.value("attention_kernels")
    if machine.is_real:
        assert any(word in str(row.value("attention_kernels")) for word in ("flash", "efficient", "cudnn"))


@pytest.mark.parametrize("cell", [name for name in CELLS if "fp8" in name])
def test_training_in_float8_is_proven(
    machine: Machine, measured: Callable[[str], Run], seen: dict[str, Any], cell: str
) -> None:
    """MXFP8 is for compute capability 10 on: elsewhere it is refused by name."""
    needs(machine, "torchao")
    run = measured(cell)
    seen["said"] = run.done.stdout[-1000:] + run.done.stderr[-1000:]
    if not run.launches:
        assert "mxfp8" in cell and "compute capability" in seen["said"]
        pytest.skip("the plan leaves MXFP8 out on this GPU")
    (row,) = run.rows
    seen |= {"outcome": row.outcome, "error": row.error, "items_per_second": row.throughput}
    if machine.is_real:
        assert row.outcome == "ok", row.error
        seen["effective"] = run.event("precision")["effective"]
    else:
        assert row.outcome in ("ok", "unsupported", "crashed"), "PyTorch's own code looks for a driver"


@pytest.mark.parametrize("cell", [name for name in CELLS if "torchao" in name])
def test_inference_in_few_bits_is_held_against_fp32(
    machine: Machine, measured: Callable[[str], Run], seen: dict[str, Any], cell: str
) -> None:
    needs(machine, "torchao")
    (row,) = measured(cell).rows
    seen |= {key: row.value(key) for key in ("outcome", "error", "throughput", "parity_cosine", "parity_largest_relative")}
    assert row.outcome in ("ok", "unsupported"), row.error


@pytest.mark.parametrize("cell", ["decoder-eager", "decoder-compiled"])
def test_generation_is_held_against_the_roof_and_against_fp32(
    machine: Machine, measured: Callable[[str], Run], seen: dict[str, Any], cell: str
) -> None:
    if not machine.is_real and cell == "decoder-compiled":
        pytest.skip("torch.compile compiles nothing for the invented device")
    run = measured(cell)
    assert run.done.returncode == 0, run.done.stderr
    (row,) = run.rows
    seen |= {key: row.value(key) for key in (
        "throughput", "decode_rate", "first_token_p50", "per_output_token_p50", "decode_bandwidth", "decode_of_roof",
        "decode_of_data_sheet", "prefill_of_roof", "parity_top1", "parity_cosine",
    )}  # fmt: skip
    seen["roofs"] = [event for event in run.events() if event["event"] == "roof"]
    assert row.outcome == "ok"
    if machine.is_real:
        assert 0.05 < row.value("decode_of_roof") <= 1.02 and 0 < row.value("decode_of_data_sheet") < 1


def test_a_profile_has_kernels_and_a_gap_that_add_up(machine: Machine, seen: dict[str, Any], tmp_path: Any) -> None:
    machine.write_matrix(tmp_path, CELLS["resnet50-amp-bf16"](machine), CELLS["resnet50-compiled"](machine))
    plan = json.loads(machine.command(tmp_path, "plan", "--json", "--engine", "local").stdout)
    eager, compiled = sorted((cell["id"] for cell in plan["cells"]), key=lambda cell: "compile" in cell)
    done = machine.command(tmp_path, "why", eager, compiled, "--engine", "local", "--json")
    assert done.returncode == 0, done.stderr
    why = json.loads(done.stdout)
    seen["why"] = {key: value for key, value in why.items() if not isinstance(value, list) or len(value) < 40}
    assert why


def test_the_deep_doctor_finds_nothing_wrong(machine: Machine, seen: dict[str, Any], tmp_path: Any) -> None:
    if not machine.is_real:
        pytest.skip("products of 8192 x 8192 in 16 bits take minutes on a CPU; tests/running/test_deep.py has smaller ones")
    machine.write_matrix(tmp_path, CELLS["resnet50-amp-bf16"](machine))
    done = machine.command(tmp_path, "doctor", "--deep", "--engine", "local", "--seconds", "10")
    seen |= {"exit code": done.returncode, "said": done.stdout[-6000:], "errors": done.stderr[-1000:]}
    assert done.returncode == 0, done.stdout + done.stderr
    assert "invalid" not in done.stdout and "precision" in done.stdout
