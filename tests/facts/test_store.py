"""Files on disk: what is kept, how a cut-off file is read, whom a folder's lock names."""

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.records import launch_lines, write_run
from torchmatrix.analysis import facts_cache
from torchmatrix.analysis.machines import choose_launches
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.facts import lines, store
from torchmatrix.facts.launch import Launch, Unreadable, last_tries
from torchmatrix.facts.launch_file import LaunchFile
from torchmatrix.facts.reading import launch_at, read_launch
from torchmatrix.facts.store import Results, RunFolder, select
from torchmatrix.reporting import redaction
from torchmatrix.reporting.redaction import Pseudonyms
from torchmatrix_plugins.gather import gather

CELL = "stack-a/resnet50-train-fp32-b4/gpu0"


def header(number: int = 1) -> dict[str, Any]:
    return launch_lines(run="20260101T000000Z")[0] | {"try": number}


def test_a_launch_cut_off_at_any_byte_is_lost_and_nothing_else(tmp_path: Path) -> None:
    (launch,) = write_run(tmp_path, [{}]).launches()
    data = launch.path.read_bytes()
    header = data.index(b"\n")
    for size in range(0, len(data) - 1, 7):
        launch.path.write_bytes(data[:size])
        result = read_launch(launch.path)
        assert isinstance(result, Unreadable) if size < header else result.outcome == "lost"
    launch.path.write_bytes(data)
    assert launch_at(launch.path).outcome == "ok"


@pytest.mark.parametrize(
    ("copied", "copy"),
    [
        ("stack-a", "stack-a.bak"), ("stack-a", "old/stack-a"), ("stack-a/resnet50-train-fp32-b4", "stack-a/other"),
        ("stack-a/resnet50-train-fp32-b4/gpu0", "stack-a/resnet50-train-fp32-b4/gpu1"),
        ("stack-a/resnet50-train-fp32-b4/gpu0", "stack-b/resnet50-train-fp32-b4/gpu0"), ("", "run.bak"),
    ],
)  # fmt: skip
def test_a_copy_of_launches_in_their_run_counts_as_no_launch(tmp_path: Path, copied: str, copy: str) -> None:
    run = write_run(tmp_path, [{"rate": 100.0}, {"rate": 101.0}, {"rate": 90.0, "stack": "stack-b"}])
    before = [launch.path for launch in run.launches()]
    shutil.copytree(run.path / copied, tmp_path / "copy")
    shutil.copytree(tmp_path / "copy", run.path / copy, dirs_exist_ok=True)
    everything = list(run.everything())
    refused = [item for item in everything if isinstance(item, Unreadable)]
    kept = [launch.path for launch in run.launches()]
    assert all("it was copied or moved" in item.reason for item in refused) and len(kept) + len(refused) == len(everything)
    assert kept == (before[:2] if copy.startswith("stack-b") else before)  # the copy has taken the place of stack-b's launch
    assert store.verified(Results(tmp_path)).unreadable == tuple(refused)
    of_summary = facts_cache.whole_from_files(run).summary
    assert (len(of_summary.launches), len(of_summary.unreadable_launches)) == (len(kept), len(refused))


def test_launches_of_another_machine_in_a_run_are_not_read(tmp_path: Path) -> None:
    """Two machines of one name began a run in the same second, and somebody merged their folders."""
    one, other = (
        write_run(tmp_path / machine, [{"rate": rate, "host": {"name": "gpu01"}}] * 2, folder="gpu01", machine=machine * 16)
        for machine, rate in (("a", 100.0), ("b", 50.0))
    )
    (other.path / CELL / "round2-try1.jsonl").rename(one.path / CELL / "round2-try1.jsonl")
    assert [launch.machine for launch in one.launches()] == ["a" * 16]
    (refused,) = facts_cache.whole_from_files(one).summary.unreadable_launches
    assert f"it was measured on another machine, {'b' * 16}" in refused.reason


def test_the_nodes_of_a_cluster_s_run_are_its_machines(tmp_path: Path) -> None:
    """Also in a redacted copy and where the run is brought elsewhere; a machine that is none of them stays out."""
    launches = [{"machine": name[-1] * 16, "host": {"name": name}} for name in ("node-a", "node-b", "node-c")]
    nodes = [{"host name": "node-a", "gres": None}, {"host name": "node-b", "gres": None}]
    run = write_run(tmp_path / "results", launches, machine="a" * 16, scheduler={"name": "Slurm", "nodes": nodes})
    assert [launch.host["name"] for launch in run.launches()] == ["node-a", "node-b"]
    cleaner = redaction.for_results(Results(tmp_path / "results"), True, Pseudonyms())
    assert len(redaction.staged(run, cleaner, tmp_path / "staged").launches()) == 2
    brought = gather(Results(tmp_path / "here"), str(tmp_path / "results"))
    assert brought.new == 2 and ["another machine" in why for why in brought.refused.values()] == [True]


def test_a_launch_of_another_run_is_not_read(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{"rate": 100.0}, {"rate": 200.0}])
    first, second = (launch.path for launch in run.launches())
    head, *rest = lines.read(second).events
    second.write_bytes(lines.packed([head | {"run": "20251231T000000Z"}, *rest]))
    assert [launch.path for launch in run.launches()] == [first]
    (refused,) = facts_cache.whole_from_files(run).summary.unreadable_launches
    assert "belongs to run 20251231T000000Z" in refused.reason
    assert [item.reason for item in store.verified(Results(tmp_path)).unreadable] == [refused.reason]
    renamed = RunFolder(run.path.rename(run.path.with_name("mine")))
    assert len(renamed.launches()) == 2


@pytest.mark.parametrize("part", ["stack", "workload", "gpus"])
def test_a_launch_that_names_another_cell_than_it_ran_is_not_read(tmp_path: Path, part: str) -> None:
    (launch,) = write_run(tmp_path, [{}]).launches()
    head, *rest = lines.read(launch.path).events
    name = {"stack": "name", "workload": "id", "gpus": "label"}[part]
    launch.path.write_bytes(lines.packed([head | {part: head[part] | {name: "another"}}, *rest]))
    refused = read_launch(launch.path)
    assert isinstance(refused, Unreadable) and refused.reason.startswith(f"its cell is {launch.cell}, but it ran ")


def test_a_run_whose_record_does_not_fit_on_the_disk_leaves_no_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = Results(tmp_path).new_run("host")
    monkeypatch.setattr(store, "write_whole", refuse)
    with pytest.raises(EngineUnusable, match="No space left"):
        run.open_record([])
    assert not run.path.exists()


def test_done_without_samples_or_with_a_bad_exit_is_no_success(tmp_path: Path) -> None:
    lines = launch_lines()
    path = tmp_path / "x.jsonl"
    without = [line for line in lines if line.get("phase") != "measure"]
    path.write_text("\n".join(map(json.dumps, without)))
    assert launch_at(path).outcome == "crashed"
    path.write_text("\n".join(map(json.dumps, [*lines[:-1], {**lines[-1], "returncode": 1}])))
    assert launch_at(path).outcome == "crashed"
    path.write_text("\n".join(map(json.dumps, [*lines[:-1], {**lines[-1], "returncode": 137, "oom_killed": True}])))
    assert launch_at(path).outcome == "oom"


def test_files_are_only_ever_appended_to_and_tries_never_overwritten(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    first = folder.new_launch(CELL, 1)
    first.copy(json.dumps(header()).encode())
    size = first.path.stat().st_size
    first.event("exit", reason="interrupted")
    assert first.path.stat().st_size > size
    assert not folder.is_done(CELL, 1)
    second = folder.new_launch(CELL, 1)
    assert second.path.name == "round1-try2.jsonl" and first.path.exists()
    assert second.number == 2
    second.copy(json.dumps(header(2)).encode())
    second.close(reason="timeout", message="m")
    assert folder.is_done(CELL, 1) and not folder.is_done("a/b/c", 2)
    first.abandon()


def test_stray_output_goes_to_the_log_and_its_tail_to_the_exit_line(tmp_path: Path) -> None:
    file = LaunchFile(tmp_path / "l.jsonl")
    file.copy(json.dumps(header()).encode())
    for number in range(130):
        file.log(b"line %d\n" % number)
    file.log(b"ValueError: the reason\n")
    file.close(returncode=1)
    launch = launch_at(file.path)
    assert launch.error == "ValueError: the reason" and launch.exit is not None and len(launch.exit.tail) == 120
    assert (tmp_path / "l.log").read_text().startswith("line 0\nline 1\n")


def test_the_reason_is_what_failed_and_not_how_torchrun_sums_it_up(tmp_path: Path) -> None:
    """The log is what torch 2.5 prints when NCCL's watchdog ends rank 0 of 8 processes, of which each has its paragraph."""
    late = "[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, …)"
    summed = ["  rank      : 1 (local_rank: 1)", "  exitcode  : -6 (pid: 7)", "  error_file: <N/A>", "  traceback : Signal 6"]
    traceback = ["    raise ChildFailedError(", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "]
    for cause in (late, "RuntimeError: CUDA error: an illegal memory access was encountered"):
        file = LaunchFile(tmp_path / f"{cause[:5]}.jsonl")
        file.copy(json.dumps(header()).encode())
        for line in (cause, *traceback, *8 * summed):
            file.log(f"{line}\n".encode())
        file.close(returncode=1)
        assert launch_at(file.path).error == cause


def test_the_reason_of_an_exception_that_no_python_code_catches_is_its_own_and_no_frame_of_its_stack(tmp_path: Path) -> None:
    """The log is what torch 2.5.1 prints when C++ code throws where nothing catches it, without the addresses."""
    log = (
        "terminate called after throwing an instance of 'c10::Error'",
        "  what():  CUDA error: CUDA driver version is insufficient for CUDA runtime version",
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be …",
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
        "Device-side assertions were explicitly omitted for this error check; the error probably arose while …",
        "Exception raised from c10_cuda_check_implementation at ../c10/cuda/CUDAException.cpp:43 (most recent call first):",
        "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f in libc10.so)",
        "frame #1: c10::detail::torchCheckFail(char const*, char const*, unsigned int, std::string const&) + 0x64 (0x7f in …)",
    )
    assert ended(tmp_path, -6, *log).error == "CUDA error: CUDA driver version is insufficient for CUDA runtime version"


@pytest.mark.parametrize(
    ("code", "log", "message"),
    [
        (7, ("loading weights", "no licence for this host", ""), "exit code 7, last line: no licence for this host"),
        (0, ("bye",), "it ended before it was done, with exit code 0"),
        (7, (), "exit code 7 and no message"),
        (1, ("no licence", "  rank      : 0 (local_rank: 0)", "  exitcode  : -15 (pid: 6)"), "rank 0: ended by SIGTERM"),
    ],
)
def test_a_launch_that_ends_without_an_error_has_its_last_line_quoted(
    tmp_path: Path, code: int, log: tuple[str, ...], message: str
) -> None:
    assert ended(tmp_path, code, *log).error == message


def test_the_rank_that_failed_first_is_named_and_not_where_torchrun_explains_itself(tmp_path: Path) -> None:
    """The log is the end of what torch 2.5 prints where rank 1 of two called os._exit(7)."""
    summed = [
        "  rank      : {0} (local_rank: {0})",
        "  exitcode  : {1} (pid: 7)",
        "  error_file: <N/A>",
        f"  traceback : {SEE}",
    ]
    paragraphs = [line.format(rank, code) for rank, code in ((0, -15), (1, 7)) for line in summed]
    launch = ended(
        tmp_path, 1, "no licence", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", *paragraphs
    )
    assert launch.error == "rank 1: exit code 7 and no message"


SEE = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


def ended(folder: Path, code: int, *log: str) -> Launch:
    file = LaunchFile(folder / "ended.jsonl")
    file.copy(json.dumps(header()).encode())
    for line in log:
        file.log(f"{line}\n".encode())
    file.close(returncode=code)
    return launch_at(file.path)


def test_a_container_or_process_ended_by_a_signal_says_which(tmp_path: Path) -> None:
    for code in (-9, 137):
        file = LaunchFile(tmp_path / f"{code}.jsonl")
        file.copy(json.dumps(header()).encode())
        file.close(returncode=code)
        assert launch_at(file.path).error == "ended by SIGKILL"


def test_the_lock_names_its_holder_and_is_free_afterwards(tmp_path: Path) -> None:
    with Results(tmp_path).hold():
        with pytest.raises(EngineUnusable, match=r"another run holds .*process") as caught, Results(tmp_path).hold():
            pass
        assert caught.value.exit_code == 4
    with Results(tmp_path).hold():
        pass


def test_only_the_newest_run_of_the_same_request_is_continued(tmp_path: Path) -> None:
    write_run(tmp_path, [{}], complete=False)
    results = Results(tmp_path)
    assert results.unfinished("testhost", "k") is not None
    assert results.unfinished("testhost", "other") is None and results.unfinished("elsewhere", "k") is None
    other = results.new_run("testhost")
    other.open_record([{"event": "run", "key": "other"}, {"event": "run-exit", "complete": True}])
    assert results.unfinished("testhost", "k") is not None, "another run in between must not hide it"
    results.runs()[0].append("run-exit", complete=True)
    assert results.unfinished("testhost", "k") is None


def test_a_throttled_repetition_that_was_interrupted_does_not_lose_the_first_try(tmp_path: Path) -> None:
    (launch,) = write_run(tmp_path, [{}]).launches()
    lines = launch.path.read_text().splitlines(keepends=True)
    launch.path.with_name("round1-try2.jsonl").write_text("".join([json.dumps(header(2)) + "\n", *lines[1:3]]))
    run = Results(tmp_path).runs()[0]
    (kept,) = last_tries(run.launches())
    assert kept.path.name == "round1-try1.jsonl" and kept.outcome == "ok" and run.is_done(launch.cell, 1)


def test_a_try_of_which_only_the_end_of_its_job_is_known_replaces_none_that_began(tmp_path: Path) -> None:
    (launch,) = write_run(tmp_path, [{"start": {"waited_seconds": 1.0}}]).launches()
    record = {**header(2), "start": None, "image": None}
    end = {"event": "exit", "returncode": None, "reason": "crashed"}
    launch.path.with_name("round1-try2.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (record, end)))
    both = Results(tmp_path).runs()[0].launches()
    assert {launch.outcome for launch in both} == {"ok", "crashed"}
    assert [launch.outcome for launch in last_tries(both)] == ["ok"]


def test_a_reading_that_comes_after_the_end_is_not_written(tmp_path: Path) -> None:
    file = LaunchFile(tmp_path / "round1-try1.jsonl")
    file.event("launch", cell="c")
    file.telemetry([{"device": "cpu"}])
    file.close(returncode=0)
    file.telemetry([{"device": "cpu"}])
    events = [json.loads(line)["event"] for line in file.path.read_text().splitlines()]
    assert events == ["launch", "telemetry", "exit"]


def test_two_machines_of_one_name_have_two_folders(tmp_path: Path) -> None:
    results = Results(tmp_path)
    first, second = "a" * 16, "b" * 16
    assert results.home("gpu01", first) == "gpu01"
    run = results.new_run("gpu01")
    run.open_record([{"event": "run", "key": "k"}])
    assert results.home("gpu01", first) == "gpu01", "what an earlier version measured here is continued"
    run.open_record([{"event": "run", "key": "k", "machine": first}])
    assert results.home("gpu01", first) == results.home("gpu01", None) == "gpu01"
    assert results.home("gpu01", second) == "gpu01-bbbbbb"
    assert run.read_record().machine == first


def test_a_lock_or_a_record_that_is_a_link_is_refused_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    results = Results(tmp_path / "results")
    run = results.new_run("host")
    for path, write in ((results.lock_file, lambda: results.hold().__enter__()), (run.record, lambda: run.append("note"))):
        path.symlink_to(tmp_path / "precious")
        with pytest.raises(EngineUnusable, match="symbolic link"):
            write()
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("word", ["..", "../gpu0/../../..", "{0}/testhost", "{0}/testhost/../testhost/20260101T000000Z"])
def test_a_word_with_dots_or_beside_a_copy_means_its_run(tmp_path: Path, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path, [{"rate": 100.0}, {"rate": 100.0}])
    shutil.copytree(run.path, run.path.with_name(f"{run.id}.bak"))
    monkeypatch.chdir(run.path / CELL)
    chosen = choose_launches(Results(tmp_path), word.format(tmp_path))
    assert len(chosen.launches) == 2 and not chosen.unreadable


@pytest.mark.parametrize("word", ["", "{0}", "{0}/testhost"])
def test_a_word_never_means_the_launches_of_several_runs(tmp_path: Path, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in ("20260101T000000Z", "20260102T000000Z"):
        write_run(tmp_path, [{"rate": 100.0}], run=run)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=r'holds 2 runs, not one|"" is not a file'):
        choose_launches(Results(tmp_path), word.format(tmp_path))


@pytest.mark.parametrize(
    "copy",
    [
        "gpu01/20260101T000000Z.bak", "gpu01/20260101T000000Z-2", "gpu01/a copy", "gpu01.bak/20260101T000000Z",
        "aaa/20260101T000000Z", "aaa/copy",
    ],
)  # fmt: skip
@pytest.mark.parametrize("waited", [1.37, 3600.25])
def test_a_copy_of_a_run_is_no_other_run(tmp_path: Path, copy: str, waited: float) -> None:
    """A run's own launches go on after the copy was made; the copy is found by the line that its record begins with.

    On a cluster that line is written once a node has answered.
    """
    run = write_run(tmp_path, [{"rate": 100.0}], folder="gpu01", unix_seconds=1767225600 + waited)
    other = write_run(tmp_path, [{"rate": 100.0}], folder="gpu02", unix_seconds=1767225600 + waited)
    shutil.copytree(run.path, tmp_path / copy)
    run.append("planned", cell="later")
    listed = Results(tmp_path).listed()
    assert [found.path for found in listed.runs] == [run.path, other.path]
    assert {found.path: original.path for found, original in listed.copies.items()} == {tmp_path / copy: run.path}
    shutil.rmtree(run.path)
    (left,) = (found for found in Results(tmp_path).runs() if found.path != other.path)
    assert left.path == tmp_path / copy and not Results(tmp_path).listed().copies


@pytest.mark.parametrize("copy", ["gpu01/kept", "gpu01/20260101T000000Z", "backup/20260101T000000Z", "gpu01-bbbbbb/a"])
def test_the_original_is_in_the_folder_of_its_machine(tmp_path: Path, copy: str) -> None:
    """Two machines are called gpu01: the second one's runs are in a folder with the begin of its identity."""
    first = write_run(tmp_path, [{}], folder="gpu01", machine="a" * 16, run="20260102T000000Z")
    named = {"name": "gpu01", "cpu": "Test CPU", "gpus": [], "cores": [0, 1]}
    run = write_run(tmp_path, [{}], folder="gpu01-bbbbbb", machine="b" * 16, host=named)
    shutil.copytree(run.path, tmp_path / copy)
    results = Results(tmp_path)
    assert {found.path for found in results.runs()} == {run.path, first.path}
    assert [results.home("gpu01", machine * 16) for machine in "ab"] == ["gpu01", "gpu01-bbbbbb"]


def test_of_two_copies_with_names_of_the_user_s_the_one_with_more_launches_counts(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{}] * 3)
    copy = RunFolder(shutil.copytree(run.path, run.path.with_name("a-before")))
    max(copy.path.rglob("round*.jsonl")).unlink()
    whole = run.path.rename(run.path.with_name("the-driver"))
    assert [found.path for found in Results(tmp_path).runs()] == [whole]


def test_another_run_of_the_same_second_beside_it_keeps_its_launches(tmp_path: Path) -> None:
    """Two machines of one name began a run in one second; somebody put both into one folder."""
    for machine in "ab":
        write_run(tmp_path / machine, [{"rate": 100.0}], machine=machine * 16)
    own = tmp_path / "a/testhost/20260101T000000Z"
    other = RunFolder(shutil.copytree(tmp_path / "b/testhost/20260101T000000Z", own.with_name(f"{own.name}-server-b")))
    assert len(other.launches()) == 1 and len(Results(tmp_path / "a").runs()) == 2


def test_a_copy_of_a_record_without_a_host_is_known_by_its_time(tmp_path: Path) -> None:
    for number in (1, 2):
        run = RunFolder(tmp_path / f"host{number}/20260101T000000Z")
        run.path.mkdir(parents=True)
        run.append("run", key="k")
    shutil.copytree(run.path, tmp_path / "x" / run.id)
    assert {len(Results(tmp_path).runs()), len(Results(tmp_path).listed().copies)} == {2, 1}


def test_the_facts_of_a_published_page_beside_the_run_are_a_copy(tmp_path: Path) -> None:
    """Their first line has no paths any more."""
    run = write_run(tmp_path / "results", [{"rate": 100.0}], command="torchmatrix run --matrix /home/alice/matrix.toml")
    shutil.copytree(redaction.cleaned(run, tmp_path / "page").path, tmp_path / "results" / "aaa" / run.id)
    listed = Results(tmp_path / "results").listed()
    assert [found.path for found in listed.runs] == [run.path] and listed.runs[0].begin() != next(iter(listed.copies)).begin()


def test_launches_in_a_copy_of_a_run_without_a_record_are_its_own(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{"rate": 100.0}])
    run.record.write_bytes(b"")
    copy = RunFolder(shutil.copytree(run.path, run.path.with_name("backup")))
    assert len(run.launches()) == 1 and not copy.launches()
    run.path.rename(tmp_path / "elsewhere")
    assert len(copy.launches()) == 1


def test_a_run_that_went_on_under_another_name_keeps_its_launches(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{"rate": 100.0}, {"rate": 101.0}])
    second = run.launches()[1].path
    head, *rest = lines.read(second).events
    second.write_bytes(lines.packed([head | {"run": "mine"}, *rest]))
    assert len(run.launches()) == 2
    write_run(tmp_path, [], run="mine")
    assert len(run.launches()) == 1


@pytest.mark.parametrize("content", [b"", b"<html>", b'{"event": "planned", "cell": "x"}\n'])
def test_a_file_that_is_no_record_is_told(tmp_path: Path, content: bytes) -> None:
    run = write_run(tmp_path, [{}])
    run.record.write_bytes(content)
    assert run.read_record().problems[0] in (store.NO_RECORD, run.lines().damage)
    assert store.verified(Results(tmp_path)).unreadable[0].path == run.record
    run.record.unlink()
    assert run.read_record().problems == ()


def test_runs_whose_records_cant_be_read_are_no_copies(tmp_path: Path) -> None:
    for name in ("20260101T000000Z", "20260101T000000Z-2"):
        (tmp_path / "gpu01" / name).mkdir(parents=True)
        (tmp_path / "gpu01" / name / "run.jsonl").write_bytes(b"")
    assert len(Results(tmp_path).runs()) == 2


def test_runs_of_one_second_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = ["20260101T000000Z", *(f"20260101T000000Z-{number}" for number in range(2, 13))]
    for number, name in enumerate(sorted(names)):
        write_run(tmp_path, [], run=name, seed=number)
    assert [run.id for run in Results(tmp_path).runs()] == names
    assert [run.id for run in select(Results(tmp_path), "last~1")] == ["20260101T000000Z-11"]


def test_estimates_know_all_launches_of_a_cell_by_the_same_method(tmp_path: Path) -> None:
    """Some drift, and take far longer than the newest one."""
    old, new = {"edges": (100.0, 900.0)}, [{"edges": (100.0, 320.0)}, {"edges": (100.0, 120.0)}]
    write_run(tmp_path, [old, {**old, "stack": "left"}], run="20260101T000000Z")
    write_run(tmp_path, [*new, {"outcome": "oom"}], run="20260102T000000Z")
    cells = ("stack-a/resnet50-train-fp32-b4/gpu0", "left/resnet50-train-fp32-b4/gpu0")
    assert Results(tmp_path).seconds_by_cell("testhost", "steady") == {cells[0]: [240.0, 40.0], cells[1]: [820.0]}
    assert Results(tmp_path).seconds_by_cell("testhost", "sustained") == {}


@pytest.mark.parametrize("place", ["self", "testhost/self"])
def test_a_link_that_cannot_be_followed_is_named_and_hides_no_run(tmp_path: Path, place: str) -> None:
    run = write_run(tmp_path, [{"rate": 99.0}, {"rate": 101.0}])
    (tmp_path / place).symlink_to("self")
    listed = Results(tmp_path).listed()
    assert [one.path for one in listed.runs] == [run.path]
    assert listed.unread == {str(tmp_path / place): "Too many levels of symbolic links"}
    (tmp_path / place).unlink()
    (tmp_path / place).symlink_to("nowhere")
    listed = Results(tmp_path).listed()
    assert len(listed.runs) == 1 and not listed.unread, "what has gone is no problem"


@pytest.mark.parametrize("place", ["self", "stack-a/self", "stack-a/resnet50-train-fp32-b4/gpu0/self"])
def test_a_link_inside_a_run_hides_no_launch(tmp_path: Path, place: str) -> None:
    run = write_run(tmp_path, [{"rate": 99.0}, {"rate": 101.0}])
    ok = [launch.path for launch in run.launches()]
    (run.path / place).symlink_to("self")
    assert [launch.path for launch in run.launches() if launch.outcome == "ok"] == ok and len(ok) == 2
    (unreadable,) = [launch for launch in run.everything() if isinstance(launch, Unreadable)]
    assert unreadable.path == run.path / place


def test_two_machines_stay_apart_where_a_link_cannot_be_followed(tmp_path: Path) -> None:
    for folder, machine in (("here", "a" * 32), ("there", "b" * 32)):
        write_run(tmp_path / folder, [{}], folder="m1", machine=machine, run=f"2026010{len(folder)}T000000Z")
    (tmp_path / "here" / "self").symlink_to("self")
    gather(Results(tmp_path / "here"), str(tmp_path / "there"))
    assert sorted(run.path.parent.name for run in Results(tmp_path / "here").runs()) == ["m1", "m1-bbbbbb"]


def test_a_run_whose_record_cannot_be_read_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path, [{}])
    (tmp_path / "testhost" / "odd").mkdir()
    (tmp_path / "testhost" / "odd" / "run.jsonl").symlink_to("run.jsonl")
    listed = Results(tmp_path).listed()
    assert [one.path for one in listed.runs] == [run.path] and list(listed.unread) == [str(tmp_path / "testhost" / "odd")]
