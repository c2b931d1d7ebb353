"""Throughput on a real GPU: against a bare loop, the published figures and the peak of the data sheet."""

import csv
from collections.abc import Callable
from typing import Any

import pytest
from cells import COMPUTED_IN, MODELS, SETTINGS, bare_rates
from gpu_machine import Machine, Run

from torchmatrix.analysis import gpu_specs
from torchmatrix.core import assets


def published_rate(gpu: str, model: str, precision: str) -> float | None:
    """Return what Lambda published for training ResNet-50 on one such GPU, in images/s; None if it didn't.

    Its BERT has another length.
    """
    wanted = {"gpu": gpu, "gpus": "1", "mode": "train", "model": model, "precision": precision}
    with (assets.PUBLISHED / "lambda.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if model == "resnet50" and wanted.items() <= row.items()]
    return float(rows[0]["throughput"]) if rows else None


@pytest.fixture(scope="module")
def bare_before(machine: Machine) -> Callable[[str], dict[str, float]]:
    """Return what measures the bare loop of a model once, before its first launch."""
    rates: dict[str, dict[str, float]] = {}

    def measure(model: str) -> dict[str, float]:
        if model not in rates:
            rates[model] = bare_rates(machine, model, tuple(SETTINGS) if machine.is_real else ("fp32",))
        return rates[model]

    return measure


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("model", MODELS)
def test_training_is_measured_proven_and_plausible(
    machine: Machine, measured: Callable[[str], Run], bare_before: Callable[[str], dict[str, float]], seen: dict[str, Any],
    model: str, setting: str,
) -> None:  # fmt: skip
    if not machine.is_real and setting == "compiled":
        pytest.skip("torch.compile compiles nothing for the invented device")
    bare = bare_before(model).get(setting)
    run = measured(f"{model}-{setting}")
    assert run.done.returncode == 0, run.done.stderr
    (row,) = run.rows
    facts = gpu_specs.of_row(row)
    peak = gpu_specs.peak_flops(facts, row.precision) if facts else None
    mfu = gpu_specs.mfu(row.value("per_device"), row.flops_per_item, peak)
    seen |= {
        "items_per_second": row.throughput, "bare_items_per_second": bare, "mfu": mfu, "peak_bytes": row.value("peak_bytes"),
        "power_watts": row.power_watts, "clock_mhz": row.value("clock_mhz"), "effective": run.event("precision")["effective"],
        "reference": run.event("reference"),
        **{name: row.value(name) for name in ("host_bound", "remarks", "attention_kernels", "steady", "drift")},
    }  # fmt: skip
    assert row.outcome == "ok" and row.throughput > 0
    if machine.is_real:
        assert {values["matmul"] for values in seen["effective"]} == {COMPUTED_IN[setting]}
        assert 0.02 < mfu < 1, "of the data sheet's peak"
        published = published_rate(facts.name, model, setting) if facts else None
        seen["published_items_per_second"] = published
        assert published is None or 0.5 < row.throughput / published < 1.5


@pytest.mark.parametrize("model", MODELS)
def test_the_tool_measures_what_a_bare_loop_of_plain_pytorch_reaches(
    machine: Machine, measured: Callable[[str], Run], bare_before: Callable[[str], dict[str, float]], seen: dict[str, Any],
    model: str,
) -> None:  # fmt: skip
    """The bare loop runs before the launches and again after them, so that a drift of the machine falls on both."""
    before = bare_before(model)
    ours = {setting: measured(f"{model}-{setting}").rows[0].throughput for setting in before}
    after = bare_rates(machine, model, tuple(before))
    ratios = {setting: ours[setting] / ((before[setting] + after[setting]) / 2) for setting in before}
    moved = {setting: after[setting] / before[setting] for setting in before}
    seen |= {"torchmatrix over bare loop": ratios, "second bare loop over first": moved}
    if machine.is_real:
        for setting, ratio in ratios.items():
            assert ratio == pytest.approx(1, abs=0.01 + abs(moved[setting] - 1)), setting
