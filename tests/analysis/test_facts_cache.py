"""Cache of each run: it says what the facts say, whatever happens to it."""

import math
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.records import launch_lines, nights, write_run
from torchmatrix.analysis import facts_cache, run_index, run_summary
from torchmatrix.analysis.rows import LaunchRow
from torchmatrix.analysis.run_summary import RunSummary
from torchmatrix.core import assets
from torchmatrix.facts import lines
from torchmatrix.facts.environments import environment_of
from torchmatrix.facts.launch import last_tries
from torchmatrix.facts.store import Results, RunFolder

READING = {"device": "GPU-0", "temperature_celsius": 61, "power_watts": 512.0, "foreign": ["python (pid 7)"]}
LAUNCHES: list[dict[str, Any]] = [
    {"readings": [(float(t), {**READING, "energy_joules": 512.0 * t}) for t in range(90, 130)], "flops": 67e9},
    {"rate": 101.0},
    {"rate": 180.0, "devices": (0, 1)},
    {"stack": "b", "outcome": "oom", "error": "out of memory \u2028"},
    {"stack": "c", "outcome": "build-failed"},
    {"stack": "d", "vendor": "cpu", "method": None, "job": {"compile": True, "attention": "sdpa"}},
]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    for run, complete in zip(nights(3), (True, True, False), strict=True):
        write_run(
            tmp_path, LAUNCHES, skips=[("rocm/w/gpu0", "needs an AMD GPU")], complete=complete, run=run, workload_hash="w"
        )
    return Results(tmp_path)


def read(results: Results) -> list[RunSummary]:
    return facts_cache.read(results, results.runs())


def files_of(results: Results) -> list[Path]:
    return sorted((results.root / facts_cache.FOLDER).glob("*/*"))


def kept(results: Results) -> list[str]:
    return [f"{path.parent.name}/{path.name}" for path in files_of(results)]


def plain(rows: Sequence[LaunchRow]) -> str:
    """Return values with their types; NaN is equal to NaN here."""
    return repr(list(rows))


def planned_order(run: RunFolder) -> list[str]:
    """Return the cells as planned."""
    return [name.cell for name in run.read_record().planned]


def hidden_edit(path: Path, old: bytes, new: bytes) -> None:
    """Change a file without a trace in its name, size and time: only who reads the file sees it."""
    assert len(old) == len(new) and old in path.read_bytes()
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_what_is_kept_is_exactly_what_the_facts_say(results: Results) -> None:
    cold, warm = read(results), read(results)
    run = results.runs()[0]
    launches = last_tries(run.launches())
    truth = sorted(run_summary.launch_rows(launches), key=lambda row: planned_order(run).index(row.cell))
    for summary in (cold[0], warm[0]):
        assert plain(summary.launches) == plain(truth)
        assert (summary.id, summary.host, summary.path, summary.started) == (run.id, "testhost", run.path, 1767225600.0)
        assert summary.workload_hash == "w" and summary.complete
        assert summary.skipped == {"rocm/w/gpu0": "needs an AMD GPU"} and summary.planned == tuple(
            dict.fromkeys(launch_lines(**launch)[0]["cell"] for launch in LAUNCHES)
        )
        two = next(launch for launch in launches if launch.devices.label == "gpu0+1")
        assert summary.environments["stack-a"] == environment_of(two)
        assert set(summary.environments) == {"stack-a", "b", "c", "d"}
    assert [summary.complete for summary in warm] == [True, True, False]
    assert [summary.id for summary in warm] == nights(3)


def test_a_warm_reading_opens_no_launch(results: Results) -> None:
    before = read(results)
    for path in results.root.rglob("round*.jsonl"):
        hidden_edit(path, b'"event": "launch"', b'"event": "LAUNCH"')
    assert [plain(run.launches) for run in read(results)] == [plain(run.launches) for run in before]


def test_a_run_that_went_on_is_read_anew_and_only_that(results: Results) -> None:
    read(results)
    untouched, running = results.runs()[0], results.runs()[2]
    hidden_edit(next(untouched.path.rglob("round1*.jsonl")), b'"event": "launch"', b'"event": "LAUNCH"')
    cell = running.path / "stack-a/resnet50-train-fp32-b4/gpu0"
    (cell / "round3-try1.jsonl").write_text((cell / "round1-try1.jsonl").read_text().replace('"round": 1', '"round": 3'))
    running.append("run-exit", complete=True)
    again = read(results)
    assert [len(run.launches) for run in again] == [6, 6, 7] and again[2].complete
    (cell / "round3-try1.jsonl").unlink()
    assert len(read(results)[2].launches) == 6


def test_deleted_runs_vanish_from_it_and_some_runs_can_be_read_alone(results: Results) -> None:
    read(results)
    assert len(kept(results)) == 3
    gone = results.runs()[0]
    gone.record.unlink()
    (newest,) = facts_cache.read(results, results.runs()[-1:])
    assert newest.id == nights(3)[2]
    assert kept(results) == [f"testhost/{run}" for run in nights(3)[1:]]


def test_a_moved_results_folder_keeps_its_index(results: Results, tmp_path: Path) -> None:
    read(results)
    moved = Results(results.root.rename(tmp_path.with_name(f"{tmp_path.name}-moved")))
    hidden_edit(next(moved.root.rglob("round1*.jsonl")), b'"event": "launch"', b'"event": "LAUNCH"')
    (first, *_) = read(moved)
    assert len(first.launches) == 6 and all(Path(row.path).is_file() for row in first.launches)


def make_garbage(path: Path) -> None:
    path.write_bytes(b"this is nothing" * 300)


def make_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def make_noise(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xa5" * (len(data) - 100))


def make_empty(path: Path) -> None:
    path.write_bytes(b"")


def make_wrong_facts(path: Path) -> None:
    key = path.read_bytes().partition(b"\n")[0]
    wrong = zlib.compress(b'{"launches": {"same": 1}}')
    path.write_bytes(b"%b %d %d\n" % (key.rsplit(maxsplit=2)[0], len(wrong), 0) + wrong)


def make_huge(path: Path) -> None:
    key, _, packed = path.read_bytes().partition(b"\n")
    path.write_bytes(key.rsplit(maxsplit=2)[0] + b" 99999999999999999999 3\n" + packed)


def make_negative(path: Path) -> None:
    key, _, packed = path.read_bytes().partition(b"\n")
    path.write_bytes(key.rsplit(maxsplit=2)[0] + b" -1 3\n" + packed)


def make_older(path: Path) -> None:
    path.write_bytes(b"0" * 16 + path.read_bytes()[16:])


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        make_garbage,
        make_short,
        make_noise,
        make_empty,
        make_wrong_facts,
        make_huge,
        make_negative,
        make_older,
        make_folder,
        Path.unlink,
    ],
)
def test_damaged_files_are_made_anew_and_nobody_notices(results: Results, damage: Callable[[Path], None]) -> None:
    before = [plain(run.launches) for run in read(results)]
    for path in files_of(results):
        damage(path)
    assert [plain(run.launches) for run in read(results)] == before
    assert [plain(run.launches) for run in read(results)] == before
    assert len(kept(results)) == 3


def test_where_the_folder_cannot_be_made_the_facts_are_read(results: Results) -> None:
    (results.root / facts_cache.FOLDER).write_text("somebody else's")
    assert [len(run.launches) for run in read(results)] == [6, 6, 6]


def test_where_the_folder_belongs_to_another_user_the_facts_are_read(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> bool:
        if facts_cache.FOLDER in path.parent.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return False

    monkeypatch.setattr(Path, "is_symlink", refused)
    assert [len(run.launches) for run in facts_cache.each(results, results.runs())] == [6, 6, 6]


def test_what_cannot_be_read_is_kept_with_its_reason(results: Results) -> None:
    path = next(results.runs()[0].path.rglob("round1*.jsonl"))
    path.write_text("garbage")
    results.runs()[1].append("skip", reason="no cell")
    for _ in range(2):
        first, second, _third = read(results)
        (problem,), (two,) = first.unreadable, second.unreadable
        assert problem.path == path and "header" in problem.reason
        assert two.path == results.runs()[1].record and "cell is missing" in two.reason


def test_a_folder_that_cannot_be_written_is_read_all_the_same(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        write_run(disk, LAUNCHES)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert [len(run.launches) for run in read(Results(disk))] == [6]
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        read(Results(disk))
        write_run(disk, LAUNCHES, run="20260102T000000Z")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert [len(run.launches) for run in read(Results(disk))] == [6, 6]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_several_processes_at_once_read_the_same(results: Results) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from torchmatrix.analysis import facts_cache; from torchmatrix.facts.store import Results\n"
        "results = Results(Path(sys.argv[1]))\n"
        "print(sum(len(run.launches) for _ in range(5) for run in facts_cache.read(results, results.runs())))"
    )
    command = [sys.executable, "-c", code, str(results.root)]
    three = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=PATIENCE_SECONDS) for process in three] == [("90\n", "")] * 3
    assert len(kept(results)) == 3


def test_a_run_without_a_record_of_its_time_or_any_launch_is_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "testhost" / "mine")
    folder.path.mkdir(parents=True)
    folder.record.write_text("not json\n")
    for _ in range(2):
        (summary,) = read(Results(tmp_path))
        assert math.isnan(summary.started) and not summary.launches and not summary.complete and summary.matrix == ""


def test_nothing_is_written_where_there_are_no_runs(tmp_path: Path) -> None:
    assert read(Results(tmp_path / "none")) == [] and not (tmp_path / "none").exists()


@pytest.mark.parametrize("link", [".cache", ".cache/{host}", ".cache/gpu09"])
def test_nothing_is_written_or_removed_behind_a_link_in_place_of_the_cache(
    results: Results, tmp_path_factory: pytest.TempPathFactory, link: str
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("thesis.txt", "projects/thesis.txt", "projects/20260101T000000Z"):
        (elsewhere / name).parent.mkdir(exist_ok=True)
        (elsewhere / name).write_text("precious")
    (elsewhere / "projects/link").symlink_to(elsewhere / "thesis.txt")
    place = results.root / link.format(host=results.runs()[0].path.parent.name)
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(elsewhere if link == ".cache" else elsewhere / "projects")
    before = sorted(elsewhere.rglob("*"))
    summaries = [read(results), run_index.summaries(results, results.runs()), read(results)]
    facts_cache.whole(results, results.runs()[0])
    assert sorted(elsewhere.rglob("*")) == before and place.is_symlink()
    assert {(elsewhere / "thesis.txt").read_text(), (elsewhere / "projects/thesis.txt").read_text()} == {"precious"}
    assert [len(each) for each in summaries] == [3, 3, 3]


def test_a_file_in_the_cache_that_is_not_ours_stays(results: Results) -> None:
    read(results)
    mine = results.root / ".cache/gpu09/notes.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    gone = files_of(results)[0]
    (results.root / ".cache/gpu09" / gone.name).write_bytes(gone.read_bytes())
    read(results)
    assert [path.name for path in mine.parent.iterdir()] == ["notes.txt"], "what is cached of a run that is gone goes"


def test_another_data_sheet_makes_another_cache(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares of a data sheet's bandwidth are among the figures of launches."""
    before = facts_cache.code()
    shutil.copy(assets.PUBLISHED / "gpus.csv", tmp_path)
    monkeypatch.setattr(assets, "PUBLISHED", tmp_path)
    facts_cache.code.cache_clear()
    assert facts_cache.code() == before
    with (tmp_path / "gpus.csv").open("a") as sheet:
        sheet.write("My GPU\n")
    facts_cache.code.cache_clear()
    assert facts_cache.code() != before
    facts_cache.code.cache_clear()


def test_what_could_not_be_read_for_its_size_is_read_again_once_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit is a setting, and a permission may be given: neither changes the file."""
    run, store = write_run(tmp_path, [{}, {"stack": "b"}]), Results(tmp_path)
    largest = max(path.stat().st_size for path in run.path.rglob("round*.jsonl"))
    for module in (lines, run_summary):
        monkeypatch.setattr(module, "most_bytes", lambda: largest - 1)
    for _ in range(2):
        assert len(facts_cache.whole(store, run).summary.unreadable_launches) > 0
        (night,) = run_index.summaries(store, [run])
        assert night.unreadable_launches
    monkeypatch.undo()
    assert not facts_cache.whole(store, run).summary.unreadable_launches
    (night,) = run_index.summaries(store, [run])
    assert not night.unreadable_launches and len(night.launches) == 2
