"""The report as a reader meets it: in a real Chromium, from disk, with the network off."""

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from records import write_run
from torchmatrix.facts.store import Results
from torchmatrix.reporting import report
from torchmatrix.reporting.site import publish

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.thorough, pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine")]

HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
STACKS = ("torch1.13.1-cu117", "torch2.5.1-cu124", "torch2.7.1-cu128")


def launches() -> list[dict[str, Any]]:
    """Three stacks, two models, two precisions, eager and compiled, 1 to 4 devices, three launches of each; some fail."""
    found: list[dict[str, Any]] = []
    for s, stack in enumerate(STACKS):
        for model, base in (("resnet50", 400.0), ("bert-base-cased", 90.0)):
            for precision in ("fp32", "amp"):
                for compile_ in (False, True):
                    name = f"{model}-train-{precision}{'-compile' if compile_ else ''}-b64"
                    job = {"precision": precision, "compile": compile_, "batch": 64}
                    if compile_ and s == 0:
                        found.append({"stack": stack, "workload": name, "outcome": "unsupported", "error": HOSTILE, "job": job})
                        continue
                    for n in (1, 2, 4):
                        rate = (
                            base
                            * n
                            * (0.97 ** (n - 1))
                            * (1 + 0.2 * s)
                            * (1.8 if precision == "amp" else 1)
                            * (1.2 if compile_ else 1)
                        )
                        found += [
                            {"stack": stack, "workload": name, "model": model, "devices": tuple(range(n)), "job": job,
                             "rate": rate * (1 + 0.004 * r)}
                            for r in range(3)
                        ]  # fmt: skip
    return [*found, {"stack": HOSTILE.replace("/", "∕"), "workload": "resnet50-train-fp32-b64", "rate": 500.0}]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("browser")
    run = write_run(folder / "results", launches(), skips=[("rocm/w/gpu0", HOSTILE)], host={"name": HOSTILE, "cpu": HOSTILE})
    path = folder / "index.html"
    path.write_text(report.render(report.view_of(run)))
    return path.as_uri()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve nights, of which the last five are slower, as a published site."""
    folder = tmp_path_factory.mktemp("site")
    for night in range(12):
        rates = [(0.9 if night > 6 else 1.0) * (1 + 0.003 * ((night + r) % 3)) for r in range(3)]
        cells = [{"rate": 100.0 * rate, "stack": stack} for rate in rates for stack in ("a", HOSTILE.replace("/", "∕"))]
        write_run(folder / "results", cells, run=f"202601{night + 1:02}T023000Z")
    store = Results(folder / "results")
    publish(store, store.runs(), folder / "site", redact=True)
    return folder / "site"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


class Reader:
    """A page in a browser that has no network, and what its console said."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.context = browser.new_context(offline=True, **context)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on(
            "console", lambda message: self.said.append(message.text) if message.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)

    def draw_all(self) -> int:
        """Scroll through the page, until every chart is drawn; how many there are."""
        figures = self.page.locator("figure:has(> script)")
        for number in range(figures.count()):
            figures.nth(number).scroll_into_view_if_needed()
            figures.nth(number).locator(".live svg").first.wait_for(state="visible")
        return int(figures.count())


@pytest.fixture
def reader(browser: Any, address: str) -> Iterator[Reader]:
    found = Reader(browser, address, viewport={"width": 1280, "height": 900})
    yield found
    found.context.close()


def test_every_chart_comes_alive_without_network_or_complaints(reader: Reader, address: str) -> None:
    assert reader.draw_all() >= 6
    assert reader.said == []
    assert [url for url in reader.asked if not url.startswith(("data:", "blob:"))] == [address]


def test_a_published_site_leads_from_its_index_to_reports_and_trends(browser: Any, site: Path) -> None:
    reader = Reader(browser, (site / "index.html").as_uri())
    reader.page.locator("#runs tbody a").first.click()
    assert reader.draw_all() >= 1 and "/runs/" in reader.page.url
    reader.page.go_back()
    reader.page.get_by_role("link", name="History").click()
    assert reader.draw_all() == 2 and "−10" in reader.page.locator("figcaption").first.inner_text()
    assert reader.said == [] and reader.page.evaluate("window.hacked") is None
    reader.context.close()


def test_the_page_hands_out_its_tables_and_facts(reader: Reader) -> None:
    with reader.page.expect_download() as download:
        reader.page.locator("#data a", has_text="cells.csv").click()
    cells = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    assert len(cells) == 65 and any(float(row["items_per_second"] or 0) > 0 for row in cells)


def test_what_the_facts_say_stays_inert(reader: Reader) -> None:
    reader.draw_all()
    assert reader.page.evaluate("window.hacked") is None
    assert "onerror" in reader.page.locator("#machine").inner_text() and reader.page.locator("img[src=x]").count() == 0


def test_even_a_script_that_got_into_the_page_would_not_run(reader: Reader) -> None:
    reader.page.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s)"
    )
    assert reader.page.evaluate("window.hacked") is None


def test_hovering_a_bar_tells_its_figures(reader: Reader) -> None:
    reader.draw_all()
    figure = reader.page.locator("#throughput figure").first
    figure.locator(".live svg path[aria-roledescription=bar]").first.hover()
    tip = reader.page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert "/s" in tip.inner_text() or "throughput" in tip.inner_text().lower()


def test_the_keyboard_reaches_figures_tables_and_sorting(reader: Reader) -> None:
    reader.page.keyboard.press("Tab")
    assert reader.page.evaluate("document.activeElement.className") == "skip"
    button = reader.page.locator("#throughput > .scroll button.sort").nth(1)
    button.focus()
    reader.page.keyboard.press("Enter")
    column = reader.page.locator("#throughput > .scroll tbody tr td:nth-child(2)").all_inner_texts()
    known = [float(text.split()[0]) for text in column if text[0].isdigit()]
    assert known == sorted(known) and len(known) > 10


def test_searching_a_table_leaves_the_rows_that_match(reader: Reader) -> None:
    reader.page.locator("#throughput > .search input").fill("bert amp 2.7.1 gpu0+1+2+3")
    rows = reader.page.locator("#throughput > .scroll tbody tr:not([hidden])")
    assert rows.count() == 2 and "bert-base-cased" in rows.first.inner_text()


def test_the_colours_can_be_chosen_and_follow_the_system(browser: Any, address: str) -> None:
    reader = Reader(browser, address, color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = reader.page.evaluate(colour)
    reader.page.locator("button.colours").click()
    reader.page.locator("button.colours").click()
    assert dark == "rgb(13, 17, 23)" and reader.page.evaluate(colour) == "rgb(255, 255, 255)"
    reader.context.close()


def test_a_phone_shows_all_of_it_without_moving_sideways(browser: Any, address: str) -> None:
    reader = Reader(
        browser, address, viewport={"width": 390, "height": 844}, device_scale_factor=2, is_mobile=True, has_touch=True
    )
    reader.draw_all()
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= 390
    reader.context.close()


def test_without_scripts_and_in_print_the_charts_are_there(browser: Any, address: str, tmp_path: Path) -> None:
    reader = Reader(browser, address, java_script_enabled=False)
    stills = reader.page.locator("figure .still svg")
    assert stills.count() >= 6 and stills.first.is_visible() and stills.first.bounding_box()["width"] > 200
    reader.context.close()
    reader = Reader(browser, address)
    reader.draw_all()
    reader.page.emulate_media(media="print")
    assert reader.page.locator("figure .still svg").first.is_visible() and not reader.page.locator(".live").first.is_visible()
    assert len(reader.page.pdf(path=tmp_path / "report.pdf")) > 20_000
    reader.context.close()
