"""The Typer application that the verbs' modules add to, and how its help lists them."""

from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperGroup

GROUPS = {
    "Start": ("init", "presets", "doctor", "plan"),
    "Measure": ("build", "run", "batch", "explain", "bisect", "profile", "why", "reproduce"),
    "Read": ("gather", "report", "compare", "advise", "history", "audit", "export"),
    "Every night": ("gate", "nightly"),
    "Keep": ("lock", "bundle", "clean"),
}
"""The verbs in the order of use."""
LONGEST_SUMMARY = 1_000
"""Click cuts summaries to one line; they are wrapped here instead."""


class VerbsInGroups(TyperGroup):
    """Lists the verbs under their headings. Typer's own headings would load Rich, which takes longer than everything else."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [verb for verbs in GROUPS.values() for verb in verbs]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, verbs in GROUPS.items():
            _write_section(formatter, heading, {verb: self.commands[verb] for verb in verbs})


class WholeSummaries(TyperGroup):
    """Lists the commands below a verb."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        _write_section(formatter, "Commands", self.commands)


def _write_section(formatter: Any, heading: str, commands: Mapping[str, Any]) -> None:
    with formatter.section(heading):
        rows = [(f"{name:<9}", command.get_short_help_str(LONGEST_SUMMARY)) for name, command in commands.items()]
        formatter.write_dl(rows)


app = typer.Typer(
    name="torchmatrix",
    cls=VerbsInGroups,
    help="A reproducible benchmark matrix for PyTorch: versions x CUDA/ROCm/CPU x GPUs, one HTML report.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
