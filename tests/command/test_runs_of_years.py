"""Folders that grow over years: acceptances and older runs, hosts that share a folder, machines that change under one name."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.records import nights, write_run
from support.strangers import call

A, B = "a" * 16, "b" * 16


def three(rate: float, stack: str = "stack-a") -> list[dict[str, Any]]:
    return [{"rate": rate + 0.1 * number, "stack": stack} for number in range(3)]


@pytest.fixture
def slower(tmp_path: Path) -> Path:
    """Return a folder with the results of twelve nights, of which the last two are 10 % slower."""
    for number, night in enumerate(nights(12, "2026-11-01")):
        write_run(tmp_path / "results", three((100 if number < 10 else 90) + number % 3 * 0.1), run=night, machine=A)
    return tmp_path


def codes(folder: Path, *commands: Sequence[str]) -> list[int]:
    return [call(folder, *words).returncode for words in commands]


def test_a_named_baseline_from_before_an_acceptance_is_told_and_an_older_run_is_judged_as_before(slower: Path) -> None:
    old = ("gate", "20261111T000000Z", "--strict")
    accept = ("--accept", "stack-a/*", "--because", "a new driver")
    assert codes(slower, old, ("gate", "--baseline", "20261105T000000Z", *accept), old, ("gate",)) == [5, 0, 5, 0]
    write_run(slower / "results", three(90.0), run="20261113T000000Z", machine=A)
    told = call(slower, "gate", "--baseline", "20261105T000000Z")
    assert told.returncode == 3 and "a slow-down was accepted after the run" in told.stdout, told.stdout


def test_a_canary_that_has_a_ratio_but_no_limit_is_no_cause(tmp_path: Path) -> None:
    for number, night in enumerate(nights(2, "2026-11-01")):
        other = {"rate": 100.0} if number == 0 else {"outcome": "crashed"}
        write_run(
            tmp_path / "results", [{"rate": 100.0, "stack": "stack-a"}, {"stack": "stack-b", **other}], run=night, machine=A
        )
    told = call(tmp_path, "gate", "--canary", "stack-a/*", "--json")
    cells = {cell["stack"]: cell for cell in json.loads(told.stdout)["cells"]}
    assert told.returncode == 5 and cells["stack-b"]["cause"] == "unclear", told.stderr


def test_what_other_runs_tell_is_the_same_whichever_second_another_host_began_in(tmp_path: Path) -> None:
    told = []
    for name, seconds in (("same", "00"), ("later", "07")):
        random = Random(4)
        for host in ("boxa", "boxb"):
            for night in nights(8, "2026-11-01"):
                run, level = night if host == "boxa" else night.replace("T000000", f"T0000{seconds}"), random.gauss(1, 0.015)
                launches = [
                    {"rate": 100 * level * random.gauss(1, 0.002), "stack": stack}
                    for stack in ("stack-a", "stack-b")
                    for _ in "xxx"
                ]
                write_run(tmp_path / name, launches, run=run, folder=host, machine=host[-1] * 16)
        sides = ("boxa/20261107T000000Z", "boxa/20261106T000000Z")
        told.append(call(tmp_path, "compare", *sides, "--results", name, "--json").stdout)
    assert told[0] == told[1] and json.loads(told[0])["between_runs"]


def test_runs_of_another_machine_under_this_name_tell_nothing_of_it(tmp_path: Path) -> None:
    random = Random(4)
    for number, night in enumerate(nights(14, "2026-11-01")):
        machine, rate = (A, 100) if number < 10 else (B, 90)
        launches = [{"rate": rate * random.gauss(1, 0.003), "stack": stack} for stack in ("a", "b") for _ in "xxx"]
        write_run(tmp_path / "results", launches, run=night, machine=machine)
    across = json.loads(call(tmp_path, "compare", "last", "last~5", "--json").stdout)
    within = json.loads(call(tmp_path, "compare", "last~1", "last", "--json").stdout)
    same = json.loads(call(tmp_path, "compare", "last~5", "last~6", "--json").stdout)
    assert not across["between_runs"] and not within["between_runs"] and same["between_runs"]["runs"] == 8


def test_cleaning_one_hosts_runs_leaves_the_logs_of_others_and_of_renamed_runs(tmp_path: Path) -> None:
    book = tmp_path / "results/nightly"
    book.mkdir(parents=True)
    for host, hour in (("boxa", "T01"), ("boxb", "T02")):
        for night in nights(5, "2026-11-01"):
            night = night.replace("T00", hour)
            write_run(tmp_path / "results", three(100), run=night, folder=host)
            (book / f"{night}.log").write_text("log")
            events = (
                {"event": "night"},
                {"event": "night-exit", "exit_code": 0, "seconds": 9.0, "run": f"{host}/{night}", "gate": "PASS"},
            )
            with (book / "nights.jsonl").open("a") as file:
                file.writelines(json.dumps({"unix_seconds": 1.0, "night": night, **event}) + "\n" for event in events)
    renamed = tmp_path / "results/boxa/20261101T010000Z"
    renamed.rename(renamed.with_name("reference"))
    assert call(tmp_path, "clean", "--runs", "--keep", "60", "--host", "boxa", "--yes").returncode == 0
    assert len(list(book.glob("*.log"))) == 10
    listed = call(tmp_path, "clean", "--runs", "--keep", "2", "--host", "boxa")
    assert "and 2 logs of nights" in listed.stderr, listed.stderr
    assert call(tmp_path, "clean", "--runs", "--keep", "2", "--host", "boxa", "--yes").returncode == 0
    assert len(list(book.glob("*T02*.log"))) == 5 and (book / "20261101T010000Z.log").exists()
    assert not (book / "20261102T010000Z.log").exists()


def test_what_is_pinned_is_named_as_elsewhere_and_a_word_for_nothing_removes_nothing(slower: Path) -> None:
    runs = slower / "results/testhost"
    limit = ("clean", "--runs", "--keep", "2", "--yes")
    assert codes(slower, (*limit, "--pin", "typo"), (*limit, "--host", "typo")) == [2, 2] and len(list(runs.iterdir())) == 12
    assert call(slower, *limit, "--pin", "last~5").returncode == 0
    assert sorted(path.name for path in runs.iterdir()) == [f"202611{day:02}T000000Z" for day in (7, 11, 12)]


def test_a_folder_that_is_called_last_hides_no_run(slower: Path) -> None:
    (slower / "last").mkdir()
    assert call(slower, "compare", "last~1", "last").returncode == 0


def test_a_command_of_the_gate_names_the_host_where_two_have_the_run(slower: Path) -> None:
    for night in nights(12, "2026-11-01"):
        write_run(slower / "results", three(50.0), run=night, folder="other", machine=B)
    told = call(slower, "gate", "--host", "testhost").stdout
    command = next(line.split("compare: torchmatrix ")[1].split() for line in told.splitlines() if "compare: " in line)
    assert call(slower, *command).returncode == 0
