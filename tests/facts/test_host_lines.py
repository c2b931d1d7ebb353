"""Lines that only the host writes are declared by type: what has another one is refused by name, and the rest is read."""

import json
from pathlib import Path
from typing import Any

import pytest

from faults.borders import _declared
from support.records import launch_lines, write_run
from torchmatrix.cli import invoke
from torchmatrix.facts import lines
from torchmatrix.facts.launch import Launch, Unreadable
from torchmatrix.facts.reading import launch_of, malformed_host_line
from torchmatrix.facts.run_record import record_of
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.matrix.factors import FACTORS
from torchmatrix_plugins.gather import gather

HERE = Path("h/r/s/w/d/round1-try1.jsonl")
OF_ANY_TYPE = ("losses", "arguments", "event")
"""Fields that no reader computes with, and the name of the line."""
SETTINGS = [factor.name for factor in FACTORS]
READING = ("report", "report --machines", "export", "export --machines", "advise resnet50", "history", "gate", "audit")


def with_setting(name: str, value: Any) -> list[dict[str, Any]]:
    first, *others = launch_lines(run="20260101T000000Z")
    return [{**first, "workload": {**first["workload"], name: value}}, *others]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] if not inside else [leaf for key, inner in inside for leaf in leaves(inner, (*path, key))]


def replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    key, *rest = path
    changed = list(value) if isinstance(value, list) else dict(value)
    changed[key] = replaced(value[key], tuple(rest), other)
    return changed


def checked(line: dict[str, Any]) -> str | None:
    """Return why a line of the host is refused."""
    if line["event"] in ("launch", "exit"):
        first, *others, last = launch_lines()
        launch = launch_of(HERE, [line, *others, last] if line["event"] == "launch" else [first, *others, line])
        return launch.reason if isinstance(launch, Unreadable) else None
    if line["event"] in ("telemetry", "node", "transport"):
        return malformed_host_line([line])
    return next(iter(record_of([line]).malformed), None)


GIVEN: dict[str, dict[str, Any]] = {
    "launch": launch_lines()[0],
    "exit": launch_lines()[-1],
    "telemetry": {},
    "node": {},
    "transport": {},
    "run": {},
    "planned": {},
    "skip": {"reason": "x"},
    "batch": {},
    "parallel": {},
    "run-exit": {},
}


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("wrong", [{"x": [1]}, [["x"]]])
def test_every_field_of_every_line_of_the_host_has_a_type(kind: str, wrong: Any) -> None:
    line = _declared.whole(kind, GIVEN[kind])
    assert checked(line) is None
    for path in leaves(line):
        if not set(OF_ANY_TYPE) & set(path):
            why = checked(replaced(line, path, wrong))
            assert why and str(next(name for name in reversed(path) if isinstance(name, str))) in why, (path, why)


@pytest.mark.parametrize("kind", GIVEN)
def test_a_field_that_is_not_known_may_have_any_value(kind: str) -> None:
    assert checked({**_declared.whole(kind, GIVEN[kind]), "weather": {"sun": [None]}}) is None


@pytest.mark.parametrize("factor", FACTORS, ids=SETTINGS)
def test_every_factor_is_declared_with_the_type_that_it_has_in_a_matrix(factor: Any) -> None:
    good = {int: 7, float: 7.5, bool: True, str: "x"}[factor.kind]
    for value, is_valid in ((good, True), (None, factor.name not in ("model", "mode", "precision", "batch")), ({}, False)):
        assert isinstance(launch_of(HERE, with_setting(factor.name, value)), Launch if is_valid else Unreadable), value


def given_run(root: Path, wrong: dict[str, Any]) -> RunFolder:
    """Write a run of two launches, and one of another cell with wrong values of the workload's settings."""
    run = write_run(root, [{"rate": 100.0}, {"rate": 100.0}, {"rate": 50.0, "stack": "stack-b"}], run="20260101T000000Z")
    path = next(run.path.glob("stack-b/**/*.jsonl"))
    events = lines.read(path).events
    events[0]["workload"] |= wrong
    path.write_bytes(lines.packed(events))
    return run


@pytest.mark.parametrize("name", ["optimizer", "runtime", "compile_mode", "output_length", "audio_seconds", "eval"])
def test_a_launch_with_an_object_as_a_setting_is_refused_where_it_comes_in_and_no_verb_falls_over_it(
    tmp_path: Path, name: str
) -> None:
    run = given_run(tmp_path / "there", {name: {}})
    result = gather(Results(tmp_path / "here"), str(tmp_path / "there"))
    (why,) = result.refused.values()
    assert why.startswith(f"workload.{name} is {{}}, not ") and result.new == 2
    for results in ("here", "there"):
        for words in READING:
            verb, *more = words.split()
            into = {"report": ["--output", str(tmp_path / "a.html")], "export": [str(tmp_path / "out"), "--no-charts"]}
            assert invoke([verb, *into.get(verb, []), *more, "--results", str(tmp_path / results)]) in (0, 1, 2, 5), words
    assert len(run.launches()) == 2
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert f"workload.{name} is {{}}" in page


def test_a_record_with_a_line_of_the_wrong_type_is_refused_with_its_reason(tmp_path: Path) -> None:
    for number, line in enumerate(({"event": "skip", "cell": 5}, {"event": "run-exit", "complete": "yes"})):
        there = tmp_path / f"there{number}"
        run = write_run(there, [{"rate": 100.0}])
        events = lines.read(run.record).events
        run.record.write_bytes(lines.packed([*events, line]))
        result = gather(Results(tmp_path / "here"), str(there))
        (why,) = result.refused.values()
        assert why.startswith(f'a line "{line["event"]}": ') and why.endswith("nor are the other 1 files of its run")
    assert not Results(tmp_path / "here").runs()


def test_a_line_of_more_levels_than_any_reader_follows_is_no_event() -> None:
    def nested(levels: int) -> bytes:
        text = '{"event": "launch", "x": ' + "[" * levels + "]" * levels + "}\n"
        return text.encode()

    assert len(lines.lines_of(nested(lines.DEEPEST - 1)).events) == 1
    assert lines.lines_of(nested(lines.DEEPEST)).events == []
    brackets = json.dumps({"event": "exit", "tail": ["[" * 1000] * 3}).encode()
    assert len(lines.lines_of(brackets).events) == 1
    assert len(lines.lines_of(json.dumps({"event": "x", "x": [[[1]]] * 1000}).encode()).events) == 1


@pytest.mark.parametrize("indices", [[-9, 0], [-1], [2**60]])
def test_a_devices_number_is_a_count(indices: list[int]) -> None:
    first, *others = launch_lines(devices=tuple(range(len(indices))))
    launch = launch_of(HERE, [{**first, "gpus": {**first["gpus"], "indices": indices}}, *others])
    assert isinstance(launch, Unreadable) and "indices" in launch.reason


@pytest.mark.parametrize("count", [10**400, -1, True, "7", float("nan")], ids=str)
def test_flops_that_no_step_has_are_unknown(tmp_path: Path, count: Any) -> None:
    run = write_run(tmp_path / "results", [{"rate": 100.0}] * 2)
    rank = {"matmul": "fp16", "convolution": "fp16", "mixed": "mixed: fp16", "types": {"flops": {"fp16": count}}}
    for path in run.path.glob("*/*/*/*.jsonl"):
        read = [json.loads(line) for line in path.read_text().splitlines()]
        read[-1:-1] = [{"event": "precision", "effective": [rank], "unix_seconds": 1.8e9, "monotonic_seconds": 50.0}]
        path.write_text("".join(json.dumps({k: v for k, v in line.items() if k != "crc"}) + "\n" for line in read))
    for words in READING:
        assert invoke([*words.split(), "--results", str(tmp_path / "results")]) in (0, 1, 2, 3, 5), words
