"""A box that doesn't do its work gives no number, whatever is wrong with it; an honest one does."""

from pathlib import Path
from typing import Any

import pytest
import sabotaged
from boxes import bench, only, own_model
from sabotaged import RESNET

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("launch", sabotaged.EVERY, ids=lambda one: f"{one.name} {one.words[1]}")
def test_a_box_that_does_not_do_its_work_gives_no_number(real_python: str, launch: sabotaged.Sabotage) -> None:
    code, events, stderr = launch.launch(real_python)
    assert launch.is_caught(code, events), (code, events, stderr)


def test_a_compiled_step_that_does_its_work_is_proven(real_python: str, tmp_path: Path) -> None:
    code, events, stderr = bench(real_python, *own_model(tmp_path), "--compile")
    assert code == 0, stderr
    assert only(events, "reference")["agrees"] is True and only(events, "compile")["graph_breaks"] == 0
    (found,) = only(events, "precision")["effective"]
    assert set(found["types"]["products"]) == {"float32"} and only(events, "precision")["changed"] == []


def test_a_launch_of_a_proven_cell_must_find_what_was_found_then(real_python: str) -> None:
    code, events, stderr = bench(real_python, *RESNET)
    assert code == 0, stderr
    found = only(events, "reference")["fingerprint"]

    def again(**changes: float) -> tuple[int, list[dict[str, Any]], str]:
        proven = ",".join(f"{name}={value!r}" for name, value in {**found, **changes}.items())
        return bench(real_python, *RESNET, "--proof", "fingerprint", "--proven", proven, "--peak-flops", "1e12")

    code, events, stderr = again()
    assert code == 0 and only(events, "reference")["agrees"], stderr
    assert [event["phase"] for event in events if event["event"] == "phase"][4:] == ["proof-precision", "proof-glance"], (
        "and no more is paid for"
    )
    assert only(events, "reference")["fingerprint"] == pytest.approx(found, rel=1e-6)
    _, events, _ = again(loss=1.01 * found["loss"])
    assert "the loss of the timed step is" in only(events, "failure")["message"]
    _, events, _ = again(flops_per_item=1e12)
    assert "times the peak of the device" in only(events, "failure")["message"]


@pytest.mark.parametrize("parallel", ["no-sync", "independent"])
def test_ranks_that_share_nothing_are_proven_alone(real_python: str, parallel: str) -> None:
    code, events, stderr = bench(real_python, *RESNET, "--parallel", parallel, processes=2)
    assert code == 0 and only(events, "reference")["agrees"], stderr
