"""Carry out what the jobs of a run on a cluster call on their node. No verb for people: Typer's parsing would add a quarter to
what a launch costs.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from torchmatrix.cli.console import in_json, tell
from torchmatrix.cli.options import Volume
from torchmatrix.core.errors import BadInput, ExitCode

ON_NODE = "on-node"
"""The first word of the command that a job calls."""


def run(words: list[str]) -> int:
    """Carry out `describe PLACE NAME`, `launch PLACE ARRAY` or `join PLACE ARRAY TASK SPEC`."""
    from torchmatrix_plugins.cluster import on_node as node

    match words:
        case ["describe", place, name]:
            node.describe(Path(place), name)
        case ["launch", place, array]:
            tell(node.launch(Path(place), int(array), int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))), [], {}, Volume.NORMAL)
        case ["join", place, array, task, spec]:
            _join(Path(place), array, task, spec)
        case _:
            raise BadInput(f"{ON_NODE} is for the jobs of a run on a cluster", hint="torchmatrix run --engine slurm")
    return ExitCode.OK


def _join(place: Path, array: str, task: str, spec: str) -> None:
    """Take part in a launch that another node records: the signal to begin comes on stdin, events go to stdout."""
    from torchmatrix_plugins.cluster.on_node import take_part

    lock = threading.Lock()

    def write_event(event: dict[str, Any]) -> None:
        with lock:
            print(in_json(event, default=str), flush=True)

    take_part(place, int(array), int(task), json.loads(spec), write_event, lambda: bool(sys.stdin.readline()))
