"""Prints what pages cost, beside their targets. Run: .venv/bin/python tests/bench/pages.py [report] [machines] [site] [browser]

Without words all four: the report of 10,000 launches; ten machines of 300 cells side by side; a site of 365 nights (--nights N
for fewer) and then one more; how soon Chromium can use the report of 10,000 launches, and its explorers. Seconds of the wall
and of the CPU with children, since other work on the machine stretches only the former. No assertion, since machines differ.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from speed import tell, ten_thousand_launches, torchmatrix
from support.browsing import CHROMIUM
from support.records import nights, write_run

USABLE = """() => new Promise((done) => {
  const loaded = () => performance.getEntriesByType("navigation")[0];
  const open = () => {
    const fold = document.getElementById("cells-data").closest("details");
    const begun = performance.now();
    const seen = () => fold.querySelector("select")
      ? done([loaded().domInteractive, loaded().domContentLoadedEventEnd, performance.now() - begun]) : setTimeout(seen, 5);
    fold.open = true;
    fold.scrollIntoView();
    seen();
  };
  const ready = () => loaded().domContentLoadedEventEnd ? open() : setTimeout(ready, 5);
  ready();
})"""


def main() -> None:
    parts: dict[str, Callable[[Path, int], None]] = {"report": report, "machines": machines, "site": site, "browser": browser}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    parser.add_argument("--nights", type=int, default=365)
    args = parser.parse_args()
    for name in args.parts or parts:
        with tempfile.TemporaryDirectory() as folder:
            parts[name](Path(folder), args.nights)
    print("load of the machine at the end:", *os.getloadavg())


def spent(action: Callable[[], object]) -> str:
    """Return the seconds of the wall and of the CPU that an action took, its commands included."""
    begin, before = time.perf_counter(), os.times()
    action()
    wall, after = time.perf_counter() - begin, os.times()
    return f"{wall:.1f} s, of the CPU {sum(after[:4]) - sum(before[:4]):.1f} s"


def report(folder: Path, _: int) -> None:
    """Render the report twice: the first call may compile the sources."""
    write_run(folder / "results", ten_thousand_launches())
    for what in ("first", "again"):
        cost = spent(lambda: torchmatrix(str(folder), "report"))
        size = (folder / "reports/index.html").stat().st_size / 1e6
        tell(f"report of 10 000 launches, {what}", "6 s, 4 MB", f"{cost}, {size:.2f} MB")


def machines(folder: Path, _: int) -> None:
    """Render ten machines, 300 cells of 3 launches each."""
    for machine in range(10):
        cells = [launch for launch in ten_thousand_launches() if launch["stack"] in ("stack-0", "stack-1", "stack-2")]
        few = [{**launch, "rate": launch["rate"] * (1 + machine / 10)} for launch in cells if len(launch["devices"]) < 8][:900]
        write_run(folder / "results", few, folder=f"host{machine}", machine=f"{machine}" * 32)
    tell("ten machines x 300 cells, side by side", "15 s", spent(lambda: torchmatrix(str(folder), "report", "--machines")))


def site(folder: Path, count: int) -> None:
    """Publish nights of 40 cells of 3 launches; then the same with one more."""
    *first, newest = nights(count + 1)
    for run in first:
        write_run(folder / "results", _night(), run=run)
    cost = spent(lambda: torchmatrix(str(folder), "report", "--publish", "site"))
    tell(f"site of {count} nights x 40 cells x 3 launches", "300 s of 365", cost)
    write_run(folder / "results", _night(), run=newest)
    cost = spent(lambda: torchmatrix(str(folder), "report", "--publish", "site"))
    tell("the same with one more night", "10 s", cost)


def _night() -> list[dict[str, Any]]:
    names = [{"stack": f"stack-{n % 4}", "workload": f"resnet50-train-fp32-b{n // 4}"} for n in range(40)]
    return [{**name, "rate": 100.0 + launch, "round": launch + 1} for name in names for launch in range(3)]


def browser(folder: Path, _: int) -> None:
    """Print the milliseconds until the page is parsed and its script run, and from opening the explorers to a selector."""
    from playwright.sync_api import sync_playwright

    write_run(folder / "results", ten_thousand_launches())
    torchmatrix(str(folder), "report")
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for what in ("first", "again", "again"):
            page = started.new_page(viewport={"width": 1280, "height": 900})
            page.goto((folder / "reports/index.html").as_uri(), wait_until="commit")
            parsed, run, usable = page.evaluate(USABLE)
            times = f"parsed {parsed:.0f} ms, script done {run:.0f} ms, explorers {usable:.0f} ms after they were opened"
            tell(f"report of 10 000 launches in Chromium, {what}", "500 ms", times)
            page.close()
        started.close()


if __name__ == "__main__":
    main()
