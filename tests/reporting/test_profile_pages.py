"""The pages of `profile` and `why` in a browser: drawn without complaints, and what isn't ours is only text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import CHROMIUM, HOSTILE, Reader
from profiled_steps import allocation, packed, record, span

from torchmatrix.analysis.profiles.measured import NOT_MEASURED, Measured
from torchmatrix.analysis.profiles.why import why
from torchmatrix.facts import profiles
from torchmatrix.reporting import profile_pages
from torchmatrix.reporting.profiled import Seen, seen_in


def seen(folder: Path, cell: str, conv: float, measured: Measured = NOT_MEASURED) -> Seen:
    """Two steps of 20 ms together, of which the convolution takes so much; one operator has a hostile name."""
    events = [span("conv", 0, conv), span(HOSTILE, 14, 2), *(span(f"op{place}", 16 + place / 10, 0.05) for place in range(30))]
    memory = packed(20, [allocation(at, 1000 * (at % 5)) for at in range(20)])
    held = profiles.save(folder, "host", record(cell, plain=0.017), {"trace": packed(20, events), "memory": memory})
    return seen_in(held, measured, kernels=True)


@pytest.fixture
def pages(tmp_path: Path) -> dict[str, str]:
    """Both pages, by verb."""
    measured = [Measured(seconds=seconds, launches=3, run="r") for seconds in (0.008, 0.0081)]
    sides = seen(tmp_path, "a/w/cpu0", 6, measured[0]), seen(tmp_path, HOSTILE.replace("/", "∕"), 12, measured[1])
    found = why(sides[0].side, sides[1].side)
    return {"profile": profile_pages.of_profile(sides[0]), "why": profile_pages.of_why(found, sides)}


def test_why_begins_with_both_steps_and_what_makes_the_difference(pages: dict[str, str]) -> None:
    assert "Where a step of B differs from one of A, " in pages["why"]
    assert "A step of A takes 8.000 ms, of B 8.100 ms (measured): +0.1000 ms." in pages["why"]
    assert "All 33 parts of the difference" in pages["why"] and "(not attributed: the profiler)" in pages["why"]
    assert all(HOSTILE not in page for page in pages.values())


@pytest.mark.thorough
@pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine")
@pytest.mark.parametrize(("verb", "charts"), [("profile", 2), ("why", 1)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_drawn_without_complaints(
    browser: Any, pages: dict[str, str], tmp_path: Path, verb: str, charts: int, scheme: str
) -> None:
    path = tmp_path / f"{verb}.html"
    path.write_text(pages[verb])
    for reader in opened(browser, path.as_uri(), scheme):
        assert reader.page.locator("figure svg").count() == charts
        assert reader.said == [] and len(reader.asked) == 1 and not reader.page.evaluate("window.hacked")
        assert reader.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def opened(browser: Any, address: str, scheme: str) -> Iterator[Reader]:
    found = Reader(browser, address, color_scheme=scheme, viewport={"width": 420, "height": 900})
    yield found
    found.context.close()
