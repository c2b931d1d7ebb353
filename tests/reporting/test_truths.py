"""Results whose truth is known: no answer of a page says more, or something else, than its tables."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from golden import text_of
from support import invoke
from support.records import nights, write_run

H200 = {"device": "NVIDIA H200", "memory_bytes": 141 * 2**30}
RTX = {"device": "NVIDIA GeForce RTX 4090", "memory_bytes": 24 * 2**30}
PAIR = ("torch2.5.1-cu124", "torch2.7.1-cu128")


def cell(model: str, rate: float, batch: int = 64, devices: int = 1, **more: Any) -> list[dict[str, Any]]:
    """Return three launches of a cell, which scatter by 0.1 %."""
    job = {"batch": batch, **more.pop("job", {})}
    name = f"{model}-train-{job.get('precision', 'fp32')}-b{batch}"
    about = {"stack": PAIR[1], "workload": name, "model": model, "devices": tuple(range(devices)), "job": job, **more}
    return [{**about, "rate": rate * factor} for factor in (0.999, 1.0, 1.001)]


class Told:
    """What commands say of results in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, launches: Sequence[dict[str, Any]], host: str = "h", **more: Any) -> None:
        write_run(self.folder / "results", launches, folder=host, machine=f"id-{host}", **more)

    def page(self, *words: str, verb: str = "report") -> str:
        done = invoke(self.folder, verb, *words, "--output", "page.html")
        assert done.returncode == 0, done.stderr
        return text_of((self.folder / "page.html").read_text())

    def table(self, name: str, *words: str) -> list[dict[str, Any]]:
        if not (self.folder / "out").exists():
            assert invoke(self.folder, "export", *words, "out", "--no-charts").returncode == 0
        rows: list[dict[str, Any]] = json.loads((self.folder / f"out/{name}.json").read_text())
        return rows

    def answers(self, *words: str) -> Any:
        self.table("cells" if words != ("--machines",) else "machine_cells", *words)
        return json.loads((self.folder / "out/answers.json").read_text())


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_what_two_levels_may_explain_is_told_by_no_answer(told: Told) -> None:
    random = Random(0)
    models = ["resnet50", "resnet18", "resnet34", "resnet101", "resnet152", "gpt2", "bert-tiny", "vit_b_16", "bert-base-cased"]
    lower = {(n, i, k) for n in range(9) for i in range(3) for k in range(2) if ((k == 0) if n == 0 else i == k and n < 6)}
    told.write([
        {"rate": 100 * random.gauss(1, 0.001) * (0.95 if (n, i, k) in lower else 1), "stack": stack, "model": model,
         "workload": f"{model}-train-fp32-b64", "job": {"batch": 64}}
        for n, model in enumerate(models) for k, stack in enumerate(PAIR) for i in range(3)
    ])  # fmt: skip
    said = told.answers("last")
    (pair,) = [row for row in told.table("speedups") if row["model"] == "resnet50" and row["ratio"] != 1]
    assert (pair["verdict"], pair["reason"]) == ("AMBIGUOUS", "levels") and "two levels" in said["warning"]
    assert "fastest" not in said["lead"] and not any(answer["verdict"] == "FASTER" for answer in said["answers"])


@pytest.mark.parametrize("last", [2, 3])
def test_a_mean_of_gpus_is_over_machines_also_where_one_lacks_a_workload(told: Told, last: int) -> None:
    models = ["resnet50", "resnet18", "vit_b_16"]
    for host, rate, gpu, count in (("a", 100, H200, 3), ("b", 130, H200, last), ("c", 80, RTX, 3), ("d", 110, RTX, 3)):
        told.write([launch for model in models[:count] for launch in cell(model, rate, **gpu)], host)
    (answer,) = [one for one in told.answers("--machines")["answers"] if one["name"] == "fastest"]
    assert answer["verdict"] == "AMBIGUOUS" and answer["low"] < 0.6
    page = told.page("--machines")
    assert "it is over machines" in page and "± is over launches" not in page


def test_a_speed_up_has_the_digits_of_its_interval(told: Told) -> None:
    told.write([*cell("resnet50", 100), *cell("resnet50", 311.5, devices=4)])
    (answer,) = [one for one in told.answers("last")["answers"] if one["name"] == "devices"]
    figure = re.search(r"4 GPUs bring\s+chart ↓\s+(\d\.\d+)×\s*±\s*(\d\.\d+)", told.page())
    assert figure, "not on the page"
    shown, half = map(float, figure.groups())
    assert abs(shown - answer["value"]) <= half and len(figure[1]) == len(figure[2])


def test_a_gpu_with_a_price_lacks_no_price(told: Told) -> None:
    rows = ("H200 SXM,3,0.3,EUR,me,2026-01-31", "H100 SXM5 80GB,2,0.3,EUR,me,2026-01-31")
    (told.folder / "p.csv").write_text("\n".join(("gpu,price_per_hour,electricity_price,currency,source,date", *rows, "")))
    readings = [(float(t), {"device": "GPU-0", "power_watts": 500.0, "energy_joules": 500.0 * t}) for t in (99, 105, 113, 121)]
    told.write([{**launch, "readings": readings} for launch in cell("resnet50", 100, **H200)], "a")
    told.write(cell("resnet50", 90, device="NVIDIA H100 80GB HBM3", memory_bytes=80 * 2**30), "b")
    page = told.page("--machines", "--prices", "p.csv")
    assert "no price" not in page and "energy not read" in page


@pytest.mark.parametrize(("other", "named"), [({"batch": 256}, "batch 256"), ({"job": {"image_size": 160}}, "160 pixels")])
def test_the_first_sentence_names_the_size_in_which_its_cell_differs(told: Told, other: dict[str, Any], named: str) -> None:
    more = cell("resnet50", 600, **other)
    for launch in more:
        launch["workload"] += "-160px" if "image_size" in launch["job"] else ""
    told.write([*cell("resnet50", 500), *more])
    said = told.answers("last")
    assert named in said["lead"] and named in next(one for one in said["answers"] if one["name"] == "fastest")["note"]


def test_the_share_of_the_peak_has_ends_and_no_relative_half(told: Told) -> None:
    told.write([{**launch, "flops": 24.5e9} for launch in cell("resnet50", 1000, **H200)])
    page = told.page("last")
    bar = page[page.index("share of the peak") :][:120]
    assert "±" not in bar and re.search(r"\d\.\d to \d+\.\d", bar) and "MFU" in page


def test_a_changed_level_is_called_what_it_is(told: Told) -> None:
    rates = [100.0, 99.9, 98.2, 100.05, 99.95, 98.2, 100, 100.02, 98.2, 99.98, *[93.1, 92.9, 93.0, 93.05, 92.95] * 2]
    for night, rate in zip(nights(20), rates, strict=True):
        told.write([{"rate": rate * factor, "stack": "a"} for factor in (0.9995, 1.0, 1.0005)], run=night)
    assert "geometric mean over geometric mean" in told.page(verb="history")


def test_equal_effects_have_no_least_and_no_most(told: Told) -> None:
    for host, rate, gpu in (("a", 100, H200), ("b", 50, RTX)):
        told.write(
            [
                launch for model in ("resnet50", "resnet18") for precision, gain in (("fp32", 1.0), ("amp", 2.5))
                for launch in cell(model, rate * gain, job={"precision": precision}, **gpu)
            ],
            host,
        )  # fmt: skip
    page = told.page("--machines")
    assert "least on" not in page and "from 2.00×." not in page and "each 2.00×" in page


@pytest.mark.parametrize(("aim", "words"), [("throughput", "over the usual"), ("energy", "better than the usual")])
def test_an_advice_says_in_which_direction_it_is_better(told: Told, aim: str, words: str) -> None:
    readings = [(float(t), {"device": "GPU-0", "power_watts": 500.0, "energy_joules": 500.0 * t}) for t in (99, 105, 113, 121)]
    both = [*cell("resnet50", 100, **H200), *cell("resnet50", 250, job={"precision": "amp"}, **H200)]
    told.write([{**launch, "readings": readings} for launch in both])
    done = invoke(told.folder, "advise", "resnet50", "--aim", aim)
    assert done.returncode == 0 and words in done.stdout, done.stdout + done.stderr


def test_a_night_of_which_nothing_is_tested_has_no_verdict(told: Told) -> None:
    for number, run in enumerate(nights(2)):
        launches = [{"rate": 100.0 + number}, {"rate": 50.0, "stack": "b"}]
        told.write(launches, run=run, key="same", matrix="")
    (since,) = (answer for answer in told.answers("last")["answers"] if answer["name"] == "since")
    assert (since["verdict"], since["value"], since["text"]) == ("n/a", None, "2 not tested.")


def test_page_audit_and_export_have_the_same_findings(told: Told) -> None:
    stack = {"name": "c", "torch": "2.5.1", "accelerator": "cpu"}
    told.write([{"rate": rate, "stack": stack, "torch": "2.5.1+cu124", "vendor": "cpu"} for rate in (100.0, 101.0)])
    audited = json.loads(invoke(told.folder, "audit", "last", "--json").stdout)["findings"]
    exported = [row for row in told.table("findings") if row["level"] != "unchecked"]
    assert [row["reason"] for row in audited] == [row["reason"] for row in exported] and len(exported) == 1
    assert exported[0]["reason"] in told.page()
