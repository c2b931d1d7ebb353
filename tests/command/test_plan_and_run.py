"""Output of `plan` and `run`: the line that sums it up, skips, the table at the end, JSON, quiet and verbose."""

import json
import re
from pathlib import Path

import pytest

from support import Command
from torchmatrix.facts.store import Results

SKIPPED = '[[stack]]\ntorch = "2.5.1"\nrocm = "6.2"\n[[workload]]\nmodel = "resnet50"\nbatch = 1\n'
CELL = "fake/resnet50-train-fp32-b4-224px/cpu0"


@pytest.fixture
def with_skips(fake_matrix: Path) -> Path:
    """Write the matrix of the fake interpreter, and cells for AMD GPUs."""
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8") + SKIPPED, encoding="utf-8")
    return fake_matrix


def test_plan_first_says_what_will_run_how_long_it_takes_and_the_disk(torchmatrix: Command, with_skips: Path) -> None:
    first = torchmatrix("plan").stderr.splitlines()[0]
    assert re.fullmatch(r"2 cells on 1 stack: 4 launches, about \d+ s; nothing to build; 4 cells skipped", first)


def test_plan_says_how_long_drifting_launches_may_take(torchmatrix: Command, fake_matrix: Path) -> None:
    """Four launches of 14 s; none is known, and each may warm up for 300 s."""
    assert "\nup to 21 min if step times drift: each launch then warms up longer\n" in torchmatrix("plan").stderr
    text = fake_matrix.read_text(encoding="utf-8")
    fake_matrix.write_text(text.replace("[[workload]]", "[[workload]]\nwarmup_cap_seconds = 0"), encoding="utf-8")
    assert "up to" not in torchmatrix("plan").stderr


def test_plan_says_what_building_takes_or_that_it_is_unknown(torchmatrix: Command, fake_matrix: Path) -> None:
    wheels = '[[stack]]\ntorch = "2.5.1"\ncpu = true\npython = "3.11"\n'
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8") + wheels, encoding="utf-8")
    done = torchmatrix("plan")
    if "can't be built" not in done.stdout and "no Python" not in done.stdout:
        assert re.match(r"4 cells on 2 stacks: 8 launches, .*; (at least \d+ GiB on disk|nothing to build)", done.stderr)


def test_plan_shows_a_line_per_skipped_stack_and_with_skipped_every_cell_with_its_fix(
    torchmatrix: Command, with_skips: Path
) -> None:
    lines = torchmatrix("plan").stdout.splitlines()
    assert f"* {CELL}" in lines and lines[-1].startswith("- torch2.5.1-rocm6.2 (4 cells): needs an AMD GPU")
    every = torchmatrix("plan", "--skipped").stdout.splitlines()
    assert sum(line.startswith("- torch2.5.1-rocm6.2/resnet50-train-fp32-b1-224px/gpu0") for line in every) == 4
    assert sum(line.startswith("  fix: ") for line in every) == 4


def test_plan_as_json_lists_the_same_cells_and_every_skip(torchmatrix: Command, with_skips: Path) -> None:
    text, data = torchmatrix("plan").stdout, json.loads(torchmatrix("plan", "--json").stdout)
    assert [cell["id"] for cell in data["cells"]] == [line[2:] for line in text.splitlines() if line[0] == "*"]
    assert len(data["skips"]) == 4 and all(skip["reason"] and skip["fix"] for skip in data["skips"])


def test_plan_says_which_key_of_a_table_gives_the_batch(torchmatrix: Command, fake_matrix: Path) -> None:
    fake_matrix.write_text(
        fake_matrix.read_text(encoding="utf-8").replace("batch = 4", 'batch = { default = 4, "A100" = 256 }'), encoding="utf-8"
    )
    done = torchmatrix("plan")
    assert '\nresnet50-train-fp32-b4-224px: batch 4, by the key "default"\n' in done.stderr
    assert {cell["batch_key"] for cell in json.loads(torchmatrix("plan", "--json").stdout)["cells"]} == {"default"}


def test_run_ends_with_a_table_above_the_report(torchmatrix: Command, fake_matrix: Path) -> None:
    done = torchmatrix("run")
    assert done.stdout.splitlines() == ["reports/index.html"]
    table = done.stderr[done.stderr.index("cell  ") :].splitlines()
    assert re.split(r" {2,}", table[0]) == ["cell", "throughput", "95 % interval", "verdict"]
    assert re.split(r" {2,}", table[1]) == [CELL, "10000 images/s", "10000 to 10000", "stable"]
    assert re.split(r" {2,}", table[2])[1:] == ["15000 images/s", "15000 to 15000", "stable"]


def test_how_good_the_estimate_was_is_printed_after_the_run_and_by_the_next_plan(
    torchmatrix: Command, fake_matrix: Path
) -> None:
    assert "were estimated" not in torchmatrix("plan").stderr
    pattern = re.compile(r"run \w+ took \d+ s; 5\d s were estimated \(-\d+ %\)")
    assert pattern.search(torchmatrix("run").stderr) and pattern.search(torchmatrix("plan").stderr)


def test_run_as_json_prints_one_document_and_nothing_else(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    done = torchmatrix("run", "--json")
    data = json.loads(done.stdout)
    assert done.returncode == data["exit_code"] == 0 and data["outcomes"] == {"ok": 4}
    assert (tmp_path / data["report"]).is_file() and (Path(data["folder"]) / "run.jsonl").is_file()
    assert data["run"] == Path(data["folder"]).name
    assert data["cells"][0] == {
        "id": CELL, "throughput": 10000.0, "low": 10000.0, "high": 10000.0, "n": 2, "failed": 0, "left_out": 0, "disturbed": 0,
        "unit": "images", "verdict": "stable", "outcome": "ok", "reason": None,
    }  # fmt: skip


def test_run_as_json_says_why_a_cell_failed(torchmatrix: Command, fake_matrix: Path) -> None:
    done = torchmatrix("run", "*cpu0", "--json", FAKE_BEHAVIOUR="crash")
    data = json.loads(done.stdout)
    assert done.returncode == data["exit_code"] == 1 and data["outcomes"] == {"crashed": 2}
    (cell,) = data["cells"]
    assert cell["throughput"] is None and cell["n"] == 0 and cell["failed"] == 2
    assert cell["outcome"] == "crashed" and "crash on purpose" in cell["reason"]


def test_quiet_says_nothing_but_the_result_and_failures(torchmatrix: Command, fake_matrix: Path) -> None:
    done = torchmatrix("run", "--quiet")
    assert done.stderr == "" and done.stdout == "reports/index.html\n"
    failed = torchmatrix("run", "*cpu0", "-q", FAKE_BEHAVIOUR="crash")
    assert failed.returncode == 1 and all("crashed" in line for line in failed.stderr.splitlines()) and failed.stderr


def test_verbose_echoes_the_commands_of_the_launches(torchmatrix: Command, fake_matrix: Path) -> None:
    commands = [line for line in torchmatrix("run", "*cpu0", "--verbose").stderr.splitlines() if line.startswith("$ ")]
    assert len(commands) == 2 and all("bench.py --model resnet50" in line for line in commands)
    assert "$ " not in torchmatrix("run", "*cpu0").stderr


def test_quiet_and_verbose_contradict_each_other(torchmatrix: Command, fake_matrix: Path) -> None:
    done = torchmatrix("run", "--quiet", "--verbose")
    assert done.returncode == 2 and "contradict" in done.stderr


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["fake/resnet05*"], [CELL, f"{CELL}+1"]),
        (["fak/resnet50-train-fp32-b4-224px/cpu0"], [CELL, f"{CELL}+1"]),
        (["--where", "model=resnet"], ["model=resnet50"]),
    ],
)
@pytest.mark.parametrize("verb", ["run", "plan", "build"])
def test_a_selection_that_matches_nothing_names_the_nearest(
    torchmatrix: Command, fake_matrix: Path, verb: str, words: list[str], near: list[str]
) -> None:
    done = torchmatrix(verb, *words)
    assert done.returncode == 3 and "the selection matches no cell; the nearest:" in done.stderr
    assert [line.strip() for line in done.stderr.splitlines() if line.startswith("  ")] == near


@pytest.mark.parametrize("verb", ["run", "plan", "build"])
def test_workloads_for_other_devices_than_the_stacks_are_named(torchmatrix: Command, fake_matrix: Path, verb: str) -> None:
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8").replace('device = "cpu"', ""), encoding="utf-8")
    done = torchmatrix(verb)
    assert done.returncode == 3 and "no workload of the matrix has devices here" in done.stderr
    assert 'hint: a workload is for GPUs unless it says device = "cpu"' in done.stderr


def test_one_of_several_globs_that_matches_nothing_is_noted(torchmatrix: Command, fake_matrix: Path) -> None:
    done = torchmatrix("run", "*cpu0", "fake/resnet18*")
    assert done.returncode == 0 and f"note: fake/resnet18* matches no cell; the nearest: {CELL}" in done.stderr


def test_a_wrong_stack_to_lock_names_the_nearest(torchmatrix: Command, fake_matrix: Path) -> None:
    fake_matrix.write_text(
        fake_matrix.read_text(encoding="utf-8") + '[[stack]]\ntorch = "2.5.1"\ncpu = true\n', encoding="utf-8"
    )
    done = torchmatrix("lock", "torch2.5.0*")
    assert done.returncode == 3 and "torch2.5.0* matches no stack" in done.stderr and "torch2.5.1-cpu" in done.stderr


def test_cold_compiles_begin_with_empty_caches_and_the_other_launches_share_one(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path
) -> None:
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8") + "compile = [true, false]\n", encoding="utf-8")
    done = torchmatrix("run", "*cpu0", "--launches", "4", "--cold-compiles", "2")
    assert done.returncode == 0, done.stderr
    (run,) = Results(tmp_path / "results").runs()
    launches = sorted(run.launches(), key=lambda launch: launch.path.name)
    states = {compiled: [entry.started["compile_cache"]["state"] for entry in launches if entry.workload.compile == compiled]
              for compiled in (True, False)}  # fmt: skip
    assert states == {True: ["none", "none", "new", "new"], False: ["new"] * 4}, "the stand-in leaves nothing to be sealed"
    assert {launch.method.facts["cold_compiles"] for launch in launches} == {2}
    assert torchmatrix("run", "--cold-compiles", "-1").returncode == 2
