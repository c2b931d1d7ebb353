"""Lines of a running workload: each is an event, a text for the log, or refused with a reason that shows where it begins."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.records import launch_lines
from torchmatrix.core import settings
from torchmatrix.core.inputs import Malformed
from torchmatrix.facts import lines, wire
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.launch_file import LaunchFile, Refused, event_in
from torchmatrix.facts.reading import launch_of, read_launch

RECORDED = sorted((Path(__file__).parents[1] / "data/recorded").rglob("round*.jsonl"))
SAMPLE: dict[str, Any] = {"event": "sample", "phase": "measure", "steps": 5, "items": 20, "seconds": [1.0]}
PEERS: dict[str, Any] = {"event": "peers", "access": [[True] * 2] * 2, "bytes_per_second": [[None, 1.0], [1.0, None]]}
LOAD: dict[str, Any] = {
    "event": "load", "start_monotonic_seconds": 1.0, "stop_monotonic_seconds": 2.0, "dtype": "float16",
    "flops_per_second": [[1.0]], "finite": [True],
}  # fmt: skip


def marked(event: dict[str, Any] | str) -> bytes:
    text = event if isinstance(event, str) else json.dumps(event)
    return f"@matrix {text}\n".encode(errors="surrogateescape")


def nested(levels: int) -> str:
    return '{"event": "done", "x": ' + "[" * levels + "]" * levels + "}"


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.parent.name + "-" + path.stem)
def test_lines_of_real_workloads_pass_unchanged(path: Path) -> None:
    events = [event for event in lines.read(path).events if event["event"] not in ("launch", "telemetry", "exit")]
    assert len(events) > 10 and [event_in("out", marked(event), 1) for event in events] == events


def test_fields_of_newer_images_are_kept() -> None:
    assert event_in("out", marked({"event": "done", "new": {"x": [1, None]}}), 1) == {"event": "done", "new": {"x": [1, None]}}


@pytest.mark.parametrize(
    "line", [b"a banner\n", b"@matrixx {}\n", b"\x00\xff\n", b"\n", b'@matrix {"event": "samp', b"@matrix "]
)
def test_other_lines_and_one_that_was_cut_off_are_texts(line: bytes) -> None:
    assert event_in("out", line, 1) is None


def test_marked_lines_on_stderr_are_texts() -> None:
    assert event_in("err", marked({"event": "exit"}), 1) is None and event_in("err", b"x" * 3_000_000, 1) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "no event"),
        ("7", "no event"),
        ('{"event": 7}', "no event"),
        ('{"phase": "measure"}', "no event"),
        ("[" * 990 + "]" * 990, "32 levels"),
        (nested(40), "32 levels"),
        (nested(990), "32 levels"),
        (nested(100_000), "not JSON"),
        ('{"event": "done", "x": NaN}', "not JSON"),
        ('{"event": "done", "x": -Infinity}', "not JSON"),
        ('{"event": "done", "x": 1e999}', "not JSON"),
        ('{"event": "done", "x": ' + "9" * 5000 + "}", "not JSON"),
        ('{"event": "done", "x": "\\ud800", "y": NaN}', "not JSON"),
        ('{"event": "done", "x": "\udcff"}', "not JSON"),
        ({"event": "telemetry", "readings": []}, 'an event "telemetry", which only the host may write'),
        ({"event": "exit", "returncode": 0}, 'an event "exit", which only the host may write'),
        ({"event": "launch"}, 'an event "launch", which only the host may write'),
        ({"event": "damaged"}, 'an event "damaged", which only the host may write'),
        ({"event": "future"}, "protocol 1 does not have: rebuild the image (torchmatrix build)"),
        ({"event": "sample", "phase": "measure"}, 'an invalid "sample" line: steps is missing'),
        ({**SAMPLE, "phase": "cooling"}, 'phase is "cooling", not warm-up or measure or unseen or seen'),
        ({**SAMPLE, "seconds": [-1.0]}, "seconds[0] is -1.0, not a number >= 0"),
        ({**SAMPLE, "seconds": []}, "seconds is [], not a list of length >= 1"),
        ({**SAMPLE, "seconds": None}, "seconds is missing"),
        ({**SAMPLE, "seconds": [True]}, "seconds[0] is true, not a number"),
        ({**SAMPLE, "items": 10**300}, "items is 1e+300, not a whole number"),
        ({**SAMPLE, "items": 1.0}, "items is 1.0, not a whole number"),
        ({**SAMPLE, "items": True}, "items is true, not a whole number"),
        ({**SAMPLE, "items": 2**53 + 1}, "items is 9007199254740993, not a whole number <= 9007199254740992"),
        ({**SAMPLE, "items": 2.5}, "items is 2.5, not a whole number"),
        ({**SAMPLE, "steps": 0}, "steps is 0, not a whole number >= 1"),
        ({**SAMPLE, "step_seconds": [1.0]}, "step_seconds[0] is 1.0, not a list"),
        ({**SAMPLE, "step_seconds": [[0.1] * 10] * 3}, "step_seconds has 3 ranks, seconds has"),
        ({"event": "steps", "phase": "measure", "step_seconds": [[0.1], [0.1, 0.1]]}, "1 steps of one rank and 2 of another"),
        ({**PEERS, "bytes_per_second": [[None]]}, "access is of 2 devices, bytes_per_second of 1"),
        ({**PEERS, "bytes_per_second": [[None] * 2] * 2}, "bytes_per_second is null between two devices"),
        ({**PEERS, "wrong": [[0, 2]]}, "wrong is no list of pairs of devices"),
        ({**PEERS, "wrong": [[0]]}, "wrong is no list of pairs of devices"),
        ({**LOAD, "finite": [True, True]}, "flops_per_second has 1 ranks, finite has 2"),
        ({**LOAD, "flops_per_second": [[]]}, "a rank that did nothing"),
        ({**LOAD, "stop_monotonic_seconds": 0.5}, "it stops 0.500 s before it starts"),
        ({"event": "devices", "backend": "nccl", "devices": [{"uuid": "x"}]}, "devices[0].name is missing"),
        ({"event": "part", "name": "trace", "number": 2, "count": 2, "data": ""}, "number is 2, count is 2"),
        ({"event": "profile", "steps": 1, "plain_seconds": [1.0], "profiled_seconds": [1.0] * 2}, "has 2 ranks"),
        ({**SAMPLE, "unix_seconds": "now"}, 'unix_seconds is "now", not a number'),
        ({"event": "environment", "packages": 7}, "packages is 7, not a list"),
        ({"event": "memory", "phase": "warm", "peak_bytes": [-1]}, "peak_bytes[0] is -1, not a whole number >= 0"),
        ({"event": "precision", "effective": [{"matmul": 1}]}, "effective[0].matmul is 1, not a text"),
        ({"event": "failure", "kind": "ok"}, 'kind is "ok", not crashed or oom or numerics or unsupported'),
        ({"event": "phase", "phase": "\x1b[2J", "seconds": 1}, "not a text matching regex"),
        ({"event": "hello", "protocol": 2}, "the image speaks protocol 2, this tool speaks 1"),
    ],
)  # fmt: skip
def test_a_bad_line_is_refused_with_its_reason(line: dict[str, Any] | str, reason: str) -> None:
    with pytest.raises(Refused) as caught:
        event_in("out", marked(line), 1)
    message = str(caught.value)
    assert reason in message and message.isprintable() and len(message) < 300
    assert "speaks protocol" in message or "the line begins: @matrix" in message


def test_a_line_has_a_limit() -> None:
    fits, exceeds = (marked({"event": "done", "x": "x" * size}) for size in (900_000, 1_000_000))
    assert event_in("out", fits, 1) and event_in("out", exceeds, 2)
    with pytest.raises(Refused, match=r"longer than 1 MB \(setting line_mb\); the line begins: @matrix"):
        event_in("out", exceeds, 1)


@pytest.mark.parametrize(
    "text", [b'\xef\xbb\xbf{"event": "done", "x": "\\ud800"}', b'{"event": "done", "x": "\\ud800\xed\xa0\x80"}']
)
def test_a_line_that_no_reader_could_decode_is_refused(text: bytes) -> None:
    with pytest.raises(Refused, match="not JSON"):
        event_in("out", b"@matrix " + text + b"\n", 1)


def test_a_field_with_a_blank_in_its_name_is_named() -> None:
    with pytest.raises(Malformed, match="a b"):
        wire.decoded({"name": 1, "a b": [7]}, Odd)


class Odd(msgspec.Struct):
    """A record of which one field has an odd name."""

    given: list[str] = msgspec.field(name="a b", default_factory=list)


def test_half_a_character_is_replaced() -> None:
    event = event_in("out", marked('{"event": "done", "x": "a\\udcff"}'), 1)
    assert event == {"event": "done", "x": "a?"}


def test_a_launch_file_has_a_limit_and_the_exit_still_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHMATRIX_LAUNCH_FILE_MB", "1")
    settings.load.cache_clear()
    whole = launch_lines()
    file = LaunchFile(tmp_path / "round1-try1.jsonl")
    settings.load.cache_clear()
    file.copy(json.dumps(whole[0]).encode())
    with pytest.raises(Refused, match=r"full: 1 MB \(setting launch_file_mb\)"):
        for _ in range(100):
            file.copy(json.dumps({"event": "done", "x": "x" * 100_000}).encode())
    file.telemetry([{"device": "cpu", "note": "x" * 100_000}])
    file.close(reason="crashed", message="m")
    assert file.path.stat().st_size < 1_200_000
    result = read_launch(file.path)
    assert isinstance(result, Launch) and result.outcome == "crashed" and result.verified


def test_a_log_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHMATRIX_LOG_MB", "1")
    settings.load.cache_clear()
    file = LaunchFile(tmp_path / "round1-try1.jsonl")
    settings.load.cache_clear()
    with pytest.raises(Refused, match=r"printed more than 1 MB \(setting log_mb\)"):
        for _ in range(20):
            file.log(b"x" * 99_999 + b"\n")
    file.abandon()
    assert file.path.with_suffix(".log").stat().st_size == 1_000_000


@pytest.mark.parametrize("kind", ["ok", "lost", "nonsense"])
def test_a_failure_of_an_unknown_kind_is_never_a_launch_with_a_number(kind: str) -> None:
    whole = launch_lines()
    result = launch_of(Path("round1-try1.jsonl"), [*whole[:-1], {"event": "failure", "kind": kind}, whole[-1]])
    assert (
        isinstance(result, Launch)
        and result.outcome == "crashed"
        and f'kind is "{kind}", not crashed or oom or numerics or unsupported' in str(result.error)
    )
