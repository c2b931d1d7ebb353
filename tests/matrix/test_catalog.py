"""The catalog agrees with itself, with the models and with the names in the matrix files."""

import csv
import itertools
import re

import pytest

from torchmatrix.core import assets
from torchmatrix.matrix import catalog
from torchmatrix.matrix.catalog import Release, compiled_for, version_key

CATALOG = catalog.load()
RELEASES = list(CATALOG.releases.values())
NGC_COLUMNS = ["tag", "torch", "cuda", "cudnn", "nccl", "python", "driver", "forward_compat", "unproven"]


def test_releases_are_in_order_and_none_of_the_issue_is_missing() -> None:
    versions = list(map(version_key, CATALOG.releases))
    assert versions == sorted(set(versions))
    named = (
        "1.12.1 1.13.1 2.0.0 2.0.1 2.1.0 2.1.1 2.1.2 2.2.0 2.2.1 2.2.2 2.3.0 2.3.1 2.4.0 2.4.1 2.5.0 2.5.1 2.6.0 2.7.0 2.7.1"
    )
    named += " 2.8.0 2.9.0 2.9.1 2.10.0 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0"
    assert set(named.split()) <= set(CATALOG.releases)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.torch)
def test_a_release_agrees_with_itself(release: Release) -> None:
    low, high = map(version_key, release.python)
    assert low <= version_key(release.default_python) <= high
    assert version_key(release.default_python) >= version_key(CATALOG.transformers_python[release.transformers])
    compiles = version_key(release.torch) >= (2,)
    assert (release.compile_python is not None) == compiles
    if release.compile_python:
        assert version_key(release.default_python) <= version_key(release.compile_python) <= high
    assert "cpu" in release.wheels and release.pypi in release.wheels and len(set(release.wheels)) == len(release.wheels)
    for variant in release.wheels:
        assert re.fullmatch(r"cpu|xpu|cu\d{3}|rocm\d+\.\d+(\.\d+)?", variant)
        if variant.startswith("cu"):
            assert variant[2:4] in CATALOG.drivers and compiled_for(release.torch, variant, "x86_64")
    assert ("numpy<2" in release.also) == (version_key(release.torch) < (2, 3))


def test_torchvision_grows_with_torch() -> None:
    for older, newer in itertools.pairwise(RELEASES):
        assert version_key(older.torchvision) < version_key(newer.torchvision)


def test_every_row_of_architectures_serves_a_release_and_no_release_has_two() -> None:
    for row in CATALOG.architectures:
        minors = [r for r in RELEASES if row.oldest <= version_key(r.torch)[:2] <= row.newest]
        assert row.variants and all(any(variant in release.wheels for release in minors) for variant in row.variants)
    for release, variant in ((r, v) for r in RELEASES for v in r.wheels):
        minor = version_key(release.torch)[:2]
        rows = [row.machine for row in CATALOG.architectures if variant in row.variants and row.oldest <= minor <= row.newest]
        assert len(rows) == len(set(rows))


def test_ngc_rows_are_well_formed_and_in_order() -> None:
    with (assets.IMAGES / "ngc.csv").open(newline="") as lines:
        reader = csv.DictReader(lines)
        assert reader.fieldnames == NGC_COLUMNS
        rows = list(reader)
    assert [row["tag"] for row in rows] == sorted({row["tag"] for row in rows})
    for row in rows:
        assert re.fullmatch(r"\d\d\.\d\d-py3", row["tag"]) and None not in row and None not in row.values()
        assert row["cuda"].split(".")[0] in CATALOG.drivers and re.fullmatch(r"3\.\d+", row["python"])
        drivers = list(map(version_key, row["forward_compat"].split()))
        assert drivers == sorted(drivers) and all(drivers) and drivers[-1][0] <= version_key(row["driver"])[0]
        unproven = row["unproven"].split()
        assert set(unproven) <= set(NGC_COLUMNS[1:-1]) and all(row[column] for column in unproven)


def test_the_default_models_have_counts_of_parameters_and_operations() -> None:
    models = catalog.models()
    for name in ("resnet50", "bert-base-cased", "bert-large-cased"):
        assert models[name].parameters and models[name].forward_flops and models[name].flops_per
