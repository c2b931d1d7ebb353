"""Messages of a workload on a failure: its kind, and on the first line the place in the user's file and the innermost cause."""

import concurrent.futures
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import failures

SAID = {
    'raise SystemExit("this model needs CUDA")': "net.py, line 2, in forward: SystemExit: this model needs CUDA",
    "raise SystemExit(3)": "net.py, line 2, in forward: SystemExit: 3",
    "assert 1 > 2": "net.py, line 2, in forward: AssertionError: without a message, at `assert 1 > 2`",
    "raise KeyboardInterrupt": "net.py, line 2, in forward: KeyboardInterrupt: without a message",
    'raise type("Odd", (Exception,), {"__str__": lambda self: 1 / 0})()': "forward: Odd: its text can't be had: ZeroDiv",
    'raise ValueError("bad sizes") from KeyError("heads")': "ValueError: bad sizes; caused by KeyError: 'heads'",
    "try:\n  1 / 0\n except ArithmeticError as e:\n  raise ValueError from e": "caused by ZeroDivisionError: division by zero",
    "try:\n  1 / 0\n except ArithmeticError:\n  raise ValueError(5)": "forward: ValueError: 5; while handling ZeroDivision",
    "try:\n  1 / 0\n except ArithmeticError:\n  raise ValueError(5) from None": "line 5, in forward: ValueError: 5",
    "import nosuch": "line 2, in forward: ModuleNotFoundError: No module named 'nosuch'",
    "inner = []\n inner += [inner[0]]": "net.py, line 3, in forward: IndexError: list index out of range",
}
"""What the user's file does, after `def forward():` on its first line, and what is said of it."""


class BackendCompilerFailed(Exception):
    """An error as torch 2.5 raises it: the cause is an attribute, and no traceback leads to it."""

    def __init__(self, inner_exception: Exception) -> None:
        self.inner_exception = inner_exception
        super().__init__(f"backend='inductor' raised:\n{type(inner_exception).__name__}: {inner_exception}\n\nSet TORCH_LOGS")


def raised(folder: Path, text: str) -> tuple[str, BaseException]:
    path = folder / "net.py"
    path.write_text(f"def forward():\n {text}\n")
    names: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    try:
        names["forward"]()  # type: ignore[operator]
    except BaseException as error:
        return str(path), error
    raise AssertionError("nothing was raised")


def first_line(error: BaseException, path: str = "") -> str:
    return failures.message(error, path).splitlines()[0]


@pytest.mark.parametrize("text", SAID)
def test_the_first_line_names_the_place_and_the_innermost_cause(tmp_path: Path, text: str) -> None:
    path, error = raised(tmp_path, text)
    assert SAID[text] in first_line(error, path) and failures.kind_of(error) == "crashed"
    assert ("while handling" in first_line(error, path)) == ("while handling" in SAID[text])


def test_what_torch_compile_wraps_is_said_with_what_the_compiler_found_and_the_users_line(tmp_path: Path) -> None:
    path, cause = raised(tmp_path, 'raise RuntimeError("C++ compile error\\nCommand: g++\\n/x.cpp:2: fatal error: no omp.h")')
    line = first_line(BackendCompilerFailed(cause), path)
    assert line.startswith(
        "net.py, line 2, in forward: BackendCompilerFailed: backend='inductor' raised: RuntimeError: C++ comp"
    )
    assert line.endswith("/x.cpp:2: fatal error: no omp.h")
    graph = RuntimeError(f'Failed running call_function:\nshapes differ\n\nfrom user code:\n   File "{path}", line 7, in body')
    assert first_line(graph, path) == "net.py, line 7, in body: RuntimeError: Failed running call_function: shapes differ"


@pytest.mark.parametrize("error", [BackendCompilerFailed(MemoryError()), BackendCompilerFailed(RuntimeError("out of memory"))])
def test_a_cause_decides_the_kind(error: Exception) -> None:
    assert failures.kind_of(error) == "oom"


def test_a_failure_in_a_thread_and_one_told_by_another_process_keep_their_line(tmp_path: Path) -> None:
    path, error = raised(tmp_path, 'raise ValueError("bad sample")')
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        in_thread = pool.submit(raised, tmp_path, "open(5.5)").result()[1]
    assert "net.py, line 2, in forward: TypeError" in first_line(in_thread, path)
    whole = "".join(traceback.format_exception(error))
    worker = ValueError(f"Caught ValueError in DataLoader worker process 0.\nOriginal {whole}")
    assert first_line(worker, path) == (
        "net.py, line 2, in forward: ValueError: Caught ValueError in DataLoader worker process 0. ValueError: bad sample"
    )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups of exceptions came with Python 3.11")
def test_the_first_of_a_group_is_its_cause() -> None:
    group = ExceptionGroup("several", [ValueError("first"), TypeError("second")])  # noqa: F821
    assert first_line(group) == "ExceptionGroup: several (2 sub-exceptions); caused by ValueError: first"


def test_a_chain_that_leads_back_to_itself_ends() -> None:
    first, second = ValueError("one"), ValueError("other")
    first.__cause__, second.__cause__ = second, first
    assert first_line(first) == "ValueError: one; caused by ValueError: other"


def test_a_message_of_the_workload_itself_stands_alone() -> None:
    try:
        raise failures.Unsupported("this stack has no timm") from KeyError("timm")
    except failures.Unsupported as error:
        assert failures.message(error) == "Unsupported: this stack has no timm"
        assert failures.kind_of(error) == "unsupported"


def test_the_whole_text_follows_but_is_not_said_twice() -> None:
    error = subprocess.SubprocessError("one line")
    assert failures.message(error) == "SubprocessError: one line"
    assert failures.message(RuntimeError("first\nsecond")) == "RuntimeError: first\nsecond"
