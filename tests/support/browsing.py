"""A reader with a real Chromium that has no network, and a run with many kinds of cells to read about."""

import shutil
from typing import Any

from support import until

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium") or shutil.which("google-chrome")
"""The shell is the same engine without windows of its own, which take a quarter of the processor's time."""
HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
STACKS = ("torch1.13.1-cu117", "torch2.5.1-cu124", "torch2.7.1-cu128")


def launches() -> list[dict[str, Any]]:
    """Return three launches of each of 3 stacks, 2 models, 2 precisions, eager and compiled, 1 to 4 devices; some fail."""
    cells: list[dict[str, Any]] = []
    for s, stack in enumerate(STACKS):
        for model, base in (("resnet50", 400.0), ("bert-base-cased", 90.0)):
            for precision in ("fp32", "amp"):
                for compile_ in (False, True):
                    name = f"{model}-train-{precision}{'-compile' if compile_ else ''}-b64"
                    job = {"precision": precision, "compile": compile_, "batch": 64}
                    if compile_ and s == 0:
                        cells.append({"stack": stack, "workload": name, "outcome": "unsupported", "error": HOSTILE, "job": job})
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
                        cells += [
                            {"stack": stack, "workload": name, "model": model, "devices": tuple(range(n)), "job": job,
                             "rate": rate * (1 + 0.004 * r)}
                            for r in range(3)
                        ]  # fmt: skip
    return [*cells, {"stack": HOSTILE.replace("/", "∕"), "workload": "resnet50-train-fp32-b64", "rate": 500.0}]


def within() -> list[dict[str, Any]]:
    """Return launches that explain a loss, devices one by one, and the same with readings, of which one was slowed down."""
    job = {"precision": "fp32", "compile": False, "batch": 32}
    name = "resnet50-train-fp32-b32"
    cells: list[dict[str, Any]] = []
    for s, stack in enumerate(STACKS[1:]):
        for devices, rate in (((0,), 400.0), ((1,), 360.0), ((2,), 401.0), ((0, 1), 700.0)):
            slow = {"reasons": ["hw_thermal_slowdown"]} if devices == (2,) else {}
            readings = [
                (float(t), {"device": f"GPU-{i}", "temperature_celsius": 50 + t / 10, "power_watts": 400.0 + 100 * s, **slow})
                for t in range(90, 131) for i in devices
            ]  # fmt: skip
            launch = {"stack": stack, "workload": name, "devices": devices, "job": job, "readings": readings}
            cells += [launch | {"rate": rate * (1 + 0.001 * r)} for r in range(3)]
        for parallel, rate in (("independent", 719.0), ("no-sync", 710.0)):
            launch = {"stack": stack, "workload": f"{name}-{parallel}", "devices": (0, 1), "job": job, "parallel": parallel}
            cells += [launch | {"rate": rate * (1 + 0.001 * r)} for r in range(3)]
    return cells


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

    def follow(self, link: Any) -> None:
        """Click, and wait for the page behind the link: a click alone returns while the old page is still shown."""
        with self.page.expect_navigation(wait_until="load"):
            link.click()

    def draw_all(self) -> int:
        """Open the explorers until all are drawn; return how many panels they have."""
        shown = self._explorers()
        for number in range(shown.count()):
            self._see(shown.nth(number))
        return int(shown.locator(".panel").count())

    def _explorers(self) -> Any:
        """Return what the explorers show, once their section is open."""
        self.page.evaluate("document.querySelectorAll('#explore details.fold').forEach(one => { one.open = true; })")
        if self.page.locator("#explore").count():
            self.page.locator(".explorer .shown").first.wait_for(state="attached")
        return self.page.locator(".explorer .shown")

    def _see(self, shown: Any) -> None:
        """Scroll to them until a panel is drawn: others above, which are drawn meanwhile, may move them out of sight again."""
        look = "one => { one.scrollIntoView({behavior: 'instant'}); return one.querySelector('.panel') !== null; }"
        until(lambda: shown.evaluate(look))

    def open(self, fold: str) -> None:
        """Open a fold as a link from the top of the page does."""
        self.page.locator(f"nav a[href='#{fold}']").click()
        self.page.locator(f"#{fold} details.fold[open]").wait_for()

    def panels(self, explorer: str) -> list[str]:
        """Return the titles of an explorer's panels."""
        self._explorers()
        shown = self.page.locator(f"#explore-{explorer} .shown")
        self._see(shown)
        return [str(text) for text in shown.locator(".panel h3").evaluate_all("all => all.map(one => one.firstChild.data)")]

    def choose(self, explorer: str, **picked: str) -> list[str]:
        self.panels(explorer)
        for name, value in picked.items():
            self.page.locator(f"#explore-{explorer} select[name={name}]").select_option(value)
        return self.panels(explorer)
