"""Charts: well formed, inert, legible."""

import xml.etree.ElementTree as ElementTree

import altair
import pandas as pd
from drawn import HOSTILE

from torchmatrix.reporting import words
from torchmatrix.reporting.charts import INK, PALETTE, VEGA_LITE, Chart, file_svg, png_of, to_svg
from torchmatrix.reporting.charts.drawing import finish, on, shorten


def chart(name: str = "B200", value: float = 1.3) -> Chart:
    drawn = altair.layer(on("rows").mark_text(color=INK).encode(text="label:N"), on("rows").mark_text().encode(text="said:N"))
    spec = finish(drawn, rows=[{"label": name, "said": f"{value:.2f}"}])
    about = {"section": "trend", "title": f"{name} is measured", "note": "How to read it."}
    return Chart(id=words.slug("of", name), spec=spec, table=pd.DataFrame(), **about)


def test_a_still_takes_the_pages_colour_and_a_file_stands_alone() -> None:
    altair.Chart.from_dict(chart().spec)  # validates against Vega-Lite's schema
    root = ElementTree.fromstring(to_svg(chart()))
    assert root.get("role") == "img" and root.get("aria-label") == "B200 is measured"
    assert INK not in to_svg(chart()) and "currentColor" in to_svg(chart())
    alone = file_svg(chart())
    assert "currentColor" not in alone and "1.30" in "".join(ElementTree.fromstring(alone).itertext())
    assert png_of(file_svg(chart())).startswith(b"\x89PNG")


def test_hostile_words_are_inert() -> None:
    for svg in (to_svg(chart(HOSTILE)), file_svg(chart(HOSTILE))):
        assert not [node for node in ElementTree.fromstring(svg).iter() if "script" in node.tag.lower()]
    assert set(chart(HOSTILE).id) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_huge_and_tiny_figures_and_long_names_keep_to_the_width() -> None:
    for value in (1e-6, 3.2e7):
        svg = ElementTree.fromstring(to_svg(chart("torch2.15.0-cu132-py3.13" + "x" * 40, value)))
        assert float((svg.get("viewBox") or "").split()[2]) <= 460


def test_colours_can_be_seen_on_white_and_on_black() -> None:
    def luminance(colour: str) -> float:  # https://www.w3.org/TR/WCAG21/#dfn-relative-luminance
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    black = luminance("#0d1117")
    for colour in PALETTE:
        assert 1.05 / (luminance(colour) + 0.05) >= 3 and (luminance(colour) + 0.05) / (black + 0.05) >= 3


def test_devices_are_said_in_words() -> None:
    for label, said in (
        ("gpu3", "GPU 3"), ("gpu0+1+2+3+4+5+6+7", "8 GPUs"), ("gpu1+3", "2 GPUs (1, 3)"), ("cpu0+1", "2 core groups"),
        ("x", "x"),
    ):  # fmt: skip
        assert words.devices(label) == said


def test_long_labels_keep_their_end() -> None:
    assert shorten("short", 10) == "short"
    assert shorten("resnet50-train-fp32-b64-64px-nhwc · gpu0+1", 20) == "resnet50-trai…gpu0+1"


def test_altair_writes_what_the_runtime_reads() -> None:
    assert altair.SCHEMA_VERSION.split(".")[0] == VEGA_LITE.split(".")[0]
