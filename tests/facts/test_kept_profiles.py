"""Profiles on disk: kept next to older ones, read back, and refused where they are damaged."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.profiled_steps import packed, record, span, trace
from torchmatrix.core.errors import EngineUnusable
from torchmatrix.core.inputs import Malformed
from torchmatrix.facts.store import Results
from torchmatrix_plugins.profile import profiles
from torchmatrix_plugins.profile.profiles import RECORD, Profile

CELL = "stack[1]/resnet50-train-fp32-b4/cpu0"


def saved(root: Path, **more: Any) -> Profile:
    return profiles.save_profile(root, "host", record(CELL, **more), {"trace": packed(20, [span("conv", 0, 5)])})


def test_what_was_kept_is_read_back(tmp_path: Path) -> None:
    held = saved(tmp_path, plain_seconds=[0.018, 0.020], profiled_seconds=[0.030, 0.024])
    assert held == profiles.read_profile(held.folder) == profiles.newest_profile(tmp_path, CELL, "m", "h")
    assert (held.cell, held.stack, held.host, held.steps) == (CELL, "stack[1]", "host", 2)
    assert (held.plain_seconds, held.profiled_seconds) == (0.010, 0.015)  # of a step, by the slowest rank
    assert held.trace() == trace(20, [span("conv", 0, 5)])


def test_the_newest_of_this_machine_and_this_program_is_taken(tmp_path: Path) -> None:
    saved(tmp_path, unix_seconds=1.61e9)
    newest = saved(tmp_path, unix_seconds=1.62e9)
    saved(tmp_path, unix_seconds=1.63e9, machine="another")
    saved(tmp_path, unix_seconds=1.64e9, workload_hash="newer")
    saved(tmp_path, unix_seconds=4.0e9)  # of a machine whose clock was wrong
    damaged = saved(tmp_path, unix_seconds=1.65e9)
    (damaged.folder / RECORD).write_text("{")
    assert profiles.newest_profile(tmp_path, CELL, "m", "h") == newest
    assert profiles.newest_profile(tmp_path, "stack1/resnet50-train-fp32-b4/cpu0", "m", "h") is None


@pytest.mark.parametrize(
    "change",
    [
        {"profile": 2}, {"steps": 0}, {"steps": True}, {"steps": 1.5}, {"cell": None}, {"work": []}, {"plain_seconds": []},
        {"plain_seconds": [0]}, {"profiled_seconds": ["1"]}, {"profiled_seconds": None}, {"unix_seconds": "now"}, {"torch": 2},
        {"named": 1},
    ],
)  # fmt: skip
def test_a_record_with_a_wrong_field_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = saved(tmp_path).folder / RECORD
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(Malformed):
        profiles.read_profile(path.parent)


def test_a_trace_that_is_gone_cut_off_no_trace_or_too_large_is_refused(tmp_path: Path) -> None:
    held = saved(tmp_path)
    with pytest.raises(Malformed, match="more than 100 bytes"):
        held.trace(most_bytes=100)
    with pytest.raises(Malformed, match="memory"):
        held.trace("memory")
    whole = held.path_of().read_bytes()
    for damaged in (whole[:-9], b"no trace", b""):
        held.path_of().write_bytes(damaged)
        with pytest.raises(Malformed, match=r"trace\.json\.gz can't be read"):
            held.trace()


def test_a_folder_that_cannot_be_written_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "host").write_text("a file")
    with pytest.raises(EngineUnusable) as error:
        saved(tmp_path)
    assert "--profiles" in error.value.hint


def test_a_profile_is_no_run(tmp_path: Path) -> None:
    saved(tmp_path)
    assert Results(tmp_path).runs() == []
