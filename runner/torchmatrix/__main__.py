"""``python -m torchmatrix`` is the command ``torchmatrix``."""

from torchmatrix.cli import main

main()
