"""Facts from another machine by a real sshd on loopback, and those that a published site offers."""

import getpass
import os
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.records import write_run
from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.facts import lines
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix_plugins import publish as sites
from torchmatrix_plugins.gather import Limits, gather

RUN = "20260101T000000Z"
RUNS_IT = 'sh -c "$last"'


def measured(root: Path, launches: int = 3, run: str = RUN) -> RunFolder:
    """Write a run with checksums."""
    made = write_run(root, [{"rate": 100.0 + n} for n in range(launches)], folder="gpu01", machine="a" * 16, run=run)
    for path in made.path.rglob("round*.jsonl"):
        path.write_bytes(lines.packed(lines.read(path).events))
    return made


def facts(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.jsonl")}


def test_a_folder_of_another_machine_comes_and_later_only_what_is_new(there: Callable[[Path], str], tmp_path: Path) -> None:
    run = measured(tmp_path / "far away/it's results")
    folder, here = run.path.parents[1], Results(tmp_path / "here")
    run.launches()[0].path.with_suffix(".log").write_text("printed")
    (folder / ".cache").mkdir()
    (folder / ".cache/run.jsonl").write_text("hidden")
    result = gather(here, there(folder))
    assert (result.runs, result.new, result.unverified, result.refused) == ([f"gpu01/{RUN}"], 3, 0, {})
    assert facts(here.root) == {name: data for name, data in facts(folder).items() if not name.startswith(".")}
    again = gather(here, there(folder))
    assert (again.runs, again.runs_here, again.new, again.here, again.bytes) == ([], [f"gpu01/{RUN}"], 0, 3, 0)
    measured(folder, launches=2, run="20260102T000000Z")
    more = gather(here, there(folder))
    assert (more.runs, more.new, more.here) == (["gpu01/20260102T000000Z"], 2, 3)


@pytest.mark.parametrize("greeting", ["Welcome to gpu01\n", "/root/results\n", "81a4 5 6 ./x\n", "no end of line"])
def test_what_a_login_prints_by_itself_is_no_fact(
    there: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, greeting: str
) -> None:
    run, here = measured(tmp_path / "there"), Results(tmp_path / "here")
    greets = tmp_path / "greets"
    greets.write_text(f"#!/bin/sh\nprintf %s '{greeting}'\nexec {os.environ['TORCHMATRIX_SSH']} \"$@\"\n")
    greets.chmod(0o755)
    monkeypatch.setenv("TORCHMATRIX_SSH", str(greets))
    result = gather(here, there(run.path))
    assert (result.runs, result.new, result.others) == ([f"gpu01/{RUN}"], 3, 0)
    assert facts(here.root) == facts(tmp_path / "there")


def test_a_run_that_is_still_going_on_there_grows_here(there: Callable[[Path], str], tmp_path: Path) -> None:
    run, here = measured(tmp_path / "there"), Results(tmp_path / "here")
    path = run.launches()[0].path
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    assert gather(here, there(run.path)).new == 3
    path.write_bytes(whole)
    result = gather(here, there(run.path))
    assert (result.new, result.updated, result.here) == (0, 1, 2) and facts(here.root) == facts(tmp_path / "there")


def test_contradicting_facts_and_links_of_another_machine_are_refused_by_name(
    there: Callable[[Path], str], tmp_path: Path
) -> None:
    run, here = measured(tmp_path / "there"), Results(tmp_path / "here")
    gather(here, there(tmp_path / "there"))
    before = facts(here.root)
    path = run.launches()[1].path
    path.write_bytes(lines.packed([*lines.read(path).events[:-1], {"event": "exit", "returncode": 1}]))
    (run.path / "round7-try1.log").symlink_to("/etc/passwd")
    result = gather(here, there(tmp_path / "there"))
    reasons = {path.relative_to(tmp_path / "there").as_posix(): "contradicts", f"gpu01/{RUN}/round7-try1.log": "a link"}
    assert result.refused.keys() == reasons.keys() and all(reasons[name] in why for name, why in result.refused.items())
    assert facts(here.root) == before


def test_an_error_of_ssh_is_passed_on_with_a_hint(there: Callable[[Path], str], tmp_path: Path) -> None:
    here = Results(tmp_path / "here")
    with pytest.raises(BadInput, match=r"can't read .*nowhere") as missing:
        gather(here, there(tmp_path / "nowhere"))
    assert "find" in missing.value.hint
    with pytest.raises(EngineUnusable, match=r"can't reach .*Permission denied") as refused:
        gather(here, there(tmp_path).replace(getpass.getuser(), "no-such-user"))
    assert "without asking" in refused.value.hint
    (tmp_path / "ssh/known").write_text("")
    with pytest.raises(EngineUnusable, match="Host key verification failed"):
        gather(here, there(tmp_path))
    with pytest.raises(EngineUnusable, match="can't reach"):
        gather(here, "ssh://127.0.0.1:1/x")


_BREAKING = """#!/bin/sh
for last; do :; done
case "$*" in *"-O exit"*) exit 0;; esac
case "$last" in *tar*) sh -c "$last" | head -c "$BREAKS_AFTER"; echo "Connection reset by peer" >&2; exit 255;; esac
sh -c "$last"
"""


def test_what_came_before_the_connection_was_lost_stays_and_the_next_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, here = measured(tmp_path / "there", launches=20), Results(tmp_path / "here")
    (tmp_path / "breaking").write_text(_BREAKING)
    monkeypatch.setenv("TORCHMATRIX_SSH", f"sh {tmp_path / 'breaking'}")
    came = []
    for bytes_ in (100, 15_000, 30_000):
        monkeypatch.setenv("BREAKS_AFTER", str(bytes_))
        with pytest.raises(EngineUnusable, match="Connection reset by peer"):
            gather(here, f"box:{run.path.parent}")
        came.append(len(facts(here.root)))
        assert not here.runs() or not here.runs()[0].read_record().complete
    assert came[0] == 0 < came[1] < came[2] < 21
    monkeypatch.setenv("BREAKS_AFTER", "1000000000")
    with pytest.raises(EngineUnusable):  # all came, yet ssh says that it failed
        gather(here, f"box:{run.path.parent}")
    monkeypatch.setenv("TORCHMATRIX_SSH", f"sh {tmp_path / 'whole'}")
    (tmp_path / "whole").write_text(_BREAKING.replace("exit 255", "exit 0"))
    result = gather(here, f"box:{run.path.parent}")
    assert not result.refused and result.launches == 20 and facts(here.root) == facts(tmp_path / "there")


def standing_in(folder: Path, monkeypatch: pytest.MonkeyPatch, listing: str = RUNS_IT, fetching: str = RUNS_IT) -> None:
    """Set up an ssh whose other side runs `listing`, in shell, if asked for the list, and `fetching` if for the contents."""
    script = f"""for last; do :; done
case "$*" in *"-O exit"*) exit 0;; esac
case "$last" in *"tar -c"*) {fetching};; *) {listing};; esac
"""
    (folder / "other").write_text(script, encoding="utf-8")
    monkeypatch.setenv("TORCHMATRIX_SSH", f"sh {folder / 'other'}")


def test_what_cant_be_read_there_is_missing_by_name_and_the_run_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, here = measured(tmp_path / "there"), Results(tmp_path / "here")
    path = run.launches()[1].path
    name, whole = path.relative_to(run.path.parents[1]).as_posix(), path.read_bytes()
    standing_in(tmp_path, monkeypatch, fetching=f"rm -f '{path}'; {RUNS_IT}")
    result = gather(here, f"box:{run.path.parents[1]}")
    assert list(result.refused) == [name] and "it can't be read there: No such file" in result.refused[name]
    assert (result.new, result.here) == (2, 0) and not here.runs()[0].read_record().complete
    path.write_bytes(whole)
    standing_in(tmp_path, monkeypatch)
    again = gather(here, f"box:{run.path.parents[1]}")
    assert (again.new, again.here, again.refused) == (1, 2, {}) and here.runs()[0].read_record().complete


def test_a_folder_that_cant_be_listed_there_is_named_and_the_rest_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, here = measured(tmp_path / "there"), Results(tmp_path / "here")
    standing_in(tmp_path, monkeypatch, f"{RUNS_IT}; echo \"find: './gpu02': Permission denied\" >&2; exit 1")
    result = gather(here, f"box:{run.path.parents[1]}")
    assert result.new == 3 and result.refused == {"gpu02": "it can't be read there: Permission denied"}


BEGINS = "echo torchmatrix begins; "
LISTS = f"echo /x; echo '81a4 500 1 ./gpu01/{RUN}/run.jsonl'; echo ."
FEW = Limits(files=1000, seconds=0.4)


@pytest.mark.parametrize(
    ("listing", "fetching", "why"),
    [
        ("yes ./x", "exit 0", "lists more than 1,000 files"),
        (f"yes '81a4 500 1 ./gpu01/{RUN}/a/b/c/round1-try1.jsonl'", "exit 0", "lists more than 1,000 files"),
        ("cat /dev/urandom", "exit 0", "lists more than 1,000 files"),
        ("cat /dev/zero", "exit 0", "lists more than 1,000 files"),
        ("echo /x; exec sleep 9", "exit 0", "took longer than 0 s"),
        ("while printf x; do sleep 0.01; done", "exit 0", "took longer than 0 s"),
        (LISTS, "exec sleep 9", "took longer than"),
        (LISTS, "cat /dev/urandom", "can't read box:x: what it sends is no archive"),
        (LISTS, 'cat "$LONG" /dev/zero', "no archive of what was asked for: a header of"),
        (LISTS, 'cat "$LARGE" /dev/zero', "no archive of what was asked for: it is longer than"),
        ("yes why | head -c 9000000 >&2; exit 1", "exit 0", "can't read box:x: why"),
    ],
)
def test_no_other_side_is_waited_for_or_read_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listing: str, fetching: str, why: str
) -> None:
    for name, member_type in (("LONG", tarfile.GNUTYPE_LONGNAME), ("LARGE", tarfile.REGTYPE)):
        info = tarfile.TarInfo("./another")
        info.size, info.type = 5 << 30, member_type
        (tmp_path / name).write_bytes(info.tobuf(tarfile.GNU_FORMAT))
        monkeypatch.setenv(name, str(tmp_path / name))
    standing_in(tmp_path, monkeypatch, BEGINS + listing, BEGINS + fetching)
    with pytest.raises((BadInput, EngineUnusable), match=why):
        gather(Results(tmp_path / "here"), "box:x", limits=replace(FEW, slowest=1 << 30 if "sleep" in fetching else 1 << 20))
    assert not facts(tmp_path / "here")


def test_a_file_that_the_other_side_lists_and_never_sends_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standing_in(tmp_path, monkeypatch, BEGINS + LISTS, BEGINS + "head -c 1024 /dev/zero")
    result = gather(Results(tmp_path / "here"), "box:x")
    assert result.refused == {f"gpu01/{RUN}/run.jsonl": "it was listed, but did not come"} and not result.runs_here


@pytest.mark.parametrize("bytes_sent", [0, 30, 200])
def test_a_list_that_is_cut_off_is_not_taken_for_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_sent: int
) -> None:
    run = measured(tmp_path / "there")
    standing_in(tmp_path, monkeypatch, f'sh -c "$last" | head -c {bytes_sent}')
    with pytest.raises(EngineUnusable, match=r"can.t reach box:"):
        gather(Results(tmp_path / "here"), f"box:{run.path.parents[1]}")
    assert not facts(tmp_path / "here")


def test_files_from_before_1970_come_as_others_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, here = measured(tmp_path / "there"), Results(tmp_path / "here")
    for path in (run.record, run.launches()[1].path):
        os.utime(path, (-300_000_000, -300_000_000))
    standing_in(tmp_path, monkeypatch)
    result = gather(here, f"box:{run.path.parents[1]}")
    assert (result.new, result.others, result.refused) == (3, 0, {}) and facts(here.root) == facts(tmp_path / "there")


@pytest.mark.parametrize(
    ("program", "why"), [("'", "can't be read as a command"), ("/nowhere/ssh -v", "no program /nowhere/ssh")]
)
def test_a_command_for_ssh_that_cant_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    monkeypatch.setenv("TORCHMATRIX_SSH", program)
    with pytest.raises(BadInput, match=why) as error:
        gather(Results(tmp_path / "here"), "box:x")
    assert "TORCHMATRIX_SSH" in f"{error.value} {error.value.hint}"


def test_a_source_is_never_read_as_an_option_of_ssh(tmp_path: Path) -> None:
    evil = f"touch${{IFS}}{tmp_path}/evil"
    for word in (
        f"-oProxyCommand={evil}:x",
        "-oProxyCommand=x:y",
        "ssh://-oProxyCommand=x/y",
        f"ssh://-oProxyCommand={evil}/x",
    ):
        with pytest.raises(BadInput):
            gather(Results(tmp_path / "here"), word)
    assert not (tmp_path / "evil").exists()


def published(root: Path, target: Path) -> None:
    results = Results(root)
    sites.publish(results, results.runs(), target, redact=False)


def test_a_site_is_gathered_by_the_archives_that_it_offers(tmp_path: Path) -> None:
    measured(tmp_path / "there")
    measured(tmp_path / "there", launches=2, run="20260102T000000Z")
    published(tmp_path / "there", tmp_path / "s\udce9 %C3")
    with pytest.raises(BadInput, match="is a published site") as error:
        gather(Results(tmp_path / "here"), str(tmp_path / "s\udce9 %C3"))
    assert "/runs/*/facts.tar.gz" in error.value.hint
    for number, archive in enumerate(sorted((tmp_path / "s\udce9 %C3").glob("runs/*/facts.tar.gz")), start=1):
        result = gather(Results(tmp_path / "here"), str(archive))
        assert (len(result.runs), result.refused) == (1, {}) and len(Results(tmp_path / "here").runs()) == number
    assert number == 2


@pytest.mark.parametrize("word", ["http://[x", "https://h/x/index.html", "HTTP://u:hunter2@h/x"])
def test_an_address_is_no_source_and_is_not_shown(tmp_path: Path, word: str) -> None:
    with pytest.raises(BadInput, match="gather reads no addresses") as error:
        gather(Results(tmp_path / "here"), word)
    assert "facts.tar.gz" in error.value.hint and "hunter2" not in f"{error.value} {error.value.hint}"
