"""Price lists: allowed and refused contents, and the figures that follow from them."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from support.drawn import launch
from support.read_back import frames
from support.records import write_run
from support.rows import a_row
from torchmatrix.analysis import gpu_specs, metrics, prices
from torchmatrix.analysis.compare import compare
from torchmatrix.core.errors import BadInput
from torchmatrix.reporting import exports, report

HEAD = "gpu,price_per_hour,purchase_price,currency,source,date\n"


def listed(tmp_path: Path, text: str, name: str = "prices.csv", measured: tuple[str, ...] = ()) -> prices.PriceList:
    path = tmp_path / name
    path.write_text(text)
    return prices.load(path, measured)


def test_a_gpu_is_found_by_our_name_and_by_the_drivers(tmp_path: Path) -> None:
    ours = listed(tmp_path, HEAD + "H200 SXM,3.60,,EUR,offer 12,2026-01-31\n")
    theirs = listed(tmp_path, HEAD + "NVIDIA H200,3.60,,EUR,offer 12,2026-01-31\n")
    assert ours == theirs and ours.currency == "EUR"
    price = ours.of_device(a_row(device_name="NVIDIA H200", device_memory_bytes=141 * 2**30))
    assert price is not None and price.per_hour == 3.6 and math.isnan(price.purchase)
    assert ours.of_device(a_row(device_name="NVIDIA A10", device_memory_bytes=None)) is None


def test_toml_says_the_same(tmp_path: Path) -> None:
    table = '[[price]]\ngpu = "H200 SXM"\nprice_per_hour = 3.6\ncurrency = "EUR"\nsource = "offer 12"\ndate = 2026-01-31\n'
    assert listed(tmp_path, table, "p.toml") == listed(tmp_path, HEAD + "H200 SXM,3.6,,EUR,offer 12,2026-01-31\n")


def test_a_card_with_two_devices_is_shared_by_them(tmp_path: Path) -> None:
    held = listed(tmp_path, HEAD + "Instinct MI250X,4,9000,EUR,us,2026-01-31\n")
    facts = next(facts for facts in gpu_specs.load() if facts.name == "Instinct MI250X")
    price = held.of_device(a_row(device_name=facts.driver_names[0], device_memory_bytes=64 * 2**30))
    assert price is not None and (price.per_hour, price.purchase) == (2, 4500)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("H200 SXN,1,,EUR,us,2026-01-31", 'did you mean "H200 SXM"'),
        ("H200 SXM,free,,EUR,us,2026-01-31", '"free" is not a number above 0'),
        ("H200 SXM,-1,,EUR,us,2026-01-31", '"-1" is not a number above 0'),
        ("H200 SXM,nan,,EUR,us,2026-01-31", '"nan" is not a number above 0'),
        ("H200 SXM,1e-322,,EUR,us,2026-01-31", '"1e-322" is not from 1e-09 to 1e+15'),
        ("H200 SXM,,1e308,EUR,us,2026-01-31", '"1e308" is not from 1e-09 to 1e+15'),
        ("H200 SXM,1_000,,EUR,us,2026-01-31", '"1_000" is not a number above 0'),
        ("H200 SXM,٣,,EUR,us,2026-01-31", "is not a number above 0"),
        ("H200 SXM,,,EUR,us,2026-01-31", "neither price_per_hour nor purchase_price"),
        ("H200 SXM,1,,,us,2026-01-31", "currency is missing"),
        ("H200 SXM,1,,<b>,us,2026-01-31", '"<b>" is not a currency'),
        ("H200 SXM,1,,EUR,,2026-01-31", "source is missing"),
        ("H200 SXM,1,,EUR,us,31.1.2026", "not a date such as"),
        ("H200 SXM,1,,EUR,us,20260131", "not a date such as"),
        ("H200 SXM,1,,EUR,us,2026-W05-6", "not a date such as"),
        ("H200 SXM,1,,EUR,us,2026-01-31\nNVIDIA H200,2,,EUR,us,2026-01-31", "already has a price"),
        ("H200 SXM,1,,EUR,us,2026-01-31\nNVIDIA A10,2,,USD,us,2026-01-31", "several currencies: EUR, USD"),
    ],
)
def test_a_mistake_is_reported_with_its_place(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        listed(tmp_path, HEAD + row + "\n")
    assert message in str(raised.value) and ("row " in str(raised.value) or "currencies" in str(raised.value))


def test_a_gpu_that_nobody_knows_or_measured_is_left_out_and_told(tmp_path: Path) -> None:
    held = listed(
        tmp_path, HEAD + "Gaudi 3,1,,EUR,us,2026-01-31\nH200 SXM,2,,EUR,us,2026-01-31\nH200 SXN,1,,EUR,us,2026-01-31\n"
    )
    assert list(held.prices) == ["H200 SXM"] and len(held.unknown) == 2
    assert held.unknown[0].startswith('row 2: unknown GPU "Gaudi 3"') and 'did you mean "H200 SXM"' in held.unknown[1]


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as raised:
        listed(tmp_path, HEAD + "H200 SXM,free,,EUR,us,yesterday\nnonsense,1,,EUR,us,2026-01-31\n")
    assert all(word in str(raised.value) for word in ("row 2", "free", "yesterday", "row 3", "nonsense"))


def test_of_many_problems_the_first_are_named_and_the_others_counted(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as raised:
        listed(tmp_path, HEAD + "Gaudi 3,1,,EUR,us,2026-01-31\n" * 500)
    assert str(raised.value).count("Gaudi 3") == prices.MOST_NAMED and str(raised.value).endswith("and 480 more")


_FULL = "[[price]]\ngpu = 'L40S'\nprice_per_hour = 1\ncurrency = {}\nsource = 'x'\ndate = 2026-01-31\n"


@pytest.mark.parametrize(
    "text",
    [
        "price = 3", "[other]\nx = 1", "[[price]]\ngpu = ", "[[price]]\ngpuu = 'H200 SXM'",
        *(_FULL.format(value) for value in ("1e400", "inf", "nan", "true", "2026-01-31", "7")),
    ],
)  # fmt: skip
def test_toml_that_is_no_price_list_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput):
        listed(tmp_path, text, "p.toml")


@pytest.mark.parametrize("text", ["https://bob:hunter2pw@shop.lan/x", "x?token=ghp_" + "a1B2" * 9])
def test_a_list_with_a_credential_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match="row 3: holds a credential"):
        listed(tmp_path, HEAD + f"H200 SXM,1,,EUR,us,2026-01-31\nL40S,1,,EUR,{text},2026-01-31\n")
    with pytest.raises(BadInput, match="holds a credential"):
        listed(tmp_path, f'[[price]]\ngpu = "L40S"\nprice_per_hour = 1\ncurrency = "EUR"\nsource = "{text}"\n', "p.toml")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("none.csv", "none.toml"):
        with pytest.raises(BadInput, match="can't read"):
            prices.load(tmp_path / name)


def test_a_measured_gpu_that_no_table_lists_can_have_a_price(tmp_path: Path) -> None:
    row = HEAD + "NVIDIA Unheard-of,1,,EUR,us,2026-01-31\n"
    with pytest.raises(BadInput):
        listed(tmp_path, row)
    held = listed(tmp_path, row, measured=("NVIDIA Unheard-of",))
    price = held.of_device(a_row(device_name="NVIDIA Unheard-of", device_memory_bytes=2**30))
    assert price is not None and price.per_hour == 1


def test_items_per_unit_of_the_currency_count_all_devices(tmp_path: Path) -> None:
    held = listed(tmp_path, HEAD + "H200 SXM,3.60,36000,EUR,offer 12,2026-01-31\n")
    runs = [{"rate": 100.0}, {"rate": 180.0, "devices": (0, 1)}, {"stack": "c", "vendor": "cpu", "device": "cpu", "rate": 5.0}]
    view = report.view_of(write_run(tmp_path / "results", runs), price_list=held)
    cells = frames(exports.of(view))["cells"]
    assert cells["items_per_currency"].tolist()[:2] == pytest.approx([100 * 3600 / 3.6, 180 * 3600 / 7.2])
    assert cells["items_per_second_per_currency"].tolist()[:2] == pytest.approx([100 / 36000, 180 / 72000])
    assert math.isnan(cells["items_per_currency"][2]) and cells["currency"].tolist() == ["EUR"] * 3
    assert cells["cost_per_item"].tolist()[:2] == pytest.approx([3.6 / 3600 / 100, 7.2 / 3600 / 180])
    assert math.isnan(cells["cost_per_item"][2])
    assert frames(exports.of(view))["prices"]["purchase_price"].tolist() == [36000]


def test_without_a_list_nothing_is_known(tmp_path: Path) -> None:
    view = report.view_of(write_run(tmp_path, [{}]))
    tables = exports.of(view)
    assert frames(tables)["cells"]["items_per_currency"].isna().all() and len(frames(tables)["prices"]) == 0


FULL = "gpu,price_per_hour,purchase_price,server_price,hours,electricity_price,currency,source,date\n"


def metered(watts: float, **more: Any) -> dict[str, Any]:
    """A launch whose counters say that it took so many watts in a window of 20 s."""
    readings = [(t, {"device": "GPU-0", "power_watts": watts, "energy_joules": watts * t}) for t in range(99, 131)]
    return {"rate": 100.0, "readings": readings} | more


def test_a_purchase_is_spread_over_its_hours_with_the_server_and_electricity_is_added(tmp_path: Path) -> None:
    held = listed(tmp_path, FULL + "H200 SXM,,30000,9000,20000,0.30,EUR,us,2026-01-31\n")
    view = report.view_of(write_run(tmp_path / "results", [metered(500.0)]), price_list=held)
    (row,) = frames(exports.of(view))["cells"].to_dict("records")
    joules = 500.0 / 100.0  # 100 images per second
    assert row["joules_per_item"] == pytest.approx(joules, rel=0.01)
    expected = 39000 / 20000 / 3600 / 100 + 0.30 / 3.6e6 * row["joules_per_item"]
    assert row["cost_per_item"] == pytest.approx(expected)
    assert row["items_per_currency"] == pytest.approx(1 / expected)
    assert held.formulas(["H200 SXM"]) == [
        "H200 SXM: 1.95 EUR per hour = (30 000 + 9 000) EUR / 20 000 h, and 0.3 EUR per kWh that it takes"
    ]
    assert "(30 000 + 9 000) EUR / 20 000 h" in report.render(view)
    (listed_price,) = frames(exports.of(view))["prices"].to_dict("records")
    amounts = ("purchase_price", "server_price", "hours", "electricity_price")
    assert [listed_price[name] for name in amounts] == [30000, 9000, 20000, 0.3] and math.isnan(listed_price["price_per_hour"])


def test_a_cost_is_unknown_where_electricity_has_a_price_and_no_power_was_measured(tmp_path: Path) -> None:
    held = listed(tmp_path, FULL + "H200 SXM,2,,,,0.30,EUR,us,2026-01-31\n")
    runs = [{"stack": "unread"}, metered(500.0, stack="read")]
    cells = frames(exports.of(report.view_of(write_run(tmp_path / "results", runs), price_list=held)))["cells"]
    costs = dict(zip(cells["stack"], cells["cost_per_item"], strict=True))
    assert math.isnan(costs["unread"]) and costs["read"] > 2 / 3600 / 100


def test_a_cost_has_the_interval_of_its_launches(tmp_path: Path) -> None:
    held = listed(tmp_path, HEAD + "H200 SXM,3.60,,EUR,us,2026-01-31\n")
    rates = (99.0, 100.0, 101.0, 100.5)
    view = report.view_of(write_run(tmp_path / "results", [{"rate": rate} for rate in rates]), price_list=held)
    (row,) = frames(exports.of(view))["cells"].to_dict("records")
    assert 0 < row["cost_per_item_low"] < row["cost_per_item"] < row["cost_per_item_high"]
    width, of_rate = (row[f"{name}_high"] / row[f"{name}_low"] - 1 for name in ("cost_per_item", "items_per_second"))
    assert width == pytest.approx(of_rate, rel=0.05)
    assert 1 / row["items_per_currency_low"] == pytest.approx(row["cost_per_item_high"])
    (answer,) = [each for each in report.overview_of(view).answers.each if each.name == "energy"]
    assert answer.title == "Least cost" and answer.figure.endswith("9.98") and "%" in answer.interval
    alone = report.view_of(write_run(tmp_path / "alone", [{}]), price_list=held)
    assert math.isnan(frames(exports.of(alone))["cells"]["cost_per_item_low"][0])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("H200 SXM,1,,,100,,EUR,us,2026-01-31", "hours spread a purchase, but price_per_hour is given"),
        ("H200 SXM,,,,100,,EUR,us,2026-01-31", "hours spread a purchase, but purchase_price is missing"),
        ("H200 SXM,1,,5,,,EUR,us,2026-01-31", "server_price needs the hours"),
        ("H200 SXM,,1,,0,,EUR,us,2026-01-31", 'hours "0" is not a number above 0'),
        ("H200 SXM,1,,,,-1,EUR,us,2026-01-31", 'electricity_price "-1" is not'),
    ],
)
def test_amounts_that_contradict_each_other_are_refused(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        listed(tmp_path, FULL + row + "\n")


def test_a_core_group_of_a_measured_cpu_can_have_a_price(tmp_path: Path) -> None:
    cpu = {"vendor": "cpu", "rate": 5.0, "host": {"cpu": "AMD EPYC 9654"}}
    run = write_run(tmp_path / "results", [cpu, {"rate": 100.0}])
    held = listed(tmp_path, HEAD + "AMD EPYC 9654,0.05,,EUR,us,2026-01-31\n", measured=("AMD EPYC 9654",))
    cells = frames(exports.of(report.view_of(run, price_list=held)))["cells"]
    costs = dict(zip(cells["devices"], cells["cost_per_item"], strict=True))
    assert costs["cpu0"] == pytest.approx(0.05 / 3600 / 5) and math.isnan(costs["gpu0"])


def test_machines_are_compared_by_what_items_cost(tmp_path: Path) -> None:
    """The slower machine is the cheaper one here."""
    held = listed(tmp_path, HEAD + "H200 SXM,4,,EUR,us,2026-01-31\nA100 SXM4 80GB,1,,EUR,us,2026-01-31\n")
    sides = [
        [
            launch({"rate": rate * jitter, "device": name, "memory_bytes": memory}, i)
            for i, jitter in enumerate((0.999, 1.0, 1.001))
        ]
        for rate, name, memory in ((200.0, "NVIDIA H200", 141 * 2**30), (100.0, "NVIDIA A100-SXM4-80GB", 80 * 2**30))
    ]
    cost = prices.metric_for(metrics.COST, held)
    (row,) = compare(*sides, metric=cost, price_list=held).rows
    assert row.ratio == pytest.approx(0.5) and row.verdict == "SLOWER"
    with pytest.raises(BadInput, match="takes a price list"):
        prices.metric_for(metrics.COST, prices.NONE)
