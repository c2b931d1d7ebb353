"""The factor table: ids, keys, flags and the reading of facts that were recorded before a factor was there."""

import json
from pathlib import Path

import pytest

from torchmatrix.ground import assets
from torchmatrix.matrix import factors, matrix_file
from torchmatrix.matrix.factors import BY_NAME, FACTORS

DATA = Path(__file__).parents[1] / "data"
IDS = json.loads((DATA / "workload_ids.json").read_text())
"""As the releases before the factor table made them, in their order."""


def _matrix(name: str) -> Path:
    if name == "everything":
        return DATA / "every_factor.toml"
    return assets.DEFAULT_MATRIX if name == "matrix.toml" else assets.PRESETS / f"{name}.toml"


@pytest.mark.parametrize("name", IDS)
def test_ids_and_their_order_are_those_of_older_runs(name: str) -> None:
    assert [workload.id for workload in matrix_file.load(_matrix(name)).workloads] == IDS[name]


def test_every_factor_has_a_meaning_and_a_flag_that_the_box_takes() -> None:
    box = (assets.WORKLOAD / "bench.py").read_text()
    assert len(BY_NAME) == len(FACTORS) > 10
    for factor in FACTORS:
        assert factor.meaning and f'"{factor.flag}"' in box, factor.name


def test_values_of_one_factor_never_share_an_id() -> None:
    base = {"model": "m", "mode": "infer", "precision": "fp32", "batch": 1}
    for factor in FACTORS:
        values = (False, True) if factor.kind is bool else factor.choices
        ids = {factors.id_of({**base, factor.name: value}) for value in values}
        assert len(ids) == len(values) or not factor.part, factor.name


def test_facts_without_a_factor_have_its_default_where_it_applies() -> None:
    assert BY_NAME["compile"].recorded_in({"mode": "train"}) is False
    assert BY_NAME["compile"].recorded_in({"mode": "train", "compile": True}) is True
    assert BY_NAME["attention"].recorded_in({"attention": None}) is None
