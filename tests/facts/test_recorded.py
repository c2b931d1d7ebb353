"""Facts recorded by the version before launches were typed: they are read with the same numbers, cell by cell.

tests/data/recorded holds a few launches of a real run (two stacks, ResNet-50 on one and two CPU slots) without the names of the
machine; tests/data/recorded_tables the tables that the old code exported of them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from torchmatrix.facts.launch import last_tries, throughput
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.reporting import exports, report
from torchmatrix.reporting.exports.formats import FORMATS

DATA = Path(__file__).parents[1] / "data"
TABLES = sorted(path.stem for path in (DATA / "recorded_tables").glob("*.json"))
RENAMED = {"protocol": "method"}
OF_AN_OLD_RULE = "foreign"
"""It named other programs by the machine's load, which alarmed wrongly; these facts don't have what is known today."""
LIMITS = ("_low", "_high")
"""Columns of an interval that was the mean's, while the figure was the median; now it is the median's, which is its middle."""


@pytest.fixture
def run() -> RunFolder:
    (recorded,) = Results(DATA / "recorded").runs()
    return recorded


def test_a_launch_of_an_earlier_version_has_all_its_fields(run: RunFolder) -> None:
    launches = run.launches()
    assert len(launches) == 11 and {launch.outcome for launch in launches} == {"ok"} and len(last_tries(launches)) == 11
    launch = next(
        candidate for candidate in launches if candidate.cell.endswith("torch2.5.1-cpu/resnet50-train-fp32-b4-64px/cpu0+1")
    )
    assert (launch.run, launch.round, launch.number, launch.trial_batch) == (run.id, 1, 1, None)
    assert (launch.stack.name, launch.stack.torch, launch.devices.label) == ("torch2.5.1-cpu", "2.5.1", "cpu0+1")
    assert (launch.ddp_id, launch.workload.parallel) == ("resnet50-train-fp32-b4-64px", "ddp")
    assert launch.devices.names == ("cpu0", "cpu1") and launch.batch == launch.batch_requested == 4
    assert launch.workload.factors["optimizer"] == "sgd" and launch.method.name == "steady" and not launch.malformed
    (window,) = launch.windows
    assert throughput(launch) == pytest.approx(80 / 4.939407533) and window.items == 80
    assert window.edges == (619.401278312, 624.3406994700001) and [len(steps) for steps in window.step_seconds] == [10, 10]
    assert launch.phases["first-step"] == 0.6192375630000697 and launch.memory[-1].peak_bytes == (1011818496, 987607040)
    assert launch.reported is not None and launch.reported.versions["numpy"] and launch.image is not None
    assert launch.exit is not None and launch.exit.returncode == 0 and len(launch.telemetry) > 20


def test_the_record_of_an_earlier_version_names_its_cells_by_their_fields(run: RunFolder) -> None:
    record = run.read_record()
    assert record.complete and not record.problems and record.host["name"] == "host"
    assert [(n.stack, n.workload, n.devices) for n in record.planned][1] == (
        "torch2.5.1-cpu",
        "resnet50-train-fp32-b4-64px",
        "cpu0+1",
    )
    assert record.skips and all(skip.cell.startswith(f"{skip.stack}/") for skip in record.skips)


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_of_the_tables_is_as_it_was(run: RunFolder, name: str) -> None:
    now = json.loads(FORMATS["json"](name, exports.of(report.view_of(run)).values[name]))
    then = json.loads((DATA / "recorded_tables" / f"{name}.json").read_text())
    assert len(now) == len(then)
    for ours, theirs in zip(now, then, strict=True):
        same = [key for key in theirs if not key.endswith(LIMITS) and key != OF_AN_OLD_RULE]
        assert {key: ours.get(_today(key)) for key in same} == {key: theirs[key] for key in same}
        for key in (key for key in theirs if key.endswith(LIMITS) and theirs[key] is not None):
            value = ours[key.rpartition("_")[0]]
            assert ours[key] <= value if key.endswith("_low") else ours[key] >= value


def test_a_report_is_rendered_from_them(run: RunFolder) -> None:
    page = report.render(report.view_of(run))
    cells: list[dict[str, Any]] = json.loads((DATA / "recorded_tables/cells.json").read_text())
    assert cells and all(f"{cell['items_per_second']:#.4g}" in page for cell in cells)


def _today(column: str) -> str:
    return RENAMED.get(column, column)
