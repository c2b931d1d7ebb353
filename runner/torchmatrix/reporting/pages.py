"""What a page of a plugin is asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchmatrix.analysis.prices import PriceList
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.reporting.page import Brand


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRequest:
    """A page, or pages, of `runs` (oldest first) at `target`. `redact`: with pseudonyms; `with_messages`: with what failed
    workloads said (reporting/redaction). `brand`: whose page it is. `tell`: takes a line for the user.
    """

    results: Results
    runs: Sequence[RunFolder]
    target: Path
    redact: bool
    with_messages: bool
    prices: PriceList
    brand: Brand
    tell: Callable[[str], None]
