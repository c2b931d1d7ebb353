"""Price lists: allowed and refused contents, and the figures that follow from them."""

import math
from pathlib import Path

import pytest

from support.read_back import frames
from support.records import write_run
from torchmatrix.analysis import gpu_specs, prices
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
    price = ours.of_device({"device_name": "NVIDIA H200", "device_memory_bytes": 141 * 2**30})
    assert price is not None and price.per_hour == 3.6 and math.isnan(price.purchase)
    assert ours.of_device({"device_name": "NVIDIA A10", "device_memory_bytes": None}) is None


def test_toml_says_the_same(tmp_path: Path) -> None:
    table = '[[price]]\ngpu = "H200 SXM"\nprice_per_hour = 3.6\ncurrency = "EUR"\nsource = "offer 12"\ndate = 2026-01-31\n'
    assert listed(tmp_path, table, "p.toml") == listed(tmp_path, HEAD + "H200 SXM,3.6,,EUR,offer 12,2026-01-31\n")


def test_a_card_with_two_devices_is_shared_by_them(tmp_path: Path) -> None:
    held = listed(tmp_path, HEAD + "Instinct MI250X,4,9000,EUR,us,2026-01-31\n")
    facts = next(facts for facts in gpu_specs.load() if facts.name == "Instinct MI250X")
    price = held.of_device({"device_name": facts.driver_names[0], "device_memory_bytes": 64 * 2**30})
    assert price is not None and (price.per_hour, price.purchase) == (2, 4500)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("H200 SXN,1,,EUR,us,2026-01-31", 'did you mean "H200 SXM"'),
        ("H200 SXM,free,,EUR,us,2026-01-31", '"free" is not a number above 0'),
        ("H200 SXM,-1,,EUR,us,2026-01-31", '"-1" is not a number above 0'),
        ("H200 SXM,nan,,EUR,us,2026-01-31", '"nan" is not a number above 0'),
        ("H200 SXM,,,EUR,us,2026-01-31", "neither price_per_hour nor purchase_price"),
        ("H200 SXM,1,,,us,2026-01-31", "currency is missing"),
        ("H200 SXM,1,,<b>,us,2026-01-31", '"<b>" is not a currency'),
        ("H200 SXM,1,,EUR,,2026-01-31", "source is missing"),
        ("H200 SXM,1,,EUR,us,31.1.2026", "not a date such as"),
        ("H200 SXM,1,,EUR,us,2026-01-31\nNVIDIA H200,2,,EUR,us,2026-01-31", "already has a price"),
        ("H200 SXM,1,,EUR,us,2026-01-31\nNVIDIA A10,2,,USD,us,2026-01-31", "several currencies: EUR, USD"),
    ],
)
def test_a_mistake_is_reported_with_its_place(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(BadInput) as raised:
        listed(tmp_path, HEAD + row + "\n")
    assert message in str(raised.value) and ("row " in str(raised.value) or "currencies" in str(raised.value))


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as raised:
        listed(tmp_path, HEAD + "H200 SXM,free,,EUR,us,yesterday\nnonsense,1,,EUR,us,2026-01-31\n")
    assert all(word in str(raised.value) for word in ("row 2", "free", "yesterday", "row 3", "nonsense"))


@pytest.mark.parametrize("text", ["price = 3", "[other]\nx = 1", "[[price]]\ngpu = ", "[[price]]\ngpuu = 'H200 SXM'"])
def test_toml_that_is_no_price_list_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput):
        listed(tmp_path, text, "p.toml")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("none.csv", "none.toml"):
        with pytest.raises(BadInput, match="can't read"):
            prices.load(tmp_path / name)


def test_a_measured_gpu_that_no_table_lists_can_have_a_price(tmp_path: Path) -> None:
    row = HEAD + "NVIDIA Unheard-of,1,,EUR,us,2026-01-31\n"
    with pytest.raises(BadInput):
        listed(tmp_path, row)
    held = listed(tmp_path, row, measured=("NVIDIA Unheard-of",))
    price = held.of_device({"device_name": "NVIDIA Unheard-of", "device_memory_bytes": 2**30})
    assert price is not None and price.per_hour == 1


def test_items_per_unit_of_the_currency_count_all_devices(tmp_path: Path) -> None:
    held = listed(tmp_path, HEAD + "H200 SXM,3.60,36000,EUR,offer 12,2026-01-31\n")
    runs = [{"rate": 100.0}, {"rate": 180.0, "devices": (0, 1)}, {"stack": "c", "vendor": "cpu", "device": "cpu", "rate": 5.0}]
    view = report.view_of(write_run(tmp_path / "results", runs), price_list=held)
    cells = frames(exports.of(view))["cells"]
    assert cells["items_per_currency"].tolist()[:2] == pytest.approx([100 * 3600 / 3.6, 180 * 3600 / 7.2])
    assert cells["items_per_second_per_currency"].tolist()[:2] == pytest.approx([100 / 36000, 180 / 72000])
    assert math.isnan(cells["items_per_currency"][2]) and cells["currency"].tolist() == ["EUR"] * 3
    costs = [prices.cost(held, row, "per_hour") for row in view.every_cell]
    assert costs[:2] == pytest.approx([3.6, 7.2]) and math.isnan(costs[2])
    assert frames(exports.of(view))["prices"]["purchase_price"].tolist() == [36000]


def test_without_a_list_nothing_is_known(tmp_path: Path) -> None:
    view = report.view_of(write_run(tmp_path, [{}]))
    tables = exports.of(view)
    assert frames(tables)["cells"]["items_per_currency"].isna().all() and len(frames(tables)["prices"]) == 0
