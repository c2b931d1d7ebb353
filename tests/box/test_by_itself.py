"""The workload without the host: its README's commands print lines of JSON, and its table has all events."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

import channel
from support.boxes import only
from torchmatrix.core import assets
from torchmatrix.facts import wire

README = (assets.WORKLOAD / "README.md").read_text()
COMMANDS = re.findall(r"^python (.*-m workload.*)$", README, re.MULTILINE)


@pytest.mark.thorough
@pytest.mark.parametrize(("command", "ranks"), list(zip(COMMANDS, (1, 2), strict=True)))
def test_a_stranger_runs_it_as_its_readme_says(real_python: str, tmp_path: Path, command: str, ranks: int) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TORCHMATRIX"))}
    variables = {**plain, "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(tmp_path)}
    words = [real_python, *shlex.split(command)]
    done = subprocess.run(words, cwd=assets.IMAGES, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not list(tmp_path.glob("torchmatrix-*")), done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "hello" and events[0]["protocol"] == 1 and events[-1]["event"] == "done"
    for event in events:
        wire.check(event)
    (window,) = [event for event in events if event["event"] == "sample" and event["phase"] == "measure"]
    assert window["items"] == 10 * 8 * ranks and len(window["seconds"]) == ranks and max(window["seconds"]) > 0
    assert not only(events, "reference")["problems"] and not only(events, "precision").get("problems")


def test_the_table_of_its_readme_has_all_events() -> None:
    rows = re.findall(r"^\| (`.*?) \|", README, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
    assert sorted(named) == sorted(wire.EVENTS) and len(set(named)) == len(named)
    assert f"## The wire, version {channel.VERSION}\n" in README
