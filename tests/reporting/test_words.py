"""Texts of verdicts, outcomes and figures."""

import math

import pytest

from torchmatrix.reporting import words
from torchmatrix.reporting.words import SPACE, THIN


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (26_149.0, f"26{THIN}100"), (1_234_567.0, f"1{THIN}230{THIN}000"),
        (999.7, f"1{THIN}000"), (184.4, "184"), (4.784, "4.78"),
        (0.2581, "0.258"), (0.0, "0"), (1e20, "1e+20"), (math.nan, words.UNKNOWN), (None, words.UNKNOWN), (99.96, "100"),
    ],
)  # fmt: skip
def test_a_figure_has_three_digits_and_its_thousands_apart(value: float | None, text: str) -> None:
    assert words.short(value) == text


@pytest.mark.parametrize(
    ("value", "low", "high", "text", "limits"),
    [
        (1.234, 1.2, 1.268, "1.23×", f"±{SPACE}0.03"),
        (1.017, 1.012, 1.022, "1.017×", f"±{SPACE}0.005"),
        (0.958, 0.93, 0.986, "0.96×", f"±{SPACE}0.03"),
        (1.26, 0.96, 1.65, "1.26×", "(0.96 to 1.65)"),
        (0.69, 0.6, 0.79, "0.69×", "(0.60 to 0.79)"),
        (12.34, 12.0, 12.68, "12.3×", f"±{SPACE}0.3"),
        (3.85, 3.848, 3.852, "3.850×", f"±{SPACE}0.002"),
        (1.5, None, None, "1.50×", ""),
        (1.0, 1.0, 1.0, "1.00×", f"±{SPACE}0.000"),
        (1.02, None, None, "1.02×", ""),
    ],
)
def test_a_ratio_is_written_as_a_multiple_with_the_decimals_of_its_interval(
    value: float, low: float | None, high: float | None, text: str, limits: str
) -> None:
    assert (words.effect(value, low, high), words.effect_interval(value, low, high)) == (text, limits)


def test_an_interval_that_is_not_symmetric_is_never_written_as_plus_minus() -> None:
    assert words.rate_interval(100.0, 98.1, 101.9) == f"±{SPACE}1.9{THIN}%"
    assert words.rate_interval(100.0, 0.0, 350.0) == "(0 to 350)"
    assert words.rate_interval(100.0, None, None) == "" and words.rate_interval(100.0, math.nan, math.nan) == ""


def test_stacks_are_named_by_their_release_and_by_their_build_where_a_release_has_several() -> None:
    assert words.stacks(["torch2.7.1-cu128", "nvidia-pytorch-26.05"]) == {
        "torch2.7.1-cu128": "torch 2.7.1", "nvidia-pytorch-26.05": "nvidia-pytorch-26.05",
    }  # fmt: skip
    several = words.stacks(["torch2.7.1-cu128", "torch2.7.1-rocm6.3", "torch2.7.1-xpu", "torch2.7.1-cpu", "mine"])
    builds = [f"torch 2.7.1, {build}" for build in ("CUDA 12.8", "ROCm 6.3", "XPU", "CPU")]
    assert list(several.values()) == [*builds, "mine"]


def test_every_verdict_and_outcome_has_its_words() -> None:
    from torchmatrix.analysis.verdicts import VERDICTS

    assert set(words.VERDICTS) == set(VERDICTS)
    assert words.failed("oom") == "failed: out of memory" and words.failed("n/a") == "not measured"
    assert words.counted(["oom", "oom", "crashed"]) == "2 × out of memory, 1 × crashed"
