"""Tests of CI's last lines, and of when it fails."""

from pathlib import Path

import pytest

import tell

FAILED = '<testcase classname="a" name="x" time="1"><failure message="assert 1&#10; == 2">long</failure></testcase>'
PASSED = '<testcase classname="a" name="x" time="1"/>'
SKIPPED = '<testcase classname="a" name="z" time="0"><skipped message="no zsh"/></testcase>'


def _write(path: Path, *cases: str) -> str:
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    "again, code, line",
    [
        (None, 1, "FAILED: a::x: assert 1 == 2"),
        (FAILED, 1, "FAILED: a::x: assert 1 == 2"),
        (PASSED, 0, "failed once, passed when repeated alone: a::x: assert 1 == 2"),
    ],
)
def test_a_failure_is_named_and_fails_unless_it_passed_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], again: str | None, code: int, line: str
) -> None:
    paths = [_write(tmp_path / "test.xml", FAILED, SKIPPED)]
    if again:
        paths.append(_write(tmp_path / "test-alone.xml", again))
    assert tell.main(paths) == code
    assert capsys.readouterr().out.splitlines() == [
        "tests: 1 ran in 1 s of all workers, 1 were skipped", "  1 skipped: no zsh", f"  {line}"
    ]  # fmt: skip


def test_tests_that_did_not_run_are_too_many_to_repeat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell.main(["--count-failed", str(tmp_path / "none.xml")])
    tell.main(["--count-failed", _write(tmp_path / "test.xml", FAILED, FAILED.replace('"x"', '"y"'), PASSED)])
    assert capsys.readouterr().out.split() == ["1000", "2"]


def test_the_seconds_of_each_folder_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        f'<testcase classname="tests.{name}.test_a" name="x" time="{time}"/>'
        for name, time in (("box", 1), ("core", 2), ("box", 3))
    ]
    assert tell.main([_write(tmp_path / "test.xml", *cases)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "  box 4 s, core 2 s"
