"""Charts: the title is the answer for exactly known data, the table behind has every row, what is left out is counted."""

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import altair
import pytest
from drawn import HOSTILE, cell, everything, readings, tables

from torchmatrix.reporting import words
from torchmatrix.reporting.charts import INK, PALETTE, VEGA_LITE, file_png, file_svg, to_svg
from torchmatrix.reporting.charts.drawing import shorten, ticks

# ---------------------------------------------------------------- drawing


def test_every_chart_is_whole_unique_and_well_formed() -> None:
    charts = everything().all()
    names = {"throughput", "scaling", "speedup", "loss", "alone", "phases", "steps", "trace"}
    assert {chart.section for chart in charts} == names
    assert len({chart.id for chart in charts}) == len(charts) >= 11
    for chart in {re.sub(r"-\d+-.*", "", chart.id): chart for chart in charts}.values():
        altair.Chart.from_dict(chart.spec)  # validates against Vega-Lite's schema, which takes long: one of each kind
    for chart in charts:
        assert set(chart.id) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") and chart.title and chart.note
        json.dumps(chart.spec, allow_nan=False)
        root = ElementTree.fromstring(to_svg(chart))
        assert root.get("role") == "img" and root.get("aria-label") == chart.title
        width, _ = map(float, (root.get("viewBox") or "").split()[2:])
        assert 350 < width <= 440


def test_a_still_takes_the_pages_colour_and_a_file_stands_alone() -> None:
    chart = tables(cell("a"), cell("b", 130.0)).all()[0]
    assert INK not in to_svg(chart) and "currentColor" in to_svg(chart)
    alone = file_svg(chart)
    words = "".join(ElementTree.fromstring(alone).itertext())
    assert "currentColor" not in alone and "130.0" in words.split(chart.note)[1]
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
    assert len(charts) >= 7
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


def test_devices_are_said_in_words() -> None:
    for label, said in (
        ("gpu3", "GPU 3"), ("gpu0+1+2+3+4+5+6+7", "8 GPUs"), ("gpu1+3", "2 GPUs (1, 3)"), ("cpu0+1", "2 CPU slots"), ("x", "x"),
    ):  # fmt: skip
        assert words.devices(label) == said


def test_long_labels_keep_their_end() -> None:
    assert shorten("short", 10) == "short"
    assert shorten("resnet50-train-fp32-b64-64px-nhwc · gpu0+1", 20) == "resnet50-trai…gpu0+1"


def test_altair_writes_what_the_runtime_reads() -> None:
    assert altair.SCHEMA_VERSION.split(".")[0] == VEGA_LITE.split(".")[0]


def test_nothing_at_all_gives_no_charts() -> None:
    assert tables().all() == []
