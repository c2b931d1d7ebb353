"""Another matrix file from the text of one: its settings and device sets with one workload, and with other stacks if asked."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.workloads import Workload

_HEADER = re.compile(r"(?m)^(?=\[\[?[A-Za-z_][\w.-]*\]\]?\s*(?:#.*)?$)")


def rewritten(text: str, workload: Mapping[str, Any], stacks: Sequence[Mapping[str, Any]] | None = None) -> str:
    """`text` with one [[workload]] and, if given, these [[stack]] tables, all as keys and values; without its [preset]."""
    dropped = {"workload", "preset", *(("stack",) if stacks is not None else ())}
    kept = [block for block in _HEADER.split(text) if _name_of(block) not in dropped]
    body = "".join(kept).rstrip("\n")
    tables = [*(("stack", stack) for stack in stacks or ()), ("workload", workload)]
    return "\n".join((body, *(_table(name, values) for name, values in tables)))


def keys_of(workload: Workload) -> dict[str, Any]:
    """The keys that describe this workload and no other; without the stacks and the numbers of devices that it is for."""
    said = {"name": workload.name} if workload.name else {}
    own = {factor.name: workload.factors[factor.name] for factor in FACTORS if factor.asked}
    return {**said, "device": workload.device, **{name: value for name, value in own.items() if value is not None}}


def _name_of(block: str) -> str:
    """The first part of a block's header; empty for what stands before the first header."""
    found = re.match(r"\[\[?([\w-]+)", block)
    return found[1] if found else ""


def _table(name: str, values: Mapping[str, Any]) -> str:
    return "".join((f"\n[[{name}]]\n", *(f"{key} = {json.dumps(value)}\n" for key, value in values.items())))
