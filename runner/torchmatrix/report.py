"""Facts on disk -> one self-contained HTML file. Needs no engine; everything from the facts is escaped."""

import math
import time
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from torchmatrix import __version__, analysis, assets, audit, figures, published, scaling, watched
from torchmatrix.claims import Claim, Tested
from torchmatrix.definitions import DEFINITIONS
from torchmatrix.errors import BadInput, EngineUnusable
from torchmatrix.intervals import Interval
from torchmatrix.launches import Launch, last_tries
from torchmatrix.protocol import Event
from torchmatrix.store import Results, RunFolder

LAUNCH_BOUND = 0.9
"""Above this share of the time spent enqueuing, the host is the bottleneck (METHOD: Time 4)."""
MOST_CHARTS = 16
"""Charts of one kind; further workloads stand in the tables, and the page says so."""
BARS_PER_CHART = 48


def write(results: Results, output: Path, run: str | None = None) -> Path:
    """Render the newest run (or the one called `run`) of `results` into `output`. Raises BadInput if there is none."""
    return put(render(_choose(results, run)), output)


def put(page: str, output: Path) -> Path:
    """Write a page; it appears whole or not at all. Raises EngineUnusable where it can't be written."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        part = output.with_name(f".{output.name}.part")
        part.write_text(page)
        part.replace(output)
    except OSError as error:
        raise EngineUnusable(
            f"can't write {output}: {error.strerror}",
            hint="the facts are safe; write elsewhere: --output FILE",
        ) from None
    return output


def render(run: RunFolder) -> str:
    """The page of one run."""
    events = run.events()
    header = next((event for event in events if event["event"] == "run"), {})
    every = list(run.launches())
    launches = _in_planned_order(last_tries(every), events)
    table = analysis.launches_table(launches)
    every_cell = analysis.cells_table(table)
    cells = every_cell[every_cell["parallel"] == "ddp"]  # the others explain a loss and stand in a table of their own
    scales, speedups = scaling.scaling_table(table), scaling.speedup_table(table)
    measured = figures.measured(_records(every_cell), _records(table))
    matrix_text = str(header.get("matrix") or "")
    preset = published.preset_of(matrix_text)
    context = {
        "version": __version__,
        "run": run.id,
        "header": header,
        "host": header.get("host", {}),
        "complete": any(event["event"] == "run-exit" and event.get("complete") for event in events),
        "measured": int((every_cell["n"] > 0).sum()),
        "planned": sum(event["event"] == "planned" for event in events),
        "launches": len(launches),
        "repeated": len(every) - len(launches),
        "throttled_tries": _throttled_tries(every, launches),
        "started": _utc(header.get("unix_seconds")),
        "protocol": header.get("method") or {"name": "n/a"},
        "cells": [row | {"marks": _marks(row)} for row in _records(cells)],
        "known": {name: bool(cells[column].notna().any()) for name, column in _WATCHED.items()} if len(cells) else {},
        "unknown": _unknown(cells, header),
        "scaling": _records(scales),
        "decomposition": _records(scaling.decomposition_table(table)),
        "devices": _records(scaling.devices_table(table)),
        "headlines": _headlines(cells, scales, speedups),
        "published": published.section(preset, measured, _records(scales)),
        "preset_is_lost": preset is None and "[preset]" in matrix_text,
        "findings": audit.check([own.figure for own in measured]),
        "scaling_charts": _scaling_charts(scales),
        "speedup_charts": _speedup_charts(speedups),
        "skips": _skips(events),
        "failures": _failures(launches),
        "stacks": _stacks(launches),
        "definitions": DEFINITIONS,
    }
    return _environment().get_template("report.html.j2").render(context)


_WATCHED = {"temperature": "temperature_last", "power": "power_watts", "energy": "energy_per_item", "MFU": "mfu"}


def _unknown(cells: pd.DataFrame, header: Event) -> list[str]:
    """What no cell of the run knows, each with the reason."""
    if not len(cells) or not (cells["n"] > 0).any():
        return []
    reasons = {"energy": next((w for w in cells["energy_problem"] if w), "unknown"), "MFU": "no peak is known for this device"}
    notes = "; ".join(header.get("watch_notes") or ()) or "this machine doesn't tell"
    return [f"{name} ({reasons.get(name, notes)})" for name, column in _WATCHED.items() if not cells[column].notna().any()]


def _marks(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """What a reader must know of a cell's launches, each as a word with its explanation."""
    n = cell["n"]
    if not n:
        return []
    found = [
        (cell["host_bound"] > LAUNCH_BOUND, "launch-bound", False,
         f"host time to enqueue a step over the time of a step: {_ratio(cell['host_bound'])}; the GPU waits for the host"),
        (cell["not_flat"], "†", False, f"{cell['not_flat']} of {n} launches ended the warm-up at its cap, before the step time "
         "was flat within 2 %"),
        (cell["throttled"], "throttled", True, f"{cell['throttled']} of {n} launches: {DEFINITIONS['throttled']}"),
        (cell["not_steady"], "not steady", False, f"in {cell['not_steady']} of {n} launches temperature or clock still changed "
         "during the timed windows, by more than 3 °C or 1 %"),
        (cell["too_warm"], "warm start", True, f"{cell['too_warm']} of {n} launches began above the protocol's temperature, "
         "after the longest wait"),
        (cell["start_unknown"], "start temperature unknown", True, "the protocol has one to start below; none could be read"),
        (cell["foreign"], "disturbed", True, f"others used the devices meanwhile: {', '.join(cell['foreign'])}"),
        (cell["mixed"], "mixed GPUs", True, "GPUs of different models in one set, as asked ([gpus] mixed = true)"),
        (cell["ecc_errors"], "ECC errors", True, f"{cell['ecc_errors']:.0f} uncorrected memory errors in the timed windows"),
        (cell["clock_jumps"], "clock jumped", False, f"in {cell['clock_jumps']} of {n} launches the wall clock was set; all "
         "durations are of the monotonic clock"),
        (cell["unchecked"], "losses unchecked", False, f"eager fp32 gave no reference: {cell['unchecked']}"),
    ]  # fmt: skip
    return [{"word": word, "bad": bad, "title": title} for on, word, bad, title in found if on]


def _throttled_tries(every: list[Launch], last: list[Launch]) -> int:
    """How many launches were repeated because their devices were slowed down."""
    kept = {launch.path for launch in last}
    return sum(launch.outcome == "ok" for launch in every if launch.path not in kept)


def _choose(results: Results, run: str | None) -> RunFolder:
    runs = results.runs()
    chosen = [r for r in runs if run is None or r.id == run]
    if not chosen:
        known = ", ".join(r.id for r in runs[-5:]) or "none"
        raise BadInput(
            f"no run {run} in {results.root}" if run else f"no runs in {results.root}",
            hint=f"runs there: {known}; measure first: torchmatrix run",
        )
    return chosen[-1]


def _in_planned_order(launches: list[Launch], events: list[Event]) -> list[Launch]:
    place = {event["cell"]: i for i, event in enumerate(e for e in events if e["event"] == "planned")}
    return sorted(launches, key=lambda launch: (place.get(launch.header["cell"], len(place)), launch.path.name))


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(assets.TEMPLATES),
        autoescape=True,
        undefined=jinja2.ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "figure": figure,
        "ratio": _ratio,
        "percent": _percent,
        "share": _share,
        "bytes": _bytes,
        "seconds": _seconds,
        "joules": _joules,
        "degrees": lambda value: f"{value:.0f} °C" if _known(value) else "n/a",
        "watts": lambda value: f"{value:.0f} W" if _known(value) else "n/a",
        "milliseconds": lambda value: f"{1e3 * value:.2f} ms" if _known(value) else "n/a",
        "limits": _limits,
        "range": _range,
        "bandwidth": lambda value: f"{figure(value / 1e9)} GB/s" if _known(value) else "n/a",
    }
    return environment


def figure(value: Any) -> str:
    """Four significant digits; n/a for what is unknown."""
    if not _known(value):
        return "n/a"
    text = f"{value:#.4g}".rstrip(".")
    return f"{value:.0f}" if "e" in text and value >= 1e4 else text


def _ratio(value: Any) -> str:
    return f"{round(value, 3) + 0.0:.3f}" if _known(value) else "n/a"


def _limits(found: Interval, kind: str) -> str:
    """Both ends of an interval, written as `kind` of number: figure or ratio."""
    write = figure if kind == "figure" else _ratio
    return "n/a" if math.isnan(found.low) else f"{write(found.low)} – {write(found.high)}"


def _range(found: Claim | Tested) -> str:
    """From low to high, one number if they are the same, "more than" if there is no end."""
    if math.isinf(found.high):
        return f"more than {found.low:g}"
    return f"{found.low:g}" if found.low == found.high else f"{found.low:g} – {found.high:g}"


def _percent(value: Any) -> str:
    return f"{100 * value:.2f} %" if _known(value) else "n/a"


def _bytes(value: Any) -> str:
    return f"{value / 2**30:.2f} GiB" if _known(value) else "n/a"


def _seconds(value: Any) -> str:
    return f"{value:.1f} s" if _known(value) else "n/a"


def _joules(value: Any) -> str:
    return f"{figure(value)} J" if _known(value) else "n/a"


def _share(value: Any) -> str:
    return f"{100 * value:.1f} %" if _known(value) else "n/a"


def _known(value: Any) -> bool:
    return isinstance(value, (int, float)) and not math.isnan(value)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def _utc(seconds: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds)) if seconds else "n/a"


def _headlines(cells: pd.DataFrame, scales: pd.DataFrame, speedups: pd.DataFrame) -> list[str]:
    """The answers first: how well it scales and which stack is faster, each as a sentence."""
    lines = []
    known = scales[~scales["impossible"].astype(bool)].dropna(subset=["S"])
    if len(known):
        best, worst = known.loc[known["s"].idxmax()], known.loc[known["s"].idxmin()]
        lines.append(f"Scale factors: each additional device adds {_span(worst['s'], best['s'])} of one device.")
    lines += _fastest(speedups[speedups["stack"] != speedups["baseline"]].dropna(subset=["ratio"]))
    if not len(cells) or not (cells["n"] > 0).any():
        lines.append("No cell has been measured; the reasons are below.")
    return lines


def _fastest(others: pd.DataFrame) -> list[str]:
    """The largest difference between stacks that its interval confirms, or that there is none."""
    if not len(others):
        return []
    if not others["low"].notna().any():
        return [f"One launch each: no interval, so no word on which stack is faster ({len(others)} comparisons below)."]
    clear = others[(others["low"] > 1) | (others["high"] < 1)]
    if not len(clear):
        return [f"Between the stacks no difference is beyond its 95 % interval ({len(others)} comparisons)."]
    top = clear.loc[(clear["ratio"].map(math.log)).abs().idxmax()]
    limits = f"95 % interval {top['low']:.3f} to {top['high']:.3f}"
    where = f"on {top['devices']}; the largest of {len(others)} comparisons"
    return [f"{top['stack']} runs {top['workload']} at × {top['ratio']:.3f} of {top['baseline']} ({limits}, {where})."]


def _span(low: float, high: float) -> str:
    least, most = round(low, 2) + 0.0, round(high, 2) + 0.0  # adding 0 makes -0 a 0
    return f"{least:.2f}" if least == most else f"{least:.2f} to {most:.2f}"


def _scaling_charts(scales: pd.DataFrame) -> dict[str, Any]:
    """One chart per workload, with a sentence; at most MOST_CHARTS."""
    from torchmatrix import charts

    found = []
    groups = list(scales.dropna(subset=["S"]).groupby("workload", sort=False))
    for workload, rows in groups[:MOST_CHARTS]:
        top = rows.loc[rows["count"].idxmax()]
        title = f"{workload}: {int(top['count'])} devices give × {top['S']:.2f} of one on {top['stack']} (s = {top['s']:.2f})"
        found.append({"title": title, "svg": charts.scaling_chart(rows)})
    return {"charts": found, "left_out": len(groups) - len(found)}


def _speedup_charts(speedups: pd.DataFrame) -> dict[str, Any]:
    """One chart per device set, bars of all workloads that more than one stack ran."""
    from torchmatrix import charts

    compared = speedups.dropna(subset=["ratio"])
    sizes = compared.groupby(["workload", "devices"])["stack"].transform("size")
    groups = list(compared[sizes > 1].groupby("devices", sort=False))
    found, left_out = [], 0
    for devices, rows in groups[:MOST_CHARTS]:
        shown = rows.head(BARS_PER_CHART)
        left_out += len(rows) - len(shown)
        baseline = ", ".join(dict.fromkeys(rows["baseline"]))
        found.append({"title": f"Each stack over {baseline}, on {devices}", "svg": charts.speedup_chart(shown)})
    return {"charts": found, "left_out": left_out + sum(len(rows) for _, rows in groups[MOST_CHARTS:])}


def _skips(events: list[Event]) -> list[dict[str, Any]]:
    """Skips grouped by stack and reason, since a stack that can't run takes all its cells along."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for event in events:
        if event["event"] == "skip":
            key = (event["cell"].split("/")[0], event["reason"], event.get("fix") or "n/a")
            grouped.setdefault(key, []).append(event["cell"])
    return [{"stack": stack, "reason": reason, "fix": fix, "cells": cells} for (stack, reason, fix), cells in grouped.items()]


def _failures(launches: list[Launch]) -> list[dict[str, Any]]:
    """Launches that are not ok, with what is needed to see it again."""
    return [
        {
            "cell": launch.header["cell"],
            "round": launch.header.get("round"),
            "outcome": launch.outcome,
            "error": launch.error,
            "seen": watched.summarize(launch).errors,
            "command": launch.header.get("command", "n/a"),
            "log": _log_of(launch),
        }
        for launch in launches
        if launch.outcome != "ok"
    ]


def _log_of(launch: Launch) -> str:
    """Where to read on, below the results folder: the stack's build log, or the launch's own."""
    host, run, *cell, name = launch.path.parts[-6:]
    if launch.outcome == "build-failed":
        return f"{host}/{run}/builds/{launch.header['stack']['name']}.log"
    return "/".join([host, run, *cell, name.replace(".jsonl", ".log")])


def _stacks(launches: list[Launch]) -> list[dict[str, Any]]:
    """What each stack really was, from the first launch in which the box told."""
    found: dict[str, dict[str, Any]] = {}
    for launch in launches:
        environment = next(iter(launch.of("environment")), None)
        name = launch.header.get("stack", {}).get("name")
        if environment and name not in found:
            packages = dict(p.split("==", 1) for p in environment.get("packages", []) if "==" in p)
            found[name] = {
                "name": name,
                "environment": environment,
                "torchvision": packages.get("torchvision"),
                "transformers": packages.get("transformers"),
                "image": launch.header.get("image") or {},
                "engine": launch.header.get("engine") or {},
            }
    return list(found.values())
