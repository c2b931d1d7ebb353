"""Whatever a workload, a file or a machine says, none of it controls the terminal; all of it that can be read is shown."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import FAKE_PYTHON, Command
from support.records import write_run

FORBIDDEN = "\x1b\x07\x9b\x9d\x9c\x85\r\b\x00\x7f\u2028\u2029\u061c\u200f\u202e\u2066\u00ad\ufeff\U000e0041\ud800\x0b\x0c\t"
CONTROLS = f"\x1b]52;c;aGk=\x07 \x9b31m {FORBIDDEN}"
ORDINARY = "שלום مرحبا می‌خواهم 日本語 한국어 ไทย हिन्दी Ελλάς Привет 😀👩‍💻 é ½"
HOSTILE = f"HELD\x1b[31m{ORDINARY}{CONTROLS}HELD"
NAME = HOSTILE.encode(errors="replace").decode().replace("\x00", "")
"""The same as a name of a file, or on a command line."""
RUN = "20260102T000000Z"


def is_harmless(text: str) -> bool:
    return not set(FORBIDDEN) & set(text)


@pytest.mark.parametrize(
    ("words", "behaviour"),
    [
        (("run", "*cpu0"), "crash"),
        (("run", "*cpu0", "--verbose"), "oom"),
        (("run", "*cpu0", "--quiet"), "unsupported"),
        (("reproduce", "*cpu0"), "crash"),
        (("explain", "*"), "crash"),
        (("profile", "*cpu0"), ""),
    ],
)
def test_what_a_workload_says_is_shown_without_what_controls_a_terminal(
    torchmatrix: Command, fake_matrix: Path, words: tuple[str, ...], behaviour: str
) -> None:
    if words[0] == "reproduce":
        torchmatrix("run", "*cpu0")
    done = torchmatrix(*words, FAKE_TEXT=json.dumps(HOSTILE), FAKE_BEHAVIOUR=behaviour)
    shown = done.stdout + done.stderr
    assert "HELD" in shown and ORDINARY in shown.replace("…", ORDINARY), "a table cuts the names of operators"
    assert is_harmless(shown) and "Traceback (" not in shown, shown
    for later in (("report",), ("history",), ("gate",), ("audit", "last"), ("export", "last", "x"), ("report", "--redact")):
        done = torchmatrix(*later)
        assert is_harmless(done.stdout + done.stderr) and "Traceback (" not in done.stderr, (later, done)


def test_trials_of_a_batch_that_is_sought_are_shown_without_it(torchmatrix: Command, fake_matrix: Path) -> None:
    text = fake_matrix.read_text(encoding="utf-8").replace("batch = 4", 'batch = "auto"')
    fake_matrix.write_text(text, encoding="utf-8")
    done = torchmatrix("run", "*cpu0", FAKE_TEXT=json.dumps(HOSTILE), FAKE_BEHAVIOUR="crash")
    assert "HELD" in done.stderr and is_harmless(done.stdout + done.stderr)


def test_a_failed_build_is_shown_without_it(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"
    said = HOSTILE.encode(errors="surrogatepass")
    script = f"#!{sys.executable}\nimport sys\nsys.stderr.buffer.write({said!r})\nsys.exit(1)\n"
    python.write_text(script, encoding="utf-8")
    python.chmod(0o755)
    text = fake_matrix.read_text(encoding="utf-8").replace(str(FAKE_PYTHON), str(python))
    fake_matrix.write_text(text, encoding="utf-8")
    for words in (("build",), ("run",), ("run", "--verbose"), ("report",)):
        done = torchmatrix(*words)
        assert words == ("report",) or "HELD" in done.stderr, done
        assert is_harmless(done.stdout + done.stderr)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return a folder in whose results all texts of two runs and machines are hostile."""
    host = {"name": NAME, "cpu": NAME, "gpus": [{"name": NAME, "uuid": NAME}], "cores": [0], "kernel": NAME, "os": NAME}
    launches: list[dict[str, Any]] = [
        {"rate": 100.0, "stack": {"name": NAME, "torch": NAME}, "device": NAME, "torch": NAME},
        {"rate": 120.0, "stack": {"name": f"b{NAME}", "torch": NAME}, "device": NAME, "command": NAME},
        {"outcome": "crashed", "error": NAME, "workload": NAME},
        {"outcome": "build-failed", "error": NAME, "stack": f"c{NAME}"},
    ]
    for run, folder in (("20260101T000000Z", "one"), (RUN, f"two{NAME}")):
        about = {"host": host, "machine": folder, "command": NAME}
        write_run(tmp_path / "results", launches, [(NAME, NAME)], run=run, folder=folder, **about)
    (tmp_path / f"results/one/20260101T000000Z/{NAME}.jsonl").write_text(NAME, encoding="utf-8")
    (tmp_path / "results/one" / NAME).mkdir()
    return tmp_path


VERBS = (
    ("report", "all"), ("report",), ("report", "--publish", "site"), ("report", "--publish", "site", "--redact"), ("history",),
    ("compare", "last~1", "last"), ("export", "last", "x"), ("export", "all", "x", "--machines"), ("gate",), ("advise",),
    ("audit", "last"), ("clean", "--runs", "--keep", "2"), ("gather", "results", "--results", "other"), ("doctor",), ("plan",),
    ("reproduce", "*", "--print"), ("nightly", "unit"), ("compare", "last", NAME), ("report", NAME), (NAME,), ("report", RUN),
    ("run", "--matrix", NAME), ("run", NAME), ("presets", NAME), ("export", NAME, NAME), ("clean",), ("init", "--stack", NAME),
)  # fmt: skip


@pytest.mark.parametrize("words", VERBS)
def test_nothing_recorded_or_named_controls_a_terminal(
    torchmatrix: Command, fake_matrix: Path, recorded: Path, words: tuple[str, ...]
) -> None:
    for options in ((), ("--json",)):
        done = torchmatrix(*words, *options)
        assert is_harmless(done.stdout + done.stderr) and "Traceback (" not in done.stderr, done
        if done.stdout.startswith(("{", "[")):
            json.loads(done.stdout)


def test_json_says_to_the_letter_what_was_recorded(torchmatrix: Command, recorded: Path) -> None:
    done = torchmatrix("history", "--json")
    assert done.returncode == 0 and done.stdout.isascii() and done.stdout[:-1].isprintable()
    assert any(NAME in cell["cell"] for cell in json.loads(done.stdout)["cells"])


def terminal_of(folder: Path, code: str, **variables: str) -> tuple[int, str]:
    """Run Python code with a terminal as its output; return its exit code and what it wrote there."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "PYTHON_COLORS": "0", **variables}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = b""
    try:
        while data := os.read(ours, 1 << 16):
            written += data
    except OSError:  # a terminal without a writer
        pass
    os.close(ours)
    return process.wait(), written.decode().replace("\r\n", "\n")


def test_a_terminal_gets_the_colours_of_the_tool_alone(fake_matrix: Path) -> None:
    """Progress is drawn below the lines again and again, by a library that writes escapes of its own."""
    code = "import sys; sys.argv[1:] = ['run', '*cpu0', '--engine', 'local']; from torchmatrix.__main__ import main; main()"
    status, shown = terminal_of(fake_matrix.parent, code, FAKE_TEXT=json.dumps(HOSTILE), FAKE_BEHAVIOUR="crash")
    assert status == 1 and "HELD" in shown and ORDINARY in shown
    assert "\x1b[31mcrashed" in shown and "HELD [31m" in shown and "\x1b]" not in shown
    assert is_harmless(shown.replace("\x1b", "").replace("\r", ""))


def test_a_warning_and_an_error_of_a_library_are_printed_without_it(tmp_path: Path) -> None:
    code = (
        "import logging, sys, warnings; from torchmatrix.__main__ import main; sys.argv[1:] = ['--version']\n"
        f"try: main()\nexcept SystemExit: text = {HOSTILE!r}\n"
        "warnings.warn(text); logging.warning(text); sys.stderr.writelines([text]); print(text); raise ValueError(text)"
    )
    status, shown = terminal_of(tmp_path, code)
    assert status == 1 and shown.count("HELD [31m") >= 5 and ORDINARY in shown and "\\ud800" in shown
    assert is_harmless(shown)
