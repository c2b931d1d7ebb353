"""Words for runs: which runs they name, and the message where they name none."""

import math
import shutil
import time
from pathlib import Path

import pytest

from support.records import nights, write_run
from torchmatrix.analysis import machines
from torchmatrix.core.errors import BadInput
from torchmatrix.facts.store import Results, select, select_each, undated

IDS = nights(4)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    for run in reversed(IDS):
        write_run(tmp_path, [], run=run)
    return Results(tmp_path)


def ids(results: Results, *words: str, **more: str) -> list[str]:
    return [run.id for run in select(results, *words, **more)]


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("last", IDS[3:]),
        ("last~0", IDS[3:]),
        ("last~3", IDS[:1]),
        ("all", IDS),
        (IDS[1], IDS[1:2]),
        (f"testhost/{IDS[2]}", IDS[2:3]),
        ("last-9999w", IDS),
    ],
)
def test_a_word_names_its_runs_oldest_first(results: Results, word: str, named: list[str]) -> None:
    assert ids(results, word) == named


@pytest.mark.parametrize(("word", "count"), [("last-12h", 1), ("last-36h", 2), ("last-3d", 3), ("last-1w", 3), ("last-2w", 4)])
def test_an_age_counts_back_from_now(tmp_path: Path, word: str, count: int) -> None:
    begun = [time.gmtime(time.time() - 3600 * hours) for hours in (10 * 24, 48, 30, 1)]
    names = [time.strftime("%Y%m%dT%H%M%SZ", moment) for moment in begun]
    for run in names:
        write_run(tmp_path, [], run=run)
    assert ids(Results(tmp_path), word) == names[-count:]


@pytest.mark.parametrize(
    ("name", "begun"),
    [("20990101T000000Z", 4e9), ("20990101T000000Z", None), ("renamed", 4e9), ("renamed", None), ("9999", 253402300799.0)],
)
def test_a_run_dated_in_the_future_is_reported_and_never_the_newest(
    results: Results, tmp_path: Path, name: str, begun: float | None
) -> None:
    write_run(tmp_path, [{}], run=name, unix_seconds=begun)
    assert [run.id for run in undated(results.runs())] == [name] and ids(results, "all") == [name, *IDS]
    assert ids(results, "last") == IDS[3:] and ids(results, "last-9999w") == IDS
    assert ids(results, "all", since="2026-01-03") == IDS[2:]
    assert [run.id for run in select_each(results, ["last", name])] == [name, IDS[3]]
    record = results.runs()[0].read_record()
    assert math.isnan(record.unix_seconds) and [("still to come" in problem) for problem in record.problems] == [True] * bool(
        begun
    )
    assert machines.choose_launches(results, name).launches and results.newest_complete("testhost").id == IDS[3]  # type: ignore[union-attr]


@pytest.mark.parametrize(("hours", "is_last"), [(-1.0, True), (0.5, True), (2.0, False), (9.0, False), (14.0, False)])
def test_a_clock_that_keeps_local_time_makes_no_newest_run(tmp_path: Path, hours: float, is_last: bool) -> None:
    """A machine may have been measured before its clock was set from local time."""
    ahead = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(time.time() + 3600 * hours))
    for name, begun in ((ahead, None), ("renamed", time.time() - 7200)):
        write_run(tmp_path, [{}], run=name, unix_seconds=begun)
    assert ids(Results(tmp_path), "last") == [ahead if is_last else "renamed"]


def test_an_id_that_is_still_to_come_gives_way_to_the_record(results: Results, tmp_path: Path) -> None:
    write_run(tmp_path, [], run="20990101T000000Z", unix_seconds=1.5e9)
    assert ids(results, "all") == ["20990101T000000Z", *IDS] and not undated(results.runs())


def test_a_date_and_a_host_narrow_what_a_word_can_name(results: Results) -> None:
    write_run(results.root, [], run=nights(9)[8], folder="other")
    assert ids(results, "all", since="2026-01-03") == [*IDS[2:], nights(9)[8]]
    assert ids(results, "all", since="2026-01-03T00:00:01Z", host="testhost") == IDS[3:]
    assert ids(results, "last", host="testhost") == IDS[3:]
    assert ids(results, "all", since="2026-01-03T01:00+02:00", host="testhost") == IDS[2:]


@pytest.mark.parametrize(
    ("word", "more", "message"),
    [
        ("last~4", {}, "no run last~4 in"),
        ("last~²", {}, "no run last~² in"),
        ("last-7x", {}, "no run last-7x in"),
        ("last-1h", {}, "no run last-1h in"),
        ("nosuch", {}, "no run nosuch in"),
        ("all", {"since": "2027-01-01"}, "no runs in .* since 2027-01-01"),
        ("last", {"host": "mars"}, "no runs in .* of host mars"),
        ("all", {"since": "yesterday"}, '"yesterday" is not a date'),
    ],
)
def test_what_names_nothing_is_an_error_with_the_known_runs(
    results: Results, word: str, more: dict[str, str], message: str
) -> None:
    with pytest.raises(BadInput, match=message) as error:
        select(results, word, **more)
    assert IDS[3] in error.value.hint or "2026-01-31" in error.value.hint


def test_an_empty_folder_says_how_to_get_a_run(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no runs in") as error:
        select(Results(tmp_path / "none"))
    assert "torchmatrix run" in error.value.hint


def test_the_same_id_on_two_hosts_is_never_guessed(results: Results) -> None:
    write_run(results.root, [], run=IDS[0], folder="other")
    with pytest.raises(BadInput, match="several hosts have a run"):
        select(results, IDS[0])
    assert [run.path.parent.name for run in select(results, f"other/{IDS[0]}")] == ["other"]
    assert [run.path.parent.name for run in select(results, IDS[0], host="testhost")] == ["testhost"]


def test_a_renamed_run_keeps_its_place_in_time(results: Results) -> None:
    (results.root / "testhost" / IDS[1]).rename(results.root / "testhost" / "baseline")
    assert ids(results, "all") == [IDS[0], "baseline", *IDS[2:]]
    assert ids(results, "last") == IDS[3:]


def test_compare_takes_one_run_never_several(results: Results) -> None:
    with pytest.raises(BadInput, match="all names 4 runs"):
        machines.choose_launches(results, "all")


def test_a_run_of_the_future_is_none_before_the_last(results: Results, tmp_path: Path) -> None:
    write_run(tmp_path, [], run="20990101T000000Z", unix_seconds=4e9)
    assert ids(results, "last~3") == IDS[:1]
    with pytest.raises(BadInput):
        ids(results, "last~4")
    with pytest.raises(BadInput, match="is not a date"):
        ids(results, "all", since="")
    for run in IDS:
        shutil.rmtree(tmp_path / "testhost" / run)
    assert ids(Results(tmp_path), "last") == ["20990101T000000Z"], "unless there is no other"
