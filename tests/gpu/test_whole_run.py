"""A whole run on a real GPU, from the matrix to the report and its tables; and no false alarm among all honest launches."""

import json
from pathlib import Path
from typing import Any

from cells import DECODER, GENERATE
from gpu_machine import Machine, launches_in

from torchmatrix.analysis.run_summary import launch_rows


def test_a_matrix_of_four_launches_each_becomes_a_report(machine: Machine, seen: dict[str, Any], pytestconfig: Any) -> None:
    folder = machine.folder / "whole"
    folder.mkdir()
    images = {"channels_last": True, "seconds": 3, "windows": 2}
    workloads = (
        machine.workload("resnet50", 128, precision=["fp32", "amp"], **images),
        *([machine.workload("resnet50", 128, precision="amp", compile=True, **images)] if machine.is_real else []),
        machine.workload("bert-base-cased", 32, precision="amp-bf16", sequence_length=128, attention="sdpa"),
        machine.workload(DECODER[0], DECODER[1], **GENERATE),
    )
    machine.write_matrix(folder, *workloads, launches=4 if machine.is_real else 2)
    done = machine.command(folder, "run", "--engine", "local", "--json", timeout=560)
    told = json.loads(done.stdout)
    seen |= {"exit code": done.returncode, "outcomes": told["outcomes"], "said": done.stderr[-2500:]}
    page = (folder / "reports/index.html").read_text(encoding="utf-8")
    exported = machine.command(folder, "export", "out", "--no-charts")
    seen["rows"] = [
        {key: row.value(key) for key in ("workload", "throughput", "outcome", "remarks", "changed_settings", "energy_problem")}
        for row in launch_rows(launches_in(folder))
    ]
    if output := pytestconfig.getoption("output", default=""):
        kept = Path(output)
        kept.mkdir(parents=True, exist_ok=True)
        (kept / "report.html").write_text(page, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert exported.returncode == 0, exported.stderr
    assert set(told["outcomes"]) == {"ok"}
    assert len(json.loads((folder / "out/cells.json").read_text(encoding="utf-8"))) == (5 if machine.is_real else 4)
    assert "GPU" in page


def test_no_honest_launch_of_this_session_raised_an_alarm(machine: Machine, seen: dict[str, Any]) -> None:
    """Each launch of a listed model that the other tests made counts: none of them is told to be wrong."""
    folders = [path.parent for path in machine.folder.glob("*/matrix.toml") if "net.py" not in path.read_text(encoding="utf-8")]
    launches = [launch for folder in folders for launch in launches_in(folder)]
    alarms = {str(launch.path.parent.name): launch.error for launch in launches if launch.outcome == "numerics"}
    remarks = {launch.workload.id: launch.remarks for launch in launches if launch.remarks}
    seen |= {"launches": len(launches), "alarms": alarms, "remarks": remarks}
    assert not alarms
    assert not machine.is_real or len(launches) >= 20
