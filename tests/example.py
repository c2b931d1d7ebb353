"""Writes reports/example: a real run, rendered anew from the facts that its page carries, and invented machines side by side.

Nobody measured the figures of machines.html (tests/data/invented), and the page says so. `make docs` runs this; a test fails if
a page is stale. The pictures need a browser. Run: .venv/bin/python tests/example.py
"""

import base64
import importlib.util
import io
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import invented
from torchmatrix.analysis import machines
from torchmatrix.facts.store import Results
from torchmatrix.reporting import machines_page, page, report

TARGET = Path(__file__).parents[1] / "reports" / "example"
PICTURES = (
    ("index.html", "screenshot.png", "light"),
    ("index.html", "screenshot-dark.png", "dark"),
    ("machines.html", "machines.png", "light"),
)
_FACTS = re.compile(r'facts\.tar\.gz" href="data:application/gzip;base64,([^"]*)"')


def pages() -> dict[str, str]:
    """Return each page by its file's name, as this version renders it."""
    with real_run() as results:
        (run,) = results.runs()
        measured = report.page_of(run).text
    with tempfile.TemporaryDirectory() as folder:
        for machine in invented.machines():
            invented.write(Path(folder), machine)
        compared = machines_page.compared(machines.newest_complete(Results(Path(folder)).runs()))
        return {"index.html": measured, "machines.html": machines_page.page_of(*compared, invented=True)}


@contextmanager
def real_run() -> Iterator[Results]:
    """Yield the facts that reports/example/index.html carries."""
    facts = _FACTS.search((TARGET / "index.html").read_text(encoding="utf-8"))
    assert facts, "the example carries no facts"
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(facts[1]))) as archive:
            archive.extractall(Path(folder) / "example", filter="data")
        yield Results(Path(folder))


def main() -> None:
    for name, text in pages().items():
        page.save(text, TARGET / name)
    if importlib.util.find_spec("playwright"):
        from support.browsing import CHROMIUM

        if CHROMIUM:
            return pictures(CHROMIUM)
    print("no browser here: the pictures are as they were", file=sys.stderr)
    return None


def pictures(browser: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        opened = play.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name, picture, scheme in PICTURES:
            reader = opened.new_page(viewport={"width": 1280, "height": 1050}, color_scheme=scheme)
            reader.goto((TARGET / name).as_uri())
            reader.screenshot(path=TARGET / picture)
        opened.close()


if __name__ == "__main__":
    main()
