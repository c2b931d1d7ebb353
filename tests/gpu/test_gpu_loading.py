"""Data from disk on a real GPU: proven, with what the loader costs, from pinned and pageable memory, eager and compiled."""

from typing import Any

import pytest
from gpu_machine import Machine

SETTINGS: dict[str, dict[str, Any]] = {
    "synthetic": {},
    "disk": {"data": "disk", "workers": 8},
    "in the process": {"data": "disk", "workers": 0},
    "pageable": {"data": "disk", "workers": 8, "pin_memory": False},
    "compiled": {"data": "disk", "workers": 8, "compile": True},
    "cold": {"data": "disk", "workers": 8, "page_cache": "cold"},
}
INVENTED = ("synthetic", "in the process")
"""What an invented device, which is slow and has one kind of memory, runs."""


@pytest.mark.parametrize("name", SETTINGS)
def test_a_cell_that_reads_its_data_is_proven_and_says_what_it_waited_for(
    machine: Machine, seen: dict[str, Any], name: str
) -> None:
    if not machine.is_real and name not in INVENTED:
        pytest.skip("the invented device has one kind of memory, and is slow")
    precision = "amp" if machine.is_real else "fp32"
    run = machine.run(machine.workload("resnet50", 64, precision=precision, **SETTINGS[name]))
    (row,) = run.rows
    waited = row.value("loader_wait_fraction")
    seen |= {"items per second": row.throughput, "waited": waited, "outcome": row.outcome, "remarks": run.launches[0].remarks}
    if row.outcome == "unsupported" and name == "cold":
        pytest.skip("the data set lies in memory")
    assert row.outcome == "ok", run.done.stderr
    if name != "synthetic":
        loading = run.event("loading")
        assert loading["place"] == "kept" and loading["items"] == 1000 and 0 <= waited <= 1
        assert any("the loader limits" in remark for remark in run.launches[0].remarks) == (waited > 0.02)
