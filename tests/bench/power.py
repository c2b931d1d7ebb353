"""Computes what few launches tell: the share of true differences that a report reports, by launches and by cells of the run.

Ten jobs of four stacks (or fewer), each stack over the first; one job's baseline is slower by the difference. Writes the curve
of docs/method-comparing.md. Run: PYTHONPATH=tests .venv/bin/python tests/bench/power.py [--draws 300] [--svg docs/power.svg]
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from torchmatrix.analysis import verdicts
from torchmatrix.analysis.intervals import NO_PRIOR, learned_of
from torchmatrix.analysis.pairs import pair

Random = np.random.Generator
DIFFERENCES = (0.0, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06)
RUNS = {
    "3 launches, each cell by itself": (3, 40, False),
    "3 launches, 4 cells": (3, 4, True),
    "3 launches, 12 cells": (3, 12, True),
    "3 launches, 40 cells": (3, 40, True),
    "5 launches, each cell by itself": (5, 40, False),
    "5 launches, 40 cells": (5, 40, True),
}
"""By name: launches of each cell, cells of the run, and whether these tell each other's scatter."""
SCATTERS: dict[str, Callable[[Random, int], np.ndarray]] = {
    "all cells scatter by 1 %": lambda random, cells: np.full(cells, 0.01),
    "cells scatter by 0.3 to 3 %": lambda random, cells: 0.0095 * np.exp(random.normal(0.0, 0.587, cells)),
}


def told(random: Random, run: tuple[int, int, bool], scatter: np.ndarray, difference: float) -> tuple[float, bool]:
    """Return the share of the differences that are told, and whether any other pair is told apart."""
    launches, cells, together = run
    logs = scatter[:, None] * random.normal(size=(cells, launches))
    logs[0] -= np.log1p(difference)
    rates = [sample.tolist() for sample in 100 * np.exp(logs)]
    prior = learned_of(rates) if together else NO_PRIOR
    over = [(place, place - place % 4) for place in range(cells) if place % 4]
    changed = [
        row.verdict in ("FASTER", "SLOWER") for row in verdicts.judged([pair(rates[a], rates[b], prior) for a, b in over])
    ]
    return float(np.mean(changed[:3])), any(changed if difference == 0.0 else changed[3:])


def shares(draws: int) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return by scatter and run: of each difference the share that is told, and of runs that tell a false one."""
    return {
        scatter: {
            name: [tuple(np.mean([told(np.random.default_rng((place, draw)), run, of(np.random.default_rng(draw), run[1]), gap)
                                  for draw in range(draws)], axis=0)) for place, gap in enumerate(DIFFERENCES)]
            for name, run in RUNS.items()
        }
        for scatter, of in SCATTERS.items()
    }  # fmt: skip


def svg(panels: dict[str, dict[str, list[tuple[float, float]]]]) -> str:
    """Draw two panels of lines: the share that is told over the difference."""
    width, height, left, top = 330, 240, 46, 34
    colours = ("#9aa5b1", "#b7791f", "#2f855a", "#2b6cb0", "#cbd5e0", "#553c9a")
    size = f'viewBox="0 0 {2 * width + 60} {height + 150}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">']
    for panel, (scatter, runs) in enumerate(panels.items()):
        x0 = left + panel * (width + 20)
        parts.append(f'<text x="{x0}" y="20" font-weight="bold">{scatter}</text>')
        for share in (0, 0.25, 0.5, 0.75, 1):
            y = top + height * (1 - share)
            parts.append(f'<line x1="{x0}" x2="{x0 + width - 40}" y1="{y}" y2="{y}" stroke="#ddd"/>')
            parts.append("" if panel else f'<text x="{x0 - 8}" y="{y + 4}" text-anchor="end">{100 * share:.0f} %</text>')
        for difference in (place / 100 for place in range(7)):
            x = x0 + (width - 40) * difference / DIFFERENCES[-1]
            parts.append(f'<text x="{x}" y="{top + height + 16}" text-anchor="middle">{100 * difference:g} %</text>')
        for colour, curve in zip(colours, runs.values(), strict=True):
            points = " ".join(
                f"{x0 + (width - 40) * difference / DIFFERENCES[-1]:.1f},{top + height * (1 - share):.1f}"
                for difference, (share, _) in zip(DIFFERENCES, curve, strict=True)
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for place, (colour, name) in enumerate(zip(colours, RUNS, strict=True)):
        x, y = left + (place % 2) * 300, top + height + 44 + 18 * (place // 2)
        parts.append(f'<line x1="{x}" x2="{x + 22}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 28}" y="{y}">{name}</text>')
    legend = "Across: true difference. Up: the share of them that is told."
    parts.append(f'<text x="{left}" y="{top + height + 104}" fill="#555">{legend}</text></svg>')
    return "\n".join(filter(None, parts)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    panels = shares(options.draws)
    for scatter, runs in panels.items():
        print(f"\n{scatter:<32}", *(f"{100 * difference:>6.1f} %" for difference in DIFFERENCES), "  any false at 0")
        for name, curve in runs.items():
            print(
                f"{name:<32}",
                *(f"{100 * share:>6.0f} %" for share, _ in curve),
                f"{100 * curve[0][1]:>6.1f} %",
            )
    if options.svg:
        options.svg.write_text(svg(panels), encoding="utf-8")


if __name__ == "__main__":
    main()
