"""The Typer application that the verbs' modules add to."""

import typer

app = typer.Typer(
    name="torchmatrix",
    help="A reproducible benchmark matrix for PyTorch: versions x CUDA/ROCm/CPU x GPUs, one HTML report.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
