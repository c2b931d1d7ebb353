"""The reader of old facts: what earlier versions didn't record is derived from the ids and names that they recorded.

No other code takes an id or a file's name apart.
"""

import re
from pathlib import Path

from torchmatrix.facts.checked import Record

_EXPLAINS = ("independent", "no-sync")
_NAME = re.compile(r"(?:round|batch|probe)(\d+)-try(\d+)\.jsonl", re.ASCII)


def with_cell(line: Record) -> Record:
    """A `planned` or `skip` line with the fields of its cell, which were only in the cell's id."""
    if "workload" in line or not isinstance(line.get("cell"), str):
        return line
    stack, _, rest = line["cell"].partition("/")
    workload, _, devices = rest.partition("/")
    parallel = next((word for word in _EXPLAINS if workload.endswith(f"-{word}")), "ddp")
    known = {"stack": stack, "workload": workload, "parallel": parallel, "ddp_workload": ddp_workload(workload, parallel)}
    return {**known, "devices": devices, **line}


def ddp_workload(workload: str, parallel: str) -> str:
    """The id of the workload that this one explains: its own id without the ending that names the kind."""
    return workload.removesuffix(f"-{parallel}")


def number(path: Path) -> int:
    """Which try a launch was; 1 if its file doesn't have our kind of name."""
    found = _NAME.fullmatch(path.name)
    return int(found[2]) if found else 1


def misnamed(path: Path, round_: int, number_: int) -> str | None:
    """Why the name of a file in a results folder doesn't fit the launch in it, or None: a copy would count twice."""
    found = _NAME.fullmatch(path.name)
    if not found:
        return "its name is not that of a launch file, such as round1-try1.jsonl"
    if (int(found[1]), int(found[2])) != (round_, number_):
        return f"it holds try {number_} of round {round_}: it was copied or renamed"
    return None
