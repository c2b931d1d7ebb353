"""Decisions about a cluster before anything is submitted: which nodes count, and which measures what."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from torchmatrix.core import settings
from torchmatrix.core.errors import BadInput, ExitCode
from torchmatrix.core.settings import SlurmSettings
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.method import Request
from torchmatrix.planning.fit import Disk, Prerequisites
from torchmatrix.planning.plan import Cell, make_plan
from torchmatrix_plugins.cluster import orders
from torchmatrix_plugins.cluster.cluster import placed
from torchmatrix_plugins.cluster.job_system import array_index
from torchmatrix_plugins.cluster.orders import NodeError, NodeFacts, RunRequest
from torchmatrix_plugins.cluster.slurm import Node, Slurm

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
        ("gpu:" + "9" * 5000, 0),
    ],
)  # fmt: skip
def test_the_gpus_of_a_node_are_counted(gres: str, gpus: int) -> None:
    assert node(gres).gpus == gpus


@pytest.mark.parametrize(
    ("states", "usable", "why"),
    [
        (("idle", "mixed", "mix", "allocated", "alloc", "allocated+", "completing", "comp", "IDLE+CLOUD"), True, ""),
        (("planned", "plnd", "mixed-", "mix-", "MIXED+PLANNED", "blocked", "block"), True, ""),
        (("IDLE+DYNAMIC_NORM", "canc_r"), True, ""),
        (("idle~", "IDLE+CLOUD+POWERED_DOWN", "CLOUD+NOT_RESPONDING+POWERED_DOWN", "powered_dn"), True, "it is powered down"),
        (("idle#", "allocated#", "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", "mix#", "pow_up"), True, "it is being started"),
        (("idle%", "IDLE+POWERING_DOWN", "comp%", "powring_dn"), True, "it is being powered down"),
        (("idle!", "ALLOCATED+POWER_DOWN", "pow_dn"), True, "it is about to be powered down"),
        (("idle@", "mixed@", "IDLE+REBOOT_REQUESTED"), True, "it is to be rebooted first"),
        (("idle^", "reboot^", "reboot*", "boot", "boot^", "boot*", "IDLE+REBOOT_ISSUED"), True, "it is being rebooted"),
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
        standing = node(state=state).standing
        assert (standing.is_usable, standing.why[: len(why)], bool(standing.why)) == (usable, why, bool(why)), state


def test_a_state_without_a_reason_is_only_named_and_one_with_a_reason_is_explained() -> None:
    assert node(state="mixed").in_words == "mixed"
    assert node(state="drng").in_words == "drng: it is drained: an administrator took it out of service"
    assert 'known here: "levitating"' in node(state="idle+levitating").in_words


@pytest.fixture
def cells(nvidia_host: Host) -> tuple[Cell, ...]:
    planned = make_plan(matrix_file.parse(MATRIX), nvidia_host, Prerequisites(containers=True)).cells
    assert len(planned) > 12
    return planned


@pytest.mark.parametrize("nodes", [["a"], ["a", "b"], ["a", "b", "c", "d", "e", "f", "g", "h"]])
def test_what_is_compared_stays_on_one_node_and_the_work_is_spread(cells: tuple[Cell, ...], nodes: list[str]) -> None:
    placement = placed(cells, nodes)
    assert placement == placed(cells, nodes) and set(placement) == {cell.id for cell in cells}
    groups: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for cell in cells:
        groups.setdefault((cell.workload.model, cell.workload.mode), set()).add(placement[cell.id])
    assert {len(used) for used in groups.values()} == {1}
    loads = Counter(placement.values())
    assert len(loads) == min(len(nodes), len(groups))


def test_cells_over_several_nodes_begin_on_the_node_of_their_baselines(nvidia_host: Host) -> None:
    text = MATRIX.replace("counts = [1, 2]", "counts = [1, 2]\nnodes = [1, 3]")
    cells = make_plan(matrix_file.parse(text), nvidia_host, Prerequisites(containers=True, nodes=3)).cells
    placement = placed(cells, ["n1", "n2", "n3"])
    assert {len(placement[cell.id]) for cell in cells if cell.gpus.nodes == 3} == {3}
    assert all(len(set(placement[cell.id])) == cell.gpus.nodes for cell in cells)
    firsts: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        firsts.setdefault((cell.workload.model, cell.workload.mode), set()).add(placement[cell.id][0])
    assert {len(used) for used in firsts.values()} == {1} and len({node for used in firsts.values() for node in used}) == 3


def order_in(folder: Path) -> RunRequest:
    order = RunRequest(
        run="20260101T000000Z", results=folder, folder=folder, engine="auto", globs=("a/*",), where=(),
        request=Request(until="1%"), ab=("a", "b"),
    )  # fmt: skip
    orders.keep(order, MATRIX, None)
    return order


def facts_of(host: Host) -> NodeFacts:
    prerequisites = Prerequisites(
        containers=True, built=frozenset(["b", "a"]), disk=Disk(place="/", free_bytes=10, larger="buy one")
    )
    return NodeFacts(host=host, machine="m-1", prerequisites=prerequisites, engine="docker", notes=("a note",))


def test_what_an_order_and_its_nodes_wrote_is_read_again(tmp_path: Path, nvidia_host: Host, cpu_host: Host) -> None:
    order = order_in(tmp_path)
    assert orders.read(order.place) == order
    assert orders.node_facts(order, "n1") is None and orders.groups_of(order) is None
    for host in (nvidia_host, cpu_host):
        orders.keep_node(order, "n1", facts_of(host))
        facts = orders.node_facts(order, "n1")
        assert isinstance(facts, NodeFacts) and facts.host == host
        assert facts.prerequisites.built == ("a", "b") and facts.prerequisites.disk == facts_of(host).prerequisites.disk
    error = NodeError(error="no stack", hint="write one", exit_code=ExitCode.BAD_INPUT)
    orders.keep_node(order, "n1", error)
    assert orders.node_facts(order, "n1") == error
    orders.keep_groups(order, [["n1", "n2"], ["n3"]])
    assert orders.groups_of(order) == [["n1", "n2"], ["n3"]]
    assert orders.launches_of(order, orders.keep_launches(order, "home", [("a/b/c", 2)])) == ("home", [("a/b/c", 2)])
    orders.keep_batch(order, "home", ("a", "b"), None)
    assert orders.batches_of(order, "home", ("a", "b")) == {("a", "b"): None}


def test_an_older_version_s_facts_of_a_node_are_read(tmp_path: Path, nvidia_host: Host) -> None:
    """Read facts with the identity beside the host, and nothing of what came later."""
    order, record = order_in(tmp_path), json.loads(json.dumps(asdict(facts_of(nvidia_host)), default=sorted))
    del record["host"]["machine"], record["host"]["libc"], record["prerequisites"]["nodes"]
    (order.place / "nodes" / "n1.json").write_text(json.dumps(record))
    facts = orders.node_facts(order, "n1")
    assert isinstance(facts, NodeFacts) and facts.machine == "m-1" and facts.host.gpus == nvidia_host.gpus


DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "no facts": lambda record: record.clear(),
    "no host": lambda record: record.pop("host"),
    "a host that is a list": lambda record: record.update(host=[1]),
    "an older host": lambda record: record["host"].pop("kernel"),
    "a newer host": lambda record: record["host"].update(quarks=3),
    "a memory in words": lambda record: record["host"].update(memory_bytes="much"),
    "a GPU that is none": lambda record: record["host"].update(gpus=[{"name": 3}]),
    "GPUs that are no list": lambda record: record["host"].update(gpus="four"),
    "a core that is none": lambda record: record["host"].update(cores=[0, True]),
    "links of numbers": lambda record: record["host"].update(links=[[1]]),
    "prerequisites of a number": lambda record: record.update(prerequisites=1),
    "a disk without a place": lambda record: record["prerequisites"].update(disk={"free_bytes": 1}),
    "an error without a hint": lambda record: record.update(error="x"),
    "an error of no code": lambda record: (record.clear(), record.update(error="x", hint="y", exit_code=77)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_facts_of_a_node_that_are_not_ours_are_refused_with_the_file(
    tmp_path: Path, nvidia_host: Host, damage: Callable[[dict[str, Any]], object]
) -> None:
    order, record = order_in(tmp_path), json.loads(json.dumps(asdict(facts_of(nvidia_host)), default=sorted))
    damage(record)
    path = order.place / "nodes" / "n1.json"
    path.write_text(json.dumps(record))
    with pytest.raises(BadInput, match="is damaged, or of another version") as raised:
        orders.node_facts(order, "n1")
    assert str(path) in str(raised.value) and raised.value.hint == "remove this file: the node is then asked again"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def replaced_by(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def made_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "damage",
    [
        cut, replaced_by(b""), replaced_by(b"\xff\xfe"), replaced_by(b"[" * 100_000), replaced_by(b"null"), replaced_by(b"[7]"),
        replaced_by(b'{"a": "\\ud800"}'), replaced_by(b" " * 9_000_000), made_a_pipe,
    ],
)  # fmt: skip
def test_every_file_of_an_order_is_refused_in_words_when_it_is_damaged(
    tmp_path: Path, nvidia_host: Host, damage: Callable[[Path], object]
) -> None:
    order = order_in(tmp_path)
    orders.keep_node(order, "n1", facts_of(nvidia_host))
    orders.keep_groups(order, [["n1"]])
    orders.keep_launches(order, "home", [("a/b/c", 1)])
    orders.keep_batch(order, "home", ("a", "b"), 8)
    readers: dict[str, Callable[[], object]] = {
        "order.json": lambda: orders.read(order.place),
        "nodes/n1.json": lambda: orders.node_facts(order, "n1"),
        "groups.json": lambda: orders.groups_of(order),
        "jobs/1.json": lambda: orders.launches_of(order, 1),
        "batches/home/*.json": lambda: orders.batches_of(order, "home", ("a", "b")),
    }
    for name, read in readers.items():
        (path,) = order.place.glob(name)
        damage(path)
        with pytest.raises(BadInput) as raised:
            read()
        assert path.name in str(raised.value) and raised.value.hint, name
    notes: list[str] = []
    assert orders.unfinished(tmp_path, notes.append) == [] and notes[0].startswith("note: this run can't be continued: ")


def test_the_commands_say_what_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert array_index("17_3") == ("17", 3) and array_index("17") == ("17", 0)
    assert settings.SlurmSettings() == SlurmSettings(exclusive=True, launcher="auto")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(Exception, match="there is no sinfo here"):
        Slurm(SlurmSettings()).version()


def test_lines_of_sinfo_that_describe_no_node_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    good = "node1|tests*|idle|gpu:2|(null)|2|1000\nnode2|tests*|mixed|(null)|(null)|4+|2000+"
    counts = ("x|1000", "2|lots", f"{'9' * 5000}|1")
    odd = ["all is well", "<html>", "|||||||", "../x|tests*|idle|||2|9", *(f"node3|tests*|idle|||{text}" for text in counts)]
    program = tmp_path / "sinfo"
    program.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join([*odd, good, "END", ""]))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    nodes = Slurm(SlurmSettings()).nodes()
    assert [(node.name, node.cpus, node.memory_mb) for node in nodes] == [("node1", 2, 1000), ("node2", 4, 2000)]


@pytest.mark.parametrize("groups", ["[]", "[[]]", '[["a"], []]', "{}", "null", "[[1]]", "[", "\ufeff"])
def test_damaged_groups_and_a_damaged_matrix_of_an_order_are_refused_with_a_way_out(tmp_path: Path, groups: str) -> None:
    order = order_in(tmp_path)
    (order.place / "groups.json").write_text(groups)
    (order.place / "matrix.toml").write_bytes(b"\xff\xfe")
    for read in (orders.groups_of, orders.text_of):
        with pytest.raises(BadInput) as caught:
            read(order)
        assert "--new begins a new run" in caught.value.hint


def test_a_job_id_that_cant_be_read_is_one_that_was_not_noted(tmp_path: Path) -> None:
    order = order_in(tmp_path)
    number = orders.keep_launches(order, "home", [("a/b/c", 1)], "k1")
    for content, job in ((b"17", "17"), (b"\xff\xfe1", ""), (b"", "")):
        (order.place / "jobs" / f"{number}.id").write_bytes(content)
        assert orders.jobs_of(order) == {number: ("k1", job)}
    (order.place / "jobs" / f"{number}.id").unlink()
    assert orders.jobs_of(order) == {number: ("k1", "")}


LOCK = b"# a lock\n"
SPOILED: dict[str, Callable[[Path], object]] = {
    "empty": replaced_by(b""),
    "NUL": replaced_by(b"\0" * 64),
    "an object": replaced_by(b"{}"),
    "nested": replaced_by(b"a = " + b"[" * 5000),
    "cut": cut,
    "gone": Path.unlink,
}


@pytest.mark.parametrize("name", ["matrix.toml", "matrix.lock"])
@pytest.mark.parametrize("damage", SPOILED.values(), ids=SPOILED)
def test_a_damaged_matrix_or_lock_of_an_order_is_told_from_another_one(
    tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    order = replace(order_in(tmp_path), digests=orders.digests(MATRIX, LOCK))
    orders.keep(order, MATRIX, LOCK)
    assert orders.unfinished(tmp_path, print) == [order]
    orders.refuse_damaged(order)
    damage(order.place / name)
    (held,) = orders.unfinished(tmp_path, print)
    with pytest.raises(BadInput, match=re.escape(str(order.place / name))) as raised:
        orders.refuse_damaged(held)
    assert "--new begins a new run" in raised.value.hint


def test_an_older_version_s_order_without_checksums_is_read(tmp_path: Path) -> None:
    order = order_in(tmp_path)
    record = json.loads((order.place / "order.json").read_text())
    del record["digests"]
    (order.place / "order.json").write_text(json.dumps(record))
    (held,) = orders.unfinished(tmp_path, print)
    assert held == order and orders.found_digests(held) == orders.digests(MATRIX, None)
    orders.refuse_damaged(held)


@pytest.mark.parametrize("content", [b"\0" * 9, b"17 18", b"-v", b"../1", b"1\n"])
def test_a_job_s_id_that_is_none_counts_as_not_noted_and_the_first_that_is_written_stays(
    tmp_path: Path, content: bytes
) -> None:
    order = order_in(tmp_path)
    number = orders.keep_launches(order, "home", [("a/b/c", 1)], "k1")
    assert orders.keep_job(order, number, "17") == "17" and orders.keep_job(order, number, "18") == "17"
    (order.place / "jobs" / f"{number}.id").write_bytes(content)
    assert orders.keep_job(order, number, "18") == "18" and orders.jobs_of(order) == {number: ("k1", "")}
    orders.drop_launches(order, number)
    assert not list((order.place / "jobs").iterdir())
