"""Acceptance: verdicts by siblings, baselines and limits, the cause of each planted fault, what is written, what is refused."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from support import Command
from support.accepted import H100, MI300X, RTX_4090, Server, write
from support.records import write_run
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reading import launches_below
from torchmatrix_plugins.accept import baselines
from torchmatrix_plugins.accept import checks as accept_checks

HEALTHY = Server()
CARD_5 = {("host-copy", 5): 0.52}
PLANTED: dict[str, tuple[Server, str, str]] = {
    "a card at x8": (
        Server(slow=CARD_5, change={5: {"pcie": "gen5 x8 (max gen5 x16)"}}), "host-copy", "GPU 5 runs at x8 of x16",
    ),
    "a card at an older generation": (
        Server(slow=CARD_5, read={place: {"pcie_generation": 3 if place == 5 else 5} for place in range(8)}),
        "host-copy", "generation 3 of 5 while it works",
    ),
    "a card capped at 500 W": (
        Server(slow={("gemm", 5): 0.8}, change={5: {"power_limit_watts": 500.0}}), "gemm",
        "power limit is 500 W, that of others 700 W",
    ),
    "clocks that are set": (
        Server(slow={("gemm", 2): 0.7}, change={2: {"application_clocks": "1200 MHz and 2619 MHz"}}), "gemm",
        "clocks are set: 1200 MHz and 2619 MHz, the others 1980 MHz and 2619 MHz",
    ),
    "clocks that are locked": (
        Server(slow={("gemm", 2): 0.8}, read={2: {"sm_clock_mhz": 1400.0}}), "gemm",
        "clock was lower: 1400 MHz, the others' 1755",
    ),
    "a hot card": (
        Server(slow={("gemm", 0): 0.85}, read={0: {"temperature_celsius": 88.0, "reasons": ["sw_thermal_slowdown"]}}), "gemm",
        "sw thermal slowdown in 100 % of the readings",
    ),
    "remapped rows": (
        Server(slow={("triad", 3): 0.9}, change={3: {"repairs": "12 rows remapped; more wait for a reset"}}), "triad",
        "12 rows remapped; more wait for a reset",
    ),
    "corrected memory errors": (
        Server(slow={("triad", 6): 0.9}, errors={6: 40}), "triad", "corrected memory errors were counted",
    ),
    "a link behind an IOMMU": (
        Server(slow={("host-copy", 4): 0.8}, change={4: {"iommu": "DMA-FQ"}}), "host-copy",
        "the IOMMU translates its transfers (DMA-FQ): try iommu=pt",
    ),
    "a wrong NUMA node": (
        Server(slow={("host-copy", 1): 0.7}, cpus={1: "48-55"}), "host-copy",
        "its process ran on CPUs 48-55, far from the GPU, whose node has 0-47",
    ),
    "another partition": (
        Server(slow={("gemm", 4): 0.6}, change={4: {"mig": True}}), "gemm", "partitioned otherwise: on, the others off",
    ),
    "an MI300X on a lower level": (
        Server(gpu=MI300X, slow={("gemm", 6): 0.8}, change={6: {"performance_level": "low"}}, name="mi300x"), "gemm",
        "clocks are set: low, the others auto",
    ),
}  # fmt: skip


def judged(torchmatrix: Command, root: Path, *words: str, code: int | None = None) -> dict[str, Any]:
    """Judge the only run of a results folder; return the JSON."""
    done = torchmatrix("accept", "last", "--results", str(root), "--json", "--output", str(root.parent / "page.html"), *words)
    assert code is None or done.returncode == code, done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def failed(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [check for check in record["checks"] if check["verdict"] == "FAIL"]


def test_a_healthy_server_passes_by_its_siblings_and_what_devices_do_together_has_no_reference(
    torchmatrix: Command, tmp_path: Path
) -> None:
    write(tmp_path / "results", HEALTHY)
    record = judged(torchmatrix, tmp_path / "results", code=1)
    assert record["counts"] == {"FAIL": 0, "UNDECIDED": 0, "NO REFERENCE": 1, "PASS": 40}
    (together,) = (check for check in record["checks"] if check["verdict"] == "NO REFERENCE")
    assert together["operation"].startswith("all-reduce") and together["reference"] is None
    assert record["answer"] == "40 of 41 checks passed, 1 without a reference."
    assert all(
        check["reference"]["value"] == pytest.approx(check["value"], rel=0.03)
        for check in record["checks"]
        if check["reference"]
    )
    gemm = next(check for check in record["checks"] if check["operation"].startswith("gemm-micro-bf16"))
    assert gemm["unit"] == "TFLOP/s" and abs(gemm["value"] / 720 - 1) < 0.02 and gemm["value_low"] < gemm["value"]
    assert gemm["limit"] == pytest.approx(989.4, rel=0.01) and 0.7 < gemm["of_limit"] < 0.75
    assert {other["kind"] for other in gemm["beside"]} == {"limit", "published"}


@pytest.mark.parametrize("fault", PLANTED)
def test_each_planted_fault_fails_where_it_is_and_is_named_first(torchmatrix: Command, tmp_path: Path, fault: str) -> None:
    server, operation, cause = PLANTED[fault]
    write(tmp_path / "results", server)
    record = judged(torchmatrix, tmp_path / "results", code=5)
    (where,) = {place for _, place in server.slow}
    found = failed(record)
    assert [(check["operation"].split("-micro")[0], check["device"]) for check in found] == [(operation, f"gpu{where}")]
    assert cause in found[0]["causes"][0], found[0]["causes"]
    assert f"gpu{where} fails 1: " in record["answer"] and found[0]["fine"]


def test_a_weak_card_without_a_visible_cause_says_what_was_looked_at(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", Server(slow={("gemm", 7): 0.93}))
    (check,) = failed(judged(torchmatrix, tmp_path / "results", code=5))
    assert check["causes"] == [] and {"link", "power limit", "clock", "memory"} <= set(check["fine"])
    assert not {"IOMMU", "ACS"} & {*check["fine"], *check["unknown"]} and 0.91 < check["ratio"] < 0.95 < check["bound"]


def test_five_percent_are_found_where_healthy_devices_differ_by_little(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", Server(slow={("gemm", 5): 0.95}, between=0.004))
    assert [check["device"] for check in failed(judged(torchmatrix, tmp_path / "results", code=5))] == ["gpu5"]


def test_a_missing_link_and_absent_peer_access_are_named_where_a_baseline_judges_what_devices_do_together(
    torchmatrix: Command, tmp_path: Path
) -> None:
    path = tmp_path / "baseline.json"
    for number in range(4):
        write(tmp_path / "others", Server(name=f"h100-{number}", seed=number + 10, work=("all-reduce", "gemm")))
    runs = [f"h100-{number}/20260101T000000Z" for number in range(4)]
    done = torchmatrix(
        "accept", *runs, "--results", str(tmp_path / "others"), "--write-baseline", str(path), "--output", str(tmp_path / "a")
    )
    assert path.exists(), done.stderr
    names = range(8)
    links = [["X" if a == b else "SYS" if {a, b} == {2, 6} else "NV18" for b in names] for a in names]
    slow = {("all-reduce", place): 0.6 for place in names}
    write(tmp_path / "results", Server(slow=slow, host={"links": links}, work=("all-reduce", "gemm")))
    (check,) = failed(judged(torchmatrix, tmp_path / "results", "--baseline", str(path), code=5))
    assert check["causes"][0] == "links between GPUs: GPU 2 and 6 have SYS, the others NV18"
    assert check["reference"]["kind"] == "baseline" and check["reference"]["others"] == 4


def test_a_library_that_goes_through_the_host_is_named(torchmatrix: Command, tmp_path: Path) -> None:
    content = written_baseline(torchmatrix, tmp_path, Server(work=("all-reduce",)))
    assert len(content["entries"]) == 1
    run = write(tmp_path / "results", Server(slow={("all-reduce", 0): 0.3}, work=("all-reduce",)))
    for path in run.path.rglob("round*.jsonl"):
        rows = path.read_text().splitlines()
        told = {"event": "transport", "unix_seconds": 1.0, "library": "nccl", "paths": ["P2P/CUMEM", "SHM/direct/direct"]}
        path.write_text("\n".join([*rows[:-1], json.dumps(told), rows[-1]]) + "\n")
    (check,) = failed(judged(torchmatrix, tmp_path / "results", "--baseline", str(tmp_path / "baseline.json"), code=5))
    assert check["causes"][0] == "nccl goes through the host: SHM/direct/direct"


def test_two_cards_without_peer_access(torchmatrix: Command, tmp_path: Path) -> None:
    two = Server(gpu=RTX_4090, count=2, work=("all-reduce",), name="rtx-a")
    write(tmp_path / "others", replace(two, name="rtx-b", seed=4))
    path = tmp_path / "baseline.json"
    torchmatrix(
        "accept", "last", "--results", str(tmp_path / "others"), "--write-baseline", str(path), "--output", str(tmp_path / "a")
    )
    p2p = [["n/a", "chipset"], ["chipset", "n/a"]]
    write(tmp_path / "results", replace(two, slow={("all-reduce", 0): 0.4}, host={"p2p": p2p, "links": None}))
    (check,) = failed(judged(torchmatrix, tmp_path / "results", "--baseline", str(path), code=5))
    assert "no peer access between GPU 0 and 1" in check["causes"][0]


def test_each_pair_of_gpus_is_judged_by_the_others_and_the_end_that_several_share_is_named(
    torchmatrix: Command, tmp_path: Path
) -> None:
    write(tmp_path / "healthy", Server(count=4, pairs=True, work=()))
    record = judged(torchmatrix, tmp_path / "healthy", code=0)
    assert record["counts"]["PASS"] == 12 and record["checks"][0]["device"] == "gpu0 to gpu1"
    slow = {pair: 0.5 for pair in [(0, 4), (1, 4), (2, 4), (3, 4), (4, 5)]}
    narrow = {4: {"pcie": "gen5 x8 (max gen5 x16)"}}
    acs = {place: {"acs": "0000:16:00.0" if place == 4 else "none", "iommu": "identity"} for place in range(6)}
    for change, cause in (
        (narrow, "links: GPU 4 runs at x8 of x16"),
        (acs, "ACS sends transfers between GPUs through the host"),
    ):
        root = tmp_path / f"results{len(change)}"
        write(root, Server(count=6, pairs=True, work=(), slow_pairs=slow, change=change))
        record = judged(torchmatrix, root, code=5)
        assert len(failed(record)) == 10 and record["counts"]["PASS"] == 20
        assert all("gpu4" in check["device"] and cause in check["causes"][0] for check in failed(record))
        assert record["answer"].count("fails") == 1 and "gpu4 fails 10: " in record["answer"]
    page = (tmp_path / "page.html").read_text()
    assert page.count('<span class="v FAIL">FAIL</span>') == 10 and "GB/s from the GPU of a row" in page


def test_a_pair_with_another_kind_of_link_is_no_sibling_of_the_others(torchmatrix: Command, tmp_path: Path) -> None:
    links = [["X" if a == b else "SYS" if {a, b} == {1, 3} else "NV18" for b in range(5)] for a in range(5)]
    write(tmp_path / "results", Server(count=5, pairs=True, work=(), slow_pairs={(1, 3): 0.1}, host={"links": links}))
    record = judged(torchmatrix, tmp_path / "results", code=1)
    alone = [check["device"] for check in record["checks"] if check["verdict"] == "NO REFERENCE"]
    assert alone == ["gpu1 to gpu3", "gpu3 to gpu1"] and record["counts"]["PASS"] == 18


def test_a_baseline_of_pairs_judges_each_pair(torchmatrix: Command, tmp_path: Path) -> None:
    four = Server(count=4, pairs=True, work=())
    content = written_baseline(torchmatrix, tmp_path, four)
    assert [len(entry["devices"]) for entry in content["entries"]] == [12]
    write(tmp_path / "results", replace(four, slow_pairs={(0, 2): 0.7}))
    record = judged(torchmatrix, tmp_path / "results", "--baseline", str(tmp_path / "baseline.json"), code=5)
    assert [check["device"] for check in failed(record)] == ["gpu0 to gpu2", "gpu2 to gpu0"]


def test_pairs_need_three_gpus_and_no_matrix_or_run(torchmatrix: Command, tmp_path: Path) -> None:
    for words, said in (
        (("--pairs",), "needs three GPUs: this machine has 0"), (("last", "--pairs"), "RUN is judged as it is"),
        (("--pairs", "--matrix", "x.toml"), "says itself"),
    ):  # fmt: skip
        (tmp_path / "x.toml").write_text("")
        done = torchmatrix("accept", *words, "--results", str(tmp_path / "results"))
        assert done.returncode == 2 and said in done.stderr, done.stderr


def test_the_limit_of_products_is_that_of_units_and_clock_where_both_are_known(torchmatrix: Command, tmp_path: Path) -> None:
    told = Server(gpu={**H100, "clocks_max_mhz": 1980}, count=1, work=("gemm",), multiprocessors=132, name="told")
    for name, server, limit in (
        ("told", told, 132 * 4096 * 1980e6 / 1e12),
        ("unit", replace(told, multiprocessors=None), 989.4),
        ("other", replace(told, gpu={**RTX_4090, "clocks_max_mhz": 3105}), 165.2),
    ):
        write(tmp_path / name, replace(server, name=name))
        (check,) = judged(torchmatrix, tmp_path / name)["checks"]
        assert check["limit"] == pytest.approx(limit, rel=1e-4)


def test_a_fleet_is_judged_by_the_others_and_the_machine_that_differs_is_named(torchmatrix: Command, tmp_path: Path) -> None:
    for number in range(5):
        slow = {("triad", place): 0.9 for place in range(8)} if number == 3 else {}
        write(tmp_path / "results", Server(name=f"h100-{number}", seed=number, slow=slow, work=("gemm", "triad", "copy")))
    runs = [f"h100-{number}/20260101T000000Z" for number in range(5)]
    words = ("--results", str(tmp_path / "results"), "--json", "--output", str(tmp_path / "page.html"))
    done = torchmatrix("accept", *runs, *words)
    found = failed(json.loads(done.stdout))
    assert done.returncode == 5 and len(found) == 8
    assert all("h100-3" in check["name"] and check["operation"].startswith("triad") for check in found)
    assert all(0.88 < check["ratio"] < 0.92 and check["reference"]["kind"] == "baseline" for check in found)


ALL_WEAK = {("gemm", place): 0.85 for place in range(8)}


def test_a_machine_is_known_by_its_identity_and_not_by_its_folder(torchmatrix: Command, tmp_path: Path) -> None:
    """Two servers of one name; one of them gathered under another folder; and one that was renamed."""
    baseline = tmp_path / "baseline.json"
    first = replace(HEALTHY, name="node", work=("gemm", "triad"))
    write(tmp_path / "one", first, identity="1111")
    write(tmp_path / "two", replace(first, seed=9, slow=ALL_WEAK), identity="2222")
    write(tmp_path / "both", first, identity="1111")
    write(tmp_path / "both", replace(first, name="node-2222", seed=9, slow=ALL_WEAK), identity="2222")
    words = ("--write-baseline", str(baseline), "--results", str(tmp_path / "both"), "--output", str(tmp_path / "a"))
    torchmatrix("accept", "all", *words)
    assert len(failed(judged(torchmatrix, tmp_path / "two", "--baseline", str(baseline), code=5))) == 8
    record = judged(torchmatrix, tmp_path / "one", "--baseline", str(baseline))
    assert not failed(record) and record["notes"] == []
    text = baseline.read_text().replace('"torchmatrix_baseline": 2', '"torchmatrix_baseline": 1').replace("true", "false")
    baseline.write_text(text.replace(baselines._digest("1111"), baselines._digest("node")))
    record = judged(torchmatrix, tmp_path / "one", "--baseline", str(baseline))
    assert {c["reference"]["kind"] for c in record["checks"] if c["operation"].startswith("gemm")} == {"siblings"}
    write(tmp_path / "renamed", replace(first, name="alpha", seed=9, slow=ALL_WEAK), identity="3333")
    write(tmp_path / "renamed", replace(first, name="beta", seed=10, slow=ALL_WEAK), identity="3333")
    done = torchmatrix("accept", "all", "--json", "--results", str(tmp_path / "renamed"), "--output", str(tmp_path / "b"))
    kinds = {check["reference"]["kind"] for check in json.loads(done.stdout)["checks"] if check["reference"]}
    assert kinds == {"siblings"}  # never its own earlier run under another name


def test_machines_without_a_counterpart_among_the_others_are_told_why(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", Server(work=("gemm",), name="eight"))
    write(tmp_path / "results", Server(work=("gemm",), name="four", count=4, slow={("gemm", 1): 0.9}))
    done = torchmatrix("accept", "all", "--json", "--results", str(tmp_path / "results"), "--output", str(tmp_path / "a"))
    assert json.loads(done.stdout)["notes"] == [
        "eight: 8 of 8 checks are held against no other machine: others have devices 4, here 8",
        "four: 4 of 4 checks are held against no other machine: others have devices 8, here 4",
    ]


def test_a_baseline_of_several_sets_of_devices_can_be_read_again(torchmatrix: Command, tmp_path: Path) -> None:
    for places in ((0, 1, 2), (1, 2, 3)):
        write(tmp_path / "results", Server(count=4, work=("triad",), sets=(places,), name=f"set{places[0]}"), identity="1111")
    baseline = tmp_path / "baseline.json"
    words = ("--results", str(tmp_path / "results"), "--write-baseline", str(baseline), "--output", str(tmp_path / "a"))
    torchmatrix("accept", "all", *words)
    devices = [device["device"] for entry in json.loads(baseline.read_text())["entries"] for device in entry["devices"]]
    assert len(devices) == 6 == len(set(devices)) and "gpu1 of gpu1+2+3" in devices
    assert baselines.read(baseline).entries


def test_what_several_machines_of_a_baseline_are_held_against_is_not_called_their_own(
    torchmatrix: Command, tmp_path: Path
) -> None:
    for number in range(3):
        write(tmp_path / "results", Server(name=f"h100-{number}", seed=number, work=("triad",)))
    where, path = ("--results", str(tmp_path / "results"), "--output", str(tmp_path / "a")), tmp_path / "baseline.json"
    torchmatrix("accept", "all", *where, "--write-baseline", str(path))
    done = torchmatrix("accept", "all", *where, "--baseline", str(path), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["notes"] == []


def test_a_machine_that_told_its_identity_later_is_no_other_machine(torchmatrix: Command, tmp_path: Path) -> None:
    """The baseline was written from a run that recorded none, so that it knows the machine by its folder."""
    first = write(tmp_path / "old", Server(work=("triad",), name="gpu01"))
    for path in (first.path / "run.jsonl", *first.path.rglob("round*.jsonl")):
        path.write_text(path.read_text().replace('"machine": "id-gpu01"', '"machine": null'))
    path = tmp_path / "baseline.json"
    where = ("--results", str(tmp_path / "old"), "--output", str(tmp_path / "a"))
    torchmatrix("accept", "all", *where, "--write-baseline", str(path))
    assert {device["verified"] for entry in json.loads(path.read_text())["entries"] for device in entry["devices"]} == {False}
    write(tmp_path / "new", Server(work=("triad",), name="gpu01", seed=2), identity="1111")
    record = judged(torchmatrix, tmp_path / "new", "--baseline", str(path))
    assert {check["reference"]["kind"] for check in record["checks"]} == {"siblings"}


def test_copies_between_two_nodes_are_no_pair_of_gpus(torchmatrix: Command, tmp_path: Path) -> None:
    launch = {"workload": "peer-copy-micro-fp32-1B", "model": "peer-copy", "nodes": 2, "unit": "GB", "outcome": "crashed",
              "job": {"mode": "micro", "bytes": 2**28, "unit": "GB", "batch": 1}}  # fmt: skip
    write_run(tmp_path / "results", [launch, launch])
    done = torchmatrix("accept", "last", "--results", str(tmp_path / "results"), "--output", str(tmp_path / "a"))
    assert done.returncode == 5 and "Traceback" not in done.stderr, done.stderr


def test_runs_that_were_judged_until_they_were_decided_are_judged_so_again(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", Server(work=("triad",), slow={("triad", 2): 0.975}))
    bounds = [judged(torchmatrix, tmp_path / "results", *words)["checks"][0]["bound"] for words in ((), ("--until-decided",))]
    assert bounds[1] < bounds[0]


def test_a_figure_of_failed_launches_is_none_and_a_wrong_result_fails(torchmatrix: Command, tmp_path: Path) -> None:
    def wrong(line: dict[str, Any]) -> None:
        if line["event"] == "exit":
            line |= {"returncode": 1}

    run = write(tmp_path / "results", Server(work=("gemm", "triad")))
    for path in run.path.glob("*/triad*/*/*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        failure = {"event": "failure", "kind": "numerics", "rank": 3, "message": "12 of 536870912 elements are wrong"}
        lines = [*(line for line in lines if line["event"] not in ("done", "exit")), failure, lines[-1] | {"returncode": 1}]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = judged(torchmatrix, tmp_path / "results", code=5)
    (check,) = failed(record)
    assert check["operation"].startswith("triad") and check["value"] is None and "elements are wrong" in check["why"]


def test_launches_beside_another_program_decide_nothing(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", Server(slow={("gemm", 4): 0.6}, read={4: {"foreign": ["miner (user eve)"]}}, work=("gemm",)))
    record = judged(torchmatrix, tmp_path / "results", code=1)
    assert record["counts"]["UNDECIDED"] == 8
    assert {check["why"] for check in record["checks"]} == {"other programs disturbed its launches"}


def test_one_launch_has_no_interval_and_is_undecided(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", Server(work=("gemm",), launches=1))
    record = judged(torchmatrix, tmp_path / "results", code=1)
    assert record["counts"]["PASS"] == record["counts"]["FAIL"] == 0
    assert {check["why"] for check in record["checks"]} <= {"one launch: no interval", "nothing to hold it against"}


def test_the_limit_decides_only_where_it_is_asked_to(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", Server(count=1, work=("gemm", "triad"), name="one"))
    assert judged(torchmatrix, tmp_path / "results", code=1)["counts"]["NO REFERENCE"] == 2
    assert judged(torchmatrix, tmp_path / "results", "--of-limit", "0.7", code=0)["counts"]["PASS"] == 2
    assert judged(torchmatrix, tmp_path / "results", "--of-limit", "0.9", code=5)["counts"]["FAIL"] == 2
    record = judged(torchmatrix, tmp_path / "results", "--published-decides", code=1)
    assert record["counts"]["NO REFERENCE"] == 1 and record["counts"]["PASS"] == 1  # the best of many shapes decides nothing
    assert "deciding nothing" not in (tmp_path / "page.html").read_text()


def test_the_limit_of_memory_is_that_of_its_clock_and_width_where_the_driver_tells_them(
    torchmatrix: Command, tmp_path: Path
) -> None:
    wide = {"clocks_max_memory_mhz": 2619, "memory_bus_bits": 5120}
    for name, gpu, limit in (("told", {**H100, **wide}, 3352.3), ("sheet", H100, 3350.0)):
        write(tmp_path / name, Server(gpu=gpu, count=1, work=("triad",)))
        assert judged(torchmatrix, tmp_path / name)["checks"][0]["limit"] == pytest.approx(limit, rel=1e-4)


def written_baseline(torchmatrix: Command, tmp_path: Path, server: Server = HEALTHY) -> dict[str, Any]:
    write(tmp_path / "others", replace(server, name="other", seed=9))
    path = tmp_path / "baseline.json"
    torchmatrix(
        "accept", "last", "--results", str(tmp_path / "others"), "--write-baseline", str(path), "--output", str(tmp_path / "a")
    )
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def changed(entry_change: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["entries"][0].update(entry_change)


def raised(content: dict[str, Any]) -> None:
    content["entries"][0]["devices"][0]["log"] += math.log(1000)


def emptied(content: dict[str, Any]) -> None:
    content["entries"][0]["devices"] = []


def of_another(content: dict[str, Any]) -> None:
    for entry in content["entries"]:
        entry["key"]["device"] = "NVIDIA B200"


BAD: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "above the limit": (raised, "is more than the device can do"),
    "without a device": (emptied, "has no device"),
    "of another GPU": (of_another, "the baseline is about NVIDIA B200; this machine has NVIDIA H100 80GB HBM3"),
    "in another unit": (changed({"unit": "MB"}), "in MB/s, measured was TFLOP/s"),
    "of another version": (lambda content: content.update(torchmatrix_baseline=9), "has version 9"),
    "with a wrong type": (changed({"devices": "x"}), "is no baseline"),
    "above the limit that it doesn't say": (lambda content: (raised(content), changed({"limit": None})(content)), "can do"),
    "twice": (lambda content: content["entries"].append(content["entries"][0]), "is there twice"),
    "of launches that nobody made": (
        lambda content: content["entries"][0]["devices"][0].update(launches=10**400), "is no figure",
    ),
    "without a sure figure": (lambda content: content["entries"][0]["devices"][0].update(error=9.0), "is no figure"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_baseline_is_refused(torchmatrix: Command, tmp_path: Path, fault: str) -> None:
    change, message = BAD[fault]
    content = written_baseline(torchmatrix, tmp_path, Server(work=("gemm",)))
    change(content)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content))
    write(tmp_path / "results", Server(work=("gemm",)))
    done = torchmatrix(
        "accept", "last", "--results", str(tmp_path / "results"), "--baseline", str(path), "--output", str(tmp_path / "p")
    )
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"torchmatrix_baseline": 1}', "[" * 50_000])
def test_what_is_no_baseline_is_refused(torchmatrix: Command, tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    done = torchmatrix("accept", "last", "--results", str(tmp_path), "--baseline", str(path))
    assert done.returncode == 2 and "is no baseline" in done.stderr
    assert torchmatrix("accept", "last", "--results", str(tmp_path), "--baseline", str(tmp_path / "none")).returncode == 2


def test_doubts_about_a_baseline_are_told(torchmatrix: Command, tmp_path: Path) -> None:
    content = written_baseline(torchmatrix, tmp_path, Server(work=("gemm",)))
    entry = content["entries"][0]
    entry["definition"] = ""
    for device in entry["devices"]:
        device["log"] -= math.log(10)
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(content))
    write(tmp_path / "results", Server(work=("gemm",)))
    done = torchmatrix(
        "accept", "last", "--results", str(tmp_path / "results"), "--baseline", str(path), "--output", str(tmp_path / "p")
    )
    assert done.returncode == 0 and "doesn't define" in done.stderr and "look at its unit" in done.stderr
    assert "look at its unit" in (tmp_path / "p").read_text()


def test_what_is_written_can_be_read_by_others(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", Server(slow=CARD_5, change={5: {"pcie": "gen5 x8 (max gen5 x16)"}}))
    xml, nccl = tmp_path / "a.xml", tmp_path / "a.json"
    judged(torchmatrix, tmp_path / "results", "--junit", str(xml), "--nccl-tests", str(nccl))
    suite = ElementTree.fromstring(xml.read_text())
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("41", "1", "1")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == [
        "host-copy to-device 1 GiB on gpu5, 8 at once"
    ]
    (document,) = json.loads(nccl.read_text())
    timed = document["results"][0]["in_place"]
    assert document["config"]["ranks"] == 8 and timed["bus_bw"] == pytest.approx(470, rel=0.02)
    assert timed["alg_bw"] * 14 / 8 == pytest.approx(timed["bus_bw"])
    page = (tmp_path / "page.html").read_text()
    assert "GPU 5 runs at x8 of x16" in page and "40 of 41" not in page and "39 of 41 checks passed" in page


def test_a_redacted_certificate_names_no_host(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", replace(HEALTHY, name="secret-host-17", work=("gemm",)))
    words = ("--results", str(tmp_path / "results"), "--redact", "--output", str(tmp_path / "p"))
    done = torchmatrix("accept", "secret-host-17/20260101T000000Z", *words)
    shown = (tmp_path / "p").read_text() + done.stdout
    assert done.returncode == 0 and "secret-host-17" not in shown and "GPU-secret" not in shown
    assert "accept secret-host-17/20260101T000000Z" not in shown and "torchmatrix accept" in shown


def test_a_run_is_judged_as_it_is(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", Server(work=("gemm",)))
    before = sorted(path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.jsonl"))
    assert torchmatrix("accept", "last", "--quick", "--results", str(tmp_path / "results")).returncode == 2
    judged(torchmatrix, tmp_path / "results", code=0)
    assert sorted(path.stat().st_mtime_ns for path in (tmp_path / "results").rglob("*.jsonl")) == before
    assert torchmatrix("accept", "last", "--results", str(tmp_path / "nothing")).returncode == 2
    (tmp_path / "there.json").write_text("{}")
    assert torchmatrix("accept", "--write-baseline", str(tmp_path / "there.json")).returncode == 2
    (tmp_path / "matrix.toml").write_text("")
    assert torchmatrix("accept", "--matrix", "matrix.toml", "--quick").returncode == 2


def test_capped_alike_is_another_device_for_a_baseline(torchmatrix: Command, tmp_path: Path) -> None:
    content = written_baseline(torchmatrix, tmp_path, Server(work=("gemm",), gpu={**H100, "power_limit_watts": 500.0}))
    assert content["entries"][0]["key"]["power limit"] == "500 W"
    path = tmp_path / "baseline.json"
    write(tmp_path / "results", Server(work=("gemm",)))
    record = judged(torchmatrix, tmp_path / "results", "--baseline", str(path), code=0)
    assert {check["reference"]["kind"] for check in record["checks"]} == {"siblings"}
    assert "the baseline has no operation on such a device" in (tmp_path / "page.html").read_text()


def test_a_baseline_of_another_machine_is_refused_before_anything_runs(torchmatrix: Command, tmp_path: Path) -> None:
    written_baseline(torchmatrix, tmp_path, Server(work=("gemm",)))
    done = torchmatrix("accept", "--quick", "--engine", "local", "--baseline", str(tmp_path / "baseline.json"))
    assert done.returncode == 2 and "the baseline is about NVIDIA H100 80GB HBM3; this machine has" in done.stderr
    assert not (tmp_path / "results").exists()


def test_what_is_undecided_is_measured_again_and_joins_its_group(
    torchmatrix: Command, fake_matrix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_matrix.write_text(fake_matrix.read_text(encoding="utf-8").replace("counts = [1, 2]", "counts = [1]"), encoding="utf-8")
    words = ("accept", "--matrix", str(fake_matrix), "--engine", "local", "--json")
    first = torchmatrix(*words, "--write-baseline", str(tmp_path / "b.json"))
    assert first.returncode == 1 and json.loads(first.stdout)["counts"]["NO REFERENCE"] == 1, first.stderr
    own = json.loads((tmp_path / "b.json").read_text())
    own["entries"][0]["devices"][0]["machine"] = "another"
    (tmp_path / "b.json").write_text(json.dumps(own))
    (paces := tmp_path / "paces.json").write_text(json.dumps([[1.0, 1.05, 0.95, 1.02, 0.98, 1.0, 1.0, 1.0]]))
    monkeypatch.setenv("FAKE_PACES", str(paces))
    done = torchmatrix(*words, "--baseline", str(tmp_path / "b.json"), "--until-decided", "--results", "again")
    (check,) = json.loads(done.stdout)["checks"]
    runs = len(list((tmp_path / "again").rglob("run.jsonl")))
    assert 1 < runs <= 4 and check["launches"] == 2 * runs and done.stderr.count("1 operation undecided") >= runs - 1


def test_a_burn_in_makes_rounds_for_so_long(torchmatrix: Command, fake_matrix: Path, tmp_path: Path) -> None:
    done = torchmatrix("accept", "--matrix", str(fake_matrix), "--engine", "local", "--burn-in", "0.1", "--json")
    launches = len(list((tmp_path / "results").rglob("round*.jsonl")))
    assert done.returncode == 1 and len(json.loads(done.stdout)["checks"]) == 2 and launches > 4, done.stderr


def machine_of(folder: Path) -> str:
    """Return the name of the folder of the only machine below results."""
    (machine,) = {path.parent.parent.name for path in (folder / "results").rglob("run.jsonl")}
    return machine


def test_a_baseline_that_can_tell_nothing_says_why_and_files_of_one_name_are_refused(
    torchmatrix: Command, tmp_path: Path
) -> None:
    for name, work in (("alpha", ("gemm",)), ("beta", ("triad",))):
        write(tmp_path / "results", Server(name=name, work=work, count=1))
    words = ("--results", str(tmp_path / "results"), "--output", str(tmp_path / "p"))
    run = "alpha/20260101T000000Z"
    for name in ("alpha", "beta"):
        torchmatrix("accept", f"{name}/20260101T000000Z", *words, "--write-baseline", str(tmp_path / name))
    own = torchmatrix("accept", run, *words, "--baseline", str(tmp_path / "alpha"))
    assert "this machine alone" in own.stderr
    other = torchmatrix("accept", run, *words, "--baseline", str(tmp_path / "beta"))
    assert "none of these operations: it has triad" in other.stderr
    twice = json.loads((tmp_path / "beta").read_text())
    twice["entries"][0]["devices"] *= 2
    (tmp_path / "twice").write_text(json.dumps(twice))
    bad = (("--baseline", str(tmp_path / "twice")), ("--junit", str(tmp_path / "p")), ("--anyway",), ("--engine", "local"))
    assert [torchmatrix("accept", run, *words, *more).returncode for more in bad] == [2, 2, 2, 2]


@pytest.mark.parametrize("shape", ["4096x4096", "x", "4096x4096x0"])
def test_a_shape_that_is_none_has_no_published_figure(torchmatrix: Command, tmp_path: Path, shape: str) -> None:
    def edit(line: dict[str, Any]) -> None:
        if line["event"] == "launch":
            line["workload"]["shape"] = shape

    write(tmp_path / "results", Server(work=("gemm",), count=1), edit)
    done = torchmatrix("accept", "last", "--results", str(tmp_path / "results"), "--output", str(tmp_path / "p"))
    assert done.returncode == 1, done.stderr


def test_a_machine_is_not_held_against_itself_and_redaction_changes_no_verdict(torchmatrix: Command, tmp_path: Path) -> None:
    slow = {("gemm", place): 0.5 for place in range(8)}
    for name, factors in (("alpha", slow), ("beta", {})):
        write(tmp_path / "results", Server(name=name, slow=factors, work=("gemm",)))
    words = ("--results", str(tmp_path / "results"), "--output", str(tmp_path / "p"), "--json")
    both = ("alpha/20260101T000000Z", "beta/20260101T000000Z")
    torchmatrix("accept", *both, *words, "--write-baseline", str(tmp_path / "two.json"))
    verdicts = {}
    for redact in ((), ("--redact",)):
        done = torchmatrix("accept", both[0], *words, "--baseline", str(tmp_path / "two.json"), *redact)
        verdicts[redact] = [check["verdict"] for check in json.loads(done.stdout)["checks"]]
        assert done.returncode == 5 and "8 devices of 1 other machine" in done.stdout
    assert verdicts[()] == verdicts[("--redact",)] == ["FAIL"] * 8
    torchmatrix("accept", *both, *words, "--redact", "--write-baseline", str(tmp_path / "shown.json"))
    assert "alpha" not in (tmp_path / "shown.json").read_text()
    done = torchmatrix("accept", both[1], *words, "--baseline", str(tmp_path / "shown.json"))  # alpha failed: it is left out
    assert {check["reference"]["kind"] for check in json.loads(done.stdout)["checks"]} == {"siblings"}


@pytest.mark.parametrize(("kind", "verdict"), [("numerics", "FAIL"), ("crashed", "FAIL"), ("oom", "UNDECIDED")])
def test_one_launch_that_failed_is_no_pass(torchmatrix: Command, tmp_path: Path, kind: str, verdict: str) -> None:
    run = write(tmp_path / "results", Server(work=("gemm", "triad")))
    (path,) = run.path.glob("*/triad*/*/round3-try1.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    failure = {"event": "failure", "kind": kind, "rank": 3, "message": "12 of 536870912 elements are wrong"}
    lines = [*(line for line in lines if line["event"] not in ("done", "exit")), failure, lines[-1] | {"returncode": 1}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    checks = judged(torchmatrix, tmp_path / "results")["checks"]
    triad = [check for check in checks if check["operation"].startswith("triad")]
    assert {check["verdict"] for check in triad} == {verdict} and triad[0]["why"].startswith(f"{kind}: 1 of 5 launches")
    assert {check["verdict"] for check in checks if check not in triad} == {"PASS"} and triad[0]["value"] > 0


ALIKE = ("gemm", "gemm-fp32", "triad", "copy", "host-copy")
WEAK = {
    "two of eight at everything": Server(slow={(name, place): 0.85 for name in ALIKE for place in (1, 4)}),
    "three of eight": Server(slow={("gemm", place): 0.5 for place in (0, 1, 2)}, work=("gemm",)),
    "five of eight, by 30 %": Server(slow={("gemm", place): 0.7 for place in range(5)}, work=("gemm",)),
    "six of eight, by 8 %": Server(slow={("gemm", place): 0.92 for place in range(6)}, work=("gemm",)),
    "half of them": Server(slow={("gemm", place): 0.5 for place in (0, 1, 2, 3)}, work=("gemm",)),
    "one of three at everything": Server(count=3, slow={(name, 1): 0.5 for name in ALIKE}, work=ALIKE),
    "two of three": Server(count=3, slow={("gemm", place): 0.6 for place in (0, 1)}, work=("gemm",)),
    "one of five": Server(count=5, slow={("gemm", 3): 0.9}, work=("gemm",)),
}


@pytest.mark.parametrize("which", WEAK)
def test_weak_devices_never_pass_because_they_make_others_differ(torchmatrix: Command, tmp_path: Path, which: str) -> None:
    server = WEAK[which]
    write(tmp_path / "results", server)
    checks = judged(torchmatrix, tmp_path / "results")["checks"]
    weak = {(f"gpu{place}", name.partition("-fp32")[0]) for name, place in server.slow}
    bad = [check for check in checks if (check["device"], check["operation"].partition("-micro")[0]) in weak]
    assert bad and "PASS" not in {check["verdict"] for check in bad}


def test_what_was_planned_and_not_launched_is_undecided(torchmatrix: Command, tmp_path: Path) -> None:
    run = write(tmp_path / "results", Server(work=("gemm", "triad")))
    for path in run.path.glob("*/triad*/*/round*.jsonl"):
        path.unlink()
    record = judged(torchmatrix, tmp_path / "results", code=1)
    (check,) = (check for check in record["checks"] if check["verdict"] != "PASS")
    assert (check["verdict"], check["why"]) == ("UNDECIDED", "not launched") and check["operation"].startswith("triad")


def test_a_baseline_judges_a_run_that_was_interrupted(torchmatrix: Command, tmp_path: Path) -> None:
    written_baseline(torchmatrix, tmp_path, Server(work=("gemm", "triad")))
    run = write(tmp_path / "results", Server(work=("gemm", "triad")))
    for path in run.path.glob("*/triad*/*/round*.jsonl"):
        path.unlink()
    record = judged(torchmatrix, tmp_path / "results", "--baseline", str(tmp_path / "baseline.json"), code=1)
    assert record["counts"]["PASS"] == 8 and record["counts"]["UNDECIDED"] == 1


def failing(text: str) -> Callable[[dict[str, Any]], None]:
    def edit(line: dict[str, Any]) -> None:
        if line["event"] == "done":
            line |= {"event": "failure", "kind": "crashed", "rank": 3, "message": text}
        elif line["event"] == "exit":
            line |= {"returncode": 1}

    return edit


def test_what_failed_launches_say_is_redacted_too(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", Server(work=("gemm",)), failing("connect to node17secret 10.1.2.3 failed"))
    for redact, is_told in (((), True), (("--redact",), False)):
        files = [tmp_path / name for name in ("page.html", "a.xml")]
        record = judged(torchmatrix, tmp_path / "results", "--junit", str(files[1]), *redact, code=5)
        every = json.dumps(record) + "".join(path.read_text() for path in files)
        assert ("node17secret" in every) == ("10.1.2.3" in every) == is_told
        assert record["checks"][0]["why"].startswith("crashed") and not record["checks"][0]["causes"]


def under_another_stack(root: Path, server: Server, stack: str) -> None:
    """Write a run beside that of the machine, all of it under another stack."""
    run = write(root.parent / "beside", server)
    (own,) = {path.parent.parent.name for path in run.path.glob("*/*/*/*.jsonl")} and {
        p.name for p in run.path.iterdir() if p.is_dir()
    }
    moved = run.path.rename(next(root.rglob("20260101T000000Z")).with_name("20260102T000000Z"))
    (moved / own).rename(moved / stack)
    for path in moved.rglob("*.jsonl"):
        path.write_text(path.read_text().replace("20260101T000000Z", "20260102T000000Z").replace(own, stack))


def test_stacks_are_judged_apart_and_named(torchmatrix: Command, tmp_path: Path) -> None:
    for count in (1, 4):
        root = tmp_path / str(count) / "results"
        write(root, server := Server(count=count, work=("gemm",)))
        under_another_stack(root, server, "torch9.9.9-cu999")
        words = ("--results", str(root), "--json", "--output", str(tmp_path / "page.html"))
        checks = json.loads(torchmatrix("accept", "all", *words).stdout)["checks"]
        assert len({check["name"] for check in checks}) == len(checks) == 2 * count
        kinds = {check["reference"] and check["reference"]["others"] for check in checks}
        assert kinds == ({None} if count == 1 else {3})
        assert sum("torch9.9.9-cu999" in check["name"] for check in checks) == count


def test_of_two_kinds_of_devices_each_has_its_own_published_figure_and_together_they_are_no_server_of_one(
    torchmatrix: Command, tmp_path: Path
) -> None:
    a100 = {"name": "NVIDIA A100-SXM4-80GB", "memory_bytes": 80 * 2**30, "capability": "8.0"}
    write(tmp_path / "results", Server(change={place: a100 for place in range(4, 8)}, work=("triad", "all-reduce")))
    checks = judged(torchmatrix, tmp_path / "results")["checks"]
    shown = {check["device"]: [other["value"] for other in check["beside"] if other["kind"] == "published"] for check in checks}
    assert shown["gpu0"] == pytest.approx([2970]) and shown["gpu5"] == pytest.approx([1759])
    (together,) = (check for check in checks if check["operation"].startswith("all-reduce"))
    assert together["key"]["device"] == "NVIDIA A100-SXM4-80GB + NVIDIA H100 80GB HBM3" and not together["beside"]


def test_a_baseline_holds_only_sound_figures_and_tells_what_it_leaves_out(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", Server(slow={("triad", 2): 3.0, ("gemm", 5): 0.5}, work=("gemm", "triad")))
    path = tmp_path / "b.json"
    words = ("accept", "last", "--results", str(tmp_path / "results"), "--output", str(tmp_path / "p"))
    done = torchmatrix(*words, "--write-baseline", str(path))
    assert "2 checks that failed, or without a sound figure" in done.stderr
    entries = json.loads(path.read_text())["entries"]
    assert [len(entry["devices"]) for entry in entries] == [7, 7]
    write(tmp_path / "other", Server(name="other", seed=3, work=("gemm", "triad")))
    assert judged(torchmatrix, tmp_path / "other", "--baseline", str(path), code=0)["counts"]["PASS"] == 16


def test_other_software_of_a_baseline_is_told(torchmatrix: Command, tmp_path: Path) -> None:
    content = written_baseline(torchmatrix, tmp_path, Server(work=("gemm",)))
    for device in content["entries"][0]["devices"]:
        device["software"] = "2.0.0, 11.8, 2.14.3"
    (tmp_path / "baseline.json").write_text(json.dumps(content))
    write(tmp_path / "results", Server(work=("gemm",)))
    words = ("accept", "last", "--results", str(tmp_path / "results"), "--output", str(tmp_path / "p"))
    assert (
        "was measured with 2.0.0, 11.8, 2.14.3; this is"
        in torchmatrix(*words, "--baseline", str(tmp_path / "baseline.json")).stderr
    )


def test_one_other_machine_does_not_show_how_much_machines_differ(torchmatrix: Command, tmp_path: Path) -> None:
    """Devices of one machine that are alike to 0.2 % say nothing of another one, 2.8 % below."""
    written_baseline(torchmatrix, tmp_path, Server(between=0.002, work=("gemm",)))
    write(tmp_path / "results", Server(slow={("gemm", place): 0.972 for place in range(8)}, between=0.002, work=("gemm",)))
    record = judged(torchmatrix, tmp_path / "results", "--baseline", str(tmp_path / "baseline.json"))
    assert not record["counts"]["FAIL"] and record["checks"][0]["bound"] < 0.95


def test_the_figure_beside_a_ratio_is_that_of_the_ratio(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "results", Server(within=0.05, count=1, work=("gemm",), launches=5))
    (check,) = judged(torchmatrix, tmp_path / "results", "--of-limit", "0.6")["checks"]
    assert check["value"] / check["ratio"] == pytest.approx(check["reference"]["value"]) == pytest.approx(check["limit"])
    assert check["of_limit"] == pytest.approx(check["value"] / check["limit"])


def test_launches_that_are_judged_four_times_have_lower_bounds(tmp_path: Path) -> None:
    run = write(tmp_path / "results", Server(work=("gemm",)))
    found = accept_checks.checks_of([launch for launch in launches_below(run.path) if isinstance(launch, Launch)])
    once, four = (accept_checks.judged(found, looks=looks).checks[0].judged.bound for looks in (1, 4))
    assert four < once <= 0.98


def test_each_machine_has_its_own_software_on_the_record(torchmatrix: Command, tmp_path: Path) -> None:
    def newer(line: dict[str, Any]) -> None:
        if line["event"] == "environment":
            line |= {"torch": "9.9.9+cu999"}

    for name, edit in (("alpha", lambda line: None), ("beta", newer)):
        write(tmp_path / "results", Server(name=name, work=("gemm",)), edit)
    runs = [f"{name}/20260101T000000Z" for name in ("alpha", "beta")]
    torchmatrix("accept", *runs, "--results", str(tmp_path / "results"), "--output", str(tmp_path / "p"))
    assert (tmp_path / "p").read_text().count("<dt>PyTorch</dt><dd>9.9.9+cu999</dd>") == 1


def test_devices_of_several_machines_stand_in_strips_of_their_own(torchmatrix: Command, tmp_path: Path) -> None:
    for name in ("alpha", "beta"):
        write(tmp_path / "results", Server(name=name, count=2, work=("gemm",)))
    runs = [f"{name}/20260101T000000Z" for name in ("alpha", "beta")]
    torchmatrix("accept", *runs, "--results", str(tmp_path / "results"), "--output", str(tmp_path / "p"))
    page = (tmp_path / "p").read_text()
    assert page.count('class="strip"') == 2 and "alpha gpu1 " in page and "beta gpu1 " in page


def test_runs_under_other_conditions_are_no_group(torchmatrix: Command, tmp_path: Path) -> None:
    for number, watts in enumerate((700.0, 500.0)):
        gpu = {**H100, "power_limit_watts": watts}
        write(tmp_path / f"results{number}", Server(work=("gemm",), gpu=gpu))
    other = next((tmp_path / "results1").rglob("20260101T000000Z"))
    moved = other.rename(next((tmp_path / "results0").rglob("20260101T000000Z")).with_name("20260102T000000Z"))
    for path in moved.rglob("*.jsonl"):
        path.write_text(path.read_text().replace("20260101T000000Z", "20260102T000000Z"))
    words = ("--results", str(tmp_path / "results0"), "--json", "--output", str(tmp_path / "p"))
    record = json.loads(torchmatrix("accept", "all", *words).stdout)
    assert {check["verdict"] for check in record["checks"]} == {"UNDECIDED"}
    assert all("unlike: 5 of 10 launches" in check["why"] and "power limit" in check["why"] for check in record["checks"])


def test_more_than_a_device_can_do_is_no_pass_and_one_launch_is_undecided(torchmatrix: Command, tmp_path: Path) -> None:
    write(tmp_path / "fast", Server(slow={("gemm", 5): 3.0}, work=("gemm",)))
    (check,) = (check for check in judged(torchmatrix, tmp_path / "fast")["checks"] if check["verdict"] != "PASS")
    assert check["device"] == "gpu5" and "more than the device can do" in check["why"] and check["verdict"] == "UNDECIDED"
    write(tmp_path / "once", Server(launches=1, slow={("gemm", 5): 0.3}, work=("gemm",)))
    once = judged(torchmatrix, tmp_path / "once", code=1)["checks"]
    assert {(check["verdict"], check["launches_to_decide"]) for check in once} == {("UNDECIDED", 3)}


NODE = [["X" if a == b else "PIX" if a // 2 == b // 2 else "SYS" for b in range(8)] for a in range(8)]
CNS = [["n/a" if a == b else "chipset" for b in range(8)] for a in range(8)]
SHARED: dict[str, tuple[Server, tuple[str, ...]]] = {
    "all links at x8": (Server(gpu={**H100, "pcie": "gen5 x8 (max gen5 x16)"}), ("link",)),
    "all capped": (Server(gpu={**H100, "power_limit_watts": 500.0}), ("power",)),
    "all slowed down": (Server(read={place: {"reasons": ["sw_thermal_slowdown"]} for place in range(8)}), ("slow",)),
    "no persistence, another governor": (
        Server(gpu={**H100, "persistence": False}, host={"governor": "powersave"}), ("persistence", "governor"),
    ),
    "a usual topology": (Server(host={"links": NODE, "p2p": CNS}), ("links between", "peer access")),
    "unread settings": (Server(change={5: {"application_clocks": None, "mig": None, "ecc": None}}), ("not known", "ECC")),
    "another one with more power": (Server(change={2: {"power_limit_watts": 800.0}}), ("power",)),
}  # fmt: skip
"""What is no cause of one device being slower than the others."""


@pytest.mark.parametrize("which", SHARED)
def test_what_others_have_too_or_what_is_between_devices_is_no_cause(torchmatrix: Command, tmp_path: Path, which: str) -> None:
    server, words = SHARED[which]
    write(tmp_path / "results", replace(server, slow={("gemm", 5): 0.7}, work=("gemm",)))
    (check,) = failed(judged(torchmatrix, tmp_path / "results", code=5))
    assert not [cause for cause in check["causes"] if any(word in cause for word in words)], check["causes"]


def test_two_devices_with_the_same_odd_setting_are_both_told(torchmatrix: Command, tmp_path: Path) -> None:
    odd = {place: {"application_clocks": "1200 MHz and 2619 MHz"} for place in (2, 5)}
    write(tmp_path / "results", Server(slow={("gemm", 2): 0.7, ("gemm", 5): 0.7}, change=odd, work=("gemm", "triad")))
    found = [check for check in judged(torchmatrix, tmp_path / "results")["checks"] if check["device"] in ("gpu2", "gpu5")]
    weak = [check for check in found if check["operation"].startswith("gemm")]
    assert "PASS" not in {check["verdict"] for check in weak}
    assert all("1200 MHz" in check["causes"][0] for check in weak if check["verdict"] == "FAIL")


def test_devices_of_two_machines_are_told_apart(torchmatrix: Command, tmp_path: Path) -> None:
    narrow, capped = {0: {"pcie": "gen5 x8 (max gen5 x16)"}}, {0: {"power_limit_watts": 500.0}}
    write(tmp_path / "results", Server(name="a", slow={("host-copy", 0): 0.5}, change=narrow, work=("host-copy", "gemm")))
    write(
        tmp_path / "results", Server(name="b", gpu=MI300X, slow={("gemm", 0): 0.7}, change=capped, work=("host-copy", "gemm"))
    )
    runs = [f"{name}/20260101T000000Z" for name in "ab"]
    done = torchmatrix("accept", *runs, "--results", str(tmp_path / "results"), "--output", str(tmp_path / "p"))
    assert "a gpu0 fails 1: its link" in done.stdout and "b gpu0 fails 1: its power limit" in done.stdout
    page = (tmp_path / "p").read_text()
    assert "8 × AMD Instinct MI300X" in page and "8 × NVIDIA H100" in page


ODD: dict[str, Server] = {
    "ragged links": Server(host={"links": [["X", "NV18"]] * 8, "p2p": [["ok"]] * 8}, slow={("gemm", 5): 0.7}),
    "a link of no lanes": Server(gpu={**H100, "pcie": "gen5 x0 (max gen5 x0)"}),
    "a link of 400 digits": Server(gpu={**H100, "pcie": f"gen5 x{'9' * 400} (max gen5 x16)"}),
    "a clock below zero": Server(gpu={**H100, "clocks_max_memory_mhz": -1, "memory_bus_bits": 5120}),
}


@pytest.mark.parametrize("which", ODD)
def test_odd_records_of_a_machine_end_in_no_traceback(torchmatrix: Command, tmp_path: Path, which: str) -> None:
    write(tmp_path / "results", ODD[which])
    record = judged(torchmatrix, tmp_path / "results")
    assert len(record["checks"]) == 41


def test_files_for_others_are_valid_whatever_was_recorded(torchmatrix: Command, tmp_path: Path) -> None:
    def odd(line: dict[str, Any]) -> None:
        if line["event"] == "launch":
            line["workload"] |= {"bytes": None} if "all-reduce" in line["cell"] else {"direction": "\0\x1b"}

    write(tmp_path / "results", Server(work=("all-reduce", "host-copy")), odd)
    xml, nccl = tmp_path / "a.xml", tmp_path / "a.json"
    judged(torchmatrix, tmp_path / "results", "--junit", str(xml), "--nccl-tests", str(nccl))
    ElementTree.fromstring(xml.read_text())
    assert json.loads(nccl.read_text()) == []


def test_a_slow_gpu_of_the_second_node_fails_without_its_readings(torchmatrix: Command, tmp_path: Path) -> None:
    run, label = write(tmp_path / "results", Server(work=("gemm",), slow={("gemm", 6): 0.8})), "gpu0+1+2+3@2nodes"
    for path in [*run.path.rglob("round*.jsonl")]:
        header, *lines = (json.loads(line) for line in path.read_text().splitlines())
        devices = header["gpus"] | {"gpus": header["gpus"]["gpus"][:4], "indices": [0, 1, 2, 3], "nodes": 2, "label": label}
        header |= {"gpus": devices, "cell": f"{header['cell'].rpartition('/')[0]}/{label}"}
        others = [gpu | {"uuid": f"{gpu['uuid']}-2"} for gpu in devices["gpus"]]
        own = devices | {"gpus": others, "nodes": 1, "label": "gpu0+1+2+3"}
        node = {"event": "node", "unix_seconds": 1001.0, "name": "node2", "number": 2, "machine": "id-2", "gpus": own,
                "host": header["host"]}  # fmt: skip
        for line in lines:
            if line["event"] == "sample" and line["phase"] == "measure":
                line["stop_monotonic_seconds"] = 100 + max(line["seconds"][:4])
        (moved := path.parent.parent / label).mkdir(exist_ok=True)
        path.unlink()
        (moved / path.name).write_text("".join(json.dumps(line) + "\n" for line in (header, node, *lines)))
    run.record.write_text(run.record.read_text().replace("gpu0+1+2+3+4+5+6+7", label))
    (check,) = failed(judged(torchmatrix, tmp_path / "results", code=5))
    assert not check["causes"] and "temperature" in " ".join(check["unknown"])


def test_cells_that_explain_a_loss_are_no_checks(torchmatrix: Command, tmp_path: Path) -> None:
    name = "resnet50-train-fp32-b4"
    kinds = (("ddp", ""), ("independent", "-independent"), ("no-sync", "-no-sync"))
    launches = [
        {"rate": rate, "stack": "a", "workload": name + end, "devices": (0, 1), "parallel": kind, "ddp_workload": name}
        for kind, end in kinds for rate in (99.9, 100.0, 100.1)
    ]  # fmt: skip
    write_run(tmp_path / "results", launches)
    checks = judged(torchmatrix, tmp_path / "results", code=1)["checks"]
    assert [(check["operation"], check["verdict"]) for check in checks] == [(name, "NO REFERENCE")]


def test_a_run_that_is_not_finished_is_no_pass_and_what_was_skipped_is_told(torchmatrix: Command, tmp_path: Path) -> None:
    run, page, suite = write(tmp_path / "results", Server(work=("triad",))), tmp_path / "page.html", tmp_path / "j.xml"
    run.append(
        "skip", cell="stack-a/gemm-micro-fp8/gpu0", stack="stack-a", workload="gemm-micro-fp8", ddp_workload="gemm-micro-fp8",
        parallel="ddp", devices="gpu0", reason="the disk is too full for the stack", fix="free space",
    )  # fmt: skip
    record = judged(torchmatrix, tmp_path / "results", "--junit", str(suite), code=0)
    told = "not measured here: 1 cell (the disk is too full for the stack)"
    assert record["notes"] == [told] and told in page.read_text() and told in suite.read_text()
    run.record.write_text("".join(line for line in run.record.read_text().splitlines(True) if '"run-exit"' not in line))
    record = judged(torchmatrix, tmp_path / "results", "--junit", str(suite), code=1)
    assert record["unfinished"] == [run.id] and f"Not finished: {run.id}" in record["answer"]
    assert f"{run.id} is not finished" in suite.read_text() and "Not finished" in page.read_text()


def test_a_check_that_the_baseline_lacks_is_told_with_the_field_that_differs(torchmatrix: Command, tmp_path: Path) -> None:
    written_baseline(torchmatrix, tmp_path, Server(work=("gemm", "triad")))
    path = tmp_path / "baseline.json"
    write(tmp_path / "seven" / "results", Server(work=("gemm", "triad"), count=7))
    held = judged(torchmatrix, tmp_path / "seven" / "results", "--baseline", str(path))
    assert any("memory, link, power limit, partition, number and stack must agree" in note for note in held["notes"])
    content = json.loads(path.read_text())
    content["entries"] = [entry for entry in content["entries"] if "triad" in entry["operation"]]
    path.write_text(json.dumps(content))
    write(tmp_path / "results", Server(work=("gemm", "triad"), slow={("gemm", place): 0.8 for place in range(8)}))
    held = judged(torchmatrix, tmp_path / "results", "--baseline", str(path))
    assert any(note.startswith("8 of 16 checks are not in the baseline") for note in held["notes"])


def test_notes_are_redacted_too_and_a_baseline_needs_its_folder(torchmatrix: Command, tmp_path: Path) -> None:
    run = write(tmp_path / "results", Server(work=("triad",)))
    run.append(
        "skip", cell="stack-a/gemm-micro-fp8/gpu0", stack="stack-a", workload="gemm-micro-fp8", ddp_workload="gemm-micro-fp8",
        parallel="ddp", devices="gpu0", reason="can't be built: no answer from http://pypi.secret-site.example/x", fix=None,
    )  # fmt: skip
    record = judged(torchmatrix, tmp_path / "results", "--redact", "--junit", str(tmp_path / "j.xml"))
    assert "not measured here: 1 cell" in record["notes"][0]
    for text in (json.dumps(record), (tmp_path / "page.html").read_text(), (tmp_path / "j.xml").read_text()):
        assert "secret-site" not in text
    done = torchmatrix("accept", "--quick", "--write-baseline", str(tmp_path / "none" / "b.json"))
    assert done.returncode == 2 and "lies in a folder that isn't there" in done.stderr


def test_of_several_devices_in_a_baseline_the_nearest_one_is_named(torchmatrix: Command, tmp_path: Path) -> None:
    for number, server in enumerate((Server(gpu=MI300X, name="m", work=("gemm",)), Server(name="h", work=("gemm",)))):
        write(tmp_path / str(number), server)
        words = ("--results", str(tmp_path / str(number)), "--write-baseline", str(tmp_path / f"{number}.json"))
        torchmatrix("accept", "last", *words, "--output", str(tmp_path / "a.html"))
    contents = [json.loads((tmp_path / f"{number}.json").read_text()) for number in (0, 1)]
    contents[0]["entries"] += contents[1]["entries"]
    (tmp_path / "both.json").write_text(json.dumps(contents[0]))
    limited = Server(name="new", seed=3, work=("gemm",), change={2: {"power_limit_watts": 500.0}})
    write(tmp_path / "results", limited)
    notes = judged(torchmatrix, tmp_path / "results", "--baseline", str(tmp_path / "both.json"))["notes"]
    assert "1 of 8 checks is not in the baseline: it has power limit 700 W, here 500 W" in notes


def test_other_names_on_a_redacted_certificate_move_no_verdict_to_another_device(torchmatrix: Command, tmp_path: Path) -> None:
    """Stacks are named after the user, the run after its host: their pseudonyms sort otherwise."""
    run = write(tmp_path / "results", Server(name="box7", work=("gemm", "copy"), slow={("gemm", 5): 0.6}))
    for path in sorted(run.path.rglob("*.jsonl")):
        stack = "nightly-cu130" if "gemm" in str(path.relative_to(run.path)) else "release-2.7"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line.pop("crc", None)
            name = "nightly-cu130" if "gemm" in line.get("cell", str(path)) else stack
            if "cell" in line:
                line["cell"] = line["cell"].replace("stack-a/", f"{name}/", 1)
            if isinstance(line.get("stack"), dict):
                line["stack"]["name"] = name
            elif "stack" in line:
                line["stack"] = name
        inside = path.relative_to(run.path).as_posix().replace("stack-a/", f"{stack}/", 1)
        path.unlink()
        (run.path / inside).parent.mkdir(parents=True, exist_ok=True)
        (run.path / inside).write_text("".join(json.dumps(line) + "\n" for line in lines))
    named = run.path.with_name("box7-before-driver")
    run.path.rename(named)
    words, told = ("--results", str(tmp_path / "results"), "--output", str(tmp_path / "p"), "--junit", str(tmp_path / "j")), {}
    for redact in ((), ("--redact",)):
        done = torchmatrix("accept", named.name, *words, "--json", *redact, USER="nightly", LOGNAME="nightly")
        checks = json.loads(done.stdout)["checks"]
        told[redact] = [
            (check["operation"], check["device"], check["unit"], check["value"], check["verdict"]) for check in checks
        ]
    assert [device for operation, device, _, _, verdict in told[()] if "gemm" in operation and verdict == "FAIL"] == ["gpu5"]
    assert told[()] == told[("--redact",)]
    assert "box7" not in (tmp_path / "p").read_text() + (tmp_path / "j").read_text() + done.stdout
