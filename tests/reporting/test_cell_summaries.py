"""The table at the end of `run`."""

from torchmatrix.reporting.terminal import CellSummary, summaries_in_words

LONG = "torch2.7.1-cu128/resnet50-train-amp-bf16-b64-224px-channels_last-compile/gpu0+1+2+3+4+5+6+7"


def measured(name: str) -> CellSummary:
    return CellSummary(id=name, throughput=1234.5, low=1230.0, high=1239.0, n=3, unit="images", verdict="stable", outcome="ok")


def test_a_table_that_fits_has_one_line_per_cell() -> None:
    lines = summaries_in_words([measured("a/b/gpu0"), CellSummary(id="a/c/gpu0", failed=2, outcome="oom")], 80, 20).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["a/b/gpu0", "1234", "images/s", "1230", "to", "1239", "stable"],
        ["a/c/gpu0", "not", "measured", "failed:", "out", "of", "memory"],
    ]


def test_long_ids_stand_above_their_figures_and_no_line_is_too_wide() -> None:
    lines = summaries_in_words([measured(LONG), measured("short")], 80, 20).splitlines()
    assert max(map(len, lines)) <= 80 and lines[1].startswith("torch2.7.1-cu128/resnet50-train-amp-bf16")
    assert "1234 images/s" in lines[2] and "1230 to 1239" in lines[2] and lines[3] == "short"


def test_of_many_cells_some_are_shown_and_the_rest_is_counted() -> None:
    cells = [*(measured(f"cell{i}") for i in range(5)), CellSummary(id="bad", outcome="oom"), CellSummary(id="later")]
    lines = summaries_in_words(cells, 80, 4).splitlines()
    assert len(lines) == 1 + 4 + 2 and lines[-2:] == ["and 2 more cells, 1 of them failed", "1 cell not launched"]


def test_some_failed_launches_of_a_measured_cell_are_counted() -> None:
    cell = CellSummary(id="a", throughput=1.0, low=1.0, high=1.0, n=2, failed=1, unit="images", verdict="ok", outcome="ok")
    assert summaries_in_words([cell], 80, 20).endswith("ok; 1 failed")
