"""The explorers in a real Chromium: they wait until they are opened, and the address holds the view."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from support.browsing import CHROMIUM, Reader, launches, within
from support.records import write_run
from torchmatrix.reporting import report, words
from torchmatrix.reporting.explorers import TITLES, Explorers

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
"""A script that follows a link within the page."""


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
    opened = Reader(browser, address, viewport={"width": 1280, "height": 900})
    yield opened
    opened.context.close()


def random_view(explorers: Explorers, name: str, chance: random.Random) -> dict[str, str]:
    """Return a random view, in which not every value that is asked for need lead to cells."""
    dims = {dim.name: ["all", *dim.values] for dim in explorers.data.dims if len(dim.values) > 1}
    dims["metric"] = [view.name for view in explorers.views[name]]
    return {dim: chance.choice(values) for dim, values in dims.items() if chance.random() < 0.5}


def test_the_explorers_wait_for_the_section_to_be_opened_by_a_click_a_key_or_a_link(browser: Any, address: str) -> None:
    def opened(reader: Reader) -> Reader:
        reader.page.locator("#explore-throughput .panel svg").first.wait_for(state="visible")
        return reader

    reader = Reader(browser, address, viewport={"width": 1280, "height": 900})
    assert reader.page.locator(".explorer").count() == 0
    summary = reader.page.locator("#explore summary").first
    summary.click()
    assert opened(reader).said == []
    reader.page.goto("about:blank")
    reader.page.goto(address)
    summary.focus()
    reader.page.keyboard.press("Enter")
    opened(reader).context.close()
    linked = opened(Reader(browser, f"{address}#throughput:precision=fp32", viewport={"width": 1280, "height": 900}))
    assert linked.page.locator("#explore-throughput select[name=precision]").input_value() == "fp32" and linked.said == []
    linked.context.close()


def test_each_explorer_opens_with_charts_that_are_titled_by_what_they_show(reader: Reader) -> None:
    for name in TITLES:
        titles = reader.panels(name)
        assert titles and all("ResNet-50" in title or "BERT" in title or " over " in title for title in titles)
    assert reader.said == []


def test_bars_are_as_long_as_their_figures_say(reader: Reader) -> None:
    reader.panels("throughput")
    rows = reader.page.locator("#explore-throughput .panel").first.locator(".r:has(rect)")
    drawn = (
        "rows => rows.map(row => [row.querySelector('rect').getBoundingClientRect().width, row.querySelector('.f0').innerText])"
    )
    per = [width / float(text.replace(words.THIN, "")) for width, text in rows.evaluate_all(drawn)]
    assert len(per) >= 4 and max(per) == pytest.approx(min(per), rel=0.01)


@pytest.mark.parametrize("name", list(TITLES))
def test_any_view_is_drawn(reader: Reader, explorers: Explorers, name: str) -> None:
    chance = random.Random(name)
    for wanted in [random_view(explorers, name, chance) for _ in range(8)]:
        reader.page.evaluate(GO_TO, f"#{name}:{urlencode(wanted)}")
        assert reader.panels(name), wanted
    assert reader.said == []


def test_a_choice_is_in_the_address_which_opens_it_again(browser: Any, reader: Reader, address: str) -> None:
    first = reader.panels("throughput")
    second = reader.choose("throughput", precision="fp32", devices="2")
    third = reader.choose("scaling", metric="s")
    assert first != second and reader.page.url.endswith("#scaling:metric=s/throughput:precision=fp32&devices=2")
    copy = Reader(browser, reader.page.url, viewport={"width": 1280, "height": 900})
    assert (copy.panels("throughput"), copy.panels("scaling")) == (second, third)
    assert copy.page.locator("#explore-scaling select[name=metric]").input_value() == "s"
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


def test_an_address_opens_the_view_of_any_explorer(browser: Any, address: str) -> None:
    reader = Reader(browser, f"{address}#trace:stack=torch2.7.1-cu128&devices=1", viewport={"width": 1280, "height": 900})
    reader.page.locator("#explore details.fold[open]").wait_for()
    reader.page.locator("#explore-trace .panel svg").first.wait_for(state="visible")
    (first,) = reader.panels("trace")
    assert first == "ResNet-50, torch 2.7.1, fp32, eager, batch 32, 1 GPU (GPU 0)"
    reader.choose("trace", set="gpu2")
    note = reader.page.locator("#explore-trace .panel .note").text_content()
    assert "throttled" in note and reader.page.url.endswith("#trace:stack=torch2.7.1-cu128&devices=1&set=gpu2")
    reader.context.close()


def test_whatever_is_offered_leads_to_a_chart(reader: Reader) -> None:
    reader.panels("throughput")
    for name in ("devices", "precision", "compile"):
        select = reader.page.locator(f"#explore-throughput select[name={name}]")
        for value in select.locator("option:not([disabled])").evaluate_all("options => options.map(o => o.value)"):
            assert all(reader.choose("throughput", **{name: value}))


def test_any_two_cells_are_compared_as_far_as_python_tested_them(reader: Reader, explorers: Explorers) -> None:
    reader.choose("throughput", precision="all", devices="all")
    output = reader.page.locator("#explore-throughput output")

    def compared(cell: str, over: str) -> list[str]:
        names = {"cell": cell, "over": over}
        for name, text in names.items():
            reader.page.locator(f"#explore-throughput select[name={name}]").select_option(label=text)
        return [str(line) for line in output.locator("p").all_text_contents()]

    new, old = ("torch 2.7.1, ResNet-50, 4 GPUs, amp, eager", "torch 1.13.1, ResNet-50, 4 GPUs, amp, eager")
    new, old = (name.replace("amp", "AMP") for name in (new, old))
    data = explorers.data
    (pair,) = [
        item for item in data.pairs
        if item.kind == "stack" and data.rows[item.at].cell == "torch2.7.1-cu128/resnet50-train-amp-b64/gpu0+1+2+3"
    ]  # fmt: skip
    ends = pair.low, pair.high
    effect = f"{words.effect(pair.ratio, *ends)} {words.effect_interval(pair.ratio, *ends)}"
    expected = f"torch 2.7.1 over torch 1.13.1: {effect}, {words.verdict(pair.verdict)}"
    assert compared(new, old)[2] == expected == compared(old, new)[2]
    row = data.rows[pair.at]
    interval = words.rate_interval(row.rate, row.low, row.high)
    assert f"{new}: {words.with_unit(row.rate, 'images/s')} {interval}" in compared(new, old)
    assert compared(new, old.replace("AMP", "fp32"))[2].endswith("not tested: they differ in more than one thing")
    again = Reader(reader.context.browser, reader.page.url, viewport={"width": 1280, "height": 900})
    again.panels("throughput")
    assert again.page.locator("#explore-throughput output p").all_text_contents() == output.locator("p").all_text_contents()
    again.context.close()


def test_the_keyboard_changes_a_view_and_keeps_its_place(reader: Reader) -> None:
    first = reader.panels("throughput")
    reader.page.locator("#explore-throughput select[name=precision]").focus()
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


def test_without_a_script_the_section_says_where_the_figures_are(browser: Any, address: str) -> None:
    reader = Reader(browser, address, java_script_enabled=False)
    assert reader.page.locator("#explore p").text_content() == "Choosing needs a script. The tables below hold every figure."
    reader.context.close()
