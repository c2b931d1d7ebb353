"""Price lists of GPUs, as somebody at this site wrote them down; there is none of ours. Items per unit of their currency.

A CSV file with a header, or TOML with a [[price]] table for each line:

    gpu,price_per_hour,purchase_price,currency,source,date
    H100 SXM5 80GB,2.10,,EUR,offer 1234 of our provider,2026-01-31

`gpu`: a name of gpus.csv or the driver's own. Prices are for one card (an MI250X, which drivers show as two devices, is one).
`price_per_hour` and `purchase_price`: at least one of the two. One file holds one currency.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.published import figure_files
from torchmatrix.core import inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.toml_keys import nearest
from torchmatrix.facts.store import RunFolder

COLUMNS = ("gpu", "price_per_hour", "purchase_price", "currency", "source", "date")
_CURRENCY = re.compile(r"[A-Za-z]{2,8}|[€$£¥₹₩]")
_NEEDED = ("gpu", "currency", "source", "date")
_HINT = "docs/publishing.md describes the format, under Prices"


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """The price of one card. `gpu`: as in gpus.csv where it is there, else the driver's name. Unknown prices are NaN."""

    gpu: str
    per_hour: float
    purchase: float
    currency: str
    source: str
    date: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceList:
    """All prices of one file, by `Price.gpu`; empty: nothing is known."""

    prices: Mapping[str, Price]

    @property
    def currency(self) -> str:
        """Return the currency of all prices; "" if there are none."""
        return next((price.currency for price in self.prices.values()), "")

    def of_device(self, row: Mapping[str, Any]) -> Price | None:
        """Return the price of one device of a row: of a card with several devices, its share. None if unknown."""
        facts = gpu_specs.of_row(row)
        price = self.prices.get(facts.name if facts else row["device_name"])
        if price is None or facts is None or facts.devices_per_card == 1:
            return price
        share = 1 / facts.devices_per_card
        return replace(price, per_hour=price.per_hour * share, purchase=price.purchase * share)


NONE = PriceList(prices={})


def cost(price_list: PriceList, row: Mapping[str, Any], kind: str) -> float:
    """Return the cost of a cell's devices together, `kind` "per_hour" or "purchase"; NaN if unknown. `row`: of cells_table."""
    if not price_list.prices or not isinstance(row["device_name"], str) or row["mixed"]:
        return math.nan
    price = price_list.of_device(row)
    return float(getattr(price, kind) * row["count"]) if price else math.nan


def price_list_for(path: Path | None, runs: Iterable[RunFolder]) -> PriceList:
    """Return the list in `path`, in which the GPUs of `runs` are known too; without a path none. Raises BadInput."""
    if path is None:
        return NONE
    hosts = [run.read_record().host for run in runs]
    return load(path, {str(gpu.get("name")) for host in hosts for gpu in host.get("gpus") or ()})


def load(path: Path, measured: Collection[str] = ()) -> PriceList:
    """Read a list. `measured`: further names of GPUs that are known. Raises BadInput with every problem and its place."""
    if path.suffix.lower() == ".toml":
        rows = _toml_rows(path)
    else:
        rows = {f"row {number}": {**row} for number, row in figure_files.rows_of(path).items()}
    problems: list[str] = []
    prices: dict[str, Price] = {}
    for place, row in rows.items():
        price, problems_of_row = _price(row, measured)
        if price and price.gpu in prices:
            problems_of_row.append(f"{price.gpu} already has a price")
        elif price:
            prices[price.gpu] = price
        problems += [f"  {place}: {message}" for message in problems_of_row]
    currencies = sorted({price.currency for price in prices.values()})
    if len(currencies) > 1:
        problems.append(f"  several currencies: {', '.join(currencies)}; one list holds one")
    if problems:
        raise BadInput(f"{path} has problems:\n" + "\n".join(problems), hint=_HINT)
    return PriceList(prices=prices)


def _toml_rows(path: Path) -> dict[str, dict[str, Any]]:
    try:
        data = inputs.toml_of(inputs.read_text(path, hint=_HINT), str(path), hint=_HINT)
    except FileNotFoundError:
        raise BadInput(f"can't read {path}: there is no such file", hint=_HINT) from None
    tables = data.get("price")
    if list(data) != ["price"] or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadInput(f"{path} must contain [[price]] tables and nothing else", hint=_HINT)
    return {f"[[price]] {number}": table for number, table in enumerate(tables, start=1)}


def _price(row: Mapping[str, Any], measured: Collection[str]) -> tuple[Price | None, list[str]]:
    """Return the price of one row, or None and every reason."""
    problems = [f'unknown column "{name}"; {nearest(str(name), COLUMNS)}' for name in row if name not in COLUMNS]
    texts = {name: str(row.get(name, "")).strip() for name in _NEEDED}
    problems += [f"{name} is missing" for name, text in texts.items() if not text]
    per_hour, purchase = (_amount(name, row.get(name, ""), problems) for name in ("price_per_hour", "purchase_price"))
    if all(row.get(name, "") == "" for name in ("price_per_hour", "purchase_price")):
        problems.append("neither price_per_hour nor purchase_price is given")
    gpu = _gpu(texts["gpu"], measured, problems) if texts["gpu"] else ""
    if texts["currency"] and not _CURRENCY.fullmatch(texts["currency"]):
        problems.append(f'"{texts["currency"]}" is not a currency such as EUR or €')
    if texts["date"] and not _is_date(texts["date"]):
        problems.append(f'"{texts["date"]}" is not a date such as 2026-01-31')
    if problems:
        return None, problems
    named = {name: texts[name] for name in ("currency", "source", "date")}
    return Price(gpu=gpu, per_hour=per_hour, purchase=purchase, **named), []


def _amount(name: str, value: Any, problems: list[str]) -> float:
    """Return a price above 0, NaN for an empty field; add to `problems` what is wrong."""
    if value == "":
        return math.nan
    try:
        amount = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        amount = math.nan
    if not (math.isfinite(amount) and amount > 0):
        problems.append(f'{name} "{value}" is not a number above 0')
    return amount


def _gpu(name: str, measured: Collection[str], problems: list[str]) -> str:
    """Return the name in gpus.csv, or of a measured device that isn't there; add to `problems` if it is unknown."""
    names = {facts.name: facts.name for facts in gpu_specs.load()}
    by_driver = gpu_specs.find(name, None)
    gpu = names.get(name) or (by_driver.name if by_driver else None) or (name if name in measured else None)
    if gpu is None:
        candidates = [*names, *measured, *(driver for facts in gpu_specs.load() for driver in facts.driver_names if driver)]
        problems.append(f'unknown GPU "{name}"; {nearest(name, candidates)}')
    return gpu or ""


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
