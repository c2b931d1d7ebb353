"""The report as a reader opens it: in a real Chromium, from disk, with the network off."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from support import accepted, invoke
from support.browsing import CHROMIUM, HOSTILE, Reader, launches
from support.records import write_run
from torchmatrix.facts.store import Results
from torchmatrix.reporting import report
from torchmatrix_plugins.publish import publish

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium on this machine"),
    pytest.mark.xdist_group("report in a browser"),  # one process renders the pages
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("browser")
    run = write_run(folder / "results", launches(), skips=[("rocm/w/gpu0", HOSTILE)], host={"name": HOSTILE, "cpu": HOSTILE})
    path = folder / "index.html"
    path.write_text(report.render(report.view_of(run)))
    return path.as_uri()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Publish a site of twelve nights, of which the last five are slower."""
    folder = tmp_path_factory.mktemp("site")
    for night in range(12):
        rates = [(0.9 if night > 6 else 1.0) * (1 + 0.003 * ((night + r) % 3)) for r in range(3)]
        cells = [{"rate": 100.0 * rate, "stack": stack} for rate in rates for stack in ("a", HOSTILE.replace("/", "∕"))]
        write_run(folder / "results", cells, run=f"202601{night + 1:02}T023000Z")
    store = Results(folder / "results")
    publish(store, store.runs(), folder / "site", redact=True)
    return folder / "site"


@pytest.fixture
def reader(browser: Any, address: str) -> Iterator[Reader]:
    opened = Reader(browser, address, viewport={"width": 1280, "height": 900})
    yield opened
    opened.context.close()


def test_every_explorer_is_drawn_without_network_or_complaints(reader: Reader, address: str) -> None:
    assert reader.draw_all() >= 6
    assert reader.said == []
    assert [url for url in reader.asked if not url.startswith(("data:", "blob:"))] == [address]


def test_a_published_site_leads_from_its_index_to_reports_and_trends(browser: Any, site: Path) -> None:
    reader = Reader(browser, (site / "index.html").as_uri())
    reader.follow(reader.page.locator("#runs tbody a").first)
    assert reader.draw_all() >= 1 and "/runs/" in reader.page.url
    reader.page.go_back()
    reader.follow(reader.page.get_by_role("link", name="History", exact=True))
    assert reader.page.locator(".plot .curve").count() == 2 and "−10" in reader.page.locator("figcaption").first.inner_text()
    assert reader.said == [] and reader.page.evaluate("window.hacked") is None
    reader.context.close()


def test_the_page_hands_out_its_tables_and_facts(reader: Reader) -> None:
    reader.open("data")
    with reader.page.expect_download() as download:
        reader.page.locator("#data a", has_text="cells.csv").click()
    cells = list(csv.DictReader(Path(download.value.path()).read_text(encoding="utf-8").splitlines()))
    assert len(cells) == 65 and any(float(row["items_per_second"] or 0) > 0 for row in cells)


def test_each_chart_is_saved_as_picture_and_figures_and_linked(reader: Reader) -> None:
    tools = reader.page.locator("#throughput .tools").first
    assert tools.locator("button").all_inner_texts() == ["SVG", "PNG", "CSV", "link"]
    saved = {}
    for name in ("SVG", "PNG", "CSV"):
        with reader.page.expect_download() as held:
            tools.get_by_text(name, exact=True).click()
        saved[held.value.suggested_filename] = Path(held.value.path()).read_bytes()
    assert saved["throughput.svg"].startswith(b"<svg") and b"Measured with torchmatrix" in saved["throughput.svg"]
    assert saved["throughput.png"].startswith(b"\x89PNG") and len(saved["throughput.png"]) > 10_000
    assert saved["throughput.csv"].startswith(b"panel,unit,group,label") and saved["throughput.csv"].count(b"\n") > 10
    assert reader.said == []


def test_a_chart_of_a_site_is_shown_by_itself_and_its_page_says_how(browser: Any, site: Path) -> None:
    run = next((site / "runs").iterdir())
    reader = Reader(browser, (run / "index.html").as_uri())
    assert "embed" in reader.page.locator(".tools button").all_inner_texts()
    reader.page.goto((run / "charts" / "throughput.html").as_uri())
    shown = reader.page.locator("main").inner_text()
    assert reader.page.locator("nav").count() == 0 and "images/s" in shown and "Measured with torchmatrix" in shown
    assert (run / "charts" / "preview.png").read_bytes().startswith(b"\x89PNG") and reader.said == []
    reader.context.close()


def test_a_link_to_a_chart_in_anothers_place_chooses_it(reader: Reader) -> None:
    second = reader.page.locator("#throughput-one")
    assert not second.is_visible()
    reader.page.evaluate("location.hash = 'throughput-one'")
    second.wait_for(state="visible")
    assert not reader.page.locator("#throughput .v0").is_visible()


def test_hostile_texts_of_the_facts_stay_inert(reader: Reader) -> None:
    reader.draw_all()
    assert reader.page.evaluate("window.hacked") is None
    assert "onerror" in reader.page.locator("#machine").text_content() and reader.page.locator("img[src=x]").count() == 0


def test_even_a_script_that_got_into_the_page_would_not_run(reader: Reader) -> None:
    reader.page.evaluate(
        "const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s)"
    )
    assert reader.page.evaluate("window.hacked") is None


def test_pointing_at_a_bar_shows_its_launches(reader: Reader) -> None:
    reader.draw_all()
    row = reader.page.locator("#explore-throughput .r:has(svg rect)").first
    assert row.get_attribute("title") == "3 launches" and row.locator(".f0").inner_text()[0].isdigit()


def test_the_keyboard_reaches_figures_tables_and_sorting(reader: Reader) -> None:
    reader.page.keyboard.press("Tab")
    assert reader.page.evaluate("document.activeElement.className") == "skip"
    reader.open("cells")
    button = reader.page.locator("#cells .scroll button.sort").nth(1)
    button.focus()
    reader.page.keyboard.press("Enter")
    column = reader.page.locator("#cells .scroll tbody tr td:nth-child(2)").all_inner_texts()
    figures = [float(text.split()[0]) for text in column if text[0].isdigit()]
    assert figures == sorted(figures) and len(figures) > 10


def test_searching_a_table_leaves_the_rows_that_match(reader: Reader) -> None:
    reader.open("cells")
    reader.page.locator("#cells .search input").fill("bert amp 2.7.1 gpu0+1+2+3")
    rows = reader.page.locator("#cells .scroll tbody tr:not([hidden])")
    assert rows.count() == 2 and "bert-base-cased" in rows.first.inner_text()


def test_the_colours_can_be_chosen_and_follow_the_system(browser: Any, address: str) -> None:
    reader = Reader(browser, address, color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    dark = reader.page.evaluate(colour)
    reader.page.locator("button.colours").click()
    reader.page.locator("button.colours").click()
    assert dark == "rgb(14, 18, 22)" and reader.page.evaluate(colour) == "rgb(255, 255, 255)"
    reader.context.close()


def test_a_phone_shows_all_of_it_without_moving_sideways(browser: Any, address: str) -> None:
    reader = Reader(
        browser, address, viewport={"width": 390, "height": 844}, device_scale_factor=2, is_mobile=True, has_touch=True
    )
    reader.draw_all()
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= 390
    reader.context.close()


@pytest.mark.parametrize("name", ["index", "machines"])
def test_a_phone_shows_every_figure_of_a_row_and_keeps_the_first_column_of_a_table(browser: Any, name: str) -> None:
    reader = Reader(browser, (EXAMPLES / f"{name}.html").as_uri(), viewport={"width": 360, "height": 800})
    hidden = reader.page.evaluate(
        """() => [...document.querySelectorAll("section .panel")].filter(p => p.checkVisibility())
        .flatMap(p => [...p.querySelectorAll(".r:not(.heads) > [class^=f]")])
        .filter(f => f.textContent.trim() && !f.checkVisibility()).map(f => f.textContent)"""
    )
    assert hidden == []
    table = reader.page.locator("section .scroll").filter(visible=True).first
    table.evaluate("e => e.scrollLeft = 100")
    left = "(e => e.querySelector('tbody tr > *').getBoundingClientRect().left - e.getBoundingClientRect().left)"
    assert table.evaluate(left) == 0
    reader.context.close()


EXAMPLES = Path(__file__).parents[2] / "reports" / "example"


@pytest.mark.parametrize("name", ["index", "machines"])
@pytest.mark.parametrize("width", [320, 768, 900, 1024])
def test_nothing_leaves_the_page_sideways(browser: Any, name: str, width: int) -> None:
    reader = Reader(browser, (EXAMPLES / f"{name}.html").as_uri(), viewport={"width": width, "height": 900})
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= width
    reader.context.close()


@pytest.mark.parametrize("name", ["index", "machines"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_cell_of_a_table_stands_in_its_column(browser: Any, name: str, width: int) -> None:
    reader = Reader(browser, (EXAMPLES / f"{name}.html").as_uri(), viewport={"width": width, "height": 900})
    seen, loose = reader.page.evaluate(
        """() => { document.querySelectorAll("details").forEach(fold => fold.open = true);
        const cells = [...document.querySelectorAll("section table :is(td, th)")].filter(cell => cell.checkVisibility());
        const loose = cells.filter(cell => getComputedStyle(cell).display !== "table-cell");
        return [cells.length, loose.map(cell => cell.textContent)] }"""
    )
    assert seen > 50 and loose == []
    reader.context.close()


@pytest.mark.parametrize("name", ["index", "machines"])
def test_a_printed_table_has_all_its_columns_and_bars_stand_beside_their_names(browser: Any, name: str) -> None:
    """A page of A4 is 703 px wide within its margins; Chromium shrinks what is a little wider."""
    reader = Reader(browser, (EXAMPLES / f"{name}.html").as_uri(), viewport={"width": 703, "height": 1000})
    reader.page.emulate_media(media="print")
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= 4 / 3 * 703
    off = reader.page.evaluate(
        """() => Math.max(...[...document.querySelectorAll("section .bars .r")].filter(r => r.querySelector("svg.t rect"))
        .map(r => { const [a, b] = [r.querySelector(".l"), r.querySelector("svg.t rect")].map(e => e.getBoundingClientRect());
                    return Math.abs((a.top + a.bottom - b.top - b.bottom) / 2) }))"""
    )
    assert off < 2
    reader.context.close()


def test_without_scripts_and_in_print_the_charts_are_there(browser: Any, address: str, tmp_path: Path) -> None:
    reader = Reader(browser, address, java_script_enabled=False)
    stills = reader.page.locator("#throughput svg.t")
    assert reader.page.locator("#cells tbody tr").first.is_visible()
    assert stills.count() >= 2 and stills.first.is_visible() and stills.first.bounding_box()["width"] > 200
    reader.context.close()
    reader = Reader(browser, address)
    reader.draw_all()
    reader.page.emulate_media(media="print")
    assert reader.page.locator("#throughput svg").first.is_visible() and not reader.page.locator("#explore").is_visible()
    assert len(reader.page.pdf(path=tmp_path / "report.pdf")) > 20_000
    reader.context.close()


def test_a_large_table_is_whole_when_it_is_unfolded_printed_or_read_without_scripts(browser: Any, tmp_path: Path) -> None:
    cells = [{"workload": f"{HOSTILE[:8]}w{n}", "rate": 100.0 + n, "devices": d} for n in range(210) for d in ((0,), (0, 1))]
    path = tmp_path / "index.html"
    path.write_text(report.render(report.view_of(write_run(tmp_path / "results", cells))))
    reader = Reader(browser, path.as_uri())
    rows = reader.page.locator("#cells tbody tr")
    assert rows.count() == 0  # until it is asked for
    reader.open("cells")
    assert rows.count() == 420 and rows.locator("visible=true").count() == 200
    reader.page.locator("#cells input[type=search]").fill("w209 gpu0+1")
    assert rows.locator("visible=true").count() == 1
    reader.page.locator("#scale-factors summary").click()
    reader.page.locator("#scale-factors th button").first.click()
    assert reader.page.locator("#scale-factors tbody tr").count() == 210 and reader.said == []
    reader.context.close()
    for is_print, context in ((False, {"java_script_enabled": False}), (True, {})):
        reader = Reader(browser, path.as_uri(), **context)
        if is_print:
            reader.open("cells")
            reader.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
            reader.page.emulate_media(media="print")  # on the screen, what is far from the view has no text
        assert reader.page.locator("#cells tbody tr").locator("visible=true").count() == 420
        assert reader.page.locator("#cells tbody tr").last.inner_text().startswith(f"{HOSTILE[:8]}w209")
        reader.context.close()


def test_a_large_table_is_there_where_a_website_forbids_scripts(browser: Any, tmp_path: Path) -> None:
    cells = [{"workload": f"{HOSTILE[:8]}w{n}", "rate": 100.0 + n} for n in range(210)]
    page = report.render(report.view_of(write_run(tmp_path, cells)))
    context = browser.new_context(offline=True)
    served, policy = context.new_page(), {"Content-Security-Policy": "script-src 'self'"}
    served.route("**/*", lambda route: route.fulfill(body=page, content_type="text/html", headers=policy))
    served.goto("http://bench.example/")
    rows = served.locator("#cells tbody tr")
    rows.last.scroll_into_view_if_needed()
    assert rows.count() == 210 and rows.last.is_visible() and "w209" in rows.last.text_content()
    assert "The tables below hold every figure" in served.locator("#explore p").first.text_content()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("which", ["run", "site", "history", "chart"])
def test_axe_finds_nothing_critical_or_serious(browser: Any, address: str, site: Path, which: str, scheme: str) -> None:
    """With all folds open and all explorers drawn: https://github.com/dequelabs/axe-core"""
    chart = next((site / "runs").iterdir()) / "charts" / "throughput.html"
    pages = {"site": site / "index.html", "history": site / "history.html", "chart": chart}
    where = address if which == "run" else pages[which].as_uri()
    reader = Reader(browser, where, color_scheme=scheme, viewport={"width": 1280, "height": 900}, bypass_csp=True)
    reader.page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert which != "run" or reader.draw_all() >= 6
    found = Axe().run(reader.page).response["violations"]
    bad = [(one["id"], one["nodes"][0]["html"][:120]) for one in found if one["impact"] in ("critical", "serious")]
    assert bad == []
    reader.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_certificate_prints_on_two_pages_and_axe_finds_nothing(browser: Any, tmp_path: Path, scheme: str) -> None:
    narrow = {5: {"pcie": "gen5 x8 (max gen5 x16)"}}
    accepted.write(tmp_path / "results", accepted.Server(slow={("host-copy", 5): 0.5}, change=narrow))
    assert invoke(tmp_path, "accept", "last").returncode == 5
    where = (tmp_path / "reports" / "accept.html").as_uri()
    reader = Reader(browser, where, color_scheme=scheme, viewport={"width": 1280, "height": 900}, bypass_csp=True)
    bad = [one["id"] for one in Axe().run(reader.page).response["violations"] if one["impact"] in ("critical", "serious")]
    assert bad == [] and reader.said == []
    assert len(re.findall(rb"/Type\s*/Page[^s]", reader.page.pdf())) == 2
    assert "GPU 5 runs at x8 of x16" in reader.page.locator("header").inner_text()
    reader.context.close()
