"""torchmatrix: a containerized, reproducible benchmark matrix for PyTorch."""

__version__ = "0.1.0"
