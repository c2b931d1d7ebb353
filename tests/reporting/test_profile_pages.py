"""The pages of `profile` and `why` in a browser: drawn without complaints, and foreign texts are only text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browsing import CHROMIUM, HOSTILE, Reader
from support.profiled_steps import allocation, packed, record, span
from torchmatrix_plugins.profile import charts, profiles
from torchmatrix_plugins.profile import pages as profile_pages
from torchmatrix_plugins.profile.explanation import NOT_MEASURED, Measured, why
from torchmatrix_plugins.profile.pages import TracedCell, seen_in


def traced(folder: Path, cell: str, conv: float, measured: Measured = NOT_MEASURED) -> TracedCell:
    """Profile two steps of 20 ms together, of which the convolution takes `conv` ms; one operator has a hostile name."""
    events = [span("conv", 0, conv), span(HOSTILE, 14, 2), *(span(f"op{place}", 16 + place / 10, 0.05) for place in range(30))]
    memory = packed(20, [allocation(at, 1000 * (at % 5)) for at in range(20)])
    held = profiles.save_profile(folder, "host", record(cell, plain=0.017), {"trace": packed(20, events), "memory": memory})
    return seen_in(held, measured, kernels=True)


@pytest.fixture
def pages(tmp_path: Path) -> dict[str, str]:
    """Return both pages, by verb."""
    measured = [Measured(seconds=seconds, launches=3, run="r") for seconds in (0.008, 0.0081)]
    sides = traced(tmp_path, "a/w/cpu0", 6, measured[0]), traced(tmp_path, HOSTILE.replace("/", "∕"), 12, measured[1])
    answer = why(sides[0].side, sides[1].side)
    return {"profile": profile_pages.of_profile(sides[0]), "why": profile_pages.of_why(answer, sides)}


def test_why_begins_with_both_steps_and_what_makes_the_difference(pages: dict[str, str]) -> None:
    assert "<h1>Steps of A and B differ by less than 2\u202f%</h1>" in pages["why"]
    assert "A step of A takes 8.00\u00a0ms, of B 8.10\u00a0ms (measured): +0.100\u00a0ms." in pages["why"]
    assert "All 33 parts of the difference" in pages["why"] and "(not attributed: the profiler)" in pages["why"]
    assert all(HOSTILE not in page for page in pages.values())


@pytest.mark.parametrize(
    ("first", "last", "title"),
    [
        (1.84, 1.08, "A step of B is 41\u202f% shorter than one of A: 1\u202f840\u00a0ms → 1\u202f080\u00a0ms"),
        (0.008, 0.012, "A step of B is 50\u202f% longer than one of A: 8.00\u00a0ms → 12.0\u00a0ms"),
    ],
)
def test_the_title_of_why_is_the_difference(tmp_path: Path, first: float, last: float, title: str) -> None:
    measured = [Measured(seconds=seconds, launches=3, run="r") for seconds in (first, last)]
    sides = traced(tmp_path, "a/w/cpu0", 6, measured[0]), traced(tmp_path, "b/w/cpu0", 12, measured[1])
    assert f"<h1>{title}</h1>" in profile_pages.of_why(why(sides[0].side, sides[1].side), sides)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (33, "33"), (2.5, "2.5"), (1234, "1234"), (123456.7, "123457"), (float("nan"), "–")]
)
def test_calls_are_counts_and_never_powers_of_ten(number: float, text: str) -> None:
    assert profile_pages._calls(number) == text


def test_each_bar_of_the_waterfall_begins_where_the_one_above_ends(tmp_path: Path) -> None:
    sides = traced(tmp_path, "a/w/cpu0", 6), traced(tmp_path, "b/w/cpu0", 12)
    answer = why(sides[0].side, sides[1].side)
    ((panel,),) = charts.waterfall(answer, "t").panels
    first, *between, last = panel.rows
    ends = [1e3 * answer.steps[0], *(row.value for row in between)]
    assert [row.begin for row in between] == pytest.approx(ends[:-1]) and ends[-1] == pytest.approx(last.value)
    assert first.value == pytest.approx(1e3 * answer.steps[0]) and first.begin is None


def test_all_parts_add_up_to_the_step(tmp_path: Path) -> None:
    shares = traced(tmp_path, "a/w/cpu0", 6).side.shares
    ((panel,),) = charts.parts(shares, "t").panels
    whole = [sum(row.value or 0.0 for row in panel.rows), sum(row["ms of a step"] for row in charts.table(shares))]
    assert whole == pytest.approx([1e3 * shares.seconds] * 2)
    assert panel.rows[0].figures == ("3.00\u00a0ms", "30.0\u202f%") and len(panel.rows) == 17


@pytest.mark.thorough
@pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine")
@pytest.mark.parametrize("verb", ["profile", "why"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_drawn_without_complaints(
    browser: Any, pages: dict[str, str], tmp_path: Path, verb: str, scheme: str
) -> None:
    path = tmp_path / f"{verb}.html"
    path.write_text(pages[verb])
    for reader in opened(browser, path.as_uri(), scheme):
        assert reader.page.locator(".panel svg.t rect").count() >= 17
        assert reader.page.locator(".plot .band").count() == (verb == "profile")
        assert reader.said == [] and len(reader.asked) == 1 and not reader.page.evaluate("window.hacked")
        assert reader.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def opened(browser: Any, address: str, scheme: str) -> Iterator[Reader]:
    reader = Reader(browser, address, color_scheme=scheme, viewport={"width": 420, "height": 900})
    yield reader
    reader.context.close()
