"""What the page of machines says agrees with its own figures: in which order, of which workloads, with which doubts."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reporting.test_machines_page import plain
from support import Command
from support.records import write_run
from torchmatrix.analysis import across, machines
from torchmatrix.facts.store import Results
from torchmatrix.reporting import machines_page

A100, H100, B200 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA B200"
MEMORY = {A100: 80, H100: 80, B200: 180, "NVIDIA L40S": 48}
SCATTER = (1.0, 1.004, 0.997, 1.002, 0.999)
BERT = "bert-base-cased"
DISTURBED = [
    {"run_seconds": 0.4, "wait_seconds": 0.6, "cpus": "0-1", "busy_seconds": 1.0, "stolen_seconds": 0.0, "switches": 3}
]


def cell(rate: float, model: str = "resnet50", n: int = 3, devices: Sequence[int] = (0,), **more: Any) -> list[dict[str, Any]]:
    """Return the launches of one cell; `rates`: of each launch."""
    precision, rates = more.pop("precision", "fp32"), more.pop("rates", None) or [rate * SCATTER[i] for i in range(n)]
    job = {"mode": "train", "model": model, "precision": precision, "batch": 4}
    workload = f"{model}-train-{precision}-b4"
    return [
        {"rate": rate, "workload": workload, "model": model, "job": job, "devices": tuple(devices), **more} for rate in rates
    ]


def machine(root: Path, name: str, gpu: str, *cells: list[dict[str, Any]], **header: Any) -> None:
    """Write the run of a machine of eight GPUs."""
    memory = MEMORY[gpu] * 2**30
    gpus = [{"index": i, "uuid": f"GPU-{name}-{i}", "name": gpu, "vendor": "nvidia", "memory_bytes": memory} for i in range(8)]
    host = {"name": name, "cpu": "Test CPU", "gpus": gpus, "cores": [0, 1]}
    launches = []
    for launch in (launch for one in cells for launch in one):
        places = launch["devices"]
        label = "gpu" + "+".join(map(str, places))
        used = {
            "indices": [*places],
            "label": label,
            "vendor": "nvidia",
            "gpus": [gpus[i] for i in places],
            "threads": 1,
            "nodes": 1,
        }
        launches.append({"device": gpu, "memory_bytes": memory, "host": host, "gpus": used, **launch})
    write_run(root, launches, folder=name, machine=f"{name}-identity", host=host, **header)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "results"


def answered(torchmatrix: Command, root: Path, *words: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]], str]:
    """Return the page's record, its answers by name, and its text."""
    page = root.parent / "page.html"
    done = torchmatrix("report", "--machines", "--results", str(root), "--output", str(page), "--json", *words)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    return record, {answer["name"]: answer for answer in record["answers"]}, plain(page.read_text())


def test_a_gpu_that_is_faster_by_its_own_ratio_leads_though_the_baseline_lacks_it(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(100))
    machine(root, "h1", H100, cell(200), cell(400, BERT))
    machine(root, "b1", B200, cell(1200, BERT))
    record, answers, text = answered(torchmatrix, root)
    fastest = answers["fastest"]
    assert (fastest["figure"], fastest["title"]) == ("B200 SXM", "Fastest of those compared")
    assert "3.00× beside H100" in fastest["text"] and "Not compared with A100" in fastest["text"]
    assert record["lead"].startswith("One B200 SXM is faster than one H100") and "Nothing in common with it: B200 SXM." in text


def test_a_gpu_that_was_measured_on_other_numbers_of_devices_is_named(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(100), cell(380, devices=range(4)))
    machine(root, "h1", H100, cell(200))
    machine(root, "b1", B200, cell(2400, devices=range(4)))
    _, answers, _ = answered(torchmatrix, root)
    assert answers["fastest"]["title"] == "Fastest of those compared"
    assert answers["fastest"]["text"].endswith("Not compared with B200 SXM: measured on 4 GPUs.")


def test_the_highest_mean_over_other_workloads_does_not_lead_what_is_faster_in_the_one_in_common(
    torchmatrix: Command, root: Path
) -> None:
    machine(root, "a1", A100, cell(100), cell(100, BERT))
    machine(root, "h1", H100, cell(200), cell(400, BERT))
    machine(root, "b1", B200, cell(250))
    record, answers, _ = answered(torchmatrix, root)
    assert answers["fastest"]["figure"] == "B200 SXM" and answers["fastest"]["title"] == "Fastest GPU"
    assert answers["next"]["verdict"] == "SLOWER" and record["lead"].startswith("One B200 SXM is faster than one H100")


def test_a_circle_has_no_first_one_and_says_who_is_faster(torchmatrix: Command, root: Path) -> None:
    """B is above A, C above B, A above C: none is ahead of all."""
    machine(root, "a1", A100, cell(100), cell(300, BERT))
    machine(root, "h1", H100, cell(200), cell(100, "gpt2"))
    machine(root, "b1", B200, cell(200, "gpt2"), cell(100, BERT))
    _, answers, _ = answered(torchmatrix, root)
    assert answers["fastest"]["text"] == "2.00× beside A100 80GB SXM4: faster. Slower than B200 SXM."
    assert answers["fastest"]["title"] == "Highest mean"


def test_a_disturbed_machine_gives_no_verdict_however_many_machines_there_are(torchmatrix: Command, tmp_path: Path) -> None:
    for number, (a, h) in enumerate(((1, 1), (1, 2), (2, 1), (2, 2))):
        root = tmp_path / str(number) / "results"
        for place in range(a):
            machine(root, f"a{place}", A100, cell(100 + place))
        for place in range(h):
            machine(root, f"h{place}", H100, cell(150 + place, sharing=DISTURBED))
        record, answers, text = answered(torchmatrix, root)
        assert answers["fastest"]["verdict"] == "DISTURBED" and record["lead"].endswith("disturbed."), (a, h)
        assert record["doubts"] == f"{h} cell{'s' * (h > 1)} disturbed" and "their threads waited in up to 60 %" in text
        assert "faster" not in text.partition("Fastest first")[0]


@pytest.mark.parametrize("baselines", [1, 2])
def test_looking_more_than_once_counts_with_several_machines_too(root: Path, baselines: int) -> None:
    def p_value(folder: Path, further: int | None) -> float:
        method = {"name": "steady", "statistic": "median", "start_below_celsius": None, "steps": None, "further": further}
        for place in range(baselines):
            machine(folder, f"a{place}", A100, cell(100, rates=[100, 101, 99], method=method), method=method)
        machine(folder, "h0", H100, cell(103, rates=[103.2, 104.2, 102.2], method=method), method=method)
        _, relative = machines_page.compared(machines.newest_complete(Results(folder).runs()))
        (row,) = (row for row in relative.table if row.of_gpu and row.gpu.startswith("H100"))
        return row.adjusted_p_value

    once = p_value(root / "once", None)
    assert 0.001 < once < 0.03 and p_value(root / "often", 5) == pytest.approx(3 * once)


def test_equal_machines_are_seldom_told_apart_however_many_are_compared(tmp_path: Path) -> None:
    """Eight equal machines, two workloads: a mean that is told to differ is false."""
    draw, false = random.Random(5), 0
    for fleet in range(12):
        root = tmp_path / str(fleet)
        for place in range(8):
            cells = [cell(100, model, rates=[100 * draw.gauss(1, 0.01) for _ in range(3)]) for model in ("resnet50", BERT)]
            machine(root, f"m{place}", H100, *cells)
        chosen = machines.newest_complete(Results(root).runs())
        fleet_read, relative = machines_page.compared(chosen)
        shown = machines_page.shown_of(fleet_read, relative)
        assert shown.pairs is not None
        false += any("slower" in verdict for row in shown.pairs.cells for *_, verdict, _ in row)
    assert false <= 2


def test_one_workload_has_one_verdict_and_one_value_in_lead_chart_and_table(torchmatrix: Command, root: Path) -> None:
    for place in range(2):
        machine(root, f"a{place}", A100, cell(100 + 2 * place))
        machine(root, f"h{place}", H100, cell(101, rates=[101 + place, 101.5 + place, 131 + place]))
    _, answers, text = answered(torchmatrix, root)
    chosen = machines.newest_complete(Results(root).runs())
    _, relative = machines_page.compared(chosen)
    (row,) = (row for row in relative.table if row.of_gpu and row.gpu.startswith("H100"))
    assert (answers["fastest"]["value"], answers["fastest"]["verdict"]) == (pytest.approx(row.ratio), row.verdict)
    assert f"{row.ratio:.2f}× / n = 1" in text.replace("n = 1", "/ n = 1") or f"{row.ratio:.2f}× n = 1" in text


def test_a_mean_is_over_the_same_workloads_in_chart_and_table(torchmatrix: Command, root: Path) -> None:
    for place in range(2):
        machine(root, f"a{place}", A100, cell(100 + 2 * place), cell(50 + place, BERT))
    machine(root, "h0", H100, cell(200), cell(150, BERT))
    machine(root, "h1", H100, cell(206))
    _, relative = machines_page.compared(machines.newest_complete(Results(root).runs()))
    _, answers, text = answered(torchmatrix, root)
    (mean,) = (mean for mean in across.relative_means(relative) if mean.gpu.startswith("H100"))
    assert (mean.n, mean.missing, mean.missing_why) == (1, 1, "1 not measured by all machines")
    assert answers["fastest"]["value"] == pytest.approx(mean.ratio) and "1 workload in common" in text


def test_no_row_of_a_workload_vanishes_where_a_gpu_has_several(torchmatrix: Command, root: Path) -> None:
    stacks = [{"name": f"torch2.5.1-cu{cuda}", "torch": "2.5.1"} for cuda in (121, 124)]
    machine(root, "a1", A100, cell(100, stack=stacks[0]), cell(200, stack=stacks[1]))
    machine(root, "h1", H100, cell(200, stack=stacks[0]), cell(900, stack=stacks[1]))
    _, _, text = answered(torchmatrix, root)
    table = text.partition("1 device : ")[2] or text.partition("1 device: ")[2]
    assert table.startswith("2 workloads") and "200.0 images/s" in table and "900.0 images/s" in table
    assert "torch2.5.1-cu121" in table and "torch2.5.1-cu124" in table


def test_a_figure_in_another_setting_is_shown_and_known(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(100), cell(300, precision="amp"))
    machine(root, "h1", H100, cell(200), cell(700, precision="amp"))
    machine(root, "b1", B200, cell(900, precision="tf32"))
    _, _, text = answered(torchmatrix, root)
    assert "B200 SXM 900 with TF32, eager" in text and "ResNet-50: B200 SXM does 900 images/s with TF32, eager" in text


def test_whole_machines_are_of_each_workload(torchmatrix: Command, root: Path) -> None:
    machine(root, "h1", H100, cell(200), cell(1500, devices=range(8)), cell(500, BERT), cell(2000, BERT, devices=range(4)))
    machine(root, "b1", B200, cell(300, BERT), cell(1000, BERT, devices=range(4)))
    _, _, text = answered(torchmatrix, root)
    assert "4 × H100 SXM5 80GB 2 000" in text and "4 × B200 SXM 1 000" in text and "8 × H100 SXM5 80GB 1 500" in text


def test_scaling_over_several_machines_is_said_to_be_their_mean_and_each_is_drawn(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(100), cell(760, devices=range(8)))
    machine(root, "a2", A100, cell(100), cell(480, devices=range(8)))
    machine(root, "h1", H100, cell(200), cell(1440, devices=range(8)))
    _, answers, text = answered(torchmatrix, root)
    assert "8 × A100 80GB SXM4 (mean of 2 machines): 6.04×, 75 %" in " ".join(answers["devices"]["text"].split())
    assert "A100 80GB SXM4 · a1" in text and "A100 80GB SXM4 · a2" in text


def test_an_impossible_speed_up_brings_nothing(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(100))
    machine(root, "h1", H100, cell(150), cell(360, devices=range(2)))
    record, answers, _ = answered(torchmatrix, root)
    assert answers["devices"]["figure"] == "impossible" and "look for a wrong baseline" in answers["devices"]["text"]
    assert "efficiency" not in record["lead"]


def test_two_gpus_are_not_called_one(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(200, devices=range(2)))
    machine(root, "h1", H100, cell(600, devices=range(2)))
    _, _, text = answered(torchmatrix, root)
    assert "2 × H100 SXM5 80GB do 600 images/s" in text and "one GPU" not in text.partition("Every pair")[0]


def test_the_caution_counts_the_machines_of_the_workloads_that_are_compared(torchmatrix: Command, root: Path) -> None:
    for place in range(2):
        machine(root, f"a{place}", A100, cell(100 + 2 * place))
    machine(root, "h0", H100, cell(150), cell(300, BERT))
    machine(root, "h1", H100, cell(300, BERT))
    _, answers, _ = answered(torchmatrix, root)
    assert "One machine with H100 SXM5 80GB: others may differ" in answers["fastest"]["note"]
    assert "A100" not in answers["fastest"]["note"]


def test_workloads_that_disagree_have_no_verdict_in_common(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(100), cell(100, BERT), cell(100, "gpt2"))
    machine(root, "h1", H100, cell(150), cell(150, BERT), cell(80, "gpt2"))
    record, answers, text = answered(torchmatrix, root)
    said = "faster in 2 of 3 workloads, slower in 1"
    assert answers["fastest"]["verdict"] == "AMBIGUOUS" and said in answers["fastest"]["text"]
    assert record["lead"].endswith(f"over 3 workloads, {said}.") and text.count(said) >= 3


def test_a_page_without_prices_says_that_nothing_is_per_money(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(100))
    machine(root, "h1", H100, cell(150))
    assert "Nothing here is per money" in answered(torchmatrix, root)[2]
    prices = root.parent / "prices.csv"
    prices.write_text("gpu,currency,price_per_hour,source,date\nA100 80GB SXM4,EUR,1.5,a shop,2026-01-01\n")
    assert "Nothing here is per money" not in answered(torchmatrix, root, "--prices", str(prices))[2]


@pytest.mark.parametrize(("rates", "is_told"), [((100.0, 101.0, 102.0), False), ((80.0, 101.0, 150.0), True)])
def test_figures_that_scatter_so_much_that_ratios_differ_from_theirs_are_told(
    torchmatrix: Command, root: Path, rates: tuple[float, ...], is_told: bool
) -> None:
    machine(root, "a1", A100, cell(100))
    machine(root, "h1", H100, cell(100, rates=[*rates]))
    record, *_ = answered(torchmatrix, root)
    assert ("may rank cells differently" in (record["warning"] or "")) == is_told
    assert ("noisy" in (record["doubts"] or "")) == is_told


def test_a_further_machine_of_another_workload_makes_no_mean_over_launches(torchmatrix: Command, root: Path) -> None:
    """Over machines nothing is shown; three launches of each say more than machines of one GPU differ by."""
    for place, (a, h) in enumerate(((100, 105), (97, 100))):
        machine(root, f"a{place}", A100, cell(a), cell(a, BERT), cell(a / 10, "gpt2"))
        machine(root, f"h{place}", H100, cell(h), cell(h, BERT))
    machine(root, "h9", H100, cell(10, "gpt2"))
    record, answers, _ = answered(torchmatrix, root)
    assert answers["fastest"]["verdict"] == "AMBIGUOUS" and answers["fastest"]["title"] != "Fastest GPU"
    assert record["lead"].endswith("no difference shown.")


def test_means_of_machines_that_share_workloads_in_part_are_seldom_wrong(tmp_path: Path) -> None:
    draw, false = random.Random(3), 0
    for fleet in range(40):
        root = tmp_path / str(fleet)
        for name, gpu in (("a", A100), ("h", H100)):
            for place, models in enumerate((("resnet50", BERT), (BERT, "gpt2"), ("gpt2", "resnet50"))):
                own = 100 * draw.gauss(1, 0.03)
                machine(root, f"{name}{place}", gpu, *(cell(own, model) for model in models))
        chosen = machines.newest_complete(Results(root).runs())
        shown = machines_page.shown_of(*machines_page.compared(chosen))
        false += any(answer.name == "fastest" and answer.verdict in ("FASTER", "SLOWER") for answer in shown.answers.each)
    assert false <= 5


def test_two_gpus_have_one_ratio_and_its_inverse(torchmatrix: Command, root: Path) -> None:
    stacks = {cuda: {"name": f"torch2.5.1-cu{cuda}", "torch": "2.5.1"} for cuda in (121, 124)}
    machine(root, "a1", A100, cell(100, stack=stacks[121]), cell(210, stack=stacks[124]))
    machine(root, "h1", H100, cell(200, stack=stacks[124]))
    assert answered(torchmatrix, root)[1]["fastest"]["value"] == pytest.approx(210 / 200, rel=0.01)
    other = answered(torchmatrix, root, "--baseline-gpu", "H100")[1]["fastest"]
    assert other["value"] == pytest.approx(210 / 200, rel=0.01)


def test_what_was_not_tested_leads_only_by_its_value(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(50, n=1))
    machine(root, "h1", H100, cell(200), cell(100, BERT))
    machine(root, "b1", B200, cell(200, BERT))
    assert answered(torchmatrix, root)[1]["fastest"]["figure"] == "B200 SXM"


def test_the_title_doesnt_call_a_mean_the_highest_that_isnt(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(100), cell(100, BERT))
    machine(root, "h1", H100, cell(200), cell(400, BERT))
    machine(root, "b1", B200, cell(250))
    machine(root, "x1", "NVIDIA L40S", cell(250))
    fastest = answered(torchmatrix, root)[1]["fastest"]
    assert fastest["title"] == "None is shown to be faster than" and fastest["figure"] in ("B200 SXM", "L40S")


def test_a_gpu_that_shares_nothing_is_no_baseline_by_itself(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(100, "gpt2"))
    machine(root, "h1", H100, cell(200))
    machine(root, "b1", B200, cell(400))
    _, answers, text = answered(torchmatrix, root)
    assert answers["fastest"]["figure"] == "B200 SXM" and "Throughput over that of H100" in text
    _, answers, text = answered(torchmatrix, root, "--baseline-gpu", "A100")
    assert answers["fastest"]["figure"] == "B200 SXM" and "Not compared with A100" in answers["fastest"]["text"]


def test_gpus_are_compared_on_the_numbers_of_devices_that_two_have(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(100, "gpt2", devices=range(8)))
    machine(root, "h1", H100, cell(800, devices=range(8)), [dict(cell(100)[0], outcome="oom")])
    machine(root, "b1", B200, cell(1600, devices=range(8)))
    assert "2.00× over 1 workload" in answered(torchmatrix, root)[0]["lead"]


def test_the_baseline_doesnt_decide_on_how_many_devices_others_are_compared(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(1000, devices=range(8)))
    machine(root, "h1", H100, cell(200), cell(1500, devices=range(8)))
    machine(root, "b1", B200, cell(600))
    fastest = answered(torchmatrix, root)[1]["fastest"]
    assert fastest["figure"] == "B200 SXM" and fastest["text"].endswith("Not compared with A100 80GB SXM4: measured on 8 GPUs.")


def test_the_best_setting_counts_though_it_isnt_drawn(torchmatrix: Command, root: Path) -> None:
    machine(root, "a1", A100, cell(100), cell(300, precision="amp"))
    machine(root, "b1", B200, cell(100), cell(2000, precision="tf32"))
    prices = root.parent / "prices.csv"
    rows = [f"{gpu},EUR,{price},a shop,2026-01-01" for gpu, price in (("A100 80GB SXM4", 1.0), ("B200 SXM", 3.6))]
    prices.write_text("\n".join(["gpu,currency,price_per_hour,source,date", *rows, ""]))
    _, answers, text = answered(torchmatrix, root, "--prices", str(prices))
    assert answers["cost"]["figure"] == "B200 SXM" and "0.500 EUR" in " ".join(answers["cost"]["text"].split())
    assert "Not known" not in answers["cost"]["text"] and "B200 SXM does 2 000 images/s with TF32, eager" in text


def test_each_ratio_of_single_machines_has_the_caution(torchmatrix: Command, root: Path) -> None:
    for place, model in enumerate(("resnet50", BERT)):
        machine(root, f"a{place}", A100, cell(100, model))
        machine(root, f"h{place}", H100, cell(105, model))
    assert "One machine with H100 SXM5 80GB and one with A100" in answered(torchmatrix, root)[1]["fastest"]["note"]


def test_one_workload_on_two_stacks_is_one(torchmatrix: Command, root: Path) -> None:
    stacks = [{"name": f"torch2.5.1-cu{cuda}", "torch": "2.5.1"} for cuda in (121, 124)]
    for name, gpu, rate in (("a1", A100, 100), ("h1", H100, 200)):
        machine(root, name, gpu, *(cell(rate + 10 * place, stack=stack) for place, stack in enumerate(stacks)))
    assert answered(torchmatrix, root)[0]["lead"].endswith("over 2 ratios of 1 workload.")


def test_a_ratio_of_single_machines_errs_as_machines_differ(torchmatrix: Command, root: Path) -> None:
    """Four equal machines of each GPU at one workload; one further one of each, which differ, at four others."""
    models = (BERT, "gpt2", "resnet18", "resnet101")
    for place, rate in enumerate((97, 99, 101, 103)):
        machine(root, f"a{place}", A100, cell(rate))
        machine(root, f"h{place}", H100, cell(rate))
    machine(root, "a9", A100, *(cell(100, model) for model in models))
    machine(root, "h9", H100, *(cell(106, model) for model in models))
    record, answers, _ = answered(torchmatrix, root)
    assert answers["fastest"]["verdict"] == "AMBIGUOUS" and record["lead"].endswith("no difference shown.")
    assert "4 of 5 ratios are of one machine with one of both." in answers["fastest"]["note"]


def test_builds_of_one_release_are_matched_alike_in_both_directions(torchmatrix: Command, root: Path) -> None:
    def builds(rates: dict[int, float]) -> list[list[dict[str, Any]]]:
        return [cell(rate, stack={"name": f"torch2.5.1-cu{cuda}", "torch": "2.5.1"}) for cuda, rate in rates.items()]

    machine(root, "a1", A100, *builds({118: 100, 121: 300}))
    machine(root, "h1", H100, *builds({121: 200, 124: 200}))
    for baseline in ("A100", "H100"):
        record, answers, _ = answered(torchmatrix, root, "--baseline-gpu", baseline)
        assert record["lead"].startswith("One A100 80GB SXM4 is faster than one H100 SXM5 80GB: 1.50× over 1 workload.")
        assert answers["fastest"]["value"] == pytest.approx(1.5, rel=0.01)


def test_low_and_high_of_an_answer_are_its_values_interval(torchmatrix: Command, root: Path) -> None:
    for name, gpu, amp in (("a", A100, 200.0), ("h", H100, 330.0), ("b", B200, 500.0)):
        machine(
            root, name, gpu, cell(100.0), cell(amp, precision="amp"), cell(60.0, BERT), cell(0.6 * amp, BERT, precision="amp")
        )
    _, answers, _ = answered(torchmatrix, root)
    assert answers["settings"]["figure"] == "2.00× to 5.00×"
    known = {name: answer for name, answer in answers.items() if answer["low"] is not None}
    assert "settings" in known
    for name, answer in known.items():
        assert answer["low"] < answer["value"] < answer["high"], (name, answer)
        assert answer["high"] / answer["low"] < 1.2, (name, answer)
