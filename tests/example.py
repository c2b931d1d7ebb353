"""Writes reports/example/machines.html and machines.png: invented machines side by side. Run: .venv/bin/python tests/example.py

Nobody measured these figures (tests/data/invented), and the page says so. The picture needs a browser.
"""

import sys
import tempfile
from pathlib import Path

import invented
from browsing import CHROMIUM

from torchmatrix.analysis import machines
from torchmatrix.facts.store import Results
from torchmatrix.reporting import machines_page
from torchmatrix.reporting.report import page

TARGET = Path(__file__).parents[1] / "reports" / "example"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for machine in invented.machines():
            invented.write(Path(folder), machine)
        compared = machines_page.compared(machines.newest_complete(Results(Path(folder)).runs()))
        text = machines_page.page_of(*compared, invented=True)
    page.save(text, TARGET / "machines.html")
    if CHROMIUM:
        picture()
    else:
        print("no browser here: machines.png is as it was", file=sys.stderr)


def picture() -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        reader = browser.new_page(viewport={"width": 1280, "height": 1150})
        reader.goto((TARGET / "machines.html").as_uri())
        reader.locator("#relative svg").first.wait_for(state="visible")
        reader.screenshot(path=TARGET / "machines.png")
        browser.close()


if __name__ == "__main__":
    main()
