"""`run --engine slurm` on a real Slurm: each launch is a job, all facts come home, whatever the cluster does meanwhile."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from support import FAKE_PYTHON, bad_days, cache_in, processes_of, slurm_cluster, until
from support.bad_days import Cable
from support.slurm_cluster import Cluster
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.run_summary import launch_rows
from torchmatrix.analysis.scaling import nodes_table
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results
from torchmatrix.matrix.method import ADAPTIVE_MINIMUM, CONFIRMING

pytestmark = pytest.mark.skipif(bool(slurm_cluster.why_not()), reason=slurm_cluster.why_not())
MATRIX = f"""
[run]
launches = 2
{slurm_cluster.FAKE_STACK}
model = ["resnet18", "resnet50"]
batch = [2, 4]
steps = 5
windows = 2
"""
SETTINGS = '[slurm]\nlauncher = "bare"\n'
Started = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def cable(request: pytest.FixtureRequest) -> Iterator[Cable | None]:
    """Yield a cable to the second node, where a test wants that node apart; else None."""
    with bad_days.laid() if hasattr(request, "param") else nullcontext() as laid:
        yield laid


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest, cable: Cable | None) -> Iterator[Cluster]:
    """Yield a cluster of two nodes; a test may give further lines of slurm.conf."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    with slurm_cluster.started(folder, more=getattr(request, "param", ""), cable=cable) as started:
        yield started


@pytest.fixture
def run(tmp_path: Path, cluster: Cluster) -> Started:
    """Return a function that starts the command as a user would, who may close the terminal; in `tmp_path` or in `folder`."""
    return partial(begun_on, cluster, tmp_path)


def begun_on(
    cluster: Cluster, home: Path, *words: str, seconds: float = 0.0, folder: Path | None = None
) -> "subprocess.Popen[str]":
    """Start `run` on a cluster. `home`: where the settings are; `seconds`: of a launch."""
    place, python = folder or home, FAKE_PYTHON
    if not (home / "settings.toml").exists():
        (home / "settings.toml").write_text(SETTINGS)
    if seconds:
        python = home / "slow" / "python"
        python.parent.mkdir(exist_ok=True)
        python.write_text(FAKE_PYTHON.read_text().replace("ITEM_SECONDS = 0.0001", f"ITEM_SECONDS = {seconds / 30}"))
        python.chmod(0o755)
    if not (place / "matrix.toml").exists():
        (place / "matrix.toml").write_text(MATRIX.format(python=python))
    variables = {"TORCHMATRIX_SETTINGS": str(home / "settings.toml"), "TORCHMATRIX_CACHE": cache_in(home)}
    return subprocess.Popen(
        [sys.executable, "-m", "torchmatrix", "run", "--engine", "slurm", *words],
        cwd=place, env=os.environ | cluster.variables | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def launches(folder: Path) -> list[Launch]:
    return [launch for run_folder in Results(folder / "results").runs() for launch in run_folder.launches()]


def test_each_launch_is_a_job_and_a_model_stays_on_one_node(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    code, out, err = ended(run())
    assert code == 0, err
    assert out.strip().endswith("index.html") and "launches: 8 ok" in err
    recorded = launches(tmp_path)
    assert Counter(launch.outcome for launch in recorded) == {"ok": 8} and {launch.number for launch in recorded} == {1}
    nodes: dict[str, set[str]] = {}
    for launch in recorded:
        nodes.setdefault(launch.workload.model, set()).add(str(launch.host["name"]))
    assert sorted(map(sorted, nodes.values())) == [["node1"], ["node2"]]
    (record,) = (folder.read_record() for folder in Results(tmp_path / "results").runs())
    assert record.complete
    assert len(cluster.jobs("all")) >= 8 and not cluster.jobs()


@pytest.mark.thorough
def test_a_node_that_dies_loses_no_launch_and_doubles_none(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    process = run(seconds=0.3)
    until(lambda: any(" RUNNING node2" in job for job in cluster.jobs()) and begun(tmp_path, "node2"), process)
    cluster.kill_node("node2")
    until(lambda: "down" in " ".join(cluster.states()), process)
    cluster.start_node("node2")
    code, _, err = ended(process)
    assert code == 0, err
    counted = Counter((launch.cell, launch.round) for launch in launches(tmp_path) if launch.outcome == "ok")
    assert len(counted) == 8 and set(counted.values()) == {1}
    lost = [launch for launch in launches(tmp_path) if launch.outcome != "ok"]
    assert [launch.outcome for launch in lost] == ["lost"] and "try 2" in err
    assert not cluster.jobs()


def begun(folder: Path, node: str) -> bool:
    """Tell whether a launch of a node has written its first lines and isn't over."""
    return any(launch.host["name"] == node and launch.exit is None for launch in launches(folder))


@pytest.mark.thorough
@pytest.mark.sweep
def test_two_stacks_are_compared_and_the_lock_is_insisted_on(tmp_path: Path, run: Started) -> None:
    stacks = [f'[[stack]]\nname = "{name}"\npython = "{FAKE_PYTHON}"\naccelerator = "cpu"\n' for name in "abc"]
    head, workload = MATRIX.split("[[stack]]")[0], MATRIX.split("[[workload]]")[1]
    wheels = '[[stack]]\ntorch = "2.5.1"\ncpu = true\n'
    (tmp_path / "matrix.toml").write_text(f"{head}{''.join(stacks)}{wheels}[[workload]]{workload}")
    words = ("--where", "model=resnet18", "--locked")

    code, _, err = ended(run(*words))
    assert code == 2 and "matrix.lock does not match the matrix:\n  not in the lock: torch2.5.1-cpu\n" in err, err
    assert not launches(tmp_path)

    code, out, err = ended(run("--ab", "b", "a", "--launches", "2", *words))  # which need no lock
    assert code == 0, err
    lines = out.splitlines()
    assert lines[:2] == ["A: b", "B: a"] and lines[2].startswith("A / B") and lines[-1].endswith("index.html")
    cells = ("resnet18-train-fp32-b2-224px/cpu0", "resnet18-train-fp32-b4-224px/cpu0")
    assert tuple(line.split()[0] for line in lines[3:5]) == cells and all("2 and 2" in line for line in lines[3:5])
    recorded = launches(tmp_path)
    assert Counter(launch.stack.name for launch in recorded) == {"a": 4, "b": 4}
    assert len({launch.host["name"] for launch in recorded}) == 1, "what is compared is on one node"
    (record,) = Results(tmp_path / "results").runs()
    assert f"again: torchmatrix compare {record.id}:b {record.id}:a" in err


@pytest.mark.thorough
def test_the_tool_may_be_killed_and_goes_on_with_what_slurm_has(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    process = run(seconds=0.5)
    until(lambda: len(launches(tmp_path)) >= 2, process)
    process.kill()
    process.communicate()
    before = {job.split()[0] for job in cluster.jobs()}
    assert before
    code, _, err = ended(run())
    assert code == 0, err
    assert {launch.outcome for launch in launches(tmp_path)} == {"ok"} and len(launches(tmp_path)) == 8
    assert len(Results(tmp_path / "results").runs()) == 1 and not cluster.jobs()


@pytest.mark.thorough
def test_ctrl_c_ends_the_jobs_and_the_same_command_continues(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    process = run(seconds=1.0)
    until(lambda: begun(tmp_path, "node1"), process)
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert code == 130 and out.strip().endswith("index.html"), err
    assert not cluster.jobs()
    assert {launch.outcome for launch in launches(tmp_path)} <= {"ok", "interrupted"}
    foreign = tmp_path / "results" / ".slurm" / "20990101T000000Z"
    foreign.mkdir()
    (foreign / "order.json").write_text('{"of": "another version"}')
    code, _, err = ended(run())
    assert code == 0, err
    done = Counter((launch.cell, launch.round) for launch in launches(tmp_path) if launch.outcome == "ok")
    assert len(done) == 8 and set(done.values()) == {1} and len(Results(tmp_path / "results").runs()) == 1


@pytest.mark.thorough
@pytest.mark.sweep
def test_the_largest_batch_is_found_once_on_one_node_and_used_on_all(
    tmp_path: Path, cluster: Cluster, run: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    several(tmp_path, launches=2)
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(matrix.read_text().replace("batch = 2", 'batch = "auto"'))
    monkeypatch.setenv("FAKE_LARGEST_BATCH", "13")
    code, _, err = ended(run())
    assert code == 0, err
    recorded = launches(tmp_path)
    assert len(recorded) == 8 and {(launch.batch_requested, launch.batch_used) for launch in recorded} == {("auto", 12)}
    assert Counter(path.name.split("-")[0] for path in (tmp_path / "results").rglob("batch*.jsonl")) == {
        "batch8": 1, "batch16": 1, "batch12": 1,
    }  # fmt: skip
    assert {path.parent.name for path in (tmp_path / "results").rglob("batch*.jsonl")} == {"cpu0+1"}


@pytest.mark.thorough
@pytest.mark.sweep
def test_rounds_are_added_until_the_intervals_are_narrow(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    words = ("--where", "batch=2", "--where", "model=resnet18", "--until", "1%")
    process = run(*words)
    until(lambda: any(launch.round > ADAPTIVE_MINIMUM for launch in launches(tmp_path)), process)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    code, _, err = ended(run(*words))
    assert code == 0, err
    rounds = Counter(launch.cell for launch in launches(tmp_path) if launch.outcome == "ok")
    assert list(rounds.values()) == [ADAPTIVE_MINIMUM + CONFIRMING], "their times are exact"
    (record,) = (folder.read_record() for folder in Results(tmp_path / "results").runs())
    assert record.complete


@pytest.mark.thorough
@pytest.mark.sweep
def test_rounds_are_added_until_comparisons_are_decided(tmp_path: Path, run: Started) -> None:
    """A compiled cell and its twin, 2 to 3 % apart, come one after the other on one node."""
    paces = [[1.0, 1.01, 0.99, 1.0, 1.0, 1.0, 1.0, 1.0], [0.975, 0.985, 0.962, 0.974, 0.975, 0.976, 0.975, 0.975]]
    (place := tmp_path / "paces.json").write_text(json.dumps(paces))
    python = tmp_path / "paced" / "python"
    python.parent.mkdir()
    python.write_text(FAKE_PYTHON.read_text().replace('os.environ.get("FAKE_PACES")', repr(str(place))))
    python.chmod(0o755)
    text = (
        MATRIX.format(python=python)
        .replace("batch = [2, 4]", "batch = 4\ncompile = [false, true]")
        .replace("steps = 5", "steps = 50")
    )
    (tmp_path / "matrix.toml").write_text(text.replace("launches = 2", 'until = "decided"'))
    code, _, err = ended(run("--where", "model=resnet18"))
    assert code == 0, err
    rounds = Counter(launch.cell for launch in launches(tmp_path) if launch.outcome == "ok")
    assert len(rounds) == 2 and 3 < min(rounds.values()) == max(rounds.values()) <= 8
    (record,) = (folder.read_record() for folder in Results(tmp_path / "results").runs())
    assert record.complete


@pytest.mark.thorough
@pytest.mark.sweep
def test_runs_of_two_folders_do_not_disturb_each_other(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    first, second = (run(seconds=0.5, folder=folder) for folder in folders)  # most often in the same second
    until(lambda: launches(folders[0]) and launches(folders[1]), first)
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] == 130
    code, _, err = ended(second)
    assert code == 0, err
    assert Counter(launch.outcome for launch in launches(folders[1])) == {"ok": 8}


@pytest.mark.thorough
@pytest.mark.sweep
def test_a_node_that_stays_down_keeps_its_cells_and_they_wait_for_it(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    process = run(seconds=0.5)
    until(lambda: begun(tmp_path, "node1") and begun(tmp_path, "node2"), process)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    cluster.kill_node("node1")
    until(lambda: any(state.startswith("down") for state in cluster.states()))
    process = run()
    assert process.stderr and any("waits" in line and "node1" in line for line in process.stderr)
    cluster.start_node("node1")
    code, _, err = ended(process)
    assert code == 0, err
    places: dict[str, set[str]] = {}
    for launch in launches(tmp_path):
        places.setdefault(launch.cell, set()).add(str(launch.host["name"]))
    assert {len(names) for names in places.values()} == {1} and len(Results(tmp_path / "results").runs()) == 1


@pytest.mark.thorough
def test_a_job_cancelled_by_somebody_else_is_reported_and_can_be_continued(
    tmp_path: Path, cluster: Cluster, run: Started
) -> None:
    process = run(seconds=0.3)
    until(lambda: begun(tmp_path, "node1"), process)
    cluster.asked("scancel", *(job.split()[0] for job in cluster.jobs("PENDING")))
    code, _, err = ended(process)
    assert code == 6 and "cancelled by somebody else" in err and "continues the run" in err
    code, _, err = ended(run())
    assert code == 0 and len({(launch.cell, launch.round) for launch in launches(tmp_path) if launch.outcome == "ok"}) == 8, err


@pytest.mark.thorough
@pytest.mark.sweep
def test_a_controller_that_restarts_is_waited_for(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    process = run(seconds=0.5)
    until(lambda: begun(tmp_path, "node1"), process)
    cluster.restart_controller()
    code, _, err = ended(process)
    assert code == 0, err
    assert Counter(launch.outcome for launch in launches(tmp_path)) == {"ok": 8}


@pytest.mark.thorough
@pytest.mark.sweep
def test_why_a_launch_waits_that_nothing_but_a_person_can_help_is_said(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    process = run(seconds=0.3)
    until(lambda: begun(tmp_path, "node2"), process)
    (job,) = {job.split()[0].partition("_")[0] for job in cluster.jobs("PENDING")[-1:]}
    cluster.asked("scontrol", "hold", job)
    assert process.stderr and any("waits" in line and "JobHeld" in line for line in process.stderr)
    cluster.asked("scontrol", "release", job)
    code, _, err = ended(process)
    assert code == 0, err


@pytest.mark.thorough
def test_detached_it_returns_and_the_same_command_collects(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    code, out, err = ended(run("--detach"))
    assert code == 0 and not out.strip() and "the same command without --detach" in err
    until(lambda: not cluster.jobs())
    assert len(launches(tmp_path)) == 8
    code, out, err = ended(run())
    assert code == 0 and "0 launches to do" in err and out.strip().endswith("index.html")
    assert len(Results(tmp_path / "results").runs()) == 1


@pytest.mark.thorough
def test_nodes_of_two_kinds_each_measure_everything(tmp_path: Path) -> None:
    folder = tmp_path / "two-kinds"
    folder.mkdir()
    with slurm_cluster.started(folder, memory=(1000, 900)) as cluster:
        code, out, err = ended(begun_on(cluster, tmp_path, "*resnet18*"))
    assert code == 0, err
    assert len(out.split()) == 2 and "index-node1.html" in out and "index-node2.html" in out
    assert Counter(str(launch.host["name"]) for launch in launches(tmp_path)) == {"node1": 4, "node2": 4}


def test_slurm_is_asked_to_start_a_node_that_is_powered_down(tmp_path: Path) -> None:
    folder = tmp_path / "elastic"
    folder.mkdir()
    with slurm_cluster.started(folder, asleep=True) as cluster:
        process = begun_on(cluster, tmp_path, "*resnet18*")
        until(lambda: any(state.endswith("#") for state in cluster.states()), process)
        process.send_signal(signal.SIGINT)
        code, _, err = ended(process)
        assert code == 130 and not cluster.jobs()
    assert "node1 is idle~: it is powered down; Slurm starts it for a job" in err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ('[slurm]\npartition = "gone"\n', 'no partition "gone" with nodes; it has: tests'),
        ('[slurm]\npartitions = "tests"\n', 'unknown key "partitions"; did you mean "partition"?'),
        ('[slurm]\nqos = "a b"\n', "is not one word"),
        ('[slurm]\naccount = "x"\nconstraint = "h100"\nlauncher = "bare"\n', "Slurm refused the job"),
    ],
)
def test_a_refusal_by_slurm_or_the_settings_is_an_error_with_a_hint(
    tmp_path: Path, cluster: Cluster, run: Started, settings: str, message: str
) -> None:
    process = run()
    process.kill()
    process.communicate()
    (tmp_path / "settings.toml").write_text(settings)
    code, _, err = ended(run())
    assert code == 2 and message in err and "hint: " in err and "Traceback" not in err
    assert not cluster.jobs()


def test_without_slurm_it_says_where_to_run_it(tmp_path: Path, run: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = ended(run())
    assert code == 4 and "there is no sinfo here" in err and "login node" in err


def test_a_cell_over_two_nodes_is_one_launch_with_the_facts_of_both_and_its_own_scale_factors(
    tmp_path: Path, cluster: Cluster, run: Started
) -> None:
    several(tmp_path, launches=1)
    code, _, err = ended(run())
    assert code == 0, err
    recorded = launches(tmp_path)
    labels = ("cpu0", "cpu0+1", "cpu0@2nodes", "cpu0+1@2nodes")
    assert Counter(launch.devices.label for launch in recorded) == dict.fromkeys(labels, 1)
    assert {launch.outcome for launch in recorded} == {"ok"}
    both = [launch for launch in recorded if launch.devices.nodes == 2]
    assert all([node.name for node in launch.other_nodes] == ["node2"] for launch in both)
    assert {launch.host["name"] for launch in recorded} == {"node1"} and {launch.devices.count for launch in both} == {2, 4}
    assert all(launch.transport and launch.transport.network == "TCP" for launch in both)
    for launch in both:
        assert {r["device"] for event in launch.telemetry for r in event.readings} == {"cpu", "cpu@2"}
        assert "node 1 met the first one" in launch.path.with_suffix(".log").read_text()
    assert not cluster.jobs()
    (folder,) = Results(tmp_path / "results").runs()
    rows = {row["per_node"]: row for row in nodes_table(CellIndex(launch_rows(folder.launches())))}
    assert (rows[1]["E_between"], rows[1]["S_nodes"]) == pytest.approx((0.8, 1.6))
    assert (rows[2]["E_inside"], rows[2]["E"]) == pytest.approx((0.75, 0.75 * 0.8))
    page = (tmp_path / "reports" / "index.html").read_text()
    assert "Across nodes" in page and "gloo over TCP" in page and "4 core groups on 2 nodes" in page
    assert "node1, node2 (slurm " in page


@pytest.mark.thorough
@pytest.mark.sweep
def test_a_rank_that_dies_on_another_node_fails_the_launch_and_leaves_nothing(
    tmp_path: Path, cluster: Cluster, run: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    several(tmp_path, launches=1)
    monkeypatch.setenv("FAKE_BEHAVIOUR", "other-node-dies")
    code, _, err = ended(run("*/cpu0@2nodes", "--where", "nodes=2"))
    assert code == 1, err
    (launch,) = [launch for launch in launches(tmp_path) if launch.devices.nodes == 2]
    assert (launch.outcome, launch.error) == ("crashed", "node2: ended by SIGKILL")
    assert launch.seconds < 60
    assert not cluster.jobs() and not left_of(tmp_path)


@pytest.mark.thorough
@pytest.mark.sweep
def test_a_node_that_dies_in_a_launch_over_two_loses_nothing(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    process = begun_over_two(tmp_path, run)
    cluster.kill_node("node2")
    until(lambda: "down" in " ".join(cluster.states()), process)
    cluster.start_node("node2")
    code, _, err = ended(process)
    assert code == 0, err
    counted = Counter((launch.cell, launch.round) for launch in launches(tmp_path) if launch.outcome == "ok")
    assert len(counted) == 4 and set(counted.values()) == {1}
    assert {launch.outcome for launch in launches(tmp_path)} - {"ok"} <= {"lost", "interrupted"}
    assert not cluster.jobs() and not left_of(tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("cable", ["laid"], indirect=True)
@pytest.mark.sweep
def test_a_network_that_is_cut_in_a_launch_over_two_nodes_loses_nothing(
    tmp_path: Path, cluster: Cluster, cable: Cable, run: Started
) -> None:
    process = begun_over_two(tmp_path, run)
    cable.cut()
    until(lambda: "down" in " ".join(cluster.states()), process)
    cable.mend()
    code, _, err = ended(process)
    assert code == 0, err
    counted = Counter((launch.cell, launch.round) for launch in launches(tmp_path) if launch.outcome == "ok")
    assert len(counted) == 4 and set(counted.values()) == {1}
    assert {launch.outcome for launch in launches(tmp_path)} - {"ok"} <= {"lost", "interrupted"}
    assert not cluster.jobs()
    until(lambda: not left_of(tmp_path))


@pytest.mark.thorough
def test_files_that_a_shared_folder_shows_late_are_waited_for(tmp_path: Path) -> None:
    with bad_days.late(tmp_path / "results", seconds=15.0) as around:
        folder = tmp_path / "slurm"
        folder.mkdir()
        with slurm_cluster.started(folder, around=around) as cluster:
            code, _, err = ended(begun_on(cluster, tmp_path))
    assert code == 0, err
    counted = Counter((launch.cell, launch.round, launch.number) for launch in launches(tmp_path))
    assert len(counted) == 8 and {number for _, _, number in counted} == {1}, "none was made twice"
    assert {launch.outcome for launch in launches(tmp_path)} == {"ok"}
    assert {str(launch.host["name"]) for launch in launches(tmp_path)} == {"node1", "node2"}


@pytest.mark.thorough
def test_ctrl_c_in_a_launch_over_two_nodes_leaves_nothing_on_either(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    process = begun_over_two(tmp_path, run)
    process.send_signal(signal.SIGINT)
    code, _, err = ended(process)
    assert code == 130, err
    assert not cluster.jobs()
    until(lambda: not left_of(tmp_path))


@pytest.mark.thorough
@pytest.mark.parametrize("cluster", ["MaxJobCount=6\nMinJobAge=2\n"], indirect=True)
def test_a_limit_on_jobs_is_waited_for(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    code, _, err = ended(run())
    assert code == 0, err
    assert Counter(launch.outcome for launch in launches(tmp_path)) == {"ok": 8} and not cluster.jobs()


@pytest.mark.thorough
@pytest.mark.parametrize("cluster", ["MaxArraySize=2\n"], indirect=True)
def test_arrays_are_no_larger_than_slurm_allows(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    code, _, err = ended(run())
    assert code == 0, err
    assert Counter(launch.outcome for launch in launches(tmp_path)) == {"ok": 8}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "cluster",
    [
        "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
        "PartitionName=urgent Nodes=node1 State=UP PriorityTier=100 PreemptMode=OFF\n"
    ],
    indirect=True,
)
def test_a_job_that_is_preempted_is_made_again(tmp_path: Path, cluster: Cluster, run: Started) -> None:
    process = run(seconds=2.0)
    until(lambda: begun(tmp_path, "node1"), process)
    cluster.asked("sbatch", "--partition=urgent", "--exclusive", "--wrap", "sleep 3", "--output", "/dev/null")
    code, _, err = ended(process)
    assert code == 0, err
    counted = Counter((launch.cell, launch.round) for launch in launches(tmp_path) if launch.outcome == "ok")
    assert len(counted) == 8 and set(counted.values()) == {1}
    assert {launch.outcome for launch in launches(tmp_path)} - {"ok"} <= {"lost", "interrupted"} and len(launches(tmp_path)) > 8


@pytest.mark.thorough
@pytest.mark.sweep
def test_a_job_that_runs_out_of_time_is_the_launchs_outcome(
    tmp_path: Path, cluster: Cluster, run: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.toml").write_text(f"{SETTINGS}minutes = 1\n")
    (tmp_path / "matrix.toml").write_text(
        MATRIX.format(python=FAKE_PYTHON).replace("launches = 2", "launches = 1").replace("[2, 4]", "2")
        .replace('["resnet18", "resnet50"]', '"resnet18"')
    )  # fmt: skip
    monkeypatch.setenv("FAKE_BEHAVIOUR", "hang")
    code, _, err = ended(run())
    assert code == 1, err
    assert {launch.outcome for launch in launches(tmp_path)} <= {"timeout", "interrupted", "lost"}
    assert "1 timeout" in err and not cluster.jobs() and not left_of(tmp_path)


def begun_over_two(folder: Path, run: Started) -> "subprocess.Popen[str]":
    """Start a command, and return once its launch on two nodes is under way on both."""
    several(folder, launches=1, slow=folder)
    process = run()
    until(
        lambda: any(launch.devices.nodes == 2 and launch.other_nodes and not launch.exit for launch in launches(folder)),
        process,
    )
    return process


def several(folder: Path, launches: int, slow: Path | None = None) -> None:
    """Write one workload on one or two slots of one or two nodes; `slow`: where to put an interpreter that takes seconds."""
    python = FAKE_PYTHON
    if slow:
        python = slow / "python"
        python.write_text(FAKE_PYTHON.read_text().replace("ITEM_SECONDS = 0.0001", "ITEM_SECONDS = 0.1"))
        python.chmod(0o755)
    text = MATRIX.replace("counts = [1]", "counts = [1, 2]\nnodes = [1, 2]").replace("launches = 2", f"launches = {launches}")
    text = text.replace('["resnet18", "resnet50"]', '"resnet18"').replace("[2, 4]", "2")
    (folder / "matrix.toml").write_text(text.format(python=python))


def left_of(folder: Path) -> list[int]:
    """Return the processes of launches that are still there."""
    return processes_of(f"TORCHMATRIX_OWNER={Results(folder / 'results').owner}".encode())
