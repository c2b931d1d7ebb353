"""Charts: the title is the answer for exactly known data, the table behind has every row, what is left out is counted."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair
import pandas as pd
import pytest

from records import launch_lines
from torchmatrix.analysis import ratios, scaling, time_split, traces
from torchmatrix.analysis import tables as run_tables
from torchmatrix.analysis.prices import NONE, Price, PriceList
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launch_of
from torchmatrix.reporting.charts import (
    INK,
    PALETTE,
    VEGA_LITE,
    Chart,
    Charts,
    file_png,
    file_svg,
    inside,
    losses,
    speedups,
    throughput,
    to_svg,
)
from torchmatrix.reporting.charts import scale_factors as scaling_charts
from torchmatrix.reporting.charts.drawing import shorten, ticks

STEADY = (0.999, 1.0, 1.001)
WILD = (0.8, 1.0, 1.25)
_PRICE = Price(gpu="H200 SXM", per_hour=2.5, purchase=20_000.0, currency="EUR", source="us", date="2026-01-31")
PRICES = PriceList(prices={_PRICE.gpu: _PRICE})
HOSTILE = "<script>alert(1)</script>\"'&\n]]>\x1b[31m\x00\x0b\x1f\uffff"


@dataclass(frozen=True, kw_only=True)
class Tables:
    """All that the charts are made from."""

    stacks: list[str]
    cells: pd.DataFrame
    speedups: pd.DataFrame
    settings: pd.DataFrame
    scales: pd.DataFrame
    decomposition: pd.DataFrame
    devices: pd.DataFrame
    launches: list[Launch]

    def throughput(self, held: PriceList = NONE) -> Charts:
        return throughput.charts(self.cells, self.speedups, self.stacks, held)

    def scaling(self) -> Charts:
        return scaling_charts.charts(self.cells, self.scales, self.decomposition, self.devices, self.stacks)

    def ratios(self) -> Charts:
        return speedups.charts(self.speedups, self.settings, self.stacks)

    def inside(self) -> Charts:
        found, more = traces.traces(self.launches, 3)
        return inside.charts(
            time_split.phases_table(self.launches), time_split.steps_table(self.launches), found, more, self.stacks
        )

    def all(self) -> list[Chart]:
        return [chart for one in (self.throughput(), self.scaling(), self.ratios(), self.inside()) for chart in one.charts]


def tables(*cells: dict[str, Any], factors: Sequence[float] = STEADY, baseline: str | None = None) -> Tables:
    """Of launches in which each cell runs once for each of `factors`, at so many times its `rate`."""
    launches = [launch({**cell, "rate": cell.get("rate", 1.0) * f}, i) for cell in cells for i, f in enumerate(factors)]
    table = run_tables.launches_table(launches)
    found = run_tables.cells_table(table)
    return Tables(
        stacks=list(dict.fromkeys(table["stack"])),
        cells=found,
        speedups=ratios.speedup_table(table, baseline),
        settings=ratios.settings_table(table),
        scales=scaling.scaling_table(table),
        decomposition=scaling.decomposition_table(table),
        devices=scaling.devices_table(table),
        launches=launches,
    )


def launch(cell: dict[str, Any], number: int) -> Launch:
    told = tuple({"event": "phase", "phase": name, "seconds": 2.0} for name in ("import", "init", "model", "first-step"))
    header, *events = launch_lines(**cell)
    found = launch_of(Path(f"{header['cell']}/round{number}-try1.jsonl"), [header | {"round": number}, *told, *events])
    assert isinstance(found, Launch), found
    return found


def cell(stack: str = "a", rate: float = 100.0, precision: str = "fp32", compile: bool = False, **more: Any) -> dict[str, Any]:
    name = f"resnet50-train-{precision}{'-compile' if compile else ''}-b4"
    return {"stack": stack, "rate": rate, "workload": name, "job": {"precision": precision, "compile": compile}, **more}


def readings(count: int = 1, **values: Any) -> list[tuple[float, dict[str, Any]]]:
    known = {"temperature_celsius": 60, "sm_clock_mhz": 1980, "power_watts": 500.0, **values}
    return [(float(t), {"device": f"GPU-{i}", **known}) for t in range(90, 131) for i in range(count)]


def everything() -> Tables:
    """A bit of all: three stacks, settings, several devices, an explained loss, a weak device, a failure, readings, prices."""
    some = [
        cell(
            stack,
            100.0 * speed * gain * (1.9 if n == 2 else 1),
            precision,
            compiled,
            devices=tuple(range(n)),
            readings=readings(n),
        )
        for stack, speed in (("a", 1.0), ("b", 1.3), ("c", 1.2))
        for precision, gain in (("fp32", 1.0), ("amp", 2.0))
        for compiled in (False, True)
        for n in (1, 2)
    ]
    some += [cell("a", 80.0, devices=(2,)), cell("a", 101.0, devices=(1,)), cell("c", precision="tf32", outcome="oom")]
    parts = (("independent", 195.0), ("no-sync", 193.0))
    some += [cell("a", rate, devices=(0, 1), parallel=p) | {"workload": f"resnet50-train-fp32-b4-{p}"} for p, rate in parts]
    return tables(*some)


def title(charts: Charts, start: str) -> str:
    (found,) = [chart.title for chart in charts.charts if chart.id.startswith(start)]
    return found


# ---------------------------------------------------------------- titles


def test_the_fastest_stack_is_named_with_its_ratio_over_the_baseline_and_the_interval() -> None:
    found = title(tables(cell("a", 100.0), cell("b", 131.0), cell("c", 120.0)).throughput(), "throughput-1")
    assert (
        found == "b trains resnet50 with fp32, batch 4 on NVIDIA H200 (gpu0) 1.31 × as fast as a (95 % interval 1.307 to 1.313)"
    )


def test_if_the_baseline_is_the_fastest_the_next_is_set_beside_it() -> None:
    found = title(tables(cell("a", 100.0), cell("b", 50.0), cell("c", 80.0)).throughput(), "throughput-1")
    assert found.startswith("c trains resnet50 with fp32, batch 4 on NVIDIA H200 (gpu0) 0.800 × as fast as a (95 % interval")


def test_stacks_that_the_launches_do_not_tell_apart_are_not_told_apart() -> None:
    wild = title(tables(cell("a", 100.0), cell("b", 104.0), factors=WILD).throughput(), "throughput-1")
    assert wild.startswith("Unclear whether b trains resnet50") and "faster than a: 1.04 × (95 % interval" in wild
    same = title(tables(cell("a", 100.0), cell("b", 100.1)).throughput(), "throughput-1")
    assert same.startswith("b and a train resnet50") and "equally fast: 1.00 ×" in same


def test_one_launch_gives_a_ratio_without_an_interval() -> None:
    found = title(tables(cell("a", 100.0), cell("b", 131.0), factors=(1.0,)).throughput(), "throughput-1")
    assert found.endswith("1.31 × as fast as a (too few launches for an interval)")
    alone = title(tables(cell("a", 100.0), factors=(1.0,)).throughput(), "throughput-1")
    assert alone == "a trains resnet50 with fp32, batch 4 at 100.0 images/s on NVIDIA H200 (gpu0) (one launch: no interval)"


def test_failures_only_give_no_bars_and_no_ratio() -> None:
    failed = [cell("a", outcome="oom"), cell("b", outcome="oom"), cell("c", outcome="crashed")]
    assert tables(*failed).all() == [] and tables(*failed).throughput().left_out == 3
    settings = tables(cell(), cell(precision="amp"), cell(precision="amp", compile=True, outcome="unsupported")).ratios()
    assert title(settings, "speedup-setting-compile") == "torch.compile can’t be compared with eager: 1 × unsupported"


def test_scaling_titles_say_what_n_devices_give_and_what_each_further_one_adds() -> None:
    one = tables(cell(rate=100.0), cell(rate=360.0, devices=(0, 1, 2, 3))).scaling()
    said = title(one, "scaling-1-throughput")
    assert said.startswith("4 devices train resnet50-train-fp32-b4 3.60 × as fast as one (a; 95 % interval")
    assert said.endswith("; 4 items per device and step")
    said = title(one, "scaling-1-efficiency")
    assert said.startswith(
        "Each device beyond the first adds to resnet50-train-fp32-b4 0.867 of one at N = 4 (a; 95 % interval"
    )
    assert said.endswith("E = 0.900)")
    two = tables(
        cell(rate=100.0), cell(rate=180.0, devices=(0, 1)), cell("b", 100.0), cell("b", 190.0, devices=(0, 1))
    ).scaling()
    assert "1.80 × (a) to 1.90 × (b) as fast as one" in title(two, "scaling-1-throughput")
    assert "0.800 (a) to 0.900 (b) of one at N = 2" in title(two, "scaling-1-efficiency")


def test_an_impossible_efficiency_is_not_celebrated() -> None:
    found = tables(cell(rate=100.0), cell(rate=230.0, devices=(0, 1))).scaling()
    assert (
        title(found, "scaling-1-efficiency")
        == "E = 1.15 of resnet50-train-fp32-b4 on 2 devices with a is impossible: above 1.02"
    )
    assert "is impossible, look for a wrong baseline" in title(found, "scaling-1-throughput")


def test_the_waterfall_names_the_largest_loss() -> None:
    both, name = {"devices": (0, 1)}, "resnet50-train-fp32-b4"
    cells = [cell(rate=100.0), cell(rate=100.0, devices=(1,)), cell(rate=160.0, **both)]
    cells += [cell(rate=196.0, parallel="independent", **both) | {"workload": f"{name}-independent"}]
    cells += [cell(rate=190.0, parallel="no-sync", **both) | {"workload": f"{name}-no-sync"}]
    (fall,) = [chart for chart in tables(*cells).scaling().charts if "waterfall" in chart.id]
    assert fall.title.startswith(
        f"{name} on gpu0+1 with a scales at E = 0.800; most is lost to waiting for all-reduce: E_comm = 0.842 ("
    )
    assert math.prod(fall.table["factor"][:4]) == pytest.approx(fall.table["factor"][4]) == pytest.approx(0.8)


def test_a_weak_device_is_named_and_without_intervals_none_is_called_weak() -> None:
    alone = [cell(rate=rate, devices=(i,)) for i, rate in enumerate((100.0, 90.0, 101.0, 99.0))]
    found = title(tables(*alone).scaling(), "scaling-devices")
    assert found.startswith("gpu1 is weak: 0.900 × the median NVIDIA H200 (resnet50-train-fp32-b4, a), 95 % interval")
    few = title(tables(*alone, factors=(1.0,)).scaling(), "scaling-devices")
    assert few.startswith("Too few launches to tell whether a device is weak: they run at 0.900 to 1.01 ×")


def test_speed_ups_are_geometric_means_with_their_number_and_the_failures() -> None:
    ways = (("fp32", 2.0), ("amp", 4.0), ("amp-bf16", 8.0))
    cells = [found for way, ratio in ways for found in (cell("a", 100.0, way), cell("b", 100.0 * ratio, way))]
    cells += [cell("a", 100.0, "tf32"), cell("b", precision="tf32", outcome="oom")]
    found = tables(*cells).ratios()
    said = title(found, "speedup-stack-1")
    assert said.startswith("Unclear whether b is faster than a on average: 4.00 × (geometric mean of 3 cells, 95 % interval")
    assert said.endswith("; 1 more without a ratio)")
    (chart,) = [chart for chart in found.charts if chart.id.startswith("speedup-stack-1")]
    assert chart.table["no ratio because"].tolist()[-1] == "1 × oom" and len(chart.table) == 5
    narrow = [found for way in ("fp32", "amp", "amp-bf16") for found in (cell("a", 100.0, way), cell("b", 150.0, way))]
    assert title(tables(*narrow).ratios(), "speedup-stack-1").startswith("b is 1.50 × as fast as a (geometric mean of 3 cells")


def test_another_baseline_can_be_chosen() -> None:
    found = tables(cell("a", 100.0), cell("b", 200.0), baseline="b").ratios()
    assert title(found, "speedup-stack-1").startswith("a trains resnet50-train-fp32-b4 on gpu0 0.500 × as fast as b")


def test_the_phases_say_how_much_is_timed() -> None:
    found = title(tables(cell(rate=10.0)).inside(), "inside-phases-1")  # 4 s warm-up, 4 s measured, 4 × 2 s before, of 40 s
    assert found.startswith(
        "A launch of resnet50 (train) takes 40 s, of which 10 % is timed; most of the rest goes to the engine"
    )


def test_a_trace_says_whether_the_device_was_slowed_down() -> None:
    calm = title(tables(cell(readings=readings())).inside(), "inside-trace-1")
    assert calm.endswith("gpu0 held steady during the timed windows: 60 °C throughout, its clock was 1980 MHz, it drew 500 W")
    slow = title(tables(cell(readings=readings(reasons=["hw_thermal_slowdown"]))).inside(), "inside-trace-1")
    assert slow.endswith("gpu0 was throttled during the timed windows: hw_thermal_slowdown")


# ---------------------------------------------------------------- tables, switch, limits


def test_the_table_behind_the_bars_has_every_cell_with_its_outcome() -> None:
    (chart,) = (
        tables(cell("a", 100.0), cell("b", outcome="oom"), cell("a", 200.0, "amp"), cell("b", 210.0, "amp")).throughput().charts
    )
    rows = chart.table.to_dict("records")
    assert [(r["settings"], r["stack"], r["outcome"]) for r in rows] == [
        ("fp32, batch 4", "a", "ok"), ("fp32, batch 4", "b", "oom"), ("amp, batch 4", "a", "ok"), ("amp, batch 4", "b", "ok"),
    ]  # fmt: skip
    assert rows[0]["images/s"] == pytest.approx(100.0) and math.isnan(rows[1]["images/s"])


def shown_of(chart: Chart) -> list[str]:
    (show,) = chart.spec["params"]
    return list(show.get("bind", {}).get("options", [show["value"]]))


def test_watts_and_euros_can_be_chosen_only_where_they_are_known() -> None:
    (plain,) = tables(cell()).throughput().charts
    assert shown_of(plain) == ["images/s"]
    (watts,) = tables(cell(readings=readings())).throughput(PRICES).charts
    assert shown_of(watts) == ["images/s", "images/s per watt", "images/s per 1000 EUR", "images per EUR"]
    (row,) = watts.table.to_dict("records")
    told = [row[name] for name in shown_of(watts)[1:]]
    assert told == pytest.approx([100 / 500, 100 / 20, 100 * 3600 / 2.5])
    joules = [(t, {**r, "energy_joules": 500.0 * t}) for t, r in readings()]
    (energy,) = tables(cell(readings=joules)).throughput().charts
    assert shown_of(energy) == ["images/s", "images per joule"]
    assert energy.table["images per joule"][0] == pytest.approx(40 / 10_000)  # 40 items in 20 s of 500 W


def test_what_the_limits_leave_out_is_counted_and_said() -> None:
    models = [cell(stack, model=f"model{m}") | {"workload": f"model{m}-x"} for m in range(10) for stack in ("a", "b")]
    found = tables(*models, factors=(1.0,)).throughput()
    assert (len(found.charts), found.left_out) == (throughput.MOST_CHARTS, 2 * (10 - throughput.MOST_CHARTS))
    many = [cell(f"s{i}") for i in range(throughput.MOST_BARS + 5)]
    (chart,), left_out = (lambda c: (c.charts, c.left_out))(tables(*many, factors=(1.0,)).throughput())
    assert (len(chart.table), left_out) == (throughput.MOST_BARS, 5) and "5 more cells of these devices" in chart.note
    each = [cell(devices=(i,)) for i in range(losses.MOST_DEVICES + 2)]
    strips = tables(*each).scaling()
    assert strips.left_out == 2 and "2 more devices" in strips.charts[0].note
    pairs = [cell(stack) | {"workload": f"w{i}"} for i in range(speedups.MOST_PAIRS + 3) for stack in ("a", "b")]
    found = tables(*pairs, factors=(1.0,)).ratios()
    assert found.left_out == 3 and "3 more pairs" in found.charts[0].note
    assert tables(*pairs, factors=(1.0,)).inside().left_out > 0


def test_a_number_that_is_missing_is_drawn_as_its_reason() -> None:
    (chart,) = tables(cell("a", 100.0), cell("b", outcome="oom")).throughput().charts
    assert "no number: oom" in to_svg(chart)


# ---------------------------------------------------------------- drawing


def test_every_chart_is_whole_unique_and_well_formed() -> None:
    charts = everything().all()
    assert {chart.section for chart in charts} == {"throughput", "scaling", "speedup", "inside"}
    assert len({chart.id for chart in charts}) == len(charts) > 15
    for chart in {re.sub(r"-\d+-.*", "", chart.id): chart for chart in charts}.values():
        altair.Chart.from_dict(chart.spec)  # validates against Vega-Lite's schema, which takes long: one of each kind
    for chart in charts:
        assert set(chart.id) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and chart.title and chart.note and len(chart.table)
        json.dumps(chart.spec, allow_nan=False)
        root = ElementTree.fromstring(to_svg(chart))
        assert root.get("role") == "img" and root.get("aria-label") == chart.title
        width, _ = map(float, (root.get("viewBox") or "").split()[2:])
        assert 380 < width <= 440


def test_a_still_takes_the_pages_colour_and_a_file_stands_alone() -> None:
    chart = tables(cell("a"), cell("b", 130.0)).all()[0]
    assert INK not in to_svg(chart) and "currentColor" in to_svg(chart)
    alone = file_svg(chart)
    words = "".join(ElementTree.fromstring(alone).itertext())
    assert "currentColor" not in alone and "1.30" in words.split(chart.note)[1]
    assert file_png(chart).startswith(b"\x89PNG")


def test_hostile_words_are_inert_also_in_a_page_with_a_script() -> None:
    job = {"precision": "fp32", "unit": HOSTILE}
    cells = [
        {"stack": stack, "workload": HOSTILE, "model": HOSTILE, "device": HOSTILE, "job": job, "rate": rate * n,
         "devices": devices, "readings": readings(n)}
        for stack, rate in ((HOSTILE, 100.0), ("b" + HOSTILE, 120.0))
        for n, devices in ((1, (0,)), (2, (0, 1)))
    ]  # fmt: skip
    charts = tables(*cells, {"stack": HOSTILE, "workload": "w", "outcome": HOSTILE}).all()
    assert len(charts) > 8
    for chart in charts:
        with_labels = replace(chart, spec=chart.spec | {"config": chart.spec["config"] | {"aria": True}})
        for svg in (to_svg(chart), file_svg(chart), file_svg(with_labels)):
            assert not [node for node in ElementTree.fromstring(svg).iter() if "script" in node.tag.lower()]
        assert "script" not in json.dumps(
            {k: v for k, v in chart.spec.items() if k not in ("datasets", "layer", "vconcat", "params")}
        )
        for expression in expressions(chart.spec):
            assert "script" not in expression


def expressions(spec: Any) -> list[str]:
    """All that Vega-Lite evaluates, or makes expressions of: filters, titles, sort orders."""
    if isinstance(spec, list):
        return [found for part in spec for found in expressions(part)]
    if not isinstance(spec, dict):
        return []
    own = [
        json.dumps(value) for key, value in spec.items() if key in ("filter", "expr", "title", "sort", "labelExpr", "calculate")
    ]
    return own + [found for key, part in spec.items() if key != "datasets" for found in expressions(part)]


def test_huge_and_tiny_figures_and_long_names_keep_to_the_width() -> None:
    for rate in (1e-6, 3.2e7):
        cells = [cell(stack, rate * f) for stack, f in (("torch2.15.0-cu132-py3.13" + "x" * 40, 1.0), ("ngc26.05", 1.1))]
        for chart in tables(*cells).all():
            assert float((ElementTree.fromstring(to_svg(chart)).get("viewBox") or "").split()[2]) <= 460


def test_colours_can_be_seen_on_white_and_on_black() -> None:
    def luminance(colour: str) -> float:  # https://www.w3.org/TR/WCAG21/#dfn-relative-luminance
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    black = luminance("#0d1117")
    for colour in PALETTE:
        assert 1.05 / (luminance(colour) + 0.05) >= 3 and (luminance(colour) + 0.05) / (black + 0.05) >= 3


def test_ticks_are_round_ratios_with_one_among_them() -> None:
    assert ticks(0.94, 1.06) == pytest.approx([0.94, 0.96, 0.98, 1.0, 1.02, 1.04, 1.06])
    assert ticks(0.9, 2.1) == pytest.approx([1.0, 1.2, 1.4, 1.6, 1.8, 2.0])
    assert ticks(0.3, 12.0) == pytest.approx([0.5, 1, 2, 5, 10]) and ticks(1e-3, 1e3)[3] == pytest.approx(1.0)


def test_long_labels_keep_their_end() -> None:
    assert shorten("short", 10) == "short"
    assert shorten("resnet50-train-fp32-b64-64px-nhwc · gpu0+1", 20) == "resnet50-trai…gpu0+1"


def test_altair_writes_what_the_runtime_reads() -> None:
    assert altair.SCHEMA_VERSION.split(".")[0] == VEGA_LITE.split(".")[0]


def test_nothing_at_all_gives_no_charts() -> None:
    assert tables().all() == []
