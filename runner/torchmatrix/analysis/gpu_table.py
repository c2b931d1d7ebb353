"""The GPUs that a run measured: what their vendors say of them, and the best share of their peaks that was reached here."""

import math
from collections.abc import Iterable

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.column import Row, makes_figures
from torchmatrix.analysis.gpu_specs import PEAKED, GpuFacts

_FROM_CATALOG = (
    "vendor", "architecture", "compute_capability", "devices_per_card", "memory_gb", "memory_type",
    "bandwidth_gb_per_second", "power_watts", "launch_date", "status", "source",
)  # fmt: skip


def _column_part(word: str) -> str:
    """A precision as a part of a column's name."""
    return word.replace("-", "_")


def gpu_table(cells: Iterable[Row]) -> list[Row]:
    """One row per GPU model of tables.cells_table, in the order in which they first appear; None and NaN are unknown.

    `gpu`: the name in gpus.csv. Memory, bandwidth and watts are per card. `peak_*_tflops`: of one device, as MFU uses it.
    `mfu_*`: the best of the run's cells in that precision. A GPU that gpus.csv doesn't list keeps its row.
    """
    models: dict[tuple[str, GpuFacts | None], list[Row]] = {}
    for row in cells:
        name = row.get("device_name")
        if isinstance(name, str) and row["device_list"][0].startswith("gpu") and not row["mixed"]:
            models.setdefault((name, gpu_specs.find(name, _memory(row))), []).append(row)
    return [_gpu_row(name, facts, rows) for (name, facts), rows in models.items()]


COLUMNS = [
    "device_name", "gpu", "device_memory_bytes", "multiprocessors", *_FROM_CATALOG,
    *(f"peak_{_column_part(word)}_tflops" for word in PEAKED), *(f"mfu_{_column_part(word)}" for word in PEAKED),
]  # fmt: skip


def _gpu_row(name: str, facts: GpuFacts | None, rows: list[Row]) -> Row:
    peaks = {word: gpu_specs.peak_flops(facts, word) if facts else None for word in PEAKED}
    counted = [row["device_multiprocessors"] for row in rows]
    return {
        "device_name": name,
        "gpu": facts.name if facts else None,
        "device_memory_bytes": _memory(rows[0]),
        "multiprocessors": next((n for n in counted if isinstance(n, (int, float)) and n > 0), None),
        **{column: getattr(facts, column, None) for column in _FROM_CATALOG},
        **{f"peak_{_column_part(word)}_tflops": peak / 1e12 if peak else math.nan for word, peak in peaks.items()},
        **{f"mfu_{_column_part(word)}": _best_mfu(word, rows) for word in PEAKED},
    }


def _best_mfu(precision: str, rows: list[Row]) -> float:
    known = [row["mfu"] for row in rows if row["precision"] == precision and makes_figures(row)]
    return max((mfu for mfu in known if not math.isnan(mfu)), default=math.nan)


def _memory(row: Row) -> int | None:
    bytes_ = row["device_memory_bytes"]
    return int(bytes_) if isinstance(bytes_, (int, float)) and bytes_ > 0 else None
