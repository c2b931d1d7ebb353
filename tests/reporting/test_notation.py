"""One notation for each kind of number, in the text of every kind of page as a reader sees it."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from golden import cases
from torchmatrix.analysis import facts_cache, machines
from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.history import series, trends
from torchmatrix.facts.store import Results
from torchmatrix.reporting import history_page, machines_page, report

THIN, SPACE = "\N{NARROW NO-BREAK SPACE}", "\N{NO-BREAK SPACE}"
_PERCENT, _NUMBER = rf"{THIN}%", r"[+−]?[\d.]+"
FORBIDDEN = {
    "a narrow space before a word": rf"\d{THIN}[A-Za-z]",
    "± without its space": rf"±(?=[ {THIN}]?\d)",
    "a word that readers don't know": r"\bn/a\b|\btold apart\b|\bnot ok\b|\boom\b|\bnan\b|\bNone\b(?! of)|\bundefined\b",
    "a range whose first end alone has a sign": rf"\d(?:×|{_PERCENT}) to {_NUMBER}(?!(?:[\d.]|×|{_PERCENT}))",
    "a range of a ratio and a percentage": rf"× to {_NUMBER}{_PERCENT}|{_PERCENT} to {_NUMBER}×",
    "a ratio of one decimal, or of more than three": r"(?<![\d.])\d\.(?:\d|\d{4,})×",
    "a hyphen for a minus": r"(?<![\w.-])-\d[\d.]*\s?%",
    "a percentage without its space": r"\d%",
    "an x for ×, or × before the number": r"\d\.\d+x\b|×\d",
}
"""What no page shows. Definitions and files that a page quotes are left out: they are prose and code."""
TICKS = re.compile(rf"(?:\d+(?:\.\d+)?(?:×|{THIN}%)|the same)+$")


class Text(HTMLParser):
    """Collects the texts between tags, without what isn't shown, definitions and quoted files."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._left_out: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "template", "pre", "code", "dl") or (self._left_out and tag == self._left_out[-1]):
            self._left_out.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._left_out and tag == self._left_out[-1]:
            self._left_out.pop()

    def handle_data(self, data: str) -> None:
        if not self._left_out and data.strip() and not TICKS.fullmatch(data.strip()):
            self.texts.append(data.strip())


def offences(page: str) -> list[str]:
    reader = Text()
    reader.feed(page)
    return [
        f"{what}: {text[max(0, match.start() - 30) : match.end() + 30]!r}"
        for text in reader.texts
        if not text.endswith(tuple(DEFINITIONS.values()))
        for what, pattern in FORBIDDEN.items()
        for match in re.finditer(pattern, text)
    ]


@pytest.mark.parametrize("name", cases())
def test_pages_have_one_notation_for_each_kind_of_number(tmp_path: Path, name: str) -> None:
    cases()[name](tmp_path)
    results = Results(tmp_path)
    runs = results.runs()
    pages = {"run": report.render(report.view_of(runs[-1]))} if runs else {}
    pages["history"] = history_page.render(trends(series(facts_cache.each(results, runs))))
    if chosen := machines.newest_complete(runs) if name == "machines" else []:
        pages["machines"] = machines_page.page_of(*machines_page.compared(chosen))
    assert {kind: offences(page) for kind, page in pages.items()} == {kind: [] for kind in pages}


@pytest.mark.parametrize(
    "text",
    ["42\u202fimages/s", "±17 %", "n/a", "0.86× to −6.8\u202f%", "about 1.2×", "about 1.23456×", "-6\u202f%", "96%", "1.07x"],
)
def test_the_lint_sees_what_is_wrong(text: str) -> None:
    assert offences(f"<p>{text}</p>")


@pytest.mark.parametrize(
    "text",
    ["42.5\u00a0images/s", "±\u00a017\u202f%", "0.86× to 0.93×", "1.039×", "−6.0\u202f% to +1.0\u202f%", "(0.86 to 0.93)"],
)
def test_the_lint_accepts_the_notation_of_the_style_guide(text: str) -> None:
    assert offences(f"<p>{text}</p>") == []
