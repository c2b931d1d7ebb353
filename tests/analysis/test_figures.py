"""reports/published: every figure parses, is in known words and units, and says where it stands."""

import csv
import math
import re

import pytest

from torchmatrix.analysis import gpu_specs
from torchmatrix.core import assets
from torchmatrix.matrix import catalog, variants
from torchmatrix.matrix.factors import PRECISIONS

NOT_OURS = ("fp32-conv-tf32", "bf16", "fp16")
GPUS = {facts.name for facts in gpu_specs.load()}
THROUGHPUTS = {"aime": 2, "bourke": 4, "lambda": 60, "nvidia_dle": 46, "server_gear": 28, "timm": 64}
DESCRIPTION = (assets.PUBLISHED / "README.md").read_text()


def rows_of(name: str) -> list[dict[str, str]]:
    with (assets.PUBLISHED / f"{name}.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert all(None not in row and None not in row.values() for row in rows)
    return rows


FIGURES = [(name, number, row) for name in THROUGHPUTS for number, row in enumerate(rows_of(name), start=2)]


def test_every_file_is_known_described_and_complete() -> None:
    assert {path.stem for path in assets.PUBLISHED.glob("*.csv")} == {*THROUGHPUTS, "gpus", "aime_claims", "pytorch_claims"}
    columns = {tuple(rows_of(name)[0]) for name in THROUGHPUTS}
    assert len(columns) == 1 and all(f"`{column}`" in DESCRIPTION for column in columns.pop())
    for name, count in THROUGHPUTS.items():
        assert len(rows_of(name)) == count and f"| `{name}.csv` | {count} |" in DESCRIPTION


@pytest.mark.parametrize(("name", "number", "row"), FIGURES, ids=[f"{name}-{number}" for name, number, _ in FIGURES])
def test_a_figure_is_in_known_words_and_units(name: str, number: int, row: dict[str, str]) -> None:
    assert row["vendor"] and row["source"] and row["published_gpu"] and row["published_model"] and row["published_precision"]
    assert row["framework"] in ("pytorch", "tensorflow") and row["mode"] in ("train", "infer")
    assert not row["gpu"] or row["gpu"] in GPUS
    assert row["precision"] in (*PRECISIONS, *NOT_OURS) and row["memory_format"] in ("", "nchw", "nhwc")
    assert row["compile"] in ("true", "false") and row["data"] in ("", "synthetic", "real")
    if row["model"]:
        assert row["unit"] == f"{catalog.models()[row['model']].unit}/s"
    assert row["unit"] in ("images/s", "sequences/s") and not (row["image_size"] and row["sequence_length"])
    assert re.fullmatch(r"(\d{4}(-\d\d(-\d\d)?)?)?", row["date"])
    assert math.isfinite(float(row["throughput"])) and float(row["throughput"]) > 0
    assert int(row["gpus"]) > 0 or (row["notes"].startswith("on a CPU") and not row["gpu"])
    for column in ("batch_per_gpu", "image_size", "sequence_length", "runs"):
        assert not row[column] or int(row[column]) > 0
    for column in ("steady_throughput", "cv_percent"):
        assert not row[column] or 0 < float(row[column]) < math.inf


def test_no_figure_stands_twice() -> None:
    keys = [tuple(v for k, v in row.items() if k not in ("notes", "throughput", "steady_throughput")) for _, _, row in FIGURES]
    assert len(set(keys)) == len(keys)


def test_fp32_that_may_be_tf32_is_told_apart() -> None:
    """NGC's fp32 is TF32 on GPUs that have it, and only there."""
    for row in rows_of("lambda"):
        if row["published_precision"] == "fp32":
            has_none = row["published_gpu"] in ("V100 16GB", "Quadro RTX 8000")
            assert row["precision"] == ("fp32" if has_none else "tf32") and ("TF32 inferred" in row["notes"]) != has_none
    assert {row["precision"] for row in rows_of("aime")} == {"fp32-conv-tf32"}


def test_aimes_claims_are_ranges_about_known_models_and_gpus_of_the_presets_articles() -> None:
    rows = rows_of("aime_claims")
    articles = {
        address for name in ("aime-2023", "aime-2025") if (p := variants.load_preset(name).preset) for address in p.article
    }
    assert len(rows) == 10 and {row["source"] for row in rows} == articles
    for row in rows:
        assert row["quantity"] in ("scale-factor", "speed-up", "ratio") and 0 < float(row["low"]) <= float(row["high"] or "inf")
        assert set(filter(None, row["model"].split(" | "))) <= set(catalog.models())
        assert set(filter(None, row["precision"].split(" | "))) <= {"fp32-conv-tf32", "amp"}
        assert set(filter(None, row["gpu"].split(" | "))) <= GPUS
        assert re.fullmatch(r"\d+\+?", row["gpus"]) and row["against"] and row["published_gpu"]
    assert all(f"`{column}`" in DESCRIPTION for column in rows[0])


def test_pytorchs_claims_are_means_over_suites_and_their_weights_make_the_whole() -> None:
    rows, preset = rows_of("pytorch_claims"), variants.load_preset("pytorch-2.0").preset
    assert preset and {row["source"] for row in rows} == set(preset.article)
    assert {(row["quantity"], row["against"], row["gpus"]) for row in rows} == {("mean-speed-up", "without compile", "1")}
    assert [row["suite"] for row in rows] == ["163", "163", "163", "61", "46", "56"]
    weighted, amp, fp32, *_ = (float(row["low"]) for row in rows)
    assert weighted == pytest.approx(0.75 * amp + 0.25 * fp32, abs=0.01) and rows[0]["weights"] == "0.75 | 0.25"
    assert all(set(row["gpu"].split(" | ")) <= GPUS and row["low"] == row["high"] for row in rows)
    assert all(f"`{column}`" in DESCRIPTION for column in rows[0])


@pytest.mark.parametrize("name", variants.preset_names())
def test_a_presets_claims_are_files_that_are_there(name: str) -> None:
    preset = variants.load_preset(name).preset
    assert preset and all((assets.PUBLISHED / f"{claim}.csv").is_file() for claim in preset.claims)
