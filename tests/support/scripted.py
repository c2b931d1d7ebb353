"""The page's own scripts in a browser, on cells made in memory: what a choice shows."""

import json
from collections.abc import Mapping
from typing import Any

from torchmatrix.reporting.explorers import Explorers
from torchmatrix.reporting.page import source

_BEGIN = """({source, told}) => {
    const script = new Function(source + "return {rowsOf, itemsOf, choose, panelsOf, SHOWN};")();
    const data = {...told, cells: script.rowsOf(told.cells)};
    window.chosen = (name, wanted, asked) => {
        const metric = data.explorers.find(one => one.name === name).metrics.find(one => one.name === wanted);
        const choice = script.choose(data.dims, script.SHOWN[name], script.itemsOf(data, metric), asked);
        return {...choice, panels: script.panelsOf(script.SHOWN[name], data.dims, metric, choice.rows)};
    };
}"""


class Choices:
    """Result of the page's script for these explorers, in an empty page."""

    def __init__(self, browser: Any, explorers: Explorers) -> None:
        self.page = browser.new_page()
        self.explorers = explorers
        arguments = {"source": source("choose", "draw"), "told": json.loads(explorers.as_json())}
        self.page.evaluate(_BEGIN, arguments)

    def choice(self, name: str, selected: Mapping[str, str] | None = None, metric: str = "") -> dict[str, Any]:
        """Return `picked` and `offered` by dimension, the `rows` that are shown, and the `panels` as they are drawn."""
        wanted = metric or self.explorers.views[name][0].name
        result: dict[str, Any] = self.page.evaluate("told => chosen(...told)", [name, wanted, dict(selected or {})])
        return result

    def panels(self, name: str, selected: Mapping[str, str] | None = None, metric: str = "") -> list[dict[str, Any]]:
        return list(self.choice(name, selected, metric)["panels"])

    def lines(self, name: str, selected: Mapping[str, str] | None = None, metric: str = "") -> list[tuple[str, str]]:
        """Label and text of each row, panel by panel."""
        rows = [row for panel in self.panels(name, selected, metric) for row in panel["rows"]]
        return [(row["label"], row.get("problem") or written(row)) for row in rows]


def written(row: Mapping[str, Any]) -> str:
    """Return the figures of a row, one after the other."""
    texts = [row.get(name) for name in ("text", "interval", "more")]
    return " ".join(filter(None, texts)).replace("\u202f", " ").replace("\u00a0", " ")
