"""timm: the results of benchmark.py (CSV or JSON), and the tables of its results folder."""

from torchmatrix_plugins.foreign.document import Document, Fields
from torchmatrix_plugins.foreign.results import Amount, Case, Figure, ForeignFile

_RATE, _STEP = "batch / step, the zeroing of gradients included", "forward, backward and optimizer, without zeroing gradients"


def read(document: Document) -> ForeignFile | None:
    """Read a case for each model, mode and batch."""
    rows = document.records
    keys = [f"{mode}_samples_per_sec" for mode in ("train", "infer")]
    if not all("model" in row for row in rows) or not any(key in row for row in rows for key in keys):
        return None
    cases = tuple(case for row in rows for mode in ("train", "infer") if (case := _case(row, mode)))
    failed = (Case(name=row.text("model"), problems=(f"it failed: {row.text('error')}",)) for row in rows if "error" in row)
    return ForeignFile(path=document.path, tool="timm", cases=(*cases, *failed), tried=("1.0",))


def _case(row: Fields, mode: str) -> Case | None:
    rate, step = row.positive(f"{mode}_samples_per_sec"), row.positive(f"{mode}_step_time")
    quantity, figures = "training" if mode == "train" else "inference", []
    if rate:
        definition = _RATE if mode == "train" else "batch / step"
        figures.append(Figure(quantity=quantity, value=rate, definition=definition))
    if step:
        figures.append(
            Figure(quantity="step", statistic="mean", value=step, definition=_STEP if mode == "train" else "forward")
        )
    work: dict[str, Amount] = {"model": row.text("model") or None, "mode": quantity}
    work |= {"batch": row.number(f"{mode}_batch_size"), "image size": row.number(f"{mode}_img_size")}
    name = f"{row.text('model')} {quantity}"
    return Case(name=name, work=work, figures=tuple(figures)) if figures else None
