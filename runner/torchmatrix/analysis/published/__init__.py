"""Published figures: read and checked, audited for impossible values, and compared with ours.

In: CSV files, in the layouts in which people publish (figure_files), and our tables. Between: Figure, one throughput, published
or measured here. Out: findings (audit), and figures and claims beside ours (claims).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.published import units
from torchmatrix.facts.launch import batches_per_step
from torchmatrix.matrix import catalog

if TYPE_CHECKING:
    from torchmatrix.analysis.cells import Cell


TRAINING = 3
"""Operations of a training step over those of forward: backward takes twice as many (arXiv:2001.08361, section 2.1)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """The throughput of all GPUs together in items per second; the columns are those of reports/published/README.md.

    Unknown is "" in texts and None elsewhere. `row`: its number in `file`, where the header is row 1 (in a run: which of its
    cells). `column`: where it stands, if a row has several figures. `cell`: the id, for a figure of ours. `rounding`: half a
    unit of the last digit written, in items per second. `half_interval`: half of the 95 % interval of a figure of ours; else
    NaN. `unit`: as written; of a figure per GPU `throughput` and `rounding` are times `gpus`, if that is known.
    `forward_flops`: operations of the forward pass per item, if the source states them or the workload counted them.
    """

    file: str
    row: int
    column: str
    cell: str
    vendor: str
    framework: str
    gpu: str
    gpus: int | None
    model: str
    mode: str
    precision: str
    memory_format: str
    compile: bool | None
    batch_per_gpu: int | None
    image_size: int | None
    sequence_length: int | None
    data: str
    throughput: float
    rounding: float
    half_interval: float
    unit: str
    steady_throughput: float | None
    forward_flops: float | None
    torch: str
    image: str
    driver: str
    date: str
    machine: str
    published_gpu: str
    published_model: str
    published_precision: str
    source: str
    notes: str

    @property
    def per_gpu(self) -> float | None:
        """Return the throughput of each GPU; None where the number of GPUs isn't known."""
        return self.throughput / self.gpus if self.gpus else self.throughput if units.meaning(self.unit).of_each else None

    @property
    def is_vision(self) -> bool:
        """Check whether the model processes images, so that pixels and a memory format mean something."""
        model = catalog.find(self.model)
        return (self.unit or (model.unit if model else "")).startswith("image")


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A cell of ours with its figure."""

    figure: Figure
    cell: "Cell"


def measured(cells: Iterable["Cell"]) -> tuple[Measured, ...]:
    """Return the cells that have a number and are of one GPU model, and whose GPUs have a batch each."""
    shown = [cell for cell in cells if cell.samples and not cell.last.mixed and has_batch_each(cell)]
    return tuple(Measured(figure=_ours(number, cell), cell=cell) for number, cell in enumerate(shown, start=1))


def has_batch_each(cell: "Cell") -> bool:
    """Check whether each GPU computes a batch of its own."""
    return bool(batches_per_step(cell.row.parallel, cell.row.count) == cell.row.count)


def mixed(cells: Iterable["Cell"]) -> tuple[str, ...]:
    """Return ids of the cells that have a number, but are of several GPU models, so that they have no figure."""
    return tuple(cell.row.cell for cell in cells if cell.samples and cell.last.mixed)


def _ours(number: int, cell: "Cell") -> Figure:
    """Return the figure of a cell. What is the same for all cells of a run (driver, date) stays unknown."""
    row, estimate = cell.last, cell.estimate()
    model, mode, image_size, sequence_length = row.flops_key
    name, vision = _known_text(row.device_name), image_size is not None
    flops = row.flops_per_item
    facts = gpu_specs.of_row(row)
    return Figure(
        file="", row=number, column="", cell=row.cell, vendor="torchmatrix", framework="pytorch",
        gpu=facts.name if facts else "", gpus=row.count, model=model, mode=mode, precision=row.precision,
        memory_format=("nhwc" if row.value("channels_last") else "nchw") if vision else "", compile=bool(row.compile),
        batch_per_gpu=int(row.batch), image_size=image_size,
        sequence_length=sequence_length, data="synthetic", throughput=estimate.value, rounding=0.0,
        half_interval=(estimate.high - estimate.low) / 2,
        unit=f"{row.unit}/s", steady_throughput=None,
        forward_flops=None if math.isnan(flops) else flops / (TRAINING if mode == "train" else 1),
        torch=_known_text(row.torch_build) or _known_text(row.torch),
        image=row.stack, driver="", date="", machine="", published_gpu=name, published_model=model,
        published_precision=row.precision, source="", notes="",
    )  # fmt: skip


def _known_text(value: Any) -> str:
    """Return the text; "" where it is unknown."""
    return value if isinstance(value, str) else ""
