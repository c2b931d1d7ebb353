"""The help on the verbs, and a shell's completions."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

import pytest

from support import Command

VERBS = {
    "Start": ["init", "presets", "doctor", "plan"],
    "Measure": ["build", "run", "batch", "explain", "reproduce"],
    "Read": ["report", "compare", "history", "export", "gate"],
    "Keep": ["lock", "clean"],
    "Plugins": ["accept", "advise", "audit", "bisect", "bundle", "gather", "nightly", "profile", "why"],
}


def test_help_lists_every_verb_once_in_its_group_in_the_order_of_use(torchmatrix: Command) -> None:
    shown: dict[str, list[str]] = {}
    for line in torchmatrix("--help").stdout.splitlines():
        if heading := re.fullmatch(r"([A-Z][a-z ]+):", line):
            shown[heading[1]] = []
        elif verb := re.match(r"  ([a-z]+) ", line):
            list(shown.values())[-1].append(verb[1])
    del shown["Options"]
    assert shown == VERBS and list(shown) == list(VERBS)


@pytest.mark.parametrize("words", [[], ["nightly"], ["bundle"]])
def test_no_summary_is_cut(torchmatrix: Command, words: list[str]) -> None:
    output = torchmatrix(*words, "--help", COLUMNS="80").stdout
    assert "..." not in re.sub(r"^Usage:.*$", "", output, flags=re.MULTILINE) and max(map(len, output.splitlines())) <= 80


@pytest.mark.parametrize("verb", [verb for verbs in VERBS.values() for verb in verbs])
def test_every_verb_has_a_help_of_its_own(torchmatrix: Command, verb: str) -> None:
    done = torchmatrix(verb, "--help")
    assert done.returncode == 0 and f"Usage: torchmatrix {verb}" in done.stdout


@pytest.mark.parametrize(
    "words",
    [*([verb] for verbs in VERBS.values() for verb in verbs if verb not in ("bundle", "nightly")),
     *(["bundle", verb] for verb in ("export", "import", "kubernetes")), ["nightly", "run"], ["nightly", "unit"]],
)  # fmt: skip
def test_an_option_says_what_it_takes_in_the_readers_words(torchmatrix: Command, words: list[str]) -> None:
    output = torchmatrix(*words, "--help").stdout
    assert "--help" in output and not re.findall(r"--[a-z-]+ <.*?>", output)


def completions(folder: Path, line: str) -> list[str]:
    """Return what bash would offer after `line`, asked as its completion script asks."""
    words = line.split(" ")
    variables = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TORCHMATRIX_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-m", "torchmatrix"], cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr
    return done.stdout.split()


def test_verbs_options_and_what_the_matrix_holds_are_completed(fake_matrix: Path, tmp_path: Path) -> None:
    assert completions(tmp_path, "torchmatrix re") == ["reproduce", "report"]
    assert completions(tmp_path, "torchmatrix run --lau") == ["--launches"]
    assert completions(tmp_path, "torchmatrix nightly un") == ["unit"]
    assert completions(tmp_path, "torchmatrix run fake/res") == [
        "fake/resnet50-train-fp32-b4-224px/cpu0",
        "fake/resnet50-train-fp32-b4-224px/cpu0+1",
    ]
    assert completions(tmp_path, "torchmatrix lock f") == ["fake"]
    assert completions(tmp_path, "torchmatrix report la") == ["last", "last~1"]
    assert "aime-2025" in completions(tmp_path, "torchmatrix reproduce aime")
    assert completions(tmp_path, "torchmatrix run --engine d") == ["docker"]


def test_a_broken_matrix_does_not_disturb_who_types(fake_matrix: Path, tmp_path: Path) -> None:
    fake_matrix.write_text("[[stack", encoding="utf-8")
    assert completions(tmp_path, "torchmatrix run fake") == []


@pytest.mark.parametrize(("shell", "prompt"), [("bash", "PS1"), ("zsh", "PROMPT")])
def test_tab_completes_in_the_shell_once_completion_is_installed(tmp_path: Path, shell: str, prompt: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    (tmp_path / f".{shell}rc").write_text(f"{prompt}='ready> '\n")
    environment = {**os.environ, "HOME": str(tmp_path), "ZDOTDIR": str(tmp_path), "TERM": "dumb"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    installed = subprocess.run(
        [shell, "-c", "torchmatrix --install-completion; true"], env=environment, capture_output=True, text=True
    )
    assert f"{shell} completion installed" in installed.stdout, installed.stderr
    ours, theirs = pty.openpty()
    with (
        os.fdopen(ours, "r+b", buffering=0) as terminal,
        subprocess.Popen(
            [shell, "-i"], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=tmp_path, start_new_session=True
        ) as process,
    ):
        os.close(theirs)
        try:
            assert shown(terminal, "ready> ")
            terminal.write(b"torchmatrix hist")
            assert shown(terminal, "hist")
            for _ in range({"bash": 1, "zsh": 2}[shell]):  # the first Tab in a new zsh only loads the completion
                terminal.write(b"\t")
                completed = shown(terminal, "ory ", "\a")
            assert completed == "ory "
            terminal.write(b"--no-such-option\n")
            assert shown(terminal, "error: ")
        finally:
            process.kill()


def shown(terminal: BinaryIO, *wanted: str) -> str:
    """Return the first of the texts that comes; "" if none does in a minute."""
    output, end = "", time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            output += terminal.read(4096).decode(errors="replace")
        if first := next((text for text in wanted if text in output), ""):
            return first
    return ""
