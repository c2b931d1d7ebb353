"""nvbandwidth: the JSON of -j."""

import math
import re
from collections.abc import Iterator

from torchmatrix_plugins.foreign.document import Document
from torchmatrix_plugins.foreign.results import Amount, Case, Figure, ForeignFile

_NAME = re.compile(r"\d+: (.+?) \((?:PCI:)?[\da-fA-F]+:[\da-fA-F:.]+\)")
"""A device of the list: its number, its name, its PCI address; then the host's name, which isn't read."""


def read(document: Document) -> ForeignFile | None:
    """Read a case for each pair of each test; a pair is written as text, and one that wasn't measured as N/A."""
    root = document.object
    if "nvbandwidth" not in root:
        return None
    fields = root.part("nvbandwidth")
    listed = fields.data.get("GPU Device list")
    names = {found[1] for text in (listed if isinstance(listed, list) else []) if (found := _NAME.match(str(text)))}
    setup = {"driver": fields.text("Driver Version"), "CUDA": fields.text("CUDA Runtime Version")}
    setup |= {"device": ", ".join(sorted(names))} if names else {}
    cases = []
    warning = fields.text("warning")
    for test in fields.parts("testcases"):
        name, rows = test.text("name"), test.data.get("bandwidth_matrix")
        is_latency = "(ns)" in test.text("bandwidth_description")  # which is written under the same key
        quantity, status = "memory latency" if is_latency else "bandwidth", test.text("status")
        problems = tuple(filter(None, [warning, *_failure(status, test.text("error"))]))
        if problems and not isinstance(rows, list):
            cases.append(Case(name=name, setup=setup, problems=problems))
        for y, row in enumerate(rows if isinstance(rows, list) else []):
            for x, text in enumerate(row if isinstance(row, list) else []):
                if (value := _number(text)) > 0:
                    figure = Figure(
                        quantity=quantity, statistic="median", value=value, definition=test.text("bandwidth_description")
                    )
                    pair: dict[str, Amount] = {
                        "test": name,
                        "row": float(y),
                        "column": float(x),
                        "buffer": fields.text("bufferSize") or None,
                    }
                    place = f"{name} [{y}, {x}]"
                    cases.append(Case(name=place, work=pair, setup=setup, figures=(figure,), problems=problems))
    return ForeignFile(
        path=document.path, tool="nvbandwidth", cases=tuple(cases), version=fields.text("version").lstrip("v"), tried=("0",)
    )


def _failure(status: str, error: str) -> Iterator[str]:
    if status not in ("Passed", "Waived", "Not Found", ""):
        yield f"it ended with {status}{f': {error}' if error else ''}"


def _number(text: object) -> float:
    try:
        value = float(text) if isinstance(text, (str, int, float)) else math.nan
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
