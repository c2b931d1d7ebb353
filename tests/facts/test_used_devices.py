"""The GPUs that the workload says it used are compared with those of the launch: a number from another GPU would be false."""

from pathlib import Path
from typing import Any

import pytest

from support.records import launch_lines
from torchmatrix.facts.launch import Launch, throughput
from torchmatrix.facts.reading import launch_of

UUIDS = [f"0000000{number}-5eed-4000-8000-00000000000{number}" for number in range(3)]
SLICE = "0000000a-5eed-4000-8000-00000000000a"


def launch(planned: list[dict[str, Any]], used: list[str | None]) -> Launch:
    """Return a launch on the `planned` GPUs whose workload says that it used those with the UUIDs `used`."""
    header, *events = launch_lines(devices=tuple(range(len(planned))))
    header["gpus"]["gpus"] = planned
    for event in events:
        if event["event"] == "setup":
            event["devices"] = [{"name": "NVIDIA H100", "uuid": uuid} for uuid in used]
    result = launch_of(Path("a/round1-try1.jsonl"), [header, *events])
    assert isinstance(result, Launch)
    return result


def gpu(number: int) -> dict[str, Any]:
    return {"uuid": f"GPU-{UUIDS[number]}", "name": "NVIDIA H100"}


def test_the_order_does_not_matter_and_old_images_report_no_uuid() -> None:
    for used in ([UUIDS[0], UUIDS[1]], [UUIDS[1], f"GPU-{UUIDS[0].upper()}"], [None, None], ["odd", "odd"]):
        assert launch([gpu(0), gpu(1)], used).outcome == "ok"


@pytest.mark.parametrize(
    ("used", "words"),
    [([UUIDS[0], UUIDS[2]], f"the workload used GPU-{UUIDS[2]}, which is none of this launch's GPUs"),
     ([UUIDS[0], UUIDS[0]], f"several ranks used GPU-{UUIDS[0]}")],
)  # fmt: skip
def test_a_launch_on_other_gpus_has_no_number(used: list[str | None], words: str) -> None:
    result = launch([gpu(0), gpu(1)], used)
    assert result.outcome == "crashed" and result.error == words
    assert throughput(result) != throughput(result), "not a number"


def test_a_slice_may_be_named_by_itself_or_by_its_gpu() -> None:
    planned = {"uuid": f"MIG-{SLICE}", "name": "NVIDIA A100 MIG 1g.10gb", "slice_of": f"GPU-{UUIDS[0]}"}
    for used in (SLICE, UUIDS[0]):
        assert launch([planned], [used]).outcome == "ok"
    assert launch([planned], [UUIDS[1]]).outcome == "crashed"
