"""What an explorer shows of a choice: panels, each with its sentence and its rows, drawn by one specification."""

from dataclasses import dataclass, field
from typing import Any

from torchmatrix.reporting.explorers.choosing import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One small chart. `name`: its place among the others, for ids; `title`: its answer. `rows` and `params` go into the
    explorer's specification; "rows" may be several data sets."""

    name: str
    title: str
    rows: dict[str, list[Row]]
    params: dict[str, Any] = field(default_factory=dict)


def drawn(skeleton: dict[str, Any], panel: Panel) -> dict[str, Any]:
    """The specification of one panel."""
    params = [one | {"value": panel.params.get(one["name"], one.get("value"))} for one in skeleton.get("params", ())]
    return skeleton | {"datasets": panel.rows} | ({"params": params} if params else {})
