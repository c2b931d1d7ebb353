"""The modes of workloads: what images/workload/measurements can measure. A new file there is a new mode.

The host reads only the literal MODE of each file, so that it needs no torch.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from torchmatrix.core import assets


@dataclass(frozen=True, kw_only=True, slots=True)
class Mode:
    """A mode. `trains`: whether it trains the model; `windows`: whether its figure is timed windows of steps; `timed`: what is
    timed; `noun`, `verbs`: its words for readers, as in "training", ("trains", "train").
    """

    trains: bool
    windows: bool
    timed: str
    noun: str
    verbs: tuple[str, str]


def _read() -> dict[str, Mode]:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (assets.WORKLOAD / "measurements").glob("*.py")}
    headers = {name: header for name, text in texts.items() if (header := _HEADER.search(text))}
    modes = {name: Mode(**ast.literal_eval(header[1])) for name, header in headers.items()}
    return dict(sorted(modes.items(), key=lambda item: (not item[1].trains, item[0])))


_HEADER = re.compile(r"^MODE = (\{.*?^\})", re.MULTILINE | re.DOTALL)
MODES: Mapping[str, Mode] = _read()
"""All modes by name, those that train first."""
WITH_WINDOWS = tuple(name for name, mode in MODES.items() if mode.windows)
