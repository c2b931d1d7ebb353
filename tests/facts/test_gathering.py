"""Runs of other machines come in whole, or are refused by name; what is here stays, and nothing else is written."""

import gzip
import io
import json
import os
import resource
import shutil
import signal
import stat
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.records import write_run
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.files import hold_lock
from torchmatrix.facts import lines
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix_plugins.gather import ImportResult, Limits, gather

RUN = "20260101T000000Z"
FIRST, SECOND = "a" * 16, "b" * 16


def measured(root: Path, launches: int = 3, machine: str | None = FIRST, host: str = "gpu01", **more: Any) -> RunFolder:
    """Write a run as today's version writes it: with checksums."""
    identity = {"machine": machine} if machine else {}
    run = write_run(root, [{"rate": 100.0 + n} for n in range(launches)], folder=host, **identity, **more)
    for path in run.path.rglob("round*.jsonl"):
        path.write_bytes(lines.packed(lines.read(path).events))
    return run


def gathered(here: Path, source: Path, **options: Any) -> ImportResult:
    return gather(Results(here), str(source), **options)


def files(root: Path) -> dict[str, bytes]:
    """Return the bytes of all files but hidden ones, by path below `root`."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name[0] != "."
    }


def tar_of(folder: Path, path: Path, mode: str) -> Path:
    with tarfile.open(path, mode) as tar:
        tar.add(folder, folder.name)
    return path


PACKED: dict[str, Callable[[Path, Path], Path]] = {
    "folder": lambda folder, aside: folder,
    "host": lambda folder, aside: folder / "gpu01",
    "run": lambda folder, aside: folder / "gpu01" / RUN,
    "tar": lambda folder, aside: tar_of(folder, aside / "x.tar", "w"),
    "tar.gz": lambda folder, aside: tar_of(folder, aside / "x.tgz", "w:gz"),
}


@pytest.mark.parametrize("form", PACKED)
def test_a_source_comes_whole_and_a_second_time_nothing_is_new(tmp_path: Path, form: str) -> None:
    run = measured(tmp_path / "there")
    launch = run.launches()[0].path
    launch.with_suffix(".log").write_text("printed\n")
    (run.path / "locks").mkdir()
    (run.path / "locks/stack-a.lock").write_text("lock")
    (run.path / "pinned").touch()
    source, here = PACKED[form](tmp_path / "there", tmp_path), tmp_path / "here"
    first = gathered(here, source)
    assert (first.runs, first.new, first.here, first.unverified, first.refused) == ([f"gpu01/{RUN}"], 3, 0, 0, {})
    assert first.others == 1, "the mark is no fact; the lock is what the stack was made of"
    assert files(here) == {name: data for name, data in files(tmp_path / "there").items() if "pinned" not in name}
    times = {path: path.stat().st_mtime_ns for path in here.rglob("*.jsonl")}
    again = gathered(here, source)
    assert (again.runs, again.runs_here, again.new, again.here) == ([], [f"gpu01/{RUN}"], 0, 3)
    assert times == {path: path.stat().st_mtime_ns for path in here.rglob("*.jsonl")}
    assert not any(path.stat().st_mode & stat.S_IXUSR for path in here.rglob("*") if path.is_file())


def test_a_dry_run_lists_and_writes_nothing(tmp_path: Path) -> None:
    measured(tmp_path / "there")
    for source in (tmp_path / "there", tar_of(tmp_path / "there", tmp_path / "x.tgz", "w:gz")):
        result = gathered(tmp_path / "here", source, dry_run=True)
        assert (result.runs, result.new) == ([f"gpu01/{RUN}"], 3) and not (tmp_path / "here").exists()


def test_facts_of_earlier_versions_come_and_count_as_unverified(tmp_path: Path) -> None:
    write_run(tmp_path / "there", [{}, {}], folder="old")
    result = gathered(tmp_path / "here", tmp_path / "there")
    assert (result.new, result.unverified, result.refused) == (2, 2, {})


def test_a_flipped_digit_is_refused_by_name_and_the_rest_is_taken(tmp_path: Path) -> None:
    run = measured(tmp_path / "there")
    damaged = run.launches()[1].path
    damaged.write_bytes(damaged.read_bytes().replace(b'"steps": 10', b'"steps": 11', 1))
    result = gathered(tmp_path / "here", tmp_path / "there")
    name = damaged.relative_to(tmp_path / "there").as_posix()
    assert list(result.refused) == [name] and "checksum" in result.refused[name] and result.new == 2
    assert len(Results(tmp_path / "here").runs()[0].launches()) == 2


def test_facts_with_other_line_ends_are_verified_and_are_the_same_facts(tmp_path: Path) -> None:
    run = measured(tmp_path / "there")
    right = files(tmp_path / "there")
    gathered(tmp_path / "before", tmp_path / "there")
    for path in run.path.rglob("*.jsonl"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    result = gathered(tmp_path / "here", tmp_path / "there")
    assert (result.new, result.unverified, result.refused) == (3, 0, {}) and files(tmp_path / "here") == right
    again = gathered(tmp_path / "before", tmp_path / "there")
    assert (again.new, again.here, again.refused) == (0, 3, {}) and files(tmp_path / "before") == right
    last = sorted(run.path.rglob("round*.jsonl"))[2]
    last.write_bytes(last.read_bytes().replace(b'"steps": 10', b'"steps": 11', 1))
    assert (
        "checksum" in gathered(tmp_path / "third", tmp_path / "there").refused[last.relative_to(tmp_path / "there").as_posix()]
    )


def test_a_damaged_record_brings_nothing_of_a_new_run_but_launches_of_a_known_one(tmp_path: Path) -> None:
    run = measured(tmp_path / "there", launches=3)
    shutil.copytree(run.path, tmp_path / "good" / "gpu01" / RUN)
    (extra := run.launches()[2].path).rename(tmp_path / "aside")
    gathered(tmp_path / "here", tmp_path / "there")
    (tmp_path / "aside").rename(extra)
    run.record.write_bytes(run.record.read_bytes().replace(b'"complete": true', b'"complete": trus'))
    name = f"gpu01/{RUN}/run.jsonl"
    grown, new = gathered(tmp_path / "here", tmp_path / "there"), gathered(tmp_path / "other", tmp_path / "there")
    assert list(grown.refused) == list(new.refused) == [name] and "nor are the other 3 files" in new.refused[name]
    assert (grown.new, grown.here, new.new) == (1, 2, 0) and not files(tmp_path / "other")


def test_facts_that_contradict_local_ones_are_refused_by_name_and_local_ones_stay(tmp_path: Path) -> None:
    run = measured(tmp_path / "there")
    gathered(tmp_path / "here", tmp_path / "there")
    before = files(tmp_path / "here")
    path = run.launches()[0].path
    events = lines.read(path).events
    events[-2]["note"] = "another story"
    path.write_bytes(lines.packed(events))
    result = gathered(tmp_path / "here", tmp_path / "there")
    assert "contradicts" in result.refused[path.relative_to(tmp_path / "there").as_posix()] and result.here == 2
    assert files(tmp_path / "here") == before


def test_a_run_that_goes_on_there_is_an_update_and_an_older_copy_changes_nothing(tmp_path: Path) -> None:
    run = measured(tmp_path / "there")
    whole = files(tmp_path / "there")
    path = run.launches()[0].path
    path.write_bytes(path.read_bytes()[:-200])
    run.record.write_bytes(run.record.read_bytes()[:-90])
    shutil.copytree(tmp_path / "there", tmp_path / "older")
    assert gathered(tmp_path / "here", tmp_path / "there").new == 3
    for name, data in whole.items():
        (tmp_path / "there" / name).write_bytes(data)
    grown = gathered(tmp_path / "here", tmp_path / "there")
    assert (grown.new, grown.updated, grown.here, grown.refused) == (0, 1, 2, {}) and files(tmp_path / "here") == whole
    older = gathered(tmp_path / "here", tmp_path / "older")
    assert (older.new, older.updated, older.here, older.refused) == (0, 0, 3, {}) and files(tmp_path / "here") == whole


def test_two_machines_of_one_name_with_runs_of_one_second_stay_two(tmp_path: Path) -> None:
    for number, machine in enumerate((FIRST, SECOND)):
        measured(tmp_path / machine, machine=machine, launches=2 + number)
    for machine in (FIRST, SECOND, SECOND, FIRST):
        result = gathered(tmp_path / "here", tmp_path / machine)
        assert not result.refused
    runs = Results(tmp_path / "here").runs()
    assert [(run.path.parent.name, len(run.launches())) for run in runs] == [("gpu01", 2), ("gpu01-bbbbbb", 3)]
    assert Results(tmp_path / "here").home("gpu01", SECOND) == "gpu01-bbbbbb", "a run here goes on where its machine is"


def test_without_identities_two_machines_are_told_apart_by_their_hardware(tmp_path: Path) -> None:
    def host(memory: int) -> dict[str, Any]:
        return {"name": "gpu01", "cpu": "CPU", "memory_bytes": memory, "gpus": []}

    measured(tmp_path / "a", machine=None, host="gpu01", run=RUN, **{"matrix": "x"})
    for name, memory, run in (("b", 1, "20260102T000000Z"), ("c", 2, "20260103T000000Z"), ("d", 1, "20260104T000000Z")):
        made = measured(tmp_path / name, machine=None, run=run)
        events = lines.read(made.record).events
        made.record.write_bytes(lines.packed([{**events[0], "host": host(memory)}, *events[1:]]))
        gathered(tmp_path / "here", tmp_path / name)
    places = {run.id: run.path.parent.name for run in Results(tmp_path / "here").runs()}
    assert places["20260102T000000Z"] == places["20260104T000000Z"] == "gpu01" != places["20260103T000000Z"]


def test_a_launch_of_another_run_cell_or_machine_is_refused(tmp_path: Path) -> None:
    run = measured(tmp_path / "there", launches=4)
    moved = {"cell": f"b/{run.launches()[0].cell.partition('/')[2]}", "stack": {"name": "b"}}
    for launch, change in zip(
        run.launches(), ({"run": "20251231T000000Z"}, moved, {"machine": SECOND}, {"round": 9}), strict=True
    ):
        head, *rest = lines.read(launch.path).events
        launch.path.write_bytes(lines.packed([head | change, *rest]))
    result = gathered(tmp_path / "here", tmp_path / "there")
    reasons = ("belongs to run 20251231T000000Z", "belongs to cell b/", "another machine", "copied or renamed")
    assert result.new == 0 and all(word in why for word, why in zip(reasons, result.refused.values(), strict=True))


@pytest.mark.parametrize("identities", [(FIRST, SECOND), (None, None)])
def test_runs_of_two_hosts_that_look_alike_both_come(tmp_path: Path, identities: tuple[str | None, ...]) -> None:
    """Both began in one second, and their records have one size and one time; so they have again at the second gathering."""
    for host, machine in zip(("gpu01", "gpu02"), identities, strict=True):
        run = measured(tmp_path / "there", machine=machine, host=host)
        for path in run.path.rglob("*.jsonl"):
            os.utime(path, (1767225600, 1767225600))
    for new in (6, 0):
        result = gathered(tmp_path / "here", tmp_path / "there")
        assert (result.new, result.here, result.refused) == (new, 6 - new, {})
    assert sorted(run.path.parent.name for run in Results(tmp_path / "here").runs()) == ["gpu01", "gpu02"]


def test_a_renamed_run_comes_whole_and_a_copy_of_it_is_here_already(tmp_path: Path) -> None:
    """The copy was made before the last launch; it comes first, and what the run has more comes to it."""
    run = measured(tmp_path / "there")
    copy = RunFolder(shutil.copytree(run.path, run.path.with_name(f"{run.id}.bak")))
    max(copy.path.rglob("round*.jsonl")).unlink()
    run.path.rename(run.path.with_name("before-the-driver"))
    result = gathered(tmp_path / "here", tmp_path / "there")
    assert (result.new, result.here, result.refused) == (3, 2, {})
    assert [len(run.launches()) for run in Results(tmp_path / "here").runs()] == [3]


def test_a_run_that_was_renamed_at_its_source_goes_on_where_it_is_here(tmp_path: Path) -> None:
    run = measured(tmp_path / "there")
    gathered(tmp_path / "here", tmp_path / "there")
    run.path.rename(run.path.with_name("baseline"))
    result = gathered(tmp_path / "here", tmp_path / "there")
    assert (result.new, result.here, result.refused) == (0, 3, {})
    assert [run.id for run in Results(tmp_path / "here").runs()] == [RUN]


def test_a_renamed_run_goes_on_in_the_original_whatever_its_copies_are_called(tmp_path: Path) -> None:
    run = measured(tmp_path / "there")
    (last := max(run.path.rglob("round*.jsonl"))).rename(tmp_path / "kept")
    gathered(tmp_path / "here", tmp_path / "there")
    (here,) = Results(tmp_path / "here").runs()
    for name in ("0-backup", "2026-01-01 backup", "zzz"):
        shutil.copytree(here.path, here.path.with_name(name))
    (tmp_path / "kept").rename(last)
    run.path.rename(run.path.with_name("mine"))
    result = gathered(tmp_path / "here", tmp_path / "there")
    assert (result.new, result.here, result.refused) == (1, 2, {}) and len(here.launches()) == 3


def test_files_without_a_run_and_links_are_refused(tmp_path: Path) -> None:
    run = measured(tmp_path / "there")
    (cell := tmp_path / "there/stray/a/b/c").mkdir(parents=True)
    shutil.copy(run.launches()[0].path, cell)
    (tmp_path / "secret").write_text("a secret")
    (run.path / "round9-try1.log").symlink_to(tmp_path / "secret")
    (tmp_path / "there/another").symlink_to(run.path.parent, target_is_directory=True)
    result = gathered(tmp_path / "here", tmp_path / "there")
    assert result.refused["another"] == "it is a link or a device"
    assert result.new == 3 and sorted(result.refused.values()) == [
        "it is a link or a device",
        "it is a link or a device",
        result.refused["stray/a/b/c/round1-try1.jsonl"],
    ]
    assert "it lies in no run" in result.refused["stray/a/b/c/round1-try1.jsonl"]


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, io.BytesIO]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, io.BytesIO(data)


HOSTILE_NAMES = (
    "/etc/20260101T000000Z/run.jsonl",
    "../outside/run.jsonl",
    f"gpu01/{RUN}/../../../outside/round1-try1.jsonl",
    "gpu01/../../x/run.jsonl",
    ".ssh/x/run.jsonl",
    f"gpu01/{RUN}/a\nb/round1-try1.jsonl",
    f"gpu01/{RUN}/a\\..\\b/round1-try1.jsonl",
    f"gpu01/{RUN}/\x1b[2J/round1-try1.log",
    f"gpu01/{RUN}//round1-try1.jsonl",
    f"gpu01/{RUN}/{'d/' * 40}round1-try1.jsonl",
    f"gpu01/{RUN}/{'n' * 250}/round1-try1.jsonl",
)


def test_nothing_is_written_elsewhere_whatever_an_archive_says(tmp_path: Path) -> None:
    run = measured(tmp_path / "there")
    record, launch = run.record.read_bytes(), run.launches()[0].path
    within = launch.relative_to(tmp_path / "there").as_posix()
    archive = tmp_path / "import" / "x.tar"
    archive.parent.mkdir()
    with tarfile.open(archive, "w") as tar:
        tar.addfile(*member("gpu01", type=tarfile.SYMTYPE, linkname=str(tmp_path / "outside")))
        tar.addfile(*member(f"gpu01/{RUN}/run.jsonl", record))
        tar.addfile(*member(within, launch.read_bytes()))
        tar.addfile(*member(f"gpu01/{RUN}/round2-try1.log", type=tarfile.LNKTYPE, linkname="/etc/passwd"))
        tar.addfile(*member(f"gpu01/{RUN}/round3-try1.log", type=tarfile.SYMTYPE, linkname="/etc/passwd"))
        tar.addfile(*member(f"gpu01/{RUN}/round4-try1.jsonl", type=tarfile.CHRTYPE, devmajor=1, devminor=5))
        tar.addfile(*member(f"gpu01/{RUN}/round5-try1.jsonl", type=tarfile.FIFOTYPE))
        for name in HOSTILE_NAMES:
            tar.addfile(*member(name, record if name.endswith("run.jsonl") else launch.read_bytes()))
        tar.addfile(*member(within, launch.read_bytes()))
    before = {path for path in tmp_path.rglob("*")}
    result = gathered(tmp_path / "import/here", archive)
    assert result.new == 1 and result.runs == [f"gpu01/{RUN}"]
    assert len(result.refused) == len(HOSTILE_NAMES) + 6
    assert result.refused[within] == "it is there twice"
    assert {path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "import/here")} == before
    assert len(files(tmp_path / "import/here")) == 2


@pytest.mark.thorough
def test_bombs_are_refused_without_unpacking_them(tmp_path: Path) -> None:
    zeros = tmp_path / "x.tar.gz"
    with gzip.open(zeros, "wb", compresslevel=9) as packed:
        packed.write(member(f"h/{RUN}/run.jsonl", b"", size=900 << 20)[0].tobuf())
        for _ in range(900):
            packed.write(b"\0" * (1 << 20))
    with pytest.raises(BadInput, match="unpacks to more than"):
        gathered(tmp_path / "here", zeros)


@pytest.mark.parametrize("form", ["folder", "tar", "tar.gz"])
@pytest.mark.parametrize("limits", [Limits(files=3), Limits(bytes=5000)])
def test_every_source_has_limits_of_number_and_size(tmp_path: Path, form: str, limits: Limits) -> None:
    measured(tmp_path / "there", launches=4)
    with pytest.raises(BadInput, match=r"has more than (3 files|0 MiB): nothing of it is taken"):
        gathered(tmp_path / "here", PACKED[form](tmp_path / "there", tmp_path), limits=limits)
    assert not (tmp_path / "here").exists() or not files(tmp_path / "here")


@pytest.mark.parametrize("gone", ["run.jsonl", "round2-try1.jsonl"])
def test_a_file_that_goes_after_it_was_listed_is_missing_and_the_next_call_brings_it(tmp_path: Path, gone: str) -> None:
    run = measured(tmp_path / "there")
    path = next(run.path.rglob(gone))
    whole, name = path.read_bytes(), path.relative_to(tmp_path / "there").as_posix()
    result = gathered(tmp_path / "here", tmp_path / "there", tell=lambda line: path.unlink())
    assert list(result.refused) == [name] and "it can't be read: No such file" in result.refused[name]
    assert result.new == (0 if gone == "run.jsonl" else 2) and result.here == 0
    assert not any(imported.read_record().complete for imported in Results(tmp_path / "here").runs())
    path.write_bytes(whole)
    again = gathered(tmp_path / "here", tmp_path / "there")
    assert not again.refused and again.launches == 3 and Results(tmp_path / "here").runs()[0].read_record().complete


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    run = measured(tmp_path / "there")
    os.mkfifo(tmp_path / "pipe.tar.gz")
    with pytest.raises(BadInput, match="it is not a plain file"):
        gathered(tmp_path / "here", tmp_path / "pipe.tar.gz")
    os.mkfifo(run.path / "round9-try1.jsonl")
    result = gathered(tmp_path / "here", tmp_path / "there")
    assert result.new == 3 and set(result.refused) == {f"gpu01/{RUN}/round9-try1.jsonl"}
    assert set(result.refused.values()) == {"it is a link or a device"}


def test_files_that_a_mac_adds_to_an_archive_or_a_disk_are_no_facts(tmp_path: Path) -> None:
    run = measured(tmp_path / "there")
    right = files(tmp_path / "there")
    for path in list(run.path.rglob("*.jsonl")):
        path.with_name(f"._{path.name}").write_bytes(b"\x00\x05\x16\x07")
    for number, source in enumerate((tar_of(tmp_path / "there", tmp_path / "mac.tar", "w"), tmp_path / "there")):
        result = gathered(tmp_path / f"here{number}", source)
        assert (result.new, result.refused) == (3, {}) and result.others >= 4 and files(tmp_path / f"here{number}") == right


@pytest.mark.parametrize("how", ["a header is damaged", "cut off in a header", "cut off between two files"])
def test_a_tar_that_ends_early_says_that_something_is_missing(tmp_path: Path, how: str) -> None:
    measured(tmp_path / "there")
    source = tar_of(tmp_path / "there", tmp_path / "x.tar", "w")
    with tarfile.open(source) as tar:
        place = tar.getmembers()[-1].offset
    data = source.read_bytes()
    damaged = data[: place + 10] + b"\xff" + data[place + 11 :]
    source.write_bytes({"a header is damaged": damaged, "cut off in a header": data[: place + 99]}.get(how, data[:place]))
    result = gathered(tmp_path / "here", source)
    assert "what came after its last readable file is missing" in result.refused[str(source)]


@pytest.mark.parametrize("headers", [1, 3000])
def test_a_tar_that_claims_long_names_is_refused_without_reading_them(tmp_path: Path, headers: int) -> None:
    long = member("././@LongLink", type=tarfile.GNUTYPE_LONGNAME, size=5 << 20 if headers == 1 else 512)[0].tobuf(
        tarfile.GNU_FORMAT
    )
    with (tmp_path / "x.tar").open("wb") as file:
        file.write(headers * (long + b"n" * 512))
        file.truncate(6 << 20)
    with pytest.raises(BadInput, match="no tar archive of facts"):
        gathered(tmp_path / "here", tmp_path / "x.tar")


def test_a_launch_file_of_more_than_64_mib_is_refused(tmp_path: Path) -> None:
    run = measured(tmp_path / "there")
    with run.launches()[0].path.open("ab") as file:
        file.truncate((64 << 20) + 1)
    result = gathered(tmp_path / "here", tmp_path / "there")
    assert list(result.refused.values()) == ["it is larger than 64 MiB"] and result.new == 2


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"PK\x03\x04 no", b"\x1f\x8b no", gzip.compress(b"no tar" * 200, mtime=0), b"\0" * 5000]
)
def test_what_is_no_archive_is_bad_input(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar.gz").write_bytes(content)
    try:
        assert not gathered(tmp_path / "here", tmp_path / "x.tar.gz").runs
    except BadInput as error:
        assert "archive of facts" in str(error) or "damaged" in str(error)


@pytest.mark.parametrize("ending", ["tar", "tar.gz"])
def test_an_archive_without_a_file_of_a_run_is_bad_input(tmp_path: Path, ending: str) -> None:
    (tmp_path / "there").mkdir()
    for text in ("", "notes"):
        (tmp_path / "there/notes.txt").write_text(text)
        packed = tar_of(tmp_path / "there", tmp_path / "x", "w:gz" if ending == "tar.gz" else "w")
        with pytest.raises(BadInput, match=r"x[a-z.]* is no archive of facts: no file of a run is in it"):
            gathered(tmp_path / "here", packed)


@pytest.mark.parametrize("form", ["tar.gz", "tar"])
def test_an_archive_that_is_cut_off_or_flipped_never_brings_wrong_facts(tmp_path: Path, form: str) -> None:
    run = measured(tmp_path / "there")
    right = files(tmp_path / "there")
    source = PACKED[form](tmp_path / "there", tmp_path)
    data = source.read_bytes()
    for number in range(30):
        place = len(data) * number // 30
        changed = data[:place] if number % 2 else data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]
        source.write_bytes(changed)
        with suppress(BadInput):
            gathered(tmp_path / str(number), source)
        got = files(tmp_path / str(number)) if (tmp_path / str(number)).exists() else {}
        for name, content in got.items():
            assert right[name] == content or (name.endswith("run.jsonl") and right[name].startswith(content)), (number, name)
    assert run.id == RUN


def test_a_full_disk_is_said_leaves_no_half_file_and_the_next_call_goes_on(tmp_path: Path) -> None:
    run = measured(tmp_path / "there")
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (run.launches()[0].path.stat().st_size // 2, most))
    try:
        with pytest.raises(EngineUnusable, match="can't write") as caught:
            gathered(tmp_path / "here", tmp_path / "there")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    assert "goes on" in caught.value.hint and not list((tmp_path / "here").rglob("round*"))
    assert gathered(tmp_path / "here", tmp_path / "there").new == 3 and files(tmp_path / "here") == files(tmp_path / "there")


def test_an_unwritable_folder_is_said_and_the_next_call_goes_on(tmp_path: Path) -> None:
    measured(tmp_path / "there")
    (tmp_path / "here").mkdir()
    (tmp_path / "here/gpu01").write_text("in the way")
    with pytest.raises(EngineUnusable, match="can't write"):
        gathered(tmp_path / "here", tmp_path / "there")
    (tmp_path / "here/gpu01").unlink()
    assert gathered(tmp_path / "here", tmp_path / "there").new == 3


@pytest.mark.parametrize("folder", ["gpu01", f"gpu01/{RUN}", f"gpu01/{RUN}/stack-a"])
def test_nothing_is_written_through_a_link(tmp_path: Path, folder: str) -> None:
    run = measured(tmp_path / "there", launches=1)
    gathered(tmp_path / "here", tmp_path / "there")
    here, elsewhere = tmp_path / "here" / folder, tmp_path / "elsewhere"
    here.rename(elsewhere)
    here.symlink_to(elsewhere, target_is_directory=True)
    before = files(elsewhere)
    path = run.launches()[0].path
    path.with_name("round2-try1.jsonl").write_text(path.read_text().replace('"round": 1', '"round": 2'))
    result = gathered(tmp_path / "here", tmp_path / "there")
    assert f"{folder} is a link here, and nothing is written through one" in "; ".join(result.refused.values())
    assert result.new == 0 and files(elsewhere) == before


def gather_and_kill(here: Path, source: Path, at: int) -> None:
    """Gather in a child that is killed by SIGKILL, as by a crash, before it gives its file number `at` its name."""
    child, renamed, real = os.fork(), 0, Path.replace
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        return

    def replace(path: Path, target: Any) -> Any:
        nonlocal renamed
        renamed += 1
        if renamed == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(path, target)

    Path.replace = replace  # type: ignore[method-assign]
    gathered(here, source)
    os._exit(0)


def test_a_gather_that_was_killed_left_no_half_file_and_the_next_one_goes_on(tmp_path: Path) -> None:
    measured(tmp_path / "there", launches=6)
    whole = files(tmp_path / "there")
    for number in range(1, 9):
        here = tmp_path / f"here{number}"
        gather_and_kill(here, tmp_path / "there", number)
        for name, data in files(here).items():
            assert whole[name] == data or (name.endswith("run.jsonl") and whole[name].startswith(data))
        assert not any(run.read_record().complete for run in Results(here).runs())
        result = gathered(here, tmp_path / "there")
        assert (result.new, result.here) == (7 - max(number - 1, 1), max(number - 2, 0)), number
        assert files(here) == whole and not list(here.rglob("*.part"))


def test_two_gathers_into_one_folder_wait_for_each_other(tmp_path: Path) -> None:
    measured(tmp_path / "there")
    with hold_lock(tmp_path / "here/.gather.lock", "x", "y"), pytest.raises(EngineUnusable, match="another gather fills"):
        gathered(tmp_path / "here", tmp_path / "there")
    with Results(tmp_path / "here").hold():
        assert gathered(tmp_path / "here", tmp_path / "there").new == 3, "a run in this folder is no obstacle"


def test_the_records_of_gathered_runs_are_json_lines(tmp_path: Path) -> None:
    measured(tmp_path / "there")
    gathered(tmp_path / "here", tmp_path / "there")
    for line in Results(tmp_path / "here").runs()[0].record.read_text().splitlines():
        assert json.loads(line)["event"]


def test_a_file_larger_than_a_source_may_be_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "sparse.tar").touch()
    os.truncate(tmp_path / "sparse.tar", 8 << 40)
    with pytest.raises(BadInput, match="is larger than"):
        gather(Results(tmp_path / "here"), str(tmp_path / "sparse.tar"), dry_run=True)
