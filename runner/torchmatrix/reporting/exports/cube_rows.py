"""Cubes as tables: what each setting does, what explains how much, and the way to the best combination."""

from collections.abc import Iterable, Mapping
from typing import Any

from torchmatrix.analysis.cube_points import word_of
from torchmatrix.analysis.effects import Cube, cubes_of
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.rows import Column, Row, a_number, a_text, a_whole, an_interval

_CUBE = (
    a_text("model", "what is trained or run"), a_text("mode", "train or infer"), a_text("devices", "the device set"),
)  # fmt: skip
CUBE_TABLES: Mapping[str, tuple[Column, ...]] = {
    "effects": (
        *_CUBE, a_text("setting", "the setting with its value"), a_text("over", "the usual value"),
        *an_interval("ratio", DEFINITIONS["effect"], "ratio"),
        a_number("ratio_smallest", "the smallest ratio of a pair", "least"),
        a_number("ratio_largest", "the largest ratio of a pair", "most"),
        a_whole("pairs", "pairs of cells with a ratio", "n"), a_whole("pairs_missing", "pairs without one", "missing"),
        a_text("negative_control", "of a setting that can't matter: still, moved or uncertain; otherwise empty", "control"),
    ),
    "interactions": (
        *_CUBE, a_text("settings", "one setting, or two for what they do only together"),
        a_number("variance_fraction", DEFINITIONS["explained"], "share"),
        a_number("adjusted_p_value", "of the F test, corrected for all of the cube"),
        a_text("sentence", "what the two do together, where that is shown"),
    ),
    "cheap_way": (
        *_CUBE, a_whole("step", "the number of the step, from 1"), a_text("setting", "what is changed in it"),
        a_text("cell", "the cell that it leads to"), *an_interval("gain", "its speed over that of the cell before", "gain"),
        *an_interval("gain_so_far", "its speed over that of the usual settings", "so_far"),
    ),
}  # fmt: skip
ABOUT_CUBES = {
    "effects": "one row per setting of each job whose settings were varied together: what it does",
    "interactions": "one row per setting and pair of settings: how much of the variance of log speed it explains",
    "cheap_way": "one row per step from the usual settings towards the best combination",
}


def rows_of(launches: Iterable[Row]) -> dict[str, list[dict[str, Any]]]:
    """The rows of these tables."""
    cubes = cubes_of(launches)
    return {
        "effects": [row for cube in cubes for row in _effects(cube)],
        "interactions": [row for cube in cubes for row in _interactions(cube)],
        "cheap_way": [row for cube in cubes for row in _steps(cube)],
    }


def _named(cube: Cube) -> dict[str, Any]:
    return {"model": cube.points.model, "mode": cube.points.mode, "devices": cube.points.devices}


def _effects(cube: Cube) -> Iterable[dict[str, Any]]:
    for one in cube.effects:
        names = {"setting": word_of(one.setting, one.value), "over": word_of(one.setting, one.over)}
        found = {"ratio": one.found.value, "ratio_low": one.found.low, "ratio_high": one.found.high}
        rest = {name: getattr(one, name) for name in ("least", "most", "n", "missing", "control")}
        yield _named(cube) | names | found | rest


def _interactions(cube: Cube) -> Iterable[dict[str, Any]]:
    told = {frozenset((one.setting, one.other)): one.sentence for one in cube.interactions.together}
    for one in cube.interactions.explained:
        found = {"settings": " x ".join(one.settings), "share": one.share, "adjusted_p_value": one.adjusted_p_value}
        yield _named(cube) | found | {"sentence": told.get(frozenset(one.settings))}


def _steps(cube: Cube) -> Iterable[dict[str, Any]]:
    for number, step in enumerate(cube.best.steps if cube.best else (), 1):
        found = {"step": number, "setting": word_of(step.setting, step.value), "cell": step.point.row["cell"]}
        for name, interval in (("gain", step.gain), ("so_far", step.so_far)):
            found |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
        yield _named(cube) | found
