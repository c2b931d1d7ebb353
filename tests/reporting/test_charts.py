"""Charts: well formed, inert, in their places."""

import csv
import re
import xml.etree.ElementTree as ElementTree
from functools import partial

import font_roboto
import pytest
import resvg_py

from support.drawn import HOSTILE
from torchmatrix.core import assets
from torchmatrix.reporting import words
from torchmatrix.reporting.charts import BarRow, Chart, Panel, lines
from torchmatrix.reporting.charts.files import Style, file_csv, file_svg
from torchmatrix.reporting.exports.formats import png_of

SVG = "{http://www.w3.org/2000/svg}"


def chart(name: str = "B200", value: float = 1.3) -> Chart:
    rows = (
        BarRow(label=name, value=value, figures=(f"{value:.2f}",)),
        BarRow(label="later", begin=value, value=0.5, figures=("",)),
    )
    panel = Panel(title=name, rows=rows, high=2.0)
    return Chart(id=words.slug("of", name), title=f"{name} is measured", sub="What it is.", panels=((panel,),))


def line(*values: float | None, low: float = 0.0, high: float = 10.0) -> lines.LineChart:
    points = tuple(lines.Point(x=float(place), value=value, low=value, high=value) for place, value in enumerate(values))
    return lines.LineChart(id="line", title="t", sub="s", points=points, low=low, high=high, ends=("0", "1"))


def test_a_file_stands_alone_and_becomes_an_image() -> None:
    root = ElementTree.fromstring(file_svg(chart()))
    assert root.get("role") == "img" and root.findtext(f"{SVG}title") == "B200 is measured"
    assert "currentColor" not in file_svg(chart()) and "1.30" in "".join(root.itertext())
    assert png_of(file_svg(chart())).startswith(b"\x89PNG")


def test_an_image_needs_no_font_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = png_of(file_svg(chart()))
    assert drawn != png_of(re.sub(r">[^<>]+</text>", "></text>", file_svg(chart()))), "it has texts"
    monkeypatch.setattr(resvg_py, "svg_to_bytes", partial(resvg_py.svg_to_bytes, skip_system_fonts=True))
    assert drawn == png_of(file_svg(chart()))
    monkeypatch.setattr(font_roboto, "RobotoBold", "/nowhere.ttf")
    with pytest.raises(OSError, match=r"/nowhere\.ttf"):
        png_of(file_svg(chart()))


def test_a_bar_that_begins_where_another_ends_goes_back_from_there() -> None:
    panel = chart().panels[0][0]
    assert panel.bar(panel.rows[1]) == ("25%", "40%")
    first, second = [
        rect for rect in ElementTree.fromstring(file_svg(chart())).iter(f"{SVG}rect") if rect.get("height") == "14"
    ]
    ends = [(float(rect.get("x") or 0), float(rect.get("x") or 0) + float(rect.get("width") or 0)) for rect in (first, second)]
    assert ends[1][1] == pytest.approx(ends[0][1], abs=0.2) and ends[0][0] < ends[1][0]


def test_a_file_has_the_colours_of_the_page_its_legend_and_its_source() -> None:
    rows = (
        BarRow(label="a", value=3.0, low=2.9, high=3.1, layers=((3.0, 1), (1.0, 0)), figures=("3.0", "1.0"), ideal=4.0),
        BarRow(label="b", head="group", problem="failed: out of memory"),
        BarRow(label="c", value=2.0, colour=1, figures=("2.0", "")),
    )
    panel = Panel(title="p", unit="images/s", rows=rows, high=4.0, heads=("AMP", "fp32"))
    drawn = Chart(id="c", title="t", sub="s", panels=((panel,),), legend=((0, "fp32"), (1, "AMP")), more="2 more models")
    style = Style(colours=("#111111", "#222222"), source="Measured on a machine.")
    root = ElementTree.fromstring(file_svg(drawn, style))
    fills = [rect.get("fill") for rect in root.iter(f"{SVG}rect") if rect.get("height") == "14"]
    assert fills == ["#dfe4e9", "#222222", "#111111", "#222222"], "what is missing from the ideal, both layers, a bar"
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert {"AMP", "fp32", "failed: out of memory", "Not drawn: 2 more models.", "Measured on a machine."} <= set(texts)
    lines = list(csv.DictReader(file_csv(drawn, style).splitlines()[:-1]))
    assert [(line["label"], line["series"], line["value"], line["low"]) for line in lines] == [
        ("a", "AMP", "3.0", "2.9"), ("a", "fp32", "1.0", ""), ("b", "fp32", "", ""), ("c", "AMP", "2.0", ""),
    ]  # fmt: skip
    assert [line["group"] for line in lines] == ["", "", "group", "group"] and lines[2]["note"] == "failed: out of memory"
    assert file_csv(drawn, style).endswith("# Measured on a machine.\n")


def test_no_spreadsheet_runs_a_label() -> None:
    assert "'=1+1" in file_csv(chart("=1+1")) and ",=1+1" not in file_csv(chart("=1+1"))


def test_hostile_words_are_inert() -> None:
    svg = file_svg(chart(HOSTILE))
    assert not [node for node in ElementTree.fromstring(svg).iter() if "script" in node.tag.lower()]
    assert png_of(svg).startswith(b"\x89PNG")
    assert set(chart(HOSTILE).id) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_no_word_of_a_chart_turns_text_round() -> None:
    hostile = "".join(map(chr, (0x7F, 0x9B, 0x61C, 0x200F, 0x202E, 0x2066)))
    assert not set(hostile) & set(file_svg(chart(f"NVIDIA {hostile}H100")))


def test_a_line_has_gaps_and_ends_at_the_edge_of_its_scale() -> None:
    drawn = line(0.0, 5.0, None, 20.0, None)
    assert drawn.curve() == "M0 100L25 50h0M75 0h0"
    assert drawn.band() == "M0 100L25 50L25 50L0 100zM75 0L75 0z"


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.0, 10.0, ["0", "5", "10"]),
        (1.19, 1.27, ["1.20", "1.22", "1.24", "1.26"]),
        (24000.0, 31000.0, ["24\u202f000", "26\u202f000", "28\u202f000", "30\u202f000"]),
        (0.0, 0.004, ["0.000", "0.001", "0.002", "0.003", "0.004"]),
    ],
)
def test_ticks_are_round_and_no_two_have_the_same_text(low: float, high: float, texts: list[str]) -> None:
    ticks = lines.ticks(low, high)
    assert [text for _, text in ticks] == texts
    assert [value for value, _ in ticks] == pytest.approx([float(re.sub(r"\s", "", text)) for text in texts])


def test_colours_can_be_seen_on_white_and_on_black() -> None:
    def luminance(colour: str) -> float:  # https://www.w3.org/TR/WCAG21/#dfn-relative-luminance
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    black = luminance("#0d1117")
    template = (assets.TEMPLATES / "sections/explore.html.j2").read_text()
    (colours,) = re.findall(r"for colour in \[(.*?)\]", template)
    for colour in (f"#{digits}" for digits in re.findall(r'"(\w{6})"', colours)):
        assert 1.05 / (luminance(colour) + 0.05) >= 3 and (luminance(colour) + 0.05) / (black + 0.05) >= 3


def test_devices_are_written_in_words() -> None:
    for label, text in (
        ("gpu3", "GPU 3"), ("gpu0+1+2+3+4+5+6+7", "8 GPUs"), ("gpu1+3", "2 GPUs (1, 3)"), ("cpu0+1", "2 core groups"),
        ("x", "x"),
    ):  # fmt: skip
        assert words.devices(label) == text
