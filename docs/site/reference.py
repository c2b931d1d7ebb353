"""Writes the generated tables of matrix.md and definitions.md from the code: python docs/site/reference.py [--check].

A table stands between `<!-- generated: NAME -->` and `<!-- end -->`. With --check nothing is written, and a stale page
ends with exit code 1.
"""

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchmatrix.analysis.glossary import DEFINITIONS
from torchmatrix.analysis.metrics import METRICS
from torchmatrix.core import assets
from torchmatrix.core.toml_keys import Key
from torchmatrix.facts.environments import CONDITIONS
from torchmatrix.matrix import catalog, factors, matrix_file, stacks, workloads

DOCS = Path(__file__).resolve().parents[1]
_PLACE = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_KINDS = {str: "text", int: "whole number", float: "number", bool: "true or false", list: "lists", dict: "table"}


def pages() -> dict[Path, str]:
    """Every page with a generated table, as it should be."""
    tables = {name: keys_table(keys) for name, keys in matrix_file.SECTIONS.items()}
    batch = replace(
        factors.BY_NAME["batch"].key(), meaning="Items per device and step: see [batch](#batch). Required for training."
    )
    tables |= {"workload": keys_table({**workloads.KEYS, "batch": batch})}
    tables |= {"stack": keys_table(stacks.KEYS), "preset": keys_table(matrix_file.PRESET), "definitions": _definitions()}
    tables |= {"models": _models(), "language models": _language_models(), "conditions": _conditions(), "metrics": _metrics()}
    found = {path: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
    return {
        path: _PLACE.sub(lambda m: f"{m[1]}\n{tables[m[2]]}\n{m[3]}", text)
        for path, text in found.items()
        if _PLACE.search(text)
    }


def keys_table(keys: Mapping[str, Key]) -> str:
    """A Markdown table with a row for each key."""
    rows = [
        f"| `{name}`{' ×' if key.axis else ''} | {_values(key)} | {_default(key)} | {_cell(key.meaning)} |"
        for name, key in keys.items()
    ]
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows, ""])


def _values(key: Key) -> str:
    kind = ", ".join(f"`{choice}`" for choice in key.choices) if key.choices else _KINDS[key.kind]
    kind = f"list of {kind}s" if key.plural and key.kind is not list else kind
    limits = [f"at least {key.minimum:g}"] if key.minimum else []
    limits += [f"at most {key.maximum:g}"] if key.maximum is not None else []
    return ", ".join([kind, *limits])


def _default(key: Key) -> str:
    return "" if key.default in (None, ()) else f"`{_toml(key.default)}`"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _definitions() -> str:
    rows = [f"| `{name}` | {_cell(text)} |" for name, text in DEFINITIONS.items()]
    return "\n".join(["| term | definition |", "|---|---|", *rows, ""])


def _metrics() -> str:
    """What compare, history and advise take by --metric and --aim; what gate judges; the column in files."""
    rows = [
        f"| `{one.name}` | {one.title} | {one.shown_unit.format(unit='items')} | {'more' if one.more_is_better else 'less'} "
        f"| {'yes' if one.gated else ''} | `{one.exported}` |"
        for one in METRICS
    ]
    head = "| metric | what it is | unit | better is | judged by gate | column in files |"
    return "\n".join([head, "|---|---|---|---|---|---|", *rows, ""])


def _conditions() -> str:
    """What is recorded of which part of a launch: what splits a cell, and what is only reported."""
    parts = {one.of: f"{one.of}, each" if one.of == "GPU" else one.of or "launch" for one in CONDITIONS}
    rows = []
    for of, part in parts.items():
        splitting, told = (
            ", ".join(one.title or "which it is" for one in CONDITIONS if (one.of, one.splits) == (of, splits))
            for splits in (True, False)
        )
        rows.append(f"| {part} | {_cell(splitting)} | {_cell(told)} |")
    return "\n".join(["| of | launches that differ are left out | only reported |", "|---|---|---|", *rows, ""])


def _models() -> str:
    """Of every listed model: its name, what it counts, takes and is trained with, and its parameters."""
    rows = [
        f"| `{name}` | {model.library} | {model.unit} | {', '.join(f'`{factor}`' for factor in model.takes)} "
        f"| {model.optimizer} | {(model.parameters or 0) / 1e6:.1f} |"
        for name, model in catalog.models().items()
    ]
    head = "| model | library | counts | takes | optimizer | parameters (millions) |"
    return "\n".join([head, "|---|---|---|---|---|---|", *rows, ""])


def _language_models() -> str:
    """Of every model in tokens: its parameters, those that a token takes, and the cache of keys and values."""
    listed = json.loads((assets.WORKLOAD / "families" / "models.json").read_text(encoding="utf-8"))["transformers"]["models"]
    entries = {name: entry for name, entry in listed.items() if entry.get("unit") == "tokens"}
    rows = [
        f"| `{name}` | {entry['parameters'] / 1e6:,.1f} | {entry.get('active_parameters', entry['parameters']) / 1e6:,.1f} "
        f"| {entry['kv_bytes_per_token'] / 1024:,.2f} | {entry['note']} |"
        for name, entry in entries.items()
    ]
    head = "| model | parameters (millions) | active per token | cache per token, 16 bits (KiB) | source |"
    return "\n".join([head, "|---|---|---|---|---|", *rows, ""])


def main() -> int:
    """The exit code: 0, or 1 if --check found a stale page."""
    stale = [path for path, text in pages().items() if path.read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" in sys.argv:
            print(f"error: {path.name} is out of date\n\nhint: python docs/site/reference.py", file=sys.stderr)
        else:
            path.write_text(pages()[path], encoding="utf-8")
            print(path)
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
