"""What is decided about a cluster before anything is submitted: which nodes count, and who measures what."""

from collections import Counter

import pytest

from torchmatrix.ground import settings
from torchmatrix.ground.settings import SlurmSettings
from torchmatrix.machine import host
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.planning.fit import Supplies
from torchmatrix.planning.plan import Cell, make_plan
from torchmatrix.running.cluster.cluster import placed
from torchmatrix.running.cluster.slurm import Node, Slurm, array_index

MATRIX = """
[gpus]
counts = [1, 2]
[[stack]]
torch = "2.7.1"
cuda = "12.8"
[[stack]]
torch = "2.5.1"
cuda = "12.4"
[[workload]]
model = ["resnet50", "resnet18", "bert-tiny"]
mode = ["train", "infer"]
precision = ["fp32", "amp"]
batch = 8
"""


def node(gres: str = "(null)", state: str = "idle") -> Node:
    return Node(name="n", state=state, gres=gres, features="", cpus=8, memory_mb=1000)


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", 0), ("gpu:4", 4), ("gpu:a100:8(S:0-1)", 8), ("gpu:a100:2(S:0),gpu:v100:3(S:1)", 5),
        ("tmpdisk:100,gpu:h100:4", 4), ("shard:16,gpu:l4:2(S:0,1)", 2),
    ],
)  # fmt: skip
def test_the_gpus_of_a_node_are_counted(gres: str, gpus: int) -> None:
    assert node(gres).gpus == gpus


@pytest.mark.parametrize(
    ("states", "usable", "why"),
    [
        (("idle", "mixed", "mix", "allocated", "alloc", "allocated+", "completing", "comp", "IDLE+CLOUD"), True, ""),
        (("planned", "plnd", "mixed-", "mix-", "MIXED+PLANNED", "blocked", "IDLE+DYNAMIC_NORM"), True, ""),
        (("idle~", "IDLE+CLOUD+POWERED_DOWN", "IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN"), True, "it is powered down"),
        (("idle#", "allocated#", "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", "mix#"), True, "it is being started"),
        (("idle%", "IDLE+POWERING_DOWN", "comp%"), True, "it is being powered down"),
        (("idle!", "ALLOCATED+POWER_DOWN"), True, "it is about to be powered down"),
        (("idle@", "mixed@", "IDLE+REBOOT_REQUESTED"), True, "it is to be rebooted first"),
        (("idle^", "reboot^", "reboot*", "IDLE+REBOOT_ISSUED"), True, "it is being rebooted"),
        (("idle*", "alloc*", "mixed*", "IDLE+NOT_RESPONDING"), False, "it does not answer"),
        (("down", "down*", "down~", "down#", "DOWN+CLOUD+POWERED_DOWN", "DOWN+NOT_RESPONDING"), False, "it is down"),
        (("drained", "drain", "draining", "drng", "drain~", "drained*", "IDLE+DRAIN", "MIXED+DRAIN"), False, "it is drained"),
        (("fail", "fail*", "failing", "failg", "IDLE+FAIL"), False, "it is expected to fail soon"),
        (("maint", "maint*", "idle$", "mixed$", "IDLE+MAINTENANCE+RESERVED"), False, "it is reserved for maintenance"),
        (("reserved", "resv", "IDLE+RESERVED"), False, "it is reserved"),
        (("inval", "IDLE+INVALID_REG", "idle+inval"), False, "it did not register"),
        (("future", "futr", "FUTURE*"), False, "it is not set up yet"),
        (("perfctrs", "npc"), False, "its network performance counters are in use"),
        (("unknown", "unk", "unknown*"), False, "the controller does not know its state yet"),
        (("error", "ERROR+NOT_RESPONDING"), False, "it is in an error state"),
        (("idle&", "IDLE+LEVITATING", "idle~&"), False, "Slurm's word for its state isn't known here"),
        (("", "?"), False, "Slurm's word for its state isn't known here"),
    ],
)  # fmt: skip
def test_every_state_of_slurm_s_says_whether_a_job_can_run(states: tuple[str, ...], usable: bool, why: str) -> None:
    for state in states:
        found = node(state=state).standing
        assert (found.is_usable, found.why[: len(why)], bool(found.why)) == (usable, why, bool(why)), state


def test_a_state_without_a_reason_is_only_named_and_one_with_a_reason_is_explained() -> None:
    assert node(state="mixed").in_words == "mixed"
    assert node(state="drng").in_words == "drng: it is drained: an administrator took it out of service"
    assert 'known here: "levitating"' in node(state="idle+levitating").in_words


@pytest.fixture
def cells(nvidia_host: Host) -> tuple[Cell, ...]:
    found = make_plan(matrix_file.parse(MATRIX), nvidia_host, Supplies(containers=True)).cells
    assert len(found) > 12
    return found


@pytest.mark.parametrize("nodes", [["a"], ["a", "b"], ["a", "b", "c", "d", "e", "f", "g", "h"]])
def test_what_is_compared_stays_on_one_node_and_the_work_is_spread(cells: tuple[Cell, ...], nodes: list[str]) -> None:
    found = placed(cells, nodes)
    assert found == placed(cells, nodes) and set(found) == {cell.id for cell in cells}
    groups: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for cell in cells:
        groups.setdefault((cell.workload.model, cell.workload.mode), set()).add(found[cell.id])
    assert {len(used) for used in groups.values()} == {1}
    loads = Counter(found.values())
    assert len(loads) == min(len(nodes), len(groups))


def test_cells_over_several_nodes_begin_on_the_node_of_their_baselines(nvidia_host: Host) -> None:
    text = MATRIX.replace("counts = [1, 2]", "counts = [1, 2]\nnodes = [1, 3]")
    cells = make_plan(matrix_file.parse(text), nvidia_host, Supplies(containers=True, nodes=3)).cells
    found = placed(cells, ["n1", "n2", "n3"])
    assert {len(found[cell.id]) for cell in cells if cell.gpus.nodes == 3} == {3}
    assert all(len(set(found[cell.id])) == cell.gpus.nodes for cell in cells)
    firsts: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        firsts.setdefault((cell.workload.model, cell.workload.mode), set()).add(found[cell.id][0])
    assert {len(used) for used in firsts.values()} == {1} and len({node for used in firsts.values() for node in used}) == 3


def test_a_hosts_record_gives_the_host_back(nvidia_host: Host, cpu_host: Host) -> None:
    for one in (nvidia_host, cpu_host):
        assert host.of_record(one.as_record(), one.machine) == one


def test_the_commands_say_what_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert array_index("17_3") == ("17", 3) and array_index("17") == ("17", 0)
    assert settings.SlurmSettings() == SlurmSettings(exclusive=True, launcher="auto")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(Exception, match="there is no sinfo here"):
        Slurm(SlurmSettings()).version()
