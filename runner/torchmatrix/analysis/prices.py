"""Price lists of devices, as somebody at this site wrote them down; there is none of ours. What an item costs.

A CSV file with a header, or TOML with a [[price]] table for each line:

    gpu,price_per_hour,purchase_price,server_price,hours,electricity_price,currency,source,date
    H100 SXM5 80GB,2.10,,,,,EUR,offer 1234 of our provider,2026-01-31
    L40S,,8000,3000,26280,0.25,EUR,our own; three years,2026-01-31

`gpu`: a name of gpus.csv, the driver's own, or a measured CPU's. Prices are for one card (an MI250X, which drivers show as two
devices, is one) or one core group of a CPU. `price_per_hour` and `purchase_price`: at least one of the two. `server_price`: the
card's share of the rest of the server; `hours`: over how many the purchase is spread; `electricity_price`: per kWh. One file
holds one currency.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from msgspec import structs

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.metrics import COST, Metric
from torchmatrix.analysis.published import figure_files
from torchmatrix.analysis.rows import LaunchRow
from torchmatrix.core import credentials, inputs
from torchmatrix.core.errors import BadInput
from torchmatrix.core.toml_keys import in_lines, nearest
from torchmatrix.facts.store import RunFolder

AMOUNTS = {
    "price_per_hour": "per_hour", "purchase_price": "purchase", "server_price": "server", "hours": "hours",
    "electricity_price": "electricity",
}  # fmt: skip
"""The columns that hold numbers, with their fields of Price."""
_TEXTS = ("currency", "source", "date")
COLUMNS = ("gpu", *AMOUNTS, *_TEXTS)
_PLAIN = re.compile(r"[-+0-9.eE]+")
"""float() takes more, such as 1_000 and digits of other scripts."""
_LEAST, _MOST = 1e-9, 1e15
"""Of amounts and hours: what they make stays a number, in whatever currency."""
_CURRENCY = re.compile(r"[A-Za-z]{2,8}|[€$£¥₹₩]")
_NEEDED = ("gpu", *_TEXTS)
MOST_NAMED = 20
"""Most lines of problems."""
_HINT = "docs/publishing.md describes the format, under Prices"


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """The price of one card. `gpu`: as in gpus.csv where it is there, else the driver's name. Unknown prices are NaN.

    `server`: of its share of the server; `hours`: over which both are spread; `electricity`: of a kWh.
    """

    gpu: str
    per_hour: float
    purchase: float
    currency: str
    source: str
    date: str
    server: float = math.nan
    hours: float = math.nan
    electricity: float = math.nan

    @property
    def hour(self) -> float:
        """Return what an hour costs without electricity: the rent, or the purchase over its hours; NaN if neither is known."""
        if not math.isnan(self.per_hour):
            return self.per_hour
        return (self.purchase + (0.0 if math.isnan(self.server) else self.server)) / self.hours

    @property
    def formula(self) -> str:
        """Write what an hour costs and how that follows from the list; "" if it doesn't."""
        if math.isnan(self.hour):
            return ""
        amounts = [amount for amount in (self.purchase, self.server) if not math.isnan(amount)]
        bought = " + ".join(f"{amount:,g}" for amount in amounts).replace(",", " ")
        spread = f"({bought})" if len(amounts) > 1 else bought
        rest = "" if not math.isnan(self.per_hour) else f" = {spread} {self.currency} / {self.hours:,g} h".replace(",", " ")
        power = "" if math.isnan(self.electricity) else f", and {self.electricity:g} {self.currency} per kWh that it takes"
        return f"{self.gpu}: {self.hour:.4g} {self.currency} per hour{rest}{power}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceList:
    """All prices of one file, by `Price.gpu`; empty: nothing is known. `unknown`: rows of GPUs that nobody knows, in words."""

    prices: Mapping[str, Price]
    unknown: tuple[str, ...] = ()

    def redacted(self, text: Callable[[str], str]) -> "PriceList":
        """Return the list as others may read it: `text` redacts what somebody wrote freely."""
        return replace(self, prices={name: replace(price, source=text(price.source)) for name, price in self.prices.items()})

    @property
    def currency(self) -> str:
        """Return the currency of all prices; "" if there are none."""
        return next((price.currency for price in self.prices.values()), "")

    def formulas(self, devices: Collection[str]) -> list[str]:
        """Return how the price of an hour follows from the list, for each of these devices by its short name, or "CPU"."""
        gpus = {facts.name for facts in gpu_specs.load()}
        shown = [
            price
            for name, price in self.prices.items()
            if {name, gpu_specs.without_family(name)} & {*devices} or ("CPU" in devices and name not in gpus)
        ]
        return [price.formula for price in shown if price.formula]

    def of_device(self, row: LaunchRow) -> Price | None:
        """Return the price of one device of a launch: of a card with several devices, its share. None if unknown."""
        facts = gpu_specs.of_row(row)
        price = self.prices.get(facts.name if facts else row.device_name or "")
        if price is None or facts is None or facts.devices_per_card == 1:
            return price
        share = 1 / facts.devices_per_card
        of_device = {name: getattr(price, name) * share for name in ("per_hour", "purchase", "server")}
        return replace(price, **of_device)


NONE = PriceList(prices={})


def purchase(price_list: PriceList, row: LaunchRow) -> float:
    """Return what a launch's devices cost together to buy; NaN if unknown."""
    price = _of_row(price_list, row)
    return price.purchase * row.count if price else math.nan


def _of_row(price_list: PriceList, row: LaunchRow) -> Price | None:
    if row.device_list[0].startswith("cpu"):
        return price_list.prices.get(row.cpu or "")
    return price_list.of_device(row) if row.device_name and not row.mixed else None


def charged(launches: Iterable[LaunchRow], price_list: PriceList) -> tuple[LaunchRow, ...]:
    """Return the launches with what an item costs (metrics.COST): rent or purchase by the hour, and the electricity.

    The electricity is that of the devices: energy per item, or where no counter tells it, mean power over throughput. NaN where
    a price that the list has for other devices is missing, or electricity has a price and no power was measured.
    """
    return tuple(_charged(row, price_list) for row in launches) if price_list.prices else tuple(launches)


def _charged(row: LaunchRow, price_list: PriceList) -> LaunchRow:
    price = _of_row(price_list, row)
    if not price or not row.throughput > 0:
        return row
    cost = price.hour / 3600 * row.count / row.throughput + _electricity(price, row)
    return structs.replace(row, **{COST.column: cost})


JOULES_PER_KWH = 3.6e6


def _electricity(price: Price, row: LaunchRow) -> float:
    if math.isnan(price.electricity):
        return 0.0
    joules = row.power_watts / row.throughput if math.isnan(row.energy_per_item) else row.energy_per_item
    return price.electricity / JOULES_PER_KWH * joules


def price_list_for(path: Path | None, runs: Iterable[RunFolder]) -> PriceList:
    """Return the list in `path`, in which the GPUs of `runs` are known too; without a path none. Raises BadInput."""
    if path is None:
        return NONE
    hosts = [run.read_record().host for run in runs]
    gpus = {str(gpu.get("name")) for host in hosts for gpu in host.get("gpus") or ()}
    return load(path, gpus | {str(host["cpu"]) for host in hosts if host.get("cpu")})


def metric_for(metric: Metric, price_list: PriceList) -> Metric:
    """Return the metric in the list's currency. Raises BadInput if it is money and there is no list."""
    if metric.column == COST.column and not price_list.prices:
        raise BadInput("a cost takes a price list", hint=f"--prices FILE; {_HINT}")
    return metric.in_currency(price_list.currency)


def load(path: Path, measured: Collection[str] = ()) -> PriceList:
    """Read a list. `measured`: further names of GPUs that are known. Raises BadInput with every problem and its place.

    A GPU that nobody knows is a problem only where none other has a price: a list may hold more than was measured.
    """
    if path.suffix.lower() == ".toml":
        rows = _toml_rows(path)
    else:
        rows = {f"row {number}": {**row} for number, row in figure_files.rows_of(path).items()}
    problems = [f"{place}: holds a credential: remove it" for place, row in rows.items() if _holds_credential(row)]
    unknown: list[str] = []
    prices: dict[str, Price] = {}
    for place, row in rows.items():
        price, problems_of_row = _price(row, measured)
        if price and not price.gpu:
            unknown.append(f"{place}: {_who(str(row['gpu']), measured).partition('; valid: ')[0]}")
        elif price and price.gpu in prices:
            problems_of_row.append(f"{price.gpu} already has a price")
        elif price:
            prices[price.gpu] = price
        problems += [f"{place}: {message}" for message in problems_of_row]
    currencies = sorted({price.currency for price in prices.values()})
    if len(currencies) > 1:
        problems.append(f"several currencies: {', '.join(currencies)}; one list holds one")
    if problems or not prices:
        what, every = "problems" if problems else "the price of no known GPU", [*problems, *unknown]
        raise BadInput(f"{path} has {what}:\n{in_lines(every[:MOST_NAMED], len(every))}", hint=_HINT)
    return PriceList(prices=prices, unknown=tuple(unknown))


def _holds_credential(row: Mapping[str, Any]) -> bool:
    return any(isinstance(value, str) and credentials.line_of_first(value) for value in row.values())


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
    problems += [f"{name} must be a text, not {row[name]}" for name in ("gpu", "currency", "source")
                 if name in row and not isinstance(row[name], str)]  # fmt: skip
    amounts = {field: _amount(name, row.get(name, ""), problems) for name, field in AMOUNTS.items()}
    problems += _contradictions({name for name in AMOUNTS if row.get(name, "") != ""})
    gpu = _gpu(texts["gpu"], measured)
    if texts["currency"] and not _CURRENCY.fullmatch(texts["currency"]):
        problems.append(f'"{texts["currency"]}" is not a currency such as EUR or €')
    if texts["date"] and not _is_date(texts["date"]):
        problems.append(f'"{texts["date"]}" is not a date such as 2026-01-31')
    if problems:
        return None, problems
    return Price(gpu=gpu, currency=texts["currency"], source=texts["source"], date=texts["date"], **amounts), []


def _contradictions(given: Collection[str]) -> Iterable[str]:
    """Yield what is wrong with the set of amounts that a row gives."""
    if not {"price_per_hour", "purchase_price"} & {*given}:
        yield "neither price_per_hour nor purchase_price is given"
    if "hours" in given and "price_per_hour" in given:
        yield "hours spread a purchase, but price_per_hour is given, too"
    elif "hours" in given and "purchase_price" not in given:
        yield "hours spread a purchase, but purchase_price is missing"
    if "server_price" in given and "hours" not in given:
        yield "server_price needs the hours over which it is spread"


def _amount(name: str, value: Any, problems: list[str]) -> float:
    """Return a price above 0, NaN for an empty field; add to `problems` what is wrong."""
    if value == "":
        return math.nan
    try:
        amount = math.nan if isinstance(value, bool) or not _PLAIN.fullmatch(str(value).strip()) else float(value)
    except (TypeError, ValueError):
        amount = math.nan
    if not (math.isfinite(amount) and amount > 0):
        problems.append(f'{name} "{value}" is not a number above 0')
    elif not _LEAST <= amount <= _MOST:
        problems.append(f'{name} "{value}" is not from {_LEAST:g} to {_MOST:g}')
    return amount


def _gpu(name: str, measured: Collection[str]) -> str:
    """Return the name in gpus.csv, or of a measured device that isn't there; "" if it is unknown."""
    found = gpu_specs.find_published(name)
    return found.name if found else name if name in measured else ""


def _who(name: str, measured: Collection[str]) -> str:
    drivers = (driver for facts in gpu_specs.load() for driver in facts.driver_names if driver)
    candidates = [*(facts.name for facts in gpu_specs.load()), *measured, *drivers]
    return f'unknown GPU "{name}"; {nearest(name, candidates)}'


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
