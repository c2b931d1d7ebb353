"""Checksums of facts: any changed byte is found, a cut-off end is harmless, a file without them is read as unverified."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from support.records import launch_lines, write_run
from torchmatrix.facts import launch_file, lines
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.launch_file import LaunchFile
from torchmatrix.facts.reading import launch_at, read_launch
from torchmatrix.facts.store import Results, RunFolder, verified
from torchmatrix.reporting import redaction
from torchmatrix.reporting.redaction import Pseudonyms

RECORDED = next((Path(__file__).parents[1] / "data/recorded").rglob("round1-try1.jsonl"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Write a recorded launch as it would be written today."""
    path = tmp_path / "h/20260101T000000Z/a/b/c/round1-try1.jsonl"
    path.parent.mkdir(parents=True)
    launch = LaunchFile(path)
    for event in lines.read(RECORDED).events:
        launch.copy(json.dumps(event).encode())
    launch.abandon()
    return path


def test_a_written_launch_is_verified_and_reads_as_it_did_before(file: Path) -> None:
    then, now = launch_at(RECORDED), launch_at(file)
    assert now.verified and not then.verified
    assert tuple(replace(window, arrived=None) for window in now.windows) == then.windows
    assert replace(now.reported, facts={}, arrived=None) == replace(then.reported, facts={})
    assert now.reported.facts.items() >= then.reported.facts.items() and now.host == then.host
    assert tuple(replace(readings, arrived=None) for readings in now.telemetry) == then.telemetry
    assert all(line.endswith(b'"}\n') and json.loads(line)["crc"] for line in file.read_bytes().splitlines(True))


def test_any_flipped_bit_is_found(file: Path) -> None:
    data = file.read_bytes()
    chosen = random.Random(0)
    places = [*chosen.sample(range(len(data)), 400), *range(len(data) - 40, len(data))]
    for place in places:
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            assert lines.lines_of(bytes(changed)).damage, (place, bit)


def test_any_changed_digit_makes_the_launch_unreadable_and_says_where(file: Path) -> None:
    data = file.read_bytes()
    digits = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
    for place in random.Random(1).sample(digits, 100):
        file.write_bytes(data[:place] + (b"7" if data[place : place + 1] != b"7" else b"3") + data[place + 1 :])
        result = read_launch(file)
        assert isinstance(result, Unreadable) and f"line {data[:place].count(10) + 1} " in result.reason


def test_removed_repeated_and_exchanged_lines_are_found(file: Path) -> None:
    whole = file.read_bytes().splitlines(keepends=True)
    for changed in (whole[1:], whole[:3] + whole[4:], [*whole, whole[-1]], [*whole[:2], whole[3], whole[2], *whole[4:]]):
        assert lines.lines_of(b"".join(changed)).damage


def test_a_launch_cut_off_at_any_byte_is_verified_as_far_as_it_goes(file: Path) -> None:
    data = file.read_bytes()
    for size in [*range(0, len(data), 53), *range(len(data) - 60, len(data))]:
        result = lines.lines_of(data[:size])
        assert result.damage is None and result.verified == (size >= data.index(b"\n"))
        assert len(result.events) == data[:size].count(10) + (data[size : size + 1] == b"\n")


def test_a_record_goes_on_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{}], complete=False)
    whole = run.record.read_bytes()
    for size in (len(whole) - 1, len(whole) - 2, len(whole) - 9, len(whole) - 30):
        run.record.write_bytes(whole[:size])
        RunFolder(run.path).append("batch", stack="a", workload="w", batch=4)
        RunFolder(run.path).append("run-exit", complete=True)
        record = RunFolder(run.path).read_record()
        assert record.verified and record.complete and len(record.batches) == 1 and not record.problems
        assert len(record.planned) == (1 if size == len(whole) - 1 else 0)


def test_two_writers_of_one_record_after_each_other_agree(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path), RunFolder(tmp_path)
    for number in range(3):
        first.append("batch", stack="a", workload=str(number), batch=1)
        second.append("batch", stack="b", workload=str(number), batch=1)
    assert first.read_record().verified and len(first.read_record().batches) == 6


def test_a_damaged_record_is_a_problem_and_the_rest_is_read(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{}])
    run.record.write_bytes(run.record.read_bytes().replace(b"testhost", b"tasthost"))
    record = run.read_record()
    assert not record.verified and record.complete and "checksum in line 1 does not match" in record.problems[0]


def test_a_record_of_an_earlier_version_is_continued(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.record.write_text(json.dumps({"event": "run", "key": "k"}) + "\n")
    assert not run.read_record().verified and not run.read_record().problems
    run.append("run-exit", complete=True)
    assert run.read_record().verified and run.read_record().key == "k"
    run.record.write_bytes(run.record.read_bytes().replace(b'"k"', b'"j"'))
    assert run.read_record().problems


def test_a_workload_that_writes_its_own_checksum_changes_nothing(tmp_path: Path) -> None:
    file = LaunchFile(tmp_path / "round1-try1.jsonl")
    for event in launch_lines():
        event.pop("monotonic_seconds", None)  # these lines come at once, and report seconds
        forged = {"crc": "00000000", **event, "note": ', "crc": "00000000"}', "deep": {"a": 1, "crc": "00000000"}}
        file.copy(json.dumps(forged).encode())
    file.abandon()
    result = read_launch(file.path)
    assert isinstance(result, Launch) and result.verified and result.outcome == "ok"


def test_a_line_is_stored_as_the_workload_wrote_it(tmp_path: Path) -> None:
    file = LaunchFile(tmp_path / "round1-try1.jsonl")
    written = b'{"event":"phase",  "phase": "import", "seconds": 0.50, "more": 12345678901234567890123, "name": "\\ud800"}'
    file.copy(launch_file.text_of(b"@matrix " + written + b" \r\n"))
    file.abandon()
    assert file.path.read_bytes().startswith(written[:-1] + b', "arrived_monotonic_seconds": ')
    assert lines.read(file.path).verified


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"{}\n", b"\x00\xff", b', "crc": "00000001"}', b'{"event": "x", "crc": 5}\n', b"[" * 9999]
)
def test_nonsense_is_no_error(text: bytes) -> None:
    assert not lines.lines_of(text).verified


def test_a_copy_that_is_published_is_as_trustworthy_as_the_facts_were(tmp_path: Path) -> None:
    run = write_run(tmp_path / "results", [{}, {}, {}, {}])
    good, damaged, old, carried = sorted(run.path.rglob("round*.jsonl"))
    for path in (good, damaged, carried):
        path.write_bytes(lines.packed(lines.read(path).events))
    carried.write_bytes(carried.read_bytes().replace(b"\n", b"\r\n"))
    damaged.write_bytes(damaged.read_bytes().replace(b'"steps": 10', b'"steps": 11'))
    cleaner = redaction.for_results(Results(tmp_path / "results"), True, Pseudonyms())
    copies = {launch.path.name: launch for launch in redaction.staged(run, cleaner, tmp_path / "staged").everything()}
    first, second, third, fourth = (copies[path.name] for path in (good, damaged, old, carried))
    assert isinstance(first, Launch) and first.verified
    assert isinstance(second, Unreadable) and "checksum" in second.reason
    assert isinstance(third, Launch) and not third.verified
    assert isinstance(fourth, Unreadable) and "line ends" in fourth.reason


TRANSPORTS: dict[str, Callable[[bytes], bytes]] = {
    "CRLF (Git's autocrlf, FTP)": lambda data: data.replace(b"\n", b"\r\n"),
    "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "both": lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"),
    "no last newline": lambda data: data[:-1],
    "CRLF without a last newline": lambda data: data.replace(b"\n", b"\r\n")[:-2],
}
"""Changes of the text that change no fact."""
CRLF = tuple(how for how in TRANSPORTS if how.startswith(("CRLF", "both")))
"""Names of those after which it is no longer the launch file that was written."""
REWRITINGS: dict[str, Callable[[bytes], bytes]] = {
    "a last line without a checksum": lambda data: data + b'{"event": "exit", "returncode": 0}\n',
    "a checksum as the first field": lambda data: each_line(data, lambda event: json.dumps({"crc": event["crc"], **event})),
    "blanks at the ends of lines": lambda data: data.replace(b"\n", b"  \n"),
    "a blank at the end": lambda data: data[:-1] + b" ",
    "tabs before CRLF": lambda data: data.replace(b"\n", b"\t\r\n"),
    "line ends of both kinds after each other": lambda data: data.replace(b"\n", b"\r\r\n"),
    "upper-case digits": lambda data: re.sub(rb'(?<="crc": ")[0-9a-f]{8}', lambda crc: crc[0].upper(), data),
    "no blanks, as of jq -c": lambda data: each_line(data, lambda event: json.dumps(event, separators=(",", ":"))),
    "sorted keys, as of jq -S": lambda data: each_line(data, lambda event: json.dumps(event, sort_keys=True)),
    "escaped characters": lambda data: data.replace(b'"crc"', b'"\\u0063rc"'),
    "another form of a checksum": lambda data: re.sub(rb'"crc": "(\w+)"', rb'"crc": "0x\1"', data),
}
"""Changes that may have changed a fact: the checksums that are there don't fit any more."""


def each_line(data: bytes, make: Callable[[dict[str, object]], str]) -> bytes:
    return b"".join(make(json.loads(line)).encode() + b"\n" for line in data.splitlines())


@pytest.mark.parametrize("how", CRLF)
def test_a_launch_file_with_checksums_and_other_line_ends_is_refused_and_verify_says_so(file: Path, how: str) -> None:
    RunFolder(file.parents[3]).append("run", key="k")
    file.write_bytes(TRANSPORTS[how](file.read_bytes()))
    result = read_launch(file)
    assert isinstance(result, Unreadable) and result.reason == "its line ends were changed to CRLF: copy it as a binary file"
    (again,) = verified(Results(file.parents[5])).unreadable
    assert again == result


def test_a_launch_file_of_an_earlier_version_is_read_with_any_line_ends(tmp_path: Path) -> None:
    path = tmp_path / RECORDED.name
    path.write_bytes(RECORDED.read_bytes().replace(b"\n", b"\r\n"))
    assert launch_at(path).windows == launch_at(RECORDED).windows


@pytest.mark.parametrize("how", [how for how in TRANSPORTS if how not in CRLF])
def test_checksums_still_hold_after_harmless_changes_of_the_text(file: Path, how: str) -> None:
    data = file.read_bytes()
    then = launch_at(file)
    file.write_bytes(TRANSPORTS[how](data))
    assert launch_at(file) == then and then.verified
    assert lines.ends_of(file.read_bytes()).verified
    file.write_bytes(TRANSPORTS[how](data.replace(b'"steps": ', b'"steps": 1', 1)))
    assert "checksum in line" in read_launch(file).reason  # type: ignore[union-attr]


@pytest.mark.parametrize("how", REWRITINGS)
def test_a_checksum_that_is_there_and_does_not_fit_refuses_the_file(file: Path, how: str) -> None:
    for whole in (file.read_bytes(), file.read_bytes().partition(b"\n")[0] + b"\n"):
        changed = REWRITINGS[how](whole)
        if changed == whole:  # one checksum in forty has no letter that upper case would change
            continue
        file.write_bytes(changed)
        result = read_launch(file)
        assert isinstance(result, Unreadable) and ("was changed" in result.reason or "not written as" in result.reason), result


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_file_in_another_encoding_is_refused_and_not_read_in_part(file: Path, encoding: str) -> None:
    file.write_bytes(file.read_bytes().decode().encode(encoding))
    result = read_launch(file)
    assert isinstance(result, Unreadable) and result.reason == "it has no header"


@pytest.mark.parametrize("how", TRANSPORTS)
def test_a_record_that_was_carried_as_text_goes_on(tmp_path: Path, how: str) -> None:
    run = write_run(tmp_path, [{}], complete=False)
    run.record.write_bytes(TRANSPORTS[how](run.record.read_bytes()))
    RunFolder(run.path).append("run-exit", complete=True)
    record = RunFolder(run.path).read_record()
    assert record.verified and record.complete and len(record.planned) == 1 and not record.problems


def test_a_line_in_the_middle_that_is_none_is_seen_also_without_checksums(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{"rate": 100.0}])
    (path,) = run.path.rglob("round1-try1.jsonl")
    whole = path.read_bytes()
    rows = whole.split(b"\n")
    path.write_bytes(b"\n".join([*rows[:4], b"\0" * len(rows[4]), *rows[5:]]))
    assert lines.read(path).unreadable == 5
    for end in (whole[:-20], whole + b"\n", whole.replace(b"\n", b"\r\n")):  # cut off, or changed by an editor
        path.write_bytes(end)
        assert lines.read(path).unreadable is None and isinstance(read_launch(path), Launch)
