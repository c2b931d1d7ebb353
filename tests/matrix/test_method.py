"""Measuring methods: the options of the command line, and the schedule that follows."""

from dataclasses import replace
from pathlib import Path

import pytest

from support.adaptive import simulated
from torchmatrix.core.errors import BadInput
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.method import ADAPTIVE_MAXIMUM, ADAPTIVE_MINIMUM, CONFIRMING, Method, Request
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import Cell, make_plan
from torchmatrix.running import launch_order

TEXT = '[[stack]]\ntorch = "2.5.1"\ncpu = true\n[[workload]]\ndevice = "cpu"\nmodel = ["resnet18", "resnet50"]\nbatch = 4\n'


def cells(host: Host) -> list[Cell]:
    return list(make_plan(matrix_file.parse(TEXT + "counts = [1]\n"), host, Prerequisites(containers=False)).cells)


@pytest.mark.parametrize(
    ("request_", "launches"),
    [(Request(), 3), (Request(fast=True), 1), (Request(rigorous=True), 5), (Request(launches=7), 7),
     (Request(until="1%"), ADAPTIVE_MINIMUM), (Request(until="decided"), 3)],
)  # fmt: skip
def test_the_number_of_launches_is_as_asked(request_: Request, launches: int) -> None:
    assert request_.applied(Method()).launches == launches


def test_aimes_method_is_fifty_steps_from_below_fifty_degrees_and_the_mean(tmp_path: Path) -> None:
    matrix = matrix_file.under(matrix_file.parse(TEXT + "seconds = 10\nwindows = 4\nsteps = 200\n"), Request(method="aime"))
    assert (matrix.method.start_below_celsius, matrix.method.statistic, matrix.method.launches) == (50.0, "mean", 3)
    assert {(w.factors["steps"], w.factors["windows"], w.factors["seconds"]) for w in matrix.workloads} == {(50, 1, 0.0)}


def test_sustained_is_a_minute_of_warm_up_and_one_window_of_a_minute() -> None:
    matrix = matrix_file.under(matrix_file.parse(TEXT + "seconds = 10\nwindows = 4\n"), Request(method="sustained"))
    lengths = {tuple(w.factors[name] for name in ("warmup_seconds", "windows", "seconds")) for w in matrix.workloads}
    assert lengths == {(60.0, 1, 60.0)} and matrix.method.warms_up
    assert matrix.notes == ("no effect of windows, seconds in [[workload]]: the method sustained has its own",)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(fast=True, rigorous=True), "--fast and --rigorous contradict each other"),
        (Request(launches=2, until="1%"), "--launches and --until"),
        (Request(until="1"), "is not a percentage"),
        (Request(until="0%"), "is not a percentage"),
        (Request(until="many%"), "is not a percentage"),
        (Request(until=""), "is not a percentage"),
        (Request(until="", fast=True), "--fast and --until contradict each other"),
        (Request(budget_minutes=5), "--budget works only with --until"),
        (Request(method="lambda"), 'unknown method "lambda"'),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_way_out(request_: Request, message: str) -> None:
    with pytest.raises(BadInput, match=message) as error:
        request_.applied(Method())
    assert error.value.hint


def adaptive_rounds(quiet: Cell, noisy: Cell) -> tuple[list[int], list[int]]:
    """Return the rounds of a cell that doesn't scatter and of a noisy one."""
    both = [replace(quiet, id="quiet"), replace(noisy, id="noisy")]

    def rate(cell: Cell, number: int) -> float:
        return 100.0 if cell.id == "quiet" else (90.0 if number % 2 else 110.0)

    rates = simulated(both, Request(until="1%").applied(Method()), rate)
    return [number for number, _ in rates["quiet"]], [number for number, _ in rates["noisy"]]


def test_adaptive_rounds_go_on_for_a_noisy_cell_and_for_what_it_is_compared_with(cpu_host: Host) -> None:
    (cell, another_model) = cells(cpu_host)
    every = list(range(1, ADAPTIVE_MAXIMUM + 1))
    assert adaptive_rounds(cell, cell) == (every, every)
    assert adaptive_rounds(cell, another_model) == (every[: ADAPTIVE_MINIMUM + CONFIRMING], every)


def test_a_round_that_was_begun_is_finished(cpu_host: Host) -> None:
    """Though the rounds before it would not ask for it any more; what it measured has no part in the decision."""
    (template, _) = cells(cpu_host)
    both, method = [replace(template, id="a"), replace(template, id="b")], Request(until="1%").applied(Method())
    asked = []

    def wanted(number: int) -> set[str]:
        asked.append(number)
        return {"a", "b"} if number == 9 else set()

    def is_done(cell: Cell, number: int) -> bool:
        return number < 9 or (number == 9 and cell.id == "a")

    assert launch_order.next_round(both, method, 0, wanted, is_done) == [(both[1], 9)] and asked == [9]
    assert launch_order.next_round(both, method, 0, wanted, lambda _, number: number <= 9) == [] and asked == [9, 9, 10]


def test_no_round_follows_the_last_one(cpu_host: Host) -> None:
    both, method = cells(cpu_host), replace(Method(), further=2)
    every = {cell.id for cell in both}
    for done in (3, 4):
        launches = launch_order.next_round(both, method, 0, lambda _: every, lambda _, number, done=done: number <= done)
        assert sorted(cell.id for cell, _ in launches) == sorted(every) and {number for _, number in launches} == {done + 1}
    assert launch_order.next_round(both, method, 0, lambda _: every, lambda _, number: number <= 5) == []
    assert launch_order.next_round(both, replace(method, further=0), 0, lambda _: every, lambda _, number: number <= 3) == []


def test_a_cell_that_fails_is_not_tried_for_ever(cpu_host: Host) -> None:
    (cell, _) = cells(cpu_host)
    assert launch_order.too_wide([cell], Request(until="1%").applied(Method()), {cell.id: []}) == set()
