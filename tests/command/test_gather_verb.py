"""`torchmatrix gather`: its output and its exit codes."""

import json
import shutil
from pathlib import Path

from support import Command
from support.containers import free_port
from support.records import write_run

RUN = "20260101T000000Z"


def test_gather_reports_each_source_and_a_second_time_nothing_is_new(torchmatrix: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "a", [{}, {}], folder="one", machine="a" * 16)
    write_run(tmp_path / "b", [{}], folder="one", machine="b" * 16)
    done = torchmatrix("gather", "a", "b")
    assert done.returncode == 0 and done.stdout.splitlines() == [
        "a: 1 run came, 0 already here; launches: 2 new, 0 already here; 2 unverified",
        "b: 1 run came, 0 already here; launches: 1 new, 0 already here; 1 unverified",
    ]
    assert f"1 of 1: one/{RUN}, 2 files" in done.stderr
    assert {path.parent.parent.name for path in (tmp_path / "results").glob("*/*/run.jsonl")} == {"one", "one-bbbbbb"}
    again = torchmatrix("gather", "a", "b", "--json")
    record = json.loads(again.stdout)
    assert again.returncode == 0 and [(source["new"], source["here"]) for source in record["sources"]] == [(0, 2), (0, 1)]
    assert torchmatrix("report", f"one-bbbbbb/{RUN}").returncode == 0


def test_a_refused_file_is_named_and_the_rest_comes_all_the_same(torchmatrix: Command, tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", [{}, {}], folder="one")
    shutil.copy(run.launches()[0].path, run.path / "round3-try1.jsonl")
    write_run(tmp_path / "b", [{}], folder="two")
    done = torchmatrix("gather", "a", "nowhere", "b", "--json")
    record = json.loads(done.stdout)
    assert (
        done.returncode == 2
        and 'error: there is no file or folder "nowhere"' in done.stderr
        and "hint: name a folder" in done.stderr
    )
    assert f"refused  one/{RUN}/round3-try1.jsonl: it belongs to cell" in done.stderr
    assert [source["new"] for source in record["sources"]] == [2, 1] and len(record["errors"]) == 1
    assert torchmatrix("gather", "a").returncode == 1


def test_a_dry_run_says_what_would_come_and_leaves_no_trace(torchmatrix: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "a", [{}, {}], folder="one")
    done = torchmatrix("gather", "a", "--dry-run")
    assert done.returncode == 0 and "1 run would come" in done.stdout and not (tmp_path / "results").exists()


def test_a_report_is_no_archive_and_the_hint_names_what_it_offers(torchmatrix: Command, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!doctype html><p>no facts")
    done = torchmatrix("gather", "page.html")
    assert done.returncode == 2 and "is no tar archive of facts" in done.stderr and "facts.tar.gz" in done.stderr


def test_a_password_or_a_token_of_an_address_is_never_shown(torchmatrix: Command, tmp_path: Path) -> None:
    secret, port = "hunter2hunter2", str(free_port())
    for address in (
        f"http://u:{secret}@127.0.0.1:{port}/x",
        f"https://{secret}@h/x",
        f"http://127.0.0.1:{port}/x?token={secret}",
    ):
        for more in ((), ("--json",)):
            done = torchmatrix("gather", address, *more)
            assert done.returncode in (2, 4) and "error: " in done.stderr and secret not in done.stdout + done.stderr


def test_a_file_without_checksums_whose_middle_is_damaged_stays_behind(torchmatrix: Command, tmp_path: Path) -> None:
    run = write_run(tmp_path / "there", [{"rate": 100.0}, {"rate": 101.0}])
    path = next(run.path.rglob("round2-try1.jsonl"))
    rows = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*rows[:4], b"\0" * len(rows[4]), *rows[5:]]))
    done = torchmatrix("gather", str(tmp_path / "there"), "--results", str(tmp_path / "here"))
    assert "line 5 is no line of facts" in done.stderr and len(list((tmp_path / "here").rglob("round*.jsonl"))) == 1
