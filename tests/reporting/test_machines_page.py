"""The page of several machines: which are compared, with which figures, and what it says where there is none."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from support import Command, invented, invoke
from support.read_back import frames
from support.records import write_run
from torchmatrix.analysis import machines
from torchmatrix.core.formatting import is_known
from torchmatrix.facts.store import Results
from torchmatrix.reporting import exports, machines_page, words
from torchmatrix.reporting.charts import by_section

pytestmark = pytest.mark.xdist_group("machines page")
"""One process reads the machines and renders each page once."""
Page = Callable[..., str]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record five invented machines: two 8 x H100 called gpu01, 4 x RTX 4090, 8 x MI300X, 8 x B200."""
    root = tmp_path_factory.mktemp("fleet") / "results"
    for machine in invented.machines():
        invented.write(root, machine)
    return root


def page(folder: Path, results: Path, *words: str) -> str:
    done = invoke(folder, "report", *words, "--results", str(results))
    assert done.returncode == 0, done.stderr
    return (folder / "reports/index.html").read_text()


@pytest.fixture(scope="module")
def page_of_all(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Return a function from the words of the command to the page of `results`, rendered when a test first asks for it."""
    return cache(lambda *words: page(tmp_path_factory.mktemp("page"), results, *words))


def plain(html: str) -> str:
    """Return the text that a reader sees, in one line."""
    shown = re.sub(r"<(script|style).*?</\1>", "", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", shown)).split())


def test_each_machine_has_a_row_also_two_of_one_name(page_of_all: Page) -> None:
    text = plain(page_of_all("--machines"))
    for label, devices in [
        ("gpu01#1111", "8 × H100 SXM5 80GB"), ("gpu01#2222", "8 × H100 SXM5 80GB"), ("workstation", "4 × RTX 4090"),
        ("mi300x-1", "8 × MI300X"), ("blackwell", "8 × B200 SXM"),
    ]:  # fmt: skip
        assert f"{label} {devices}" in text


def test_the_headline_ranks_the_gpus_by_the_geometric_mean_over_the_baseline(page_of_all: Page) -> None:
    text = plain(page_of_all("all"))
    assert re.search(
        r"B200 SXM 1\.4\d+× ± 0\.\d+ faster 6 workloads in common, torch 2\.7\.1 "
        r"MI300X 1\.07\d?× ± 0\.\d+ faster in 4 of 6 workloads, slower in 2 6 workloads in common, torch 2\.5\.1",
        text,
    )
    assert re.search(r"RTX 4090 0\.59\d?× ± 0\.\d+ slower 10 ratios of 5 workloads in common, torch 2\.5\.1 and 2\.7\.1", text)
    assert "One B200 SXM is faster than one H100 SXM5 80GB: 1.41× over 6 workloads." in text


def test_equivalent_stacks_are_marked_and_equal_ones_are_not(page_of_all: Page) -> None:
    text = plain(page_of_all("--machines"))
    row = text[text.index("resnet50-train-amp-b64-224px-nhwc torch 2.5.1") :]
    assert row.startswith(
        "resnet50-train-amp-b64-224px-nhwc torch 2.5.1 1.00× 2916 images/s, 2 machines 0.476× 0.470 – 0.482, slower 1390 "
        "images/s 0.891× ≈ 0.883 – 0.899, slower 2603 images/s not measured"
    )


def test_a_failed_cell_shows_its_outcome_instead_of_a_figure(page_of_all: Page) -> None:
    text = plain(page_of_all("--machines"))
    assert (
        "bert-base-cased-train-fp32-b32-s128-eager torch 2.7.1 1.00× 394.9 sequences/s, 2 machines out of memory not measured"
        in text
    )


def test_batches_are_compared_only_when_asked_for_and_then_shown(page_of_all: Page) -> None:
    same, separate = page_of_all("--machines"), page_of_all("--own-batch")
    assert "bs 512" not in plain(same)[: plain(same).index("Not compared")]
    assert "because the batch differs (512 and 64, 256)" in plain(same)
    assert "bs 512" in plain(separate)[: plain(separate).index("The machines")]


def test_machines_with_the_same_device_stand_side_by_side_themselves(tmp_path: Path) -> None:
    for machine in invented.machines()[:2]:
        invented.write(tmp_path / "results", machine, matrix=invented.MATRIX.replace("counts = [1, 2, 4, 8]", "counts = [1]"))
    text = plain(page(tmp_path, tmp_path / "results", "--machines", "--baseline-gpu", "gpu01#1111"))
    assert "PyTorch on 2 machines with H100 SXM5 80GB" in text and "machine against machine" in text
    assert re.search(r"gpu01#2222 0\.97\d?× ± 0\.\d+ slower 14 ratios of 7 workloads", text)


def test_another_gpu_can_be_the_baseline(page_of_all: Page) -> None:
    text = plain(page_of_all("--baseline-gpu", "RTX 4090"))
    assert "Throughput over that of RTX 4090" in text


def test_an_unknown_baseline_names_the_gpus_there_are(tmp_path: Path, results: Path) -> None:
    done = invoke(tmp_path, "report", "--baseline-gpu", "RTX 3090", "--results", str(results))
    assert done.returncode == 2
    assert "no GPU RTX 3090" in done.stderr
    assert "hint: GPUs: H100 SXM5 80GB, RTX 4090, MI300X, B200 SXM" in done.stderr


def test_published_figures_are_shown_with_ours_where_they_match(tmp_path: Path) -> None:
    text = invented.MATRIX[: invented.MATRIX.index("[[workload]]")]
    text += '[[workload]]\nmodel = "resnet50"\nprecision = "tf32"\nbatch = 224\nseconds = 10\n'
    for machine in (invented.machines()[0], invented.machines()[2]):
        invented.write(tmp_path / "results", machine, matrix=text)
    html = page(tmp_path, tmp_path / "results", "--machines")
    shown = plain(html)
    pair = "workstation resnet50-train-tf32-b224-224px torch2.5.1-cu124 · gpu0"
    figures = r" 9[67]\d\.\d images/s 9[\d.]+ – 9[\d.]+ 721.0 1.3\d\d [\d.]+ – [\d.]+ better within 68[\d.]+ – 75[\d.]+ "
    assert re.search(pair + figures + r".*?Lambda: resnet50, 1 × .*4090", shown)
    assert "Lambda: 721 images/s" in html  # at the hollow mark beside the bar
    assert "A hollow diamond is a published throughput" in html


def test_two_runs_of_one_machine_are_not_two_machines(tmp_path: Path) -> None:
    machine = invented.machines()[2]
    runs = [invented.write(tmp_path / "results", machine, run=f"2026030{day}T020000Z") for day in (1, 2)]
    done = invoke(tmp_path, "report", runs[0].id, runs[1].id)
    assert done.returncode == 2
    assert "2 runs of one machine, workstation; a comparison of machines needs two" in done.stderr
    assert "torchmatrix compare RUN RUN" in done.stderr


def test_a_redacted_page_has_no_names(page_of_all: Page) -> None:
    html = page_of_all("--machines", "--redact")
    assert not [name for name in ("gpu01", "workstation", "mi300x-1", "blackwell", "1111111111111111") if name in html]
    assert "over that of H100 SXM5 80GB" in plain(html)


def test_the_tables_of_the_page_are_exported(tmp_path: Path, results: Path) -> None:
    done = invoke(tmp_path, "export", "--machines", "out", "--no-charts", "--format", "json", "--results", str(results))
    assert done.returncode == 0 and done.stdout == "out\n" and "5 machines" in done.stderr
    tables = {
        path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json") if "torchm" not in path.stem
    }
    first = tables["answers"]["answers"][0]
    assert first["figure"] == "B200 SXM" and tables["answers"]["lead"].startswith("One B200 SXM is faster than one H100")
    assert {row["machine"]: (row["gpu_count"], row["gpu"]) for row in tables["machines"]}["blackwell"] == (8, "B200 SXM")
    (mean,) = [row for row in tables["relative_means"] if (row["gpu"], row["device_count"]) == ("B200 SXM", 1)]
    assert (round(mean["geometric_mean"], 3), mean["cells"], mean["baseline_gpu"]) == (1.413, 6, "H100 SXM5 80GB")
    (ratio,) = [
        row
        for row in tables["relative"]
        if (row["gpu"], row["workload"], row["stack_class"], row["device_count"])
        == ("RTX 4090", "resnet50-train-amp-b64-224px-nhwc", "torch 2.5.1", 1)
    ]
    assert (round(ratio["ratio"], 3), ratio["verdict"], round(ratio["items_per_second"])) == (0.476, "SLOWER", 1390)
    h100 = next(row for row in tables["machine_gpus"] if row["gpu"] == "H100 SXM5 80GB")
    assert h100["machines"] == ["gpu01#1111", "gpu01#2222"] and h100["counts"] == ["8", "8"]
    assert len(tables["machine_cells"]) > 100 and all(row["machine"] and row["gpu"] for row in tables["machine_scaling"])


def test_the_tables_are_exported_with_each_machine_at_its_own_batch(tmp_path: Path, results: Path) -> None:
    words = ("export", "--no-charts", "--format", "json", "--results", str(results))
    counts = {}
    for folder, more in (("same", ()), ("own", ("--own-batch",))):
        assert invoke(tmp_path, *words, "--machines", *more, folder).returncode == 0
        rows = json.loads((tmp_path / folder / "relative.json").read_text())
        counts[folder] = sum(row["batch_per_device"] == 512 and row["ratio"] is not None for row in rows)
    assert counts["same"] == 0 and counts["own"] > 0
    refused = invoke(tmp_path, *words, "--own-batch", "out")
    assert refused.returncode == 2 and "--own-batch is about several machines" in refused.stderr


def test_no_two_charts_say_the_same(page_of_all: Page) -> None:
    titles = re.findall(r"<h2[^>]*>(.*?)</h2>", page_of_all("--machines"))
    assert len(titles) >= 8 and len(set(titles)) == len(titles)


def test_the_bars_have_the_figures_of_the_exported_tables(results: Path) -> None:
    fleet, relative = machines_page.compared(machines.newest_complete(Results(results).runs()))
    shown = frames(exports.of_machines(fleet, relative))
    drawn = {chart.id: [row for some in chart.panels for panel in some for row in panel.rows]
             for chart in machines_page.shown_of(fleet, relative).charts}  # fmt: skip
    means = shown["relative_means"]
    for row in drawn["relative"]:
        assert np.isclose(means[means["gpu"] == row.label]["geometric_mean"], row.value).any()
        assert all(np.isclose(shown["relative"]["ratio"].astype(float), stroke).any() for stroke in row.strokes)
    rates = set(zip(shown["relative"]["gpu"], shown["relative"]["items_per_second"], strict=True))
    assert {(row.label, value) for row in drawn["fastest"] for value, _ in row.layers} <= rates
    assert {row.value for row in drawn["versions"] if row.value} <= {rate for _, rate in rates}
    joules = 1 / shown["machine_cells"]["joules_per_item"].astype(float)
    read = [value for row in drawn["fastest-joule"] for value, _ in row.layers]
    assert read and all(np.isclose(joules, value).any() for value in read)
    assert "unknown" in next(row for row in drawn["fastest-joule"][::-1] if row.label == "B200 SXM").figures


def test_each_gpu_stands_at_its_best_and_the_best_stands_first(results: Path) -> None:
    fleet, relative = machines_page.compared(machines.newest_complete(Results(results).runs()))
    charts = {chart.id: chart for chart in machines_page.shown_of(fleet, relative).charts}
    every = [row for row in relative.table if row.of_gpu and row.n]
    for (panel,) in charts["fastest"].panels:
        values = [row.value for row in panel.rows if row.value is not None]
        assert values == sorted(values, reverse=True)
        model = {words.model(row.model): row.model for row in every}[panel.title]
        for row in panel.rows:
            alone = [e.throughput for e in every if (e.gpu, e.model, e.count) == (row.label, model, 1)]
            assert row.value == max(alone) and dict(row.layers).keys() <= set(alone)
    whole = [row.label for (panel,) in charts["fastest-machine"].panels for row in panel.rows]
    assert set(whole) >= {"8 × B200 SXM", "4 × RTX 4090"}
    assert [chart.id for chart in by_section(charts.values())[0]] == ["fastest", "fastest-machine", "fastest-joule"]
    links = re.findall(r'<a href="#([a-z-]+)">', (page := machines_page.page_of(fleet, relative))[page.index("<nav") :])
    assert links[:5] == ["fastest", "fastest-joule", "relative", "versions", "scaling"], "a link to each but the whole machine"


def test_a_release_stands_at_its_fastest_batch_however_often_it_was_launched(results: Path) -> None:
    fleet, relative = machines_page.compared(machines.newest_complete(Results(results).runs()))
    more = [structs.replace(row, n=row.n and row.n + 2 * (row.batch == 64)) for row in relative.table]  # of the slower batch
    relative = replace(relative, table=more)
    (amp,) = [
        panel for chart in machines_page.shown_of(fleet, relative).charts if chart.id == "versions"
        for beside in chart.panels for panel in beside if panel.title == "ResNet-50, AMP, eager"
    ]  # fmt: skip
    alone = [row for row in relative.table if row.of_gpu and row.n and row.count == 1 and not row.compile]
    rates = [row.throughput for row in alone if (row.gpu, row.model, row.precision) == ("B200 SXM", "resnet50", "amp")]
    assert len(rates) > 1 and max(rates) in [row.value for row in amp.rows]


def test_two_lengths_of_a_text_are_two_tasks(tmp_path: Path) -> None:
    matrix = invented.MATRIX.replace("counts = [1, 2, 4, 8]", "counts = [1]")
    matrix = matrix.replace("sequence_length = 128", "sequence_length = [128, 384]")
    assert "384" in matrix
    for machine in invented.machines()[1:3]:
        invented.write(tmp_path / "results", machine, matrix=matrix)
    fleet, relative = machines_page.compared(machines.newest_complete(Results(tmp_path / "results").runs()))
    charts = {chart.id: chart for chart in machines_page.shown_of(fleet, relative).charts}
    titles = [panel.title for (panel,) in charts["fastest"].panels]
    assert {"BERT-base, s128", "BERT-base, s384"} <= set(titles) and len(set(titles)) == len(titles)
    for beside in charts["versions"].panels:
        assert len({panel.title for panel in beside}) == len(beside)


def test_several_devices_of_each_gpu_stand_with_their_multiple_and_its_ideal(results: Path) -> None:
    fleet, relative = machines_page.compared(machines.newest_complete(Results(results).runs()))
    scaling = next(chart for chart in machines_page.shown_of(fleet, relative).charts if chart.id == "scaling")
    scales = [row["S"] for row in fleet.scaling if is_known(row["S"])]
    panels = [panel for beside in scaling.panels for panel in beside]
    assert len(panels) == 4 and all(row.ideal <= panel.high for panel in panels for row in panel.rows)
    for panel in panels:
        alone = 0.0
        for row in panel.rows:
            assert row.value is not None and row.ideal is not None
            if row.label == "1 GPU":
                alone = row.value
            else:
                assert np.isclose(scales, row.value / alone).any() and row.ideal == pytest.approx(int(row.label[0]) * alone)


def test_a_headline_has_no_interval_of_one_machine_for_its_gpu(results: Path) -> None:
    fleet, relative = machines_page.compared(machines.newest_complete(Results(results).runs()))
    told = {item.name: item for item in machines_page.shown_of(fleet, relative).answers.each}
    assert "±" not in told["fastest"].large + told["fastest"].text and "One machine with B200 SXM" in told["fastest"].note
    assert "±" not in told["next"].large


def test_every_verdict_of_two_gpus_is_that_of_their_mean(results: Path) -> None:
    fleet, relative = machines_page.compared(machines.newest_complete(Results(results).runs()))
    pairs = machines_page.shown_of(fleet, relative).pairs
    assert pairs is not None
    verdicts = {(gpu, over): cell for gpu, row in zip(pairs.gpus, pairs.cells, strict=True)
            for over, cell in zip(pairs.gpus, row, strict=True)}  # fmt: skip
    assert verdicts["RTX 4090", "H100 SXM5 80GB"][2:] == ("slower", "bad")
    assert verdicts["H100 SXM5 80GB", "RTX 4090"][2:] == ("faster", "good")
    assert verdicts["B200 SXM", "MI300X"][2:] == ("not compared", "")


def test_one_launch_each_gives_no_verdict(tmp_path: Path) -> None:
    for machine in invented.machines()[1:3]:
        invented.write(tmp_path / "results", machine, launches=1)
    html = page(tmp_path, tmp_path / "results", "--machines")
    head = plain(html[html.index("<header>") : html.index("<main")])
    assert "not tested" in head and "is faster" not in head and "slower" not in head


def test_a_record_of_a_run_that_cannot_be_read_is_named_below_the_results(tmp_path: Path, torchmatrix: Command) -> None:
    for name in ("a", "b"):
        run = write_run(tmp_path / "results", [{"rate": 100.0}] * 3, folder=name, machine=name * 8)
    run.record.write_text(run.record.read_text().replace('"launches": 3', '"launches": 4'))
    for page, options in {
        "m.html": ("--machines", "--output", "m.html"), "r.html": ("--machines", "--redact", "--output", "r.html"),
        "site/index.html": ("--publish", "site"),
    }.items():  # fmt: skip
        done = torchmatrix("report", *options)
        text = (tmp_path / page).read_text()
        (place,) = set(re.findall(r"<code>([^<>]*run[.]jsonl): the checksum", text))
        assert done.returncode == 0 and place.split("/")[0] in ("b", "host-2") and place.count("/") == 2, place
