"""The page's own scripts in a browser, on cells made in memory: what a choice shows, and how numbers are written."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from torchmatrix.reporting.explorers import Explorers
from torchmatrix.reporting.report.page import source

_BEGIN = """({source, told}) => {
    const script = new Function(source + "return {rowsOf, choose, SHOWN};")();
    const data = {...told, rows: script.rowsOf(told.rows), pairs: script.rowsOf(told.pairs), parts: {}};
    for (const [name, held] of Object.entries(told.parts)) data.parts[name] = script.rowsOf(held);
    window.chosen = (name, metric, asked) => {
        const one = {free: [], ...script.SHOWN[name]};
        const choice = script.choose(data.dims, one, one.cells(data, metric), asked);
        return {...choice, panels: one.panels(data, choice, metric)};
    };
    window.rows = data.rows;
}"""
_WRITTEN = """({source, names, calls}) => {
    const script = new Function(source + `return {${names.join(", ")}};`)();
    return names.map(name => calls.map(values => script[name](...values)));
}"""


class Choices:
    """What the page's script makes of these explorers, in an empty page."""

    def __init__(self, browser: Any, explorers: Explorers) -> None:
        self.page = browser.new_page()
        self.explorers = explorers
        told = {"source": source("choose", "say", "draw"), "told": json.loads(explorers.as_json())}
        self.page.evaluate(_BEGIN, told)

    def choice(self, name: str, asked: Mapping[str, str] | None = None, metric: str = "") -> dict[str, Any]:
        """`picked` and `offered` by dimension, the `rows` that are shown, and the `panels` as they are drawn."""
        wanted = metric or self.explorers.by_name[name][0][0]
        found: dict[str, Any] = self.page.evaluate("told => chosen(...told)", [name, wanted, dict(asked or {})])
        return found

    def panels(self, name: str, asked: Mapping[str, str] | None = None, metric: str = "") -> list[dict[str, Any]]:
        return list(self.choice(name, asked, metric)["panels"])

    def lines(self, name: str, asked: Mapping[str, str] | None = None, metric: str = "") -> list[tuple[str, str]]:
        """Label and text of each row, panel by panel."""
        panels = self.panels(name, asked, metric)
        return [(row["label"], row["words"].replace("\u202f", " ")) for panel in panels for row in panel["rows"]["rows"]]


def written(browser: Any, names: Sequence[str], calls: Sequence[Sequence[float]]) -> list[list[str]]:
    """What functions of the page's script write of these values."""
    page = browser.new_page()
    found: list[list[str]] = page.evaluate(_WRITTEN, {"source": source("say"), "names": list(names), "calls": list(calls)})
    page.close()
    return found
