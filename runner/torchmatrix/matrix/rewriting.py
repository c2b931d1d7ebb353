"""Another matrix file from the text of one: its settings and device sets with one workload, and with other stacks if asked."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchmatrix.ground import inputs
from torchmatrix.matrix import own_models
from torchmatrix.matrix.factors import FACTORS
from torchmatrix.matrix.workloads import Workload

_HEADER = re.compile(r"(?m)^(?=\[\[?[A-Za-z_][\w.-]*\]\]?\s*(?:#.*)?$)")


def rewritten(text: str, workload: Mapping[str, Any], stacks: Sequence[Mapping[str, Any]] | None = None) -> str:
    """`text` with one [[workload]] and, if given, these [[stack]] tables, all as keys and values; without its [preset].

    A user's own model may stand in `workload` by its id: the result names its file as `text` does.
    """
    dropped = {"workload", "preset", *(("stack",) if stacks is not None else ())}
    kept = [block for block in _HEADER.split(text) if _name_of(block) not in dropped]
    body = "".join(kept).rstrip("\n")
    named = {**workload, "model": _as_written(text, workload["model"])}
    tables = [*(("stack", stack) for stack in stacks or ()), ("workload", named)]
    return "\n".join((body, *(_table(name, values) for name, values in tables)))


def keys_of(workload: Workload) -> dict[str, Any]:
    """The keys that describe this workload and no other; without the stacks and the numbers of devices that it is for."""
    said = {"name": workload.name} if workload.name else {}
    own = {factor.name: workload.factors[factor.name] for factor in FACTORS}
    return {**said, "device": workload.device, **{name: value for name, value in own.items() if value is not None}}


def _as_written(text: str, model: str) -> str:
    """How `text` names a model: one of the user's own, whose id has its file's hash, by path and name."""
    return next((said for said in _models_in(text) if own_models.means(said, model)), model)


def _models_in(text: str) -> Iterator[str]:
    for workload in inputs.toml_of(text, "the matrix", hint="it was read before").get("workload", ()):
        said = workload.get("model")
        yield from said if isinstance(said, list) else [said]


def _name_of(block: str) -> str:
    """The first part of a block's header; empty for what stands before the first header."""
    found = re.match(r"\[\[?([\w-]+)", block)
    return found[1] if found else ""


def _table(name: str, values: Mapping[str, Any]) -> str:
    return "".join((f"\n[[{name}]]\n", *(f"{key} = {json.dumps(value)}\n" for key, value in values.items())))
