"""Measuring methods: the options of the command line, and the schedule that follows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

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
     (Request(until="1%"), ADAPTIVE_MINIMUM)],
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
        (Request(budget_minutes=5), "--budget works only with --until"),
        (Request(method="lambda"), 'unknown method "lambda"'),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_way_out(request_: Request, message: str) -> None:
    with pytest.raises(BadInput, match=message) as error:
        request_.applied(Method())
    assert error.value.hint


def adaptive_rounds(quiet: Cell, noisy: Cell, one_by_one: bool = False) -> tuple[list[int], list[int]]:
    """Return the rounds of a cell that doesn't scatter and of a noisy one; `one_by_one`: singly, as on a cluster."""
    rounds: dict[str, list[int]] = {"quiet": [], "noisy": []}
    both = [replace(quiet, id="quiet"), replace(noisy, id="noisy")]

    def rates(cell: Cell) -> list[float]:
        return [100.0 if cell.id == "quiet" else (90.0 if number % 2 else 110.0) for number in rounds[cell.id]]

    method = Request(until="1%").applied(Method())
    if one_by_one:
        rounds = {name: list(range(1, ADAPTIVE_MINIMUM + 1)) for name in rounds}
        groups = launch_order.compared(both)
        while launches := [launch for group in groups for launch in next_of(group, method, rates, rounds)]:
            for cell, number in launches:
                rounds[cell.id].append(number)
    else:
        for cell, number in launch_order.adaptive(both, method, 0, rates, lambda: False):
            rounds[cell.id].append(number)
    return rounds["quiet"], rounds["noisy"]


def next_of(
    group: list[Cell], method: Method, rates: Callable[[Cell], list[float]], rounds: dict[str, list[int]]
) -> list[tuple[Cell, int]]:
    rates_by_cell = {cell.id: rates(cell) for cell in group}
    return launch_order.next_round(group, method, 0, rates_by_cell, lambda cell, number: number in rounds[cell.id])


@pytest.mark.parametrize("one_by_one", [False, True])
def test_adaptive_rounds_go_on_for_a_noisy_cell_and_for_what_it_is_compared_with(cpu_host: Host, one_by_one: bool) -> None:
    (cell, another_model) = cells(cpu_host)
    every = list(range(1, ADAPTIVE_MAXIMUM + 1))
    assert adaptive_rounds(cell, cell, one_by_one) == (every, every)
    assert adaptive_rounds(cell, another_model, one_by_one) == (every[: ADAPTIVE_MINIMUM + CONFIRMING], every)


def test_a_spent_budget_ends_the_further_rounds_but_not_the_first_ones(cpu_host: Host) -> None:
    both = cells(cpu_host)
    method = replace(Request(until="1%").applied(Method()), budget_seconds=0.0)
    launches = list(launch_order.adaptive(both, method, 0, lambda c: [90.0, 110.0], lambda: True))
    assert len(launches) == 2 * ADAPTIVE_MINIMUM


def test_a_round_that_was_begun_is_finished(cpu_host: Host) -> None:
    (template, _) = cells(cpu_host)
    both, method = [replace(template, id="a"), replace(template, id="b")], Request(until="1%").applied(Method())
    enough = dict.fromkeys(("a", "b"), [100.0] * (ADAPTIVE_MINIMUM + CONFIRMING))
    begun = ADAPTIVE_MINIMUM + CONFIRMING + 1
    launches = launch_order.next_round(both, method, 0, enough, lambda cell, number: number < begun or cell.id == "a")
    assert [(cell.id, number) for cell, number in launches] == [("b", begun)]


def test_a_cell_that_fails_is_not_tried_for_ever(cpu_host: Host) -> None:
    (cell, _) = cells(cpu_host)
    method = Request(until="1%").applied(Method())
    assert len(list(launch_order.adaptive([cell], method, 0, lambda c: [], lambda: False))) == ADAPTIVE_MINIMUM
