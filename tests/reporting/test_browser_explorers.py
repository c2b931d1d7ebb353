"""The explorers in a real Chromium: the page's script says what Python says for print, and the address holds the view."""

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from browsing import CHROMIUM, Reader, launches, within

from records import write_run
from torchmatrix.ground import assets
from torchmatrix.ground.numbers import figure
from torchmatrix.reporting import report, words
from torchmatrix.reporting.explorers import ALL, METRIC, Explorers, saying

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine"),
    pytest.mark.xdist_group("explorers"),  # one process renders the page
]
GO_TO = """place => new Promise(done => {
    if (location.hash === place) { done(); return; }
    addEventListener("hashchange", () => done(), {once: true});
    location.hash = place;
})"""
"""Follows a link within the page."""
NAMES = ("throughput", "scaling", "speedup", "loss", "alone", "phases", "steps", "trace")


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> report.View:
    return report.view_of(write_run(tmp_path_factory.mktemp("explorers") / "results", [*launches(), *within()]))


@pytest.fixture(scope="module")
def explorers(view: report.View) -> Explorers:
    return report.explorers_of(view)


@pytest.fixture(scope="module")
def address(view: report.View, tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("explorers") / "index.html"
    path.write_text(report.render(view), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def reader(browser: Any, address: str) -> Iterator[Reader]:
    found = Reader(browser, address, viewport={"width": 1280, "height": 900})
    yield found
    found.context.close()


def asked(explorers: Explorers, name: str, chance: random.Random) -> dict[str, str]:
    """Any view, in which not every value that is asked for need lead to cells."""
    dims = {dim.name: [ALL, *dim.values] for dim in explorers.data.dims if len(dim.values) > 1}
    dims[METRIC] = [metric for metric, _ in explorers.by_name[name].metrics]
    return {dim: chance.choice(values) for dim, values in dims.items() if chance.random() < 0.5}


def test_the_script_shows_what_python_makes_for_print(reader: Reader, explorers: Explorers) -> None:
    for name in NAMES:
        still = reader.page.locator(f"#{name} .still figcaption").all_text_contents()
        assert reader.panels(name) == still == [panel.title for panel in explorers.by_name[name].panels]
    assert reader.said == []


@pytest.mark.parametrize("name", NAMES)
def test_the_script_says_the_same_of_any_other_view(reader: Reader, explorers: Explorers, address: str, name: str) -> None:
    chance = random.Random(name)
    reader.page.goto("about:blank")
    reader.page.goto(address)
    for wanted in [asked(explorers, name, chance) for _ in range(8)]:
        reader.page.evaluate(GO_TO, f"#{name}:{urlencode(wanted)}")
        assert reader.panels(name) == [panel.title for panel in explorers.panels(name, wanted)], wanted
    assert reader.said == []


def test_a_choice_is_in_the_address_which_opens_it_again(browser: Any, reader: Reader, address: str) -> None:
    first = reader.panels("throughput")
    second = reader.choose("throughput", precision="fp32", devices="2")
    third = reader.choose("scaling", metric="s")
    assert first != second and reader.page.url.endswith("#scaling:metric=s/throughput:precision=fp32&devices=2")
    copy = Reader(browser, reader.page.url, viewport={"width": 1280, "height": 900})
    assert (copy.panels("throughput"), copy.panels("scaling")) == (second, third)
    assert copy.page.locator("#scaling select[name=metric]").input_value() == "s"
    copy.context.close()


def test_the_back_button_returns_to_the_view_before(reader: Reader) -> None:
    first = reader.panels("throughput")
    second = reader.choose("throughput", precision="fp32")
    reader.choose("throughput", devices="1")
    reader.page.go_back()
    assert reader.panels("throughput") == second
    reader.page.go_back()
    assert reader.panels("throughput") == first
    reader.page.go_forward()
    assert reader.panels("throughput") == second


def test_an_address_opens_the_fold_that_its_view_is_in(browser: Any, address: str) -> None:
    reader = Reader(browser, f"{address}#trace:stack=torch2.7.1-cu128&devices=1", viewport={"width": 1280, "height": 900})
    reader.page.locator("#inside details.fold[open]").wait_for()
    reader.page.locator("#trace .live:not(.coming) svg").first.wait_for(state="visible")
    (first,) = reader.page.locator("#trace .live figcaption").all_text_contents()
    assert first.startswith("torch2.7.1-cu128 trains resnet50 with fp32, eager, batch 32 on H200 SXM (GPU 0)")
    (second,) = reader.choose("trace", set="gpu2")
    assert "throttled" in second and reader.page.url.endswith("#trace:stack=torch2.7.1-cu128&devices=1&set=gpu2")
    reader.context.close()


def test_whatever_is_offered_leads_to_a_chart(reader: Reader) -> None:
    for name in ("devices", "precision", "compile"):
        select = reader.page.locator(f"#throughput select[name={name}]")
        for value in select.locator("option:not([disabled])").evaluate_all("options => options.map(o => o.value)"):
            assert all(reader.choose("throughput", **{name: value}))


def test_the_keyboard_changes_a_view_and_keeps_its_place(reader: Reader) -> None:
    first = reader.panels("throughput")
    select = reader.page.locator("#throughput select[name=precision]")
    select.focus()
    reader.page.keyboard.press("ArrowUp")
    assert reader.panels("throughput") != first
    assert reader.page.evaluate("document.activeElement.name") == "precision"


@pytest.mark.parametrize(
    "nonsense", ["throughput:model=<script>&no=1", "no-such:x=1", "throughput:", "%", "throughput:model=%E0%A4%A"]
)
def test_an_address_that_means_nothing_shows_the_first_view(browser: Any, address: str, reader: Reader, nonsense: str) -> None:
    other = Reader(browser, f"{address}#{nonsense}", viewport={"width": 1280, "height": 900})
    assert other.panels("throughput") == reader.panels("throughput") and other.said == []
    other.context.close()


def halves() -> list[float]:
    """Numbers exactly between two that a reader sees, around their neighbours, and others."""
    found = [
        135 / 120,
        100.5,
        101.5,
        0.5,
        2.5,
        1.0625,
        9999.5,
        12344.5,
        12345.5,
        123450.0,
        99.5,
        0.9375,
        0.0,
        1e-5,
        3.0517578125e-05,
    ]
    found += [k / 2**power for power in range(1, 12) for k in range(1, 2000, 37)]
    found += [k * 10.0**power + 5 * 10.0 ** (power - 1) for power in range(1, 5) for k in range(100, 10_000, 401)]
    found += [*(math.nextafter(one, 0) for one in found), *(math.nextafter(one, math.inf) for one in found), 1 / 3, 2 / 3]
    huge_and_tiny = [
        *((k + 0.5) / 2**power for k in range(10**14, 10**14 + 60, 7) for power in range(5)),
        1e14,
        1e15 - 0.125,
        1e15,
        1e15 + 0.5,
        1e21,
        1.5e21,
        1e300,
        1.7e308,
        1e-300,
        2.3e-308,
    ]
    return [sign * one for one in (*found, *huge_and_tiny) for sign in (1, -1)]


SAID = """({source, values}) => {
    const [figure, times, short, span] = new Function("PALETTE", "PHASES", "QUANTILES",
        source + "return [figure, times, short, span];")([], [], []);
    return [figure, times, short, value => span(value, value * 1.0001)].map(write => values.map(write));
}"""
"""Numbers as the page's own scripts write them."""


def test_the_script_rounds_as_python_does(browser: Any) -> None:
    source = "".join((assets.TEMPLATES / "scripts" / f"{name}.js").read_text() for name in ("say", "parts"))
    values = halves()
    page = browser.new_page()
    scripts = page.evaluate(SAID, {"source": source, "values": values})
    page.close()
    for write, said in zip((figure, words.times, saying.short, lambda v: words.span(v, v * 1.0001)), scripts, strict=True):
        found = [(value, write(value), script) for value, script in zip(values, said, strict=True)]
        assert [one for one in found if one[1] != one[2]] == []
