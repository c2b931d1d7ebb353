"""Verdicts of the gate on nights: unlike kinds of noise, bad nights, losses, and a machine that was replaced."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.records import nights, write_run
from torchmatrix.facts.store import Results
from torchmatrix.nightly import gate
from torchmatrix.nightly.gate import Gate, GateOptions, judge, noise, verdicts
from torchmatrix.nightly.gate.drift import drift
from torchmatrix.nightly.gate.noise import Night, Panel

Series = np.ndarray[Any, Any]
SCATTER, CELLS = 0.01, 40


def panel_of(logs: Series) -> tuple[Panel, Series]:
    """Return the panel of cells (rows) with these logarithms, and on which nights each is a regression, of either kind."""
    rows = [
        [Night(run=str(night), rates=(rate,), value=rate) for night, rate in enumerate(cell)] for cell in np.exp(logs).tolist()
    ]
    panel = noise.panel(rows, logs.shape[1])
    return panel, panel.regressed | drift(panel).drifted


def correlated_nights(random: np.random.Generator, count: int, r: float, cells: int = CELLS) -> Series:
    """Return nights of which each resembles the next with the correlation r, and that scatter by SCATTER."""
    series = random.normal(size=(cells, count))
    for night in range(1, count):
        series[:, night] = r * series[:, night - 1] + np.sqrt(1 - r**2) * series[:, night]
    return SCATTER * series


def bad_nights(random: np.random.Generator, count: int, which: tuple[int, int]) -> Series:
    """Return independent nights; one in twenty is slower by 3 to 8 %. `which`: the drawn shape, of all cells or of each."""
    lost = np.where(random.random(which) < 0.05, random.uniform(0.03, 0.08, (CELLS, count)), 0.0)
    return correlated_nights(random, count, 0.0) + np.log1p(-lost)


KINDS: dict[str, Callable[[np.random.Generator, int], Series]] = {
    "independent": lambda random, count: correlated_nights(random, count, 0.0),
    "correlation of 0.3": lambda random, count: correlated_nights(random, count, 0.3),
    "correlation of 0.6": lambda random, count: correlated_nights(random, count, 0.6),
    "bad nights of all cells": lambda random, count: bad_nights(random, count, (1, count)),
    "bad nights of single cells": lambda random, count: bad_nights(random, count, (CELLS, count)),
}
FIRST = ("correlation of 0.3", "bad nights of all cells")
"""The kinds that `make test` takes."""


SWEEP = (pytest.mark.thorough, pytest.mark.sweep)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in FIRST else SWEEP) for kind in KINDS])
def test_false_regressions_of_forty_cells_begin_on_one_night_in_a_hundred(kind: str) -> None:
    random, begun = np.random.default_rng(31), []
    for _ in range(12):
        _, regressions = panel_of(KINDS[kind](random, 60))
        begun += (regressions[:, 13:] & ~regressions[:, 12:-1]).any(axis=0).tolist()
    assert np.mean(begun) <= 0.01 + 2 * np.sqrt(0.01 / len(begun)), f"{len(begun)} nights: more than 0.01 by chance"


def nights_until(earlier: int, loss: Callable[[int], float], slower: int = 4, runs: int = 8) -> Series:
    """Return the nights until each of `slower` of forty cells regresses by losing `loss` of its rate; 26: not in 25 nights."""
    random, waits = np.random.default_rng(32), []
    lost = np.log1p([-loss(night) for night in range(1, 26)])
    for _ in range(runs):
        logs = correlated_nights(random, earlier + 25, 0.0)
        logs[:slower, earlier:] += lost
        regressions = panel_of(logs)[1][:slower, earlier:]
        waits += np.where(regressions.any(axis=1), regressions.argmax(axis=1) + 1, 26).tolist()
    return np.array(waits)


@pytest.mark.parametrize(
    ("earlier", "loss", "within", "least"),
    [
        (10, 0.05, 2, 0.75),
        (28, 0.02, 8, 0.5),
        *(pytest.param(*case, marks=SWEEP) for case in ((28, 0.05, 2, 0.7), (10, 0.02, 15, 0.4), (70, 0.02, 8, 0.7))),
    ],
)
def test_a_loss_of_some_cells_is_detected(earlier: int, loss: float, within: int, least: float) -> None:
    """`least`: three standard errors of 32 cells below what `make proof` finds."""
    assert (nights_until(earlier, lambda night: loss) <= within).mean() >= least


def test_a_loss_every_other_night_is_detected() -> None:
    assert (nights_until(28, lambda night: 0.05 * (night % 2)) <= 10).mean() >= 0.9


def test_a_loss_of_the_whole_machine_is_detected_on_the_third_night() -> None:
    waits = nights_until(28, lambda night: 0.05, slower=CELLS, runs=3).reshape(3, CELLS)
    assert waits.min(axis=1).tolist() == [3, 3, 3] and (waits <= 3).mean() >= 0.75


def test_fewer_cells_have_closer_limits() -> None:
    random = np.random.default_rng(33)
    half = [np.nanmedian(panel_of(correlated_nights(random, 40, 0.0, cells))[0].half[:, -1]) for cells in (4, 40, 400)]
    assert half[0] < half[1] - 0.002 and half[1] < half[2] - 0.002


def test_limits_are_wider_where_nights_resemble_the_next() -> None:
    random = np.random.default_rng(34)
    usual, slow = (panel_of(correlated_nights(random, 60, r))[0] for r in (0.0, 0.6))
    assert usual.alike[:, -1].mean() == pytest.approx(0.0, abs=0.1) and slow.alike[:, -1].mean() == pytest.approx(0.6, abs=0.15)
    assert np.median(slow.half[:, -1]) > 1.05 * np.median(usual.half[:, -1])


def test_a_bad_night_of_all_cells_moves_neither_level_nor_limit() -> None:
    logs = correlated_nights(np.random.default_rng(35), 40, 0.0)
    spoiled = logs.copy()
    spoiled[:, 30] -= 0.06
    (usual, _), (panel, regressions) = panel_of(logs), panel_of(spoiled)
    assert panel.whole.tolist() == [night == 30 for night in range(40)] and not regressions[:, 30:].any()
    after = np.delete(panel.half[:, 31:], 0, axis=1), np.delete(usual.half[:, 31:], 0, axis=1)
    assert np.abs(after[0] / after[1] - 1).max() < 0.1


CLUSTER = [f"stack-{letter}" for letter in "abcdef"]


def write_nights(root: Path, *rates_by_night: dict[str, float], first: int = 0, usual: float = 100.0, **more: Any) -> None:
    """Write one run of six cells a night; named cells have another rate."""
    random = np.random.default_rng(first)
    for run, rates in zip(nights(first + len(rates_by_night))[first:], rates_by_night, strict=True):
        pace = dict(zip(CLUSTER, 1 + 0.002 * random.normal(size=len(CLUSTER)), strict=True))
        launches = [{"rate": rates.get(name, usual) * pace[name], "stack": name} for name in CLUSTER for _ in range(2)]
        write_run(root, launches, run=run, **more)


def judged(root: Path) -> Gate:
    return judge(gate.read_runs(Results(root)), GateOptions())


def verdict_of(night_gate: Gate, stack: str = "stack-a") -> tuple[str, str]:
    (cell,) = [cell for cell in night_gate.cells if cell.stack == stack]
    return cell.verdict, cell.why


ALL_SLOW = dict.fromkeys(CLUSTER, 95.0)


def test_a_night_that_was_slow_as_a_whole_is_reported_as_such_and_needs_two_more(tmp_path: Path) -> None:
    write_nights(tmp_path, *[{}] * 12, ALL_SLOW)
    tonight = judged(tmp_path)
    why = "the whole night was slow: 6 of 6 figures; slower on 1 night in a row; 3 make it a regression"
    assert (tonight.verdict, verdict_of(tonight)) == ("PASS", ("suspected", why))
    write_nights(tmp_path, {"stack-a": 95.0}, first=13)
    assert verdict_of(judged(tmp_path)) == ("suspected", "slower on 2 nights in a row; 3 make it a regression")
    write_nights(tmp_path, {}, first=14)
    assert {cell.verdict for cell in judged(tmp_path).cells} == {"ok"}
    write_nights(tmp_path, ALL_SLOW, ALL_SLOW, ALL_SLOW, first=15)
    later = judged(tmp_path)
    assert later.verdict == "REGRESSION" and verdict_of(later) == ("regression", "slower on 3 nights in a row")
    assert "whole night" not in verdicts.text(later)


def test_slow_nights_that_are_not_in_a_row_are_counted(tmp_path: Path) -> None:
    alternate: list[dict[str, float]] = [{"stack-a": 95.0}, {}]
    write_nights(tmp_path, *[{}] * 12, *alternate, *alternate, *alternate)
    assert verdict_of(judged(tmp_path)) == ("ok", "")
    write_nights(tmp_path, {"stack-a": 95.0}, first=18)
    assert verdict_of(judged(tmp_path)) == ("regression", "slower on 4 of the last 10 nights")
    write_nights(tmp_path, {}, first=19)
    assert verdict_of(judged(tmp_path))[0] == "regression", "and on the night after"
    write_nights(tmp_path, {}, first=20)
    assert verdict_of(judged(tmp_path))[0] == "ok", "until it is gone"


BOARD = {"name": "testhost", "cpu": "Test CPU", "gpus": [], "cores": [0, 1]}


def gpus(uuid: str | None, **more: Any) -> dict[str, Any]:
    return {"indices": [0], "label": "gpu0", "vendor": "nvidia", "gpus": [{"uuid": uuid, "name": "G", **more}], "threads": 1}


def write_machine(root: Path, first: int, count: int, rate: float = 100.0, **facts: Any) -> None:
    for run in nights(first + count)[first:]:
        write_run(root, [{"rate": rate * pace, **facts} for pace in (0.999, 1.0, 1.001)], run=run)


@pytest.mark.parametrize(
    ("before", "after", "other"),
    [
        ({"machine": "a" * 16}, {"machine": "b" * 16}, "identity"),
        ({"host": {**BOARD, "board_id": "1"}}, {"host": {**BOARD, "board_id": "2"}}, "board"),
        ({"gpus": gpus("GPU-a")}, {"gpus": gpus("GPU-b")}, "GPUs"),
        ({"gpus": gpus("MIG-a", slice_of="GPU-a")}, {"gpus": gpus("MIG-b", slice_of="GPU-b")}, "GPUs"),
    ],
)
def test_a_machine_that_was_replaced_under_its_name_begins_a_new_history(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], other: str
) -> None:
    write_machine(tmp_path, 0, 8, **before)
    write_machine(tmp_path, 8, 1, 90.0, **after)
    tonight = judged(tmp_path)
    assert tonight.verdict == "NO-BASELINE" and verdict_of(tonight) == (
        "new",
        f"the baseline starts again; not comparable with {nights(8)[-1]} and 6 more: the machine was replaced ({other})",
    )
    assert "stack-a: changed since it was last measured:" in verdicts.text(tonight)
    write_machine(tmp_path, 9, 1, 90.0, **after)
    assert verdict_of(judged(tmp_path))[0] == "ok"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"machine": "b" * 16}),
        ({"machine": "a" * 16}, {}),
        ({"gpus": gpus(None)}, {"gpus": gpus("GPU-b")}),
        ({"gpus": gpus("MIG-a", slice_of="GPU-a")}, {"gpus": gpus("MIG-b", slice_of="GPU-a")}),
    ],
)
def test_an_unrecorded_identity_is_no_other_machine(tmp_path: Path, before: dict[str, Any], after: dict[str, Any]) -> None:
    write_machine(tmp_path, 0, 8, **before)
    write_machine(tmp_path, 8, 2, 90.0, **after)
    assert verdict_of(judged(tmp_path))[0] == "regression"


def test_the_verdict_of_a_night_depends_on_no_later_one() -> None:
    random = np.random.default_rng(36)
    logs = correlated_nights(random, 40, 0.4, cells=8)
    logs[:3, 25:] -= 0.03
    logs[:, 20] -= 0.06
    rows = [
        [
            None if random.random() < 0.1 else Night(run=str(at), rates=(rate,) * (1 + at % 3), value=rate)
            for at, rate in enumerate(cell_nights)
        ]
        for cell_nights in np.exp(logs).tolist()
    ]
    whole = noise.panel(rows, 40)
    drifted = drift(whole)
    assert whole.regressed.any() and whole.whole[20]
    for night in range(1, 40):
        until = noise.panel([cell_nights[: night + 1] for cell_nights in rows], night + 1)
        for name in ("center", "half", "slow", "regressed", "needed", "row"):
            np.testing.assert_allclose(getattr(until, name)[:, -1].astype(float), getattr(whole, name)[:, night].astype(float))
        assert np.array_equal(drift(until).drifted[:, -1], drifted.drifted[:, night])


@pytest.mark.parametrize("is_other", [True, False])
def test_what_another_machine_of_the_name_could_do_is_not_skipped_now(tmp_path: Path, is_other: bool) -> None:
    for night, run in enumerate(nights(3)):
        machine = ("b" if is_other and night == 2 else "a") * 16
        cells = [{"rate": 100.0}, *([{"rate": 100.0, "devices": (1,)}] if night < 2 else [])]
        made = write_run(tmp_path, cells, run=run, machine=machine)
        if night == 2:
            made.append(
                "skip", cell="stack-a/resnet50-train-fp32-b4/gpu1", stack="stack-a", workload="resnet50-train-fp32-b4",
                ddp_workload="resnet50-train-fp32-b4", parallel="ddp", devices="gpu1", reason="no such GPU", fix=None,
            )  # fmt: skip
    verdicts_of = {cell.cell: cell.verdict for cell in judged(tmp_path).cells}
    assert ("skipped-now" in verdicts_of.values()) is not is_other
