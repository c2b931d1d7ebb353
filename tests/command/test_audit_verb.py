"""`torchmatrix audit`: of a file of figures and of a run."""

import json
from pathlib import Path

from records import CLEAN, table, write_run
from support import Command


def test_the_command_says_what_it_found_by_its_exit_code(torchmatrix: Command, tmp_path: Path) -> None:
    path = table(tmp_path, CLEAN, {**CLEAN, "gpus": 8, "throughput": 26080})
    done = torchmatrix("audit", str(path))
    assert done.returncode == 1 and "2 figures, 1 finding" in done.stderr
    header, line = done.stdout.splitlines()
    assert header.split() == ["row", "field", "value", "limit", "reason"] and line.startswith("3    throughput  26080")
    (finding,) = json.loads(torchmatrix("audit", str(path), "--json").stdout)["findings"]
    assert finding["row"] == 3 and finding["limit"] == "efficiency 1.02"
    clean = torchmatrix("audit", str(table(tmp_path, CLEAN)))
    assert clean.returncode == 0 and not clean.stdout
    bad = torchmatrix("audit", str(tmp_path / "none.csv"))
    assert bad.returncode == 2 and "can't read" in bad.stderr and "hint:" in bad.stderr


def test_the_command_reads_a_run(torchmatrix: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "results", [{"rate": 100.0}, {"rate": 210.0, "devices": (0, 1)}])
    done = torchmatrix("audit", "last")
    assert done.returncode == 1 and "stack-a/resnet50-train-fp32-b4/gpu0+1" in done.stdout
    assert torchmatrix("audit", "nowhere").returncode == 2
