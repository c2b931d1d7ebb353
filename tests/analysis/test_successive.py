"""Launches that resemble the one before are seen; a drift of the machine, levels or unequal scatter isn't taken for it."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.records import write_run
from torchmatrix.analysis.successive import CHANCE, FEWEST_CELLS, resemble
from torchmatrix.reporting import report

Draw = Callable[[np.random.Generator, int, int], "np.ndarray[tuple[int, int], np.dtype[np.float64]]"]
RUNS = 400


def share(draw: Draw, cells: int, rounds: int, seed: int = 3) -> float:
    """Return the share of runs that are marked."""
    random = np.random.default_rng(seed)
    drawn = (draw(random, cells, rounds) for _ in range(RUNS))
    return sum(resemble([dict(zip(places(rounds), row, strict=True)) for row in logs]) for logs in drawn) / RUNS


def places(rounds: int) -> list[tuple[str, int]]:
    return [("run", number + 1) for number in range(rounds)]


def independent(random: np.random.Generator, cells: int, rounds: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    return random.normal(0, 0.01, (cells, rounds))


def correlated(by: float) -> Draw:
    def draw(random: np.random.Generator, cells: int, rounds: int) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
        logs = independent(random, cells, rounds)
        for place in range(1, rounds):
            logs[:, place] = by * logs[:, place - 1] + math.sqrt(1 - by**2) * logs[:, place]
        return logs

    return draw


HONEST: dict[str, Draw] = {
    "independent": independent,
    "drift": lambda random, cells, rounds: (
        independent(random, cells, rounds) + np.cumsum(random.normal(0, 0.02, (1, rounds)), axis=1)
    ),
    "levels": lambda random, cells, rounds: (
        independent(random, cells, rounds) * 0.3 - 0.05 * (random.random((cells, rounds)) < 0.3)
    ),
    "unequal scatter": lambda random, cells, rounds: (
        independent(random, cells, rounds) * np.exp(random.normal(0, 1, (cells, 1)))
    ),
}


@pytest.mark.parametrize("rounds", [3, 5, 10])
@pytest.mark.parametrize("kind", HONEST)
def test_independent_launches_are_hardly_ever_marked(kind: str, rounds: int) -> None:
    assert share(HONEST[kind], 40, rounds) <= 0.03 + 2 * math.sqrt(CHANCE / RUNS)


@pytest.mark.parametrize(("rounds", "least"), [(3, 0.1), (4, 0.5), (5, 0.85), (10, 0.99)])
def test_correlated_launches_of_forty_cells_are_marked(rounds: int, least: float) -> None:
    assert share(correlated(0.6), 40, rounds) >= least


@pytest.mark.parametrize(
    "cells",
    [
        [], [{}], [dict.fromkeys(places(5), 1.0)] * 40, [dict(zip(places(2), (1.0, 2.0), strict=True))] * 40,
        [dict(zip(places(9), range(9), strict=True))] * (FEWEST_CELLS - 1),
        [dict(zip(places(4), (0.0, 1.0, 2.0, 3.0), strict=True))] * 40,
    ],
)  # fmt: skip
def test_too_little_and_what_all_cells_share_shows_nothing(cells: list[dict[tuple[str, int], float]]) -> None:
    assert not resemble(cells)


def test_the_page_and_the_terminal_say_so(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    pages = []
    for name, draw in (("a", correlated(0.95)), ("b", independent)):
        logs = draw(random, 20, 10)
        lines = [
            {"workload": f"resnet50-train-fp32-b{cell}", "rate": 100 * math.exp(log), "round": place + 1}
            for cell, row in enumerate(logs)
            for place, log in enumerate(row)
        ]
        view = report.view_of(write_run(tmp_path / name, lines))
        texts = report.render(view), report.overview_of(view).answers.in_words(80)
        pages.append(tuple("Successive launches" in text for text in texts))
    assert pages == [(True, True), (False, False)]
