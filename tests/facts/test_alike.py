"""Launches of a cell that are unlike in a condition of the list don't make one figure; every reader says so."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.records import nights, write_run
from torchmatrix.analysis import compare, facts_cache, history, machines, run_summary
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.rows import CellRow
from torchmatrix.facts.alike import counting
from torchmatrix.facts.environments import CONDITIONS, UNKNOWN, environment_of, fields_of, of_machine
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.nightly.gate import judge, verdicts
from torchmatrix.reporting import exports, machines_page, redaction, report, terminal
from torchmatrix.reporting.exports.formats import FORMATS

HOST = {
    "name": "testhost", "cpu": "CPU X", "driver": "570.133.20", "kernel": "6.8.0", "governor": "performance", "smt": True,
    "cores": [0, 1, 2, 3], "turbo": True, "hugepages": "madvise", "numa_balancing": False, "microcode": "0x2b000603",
    "idle_states": "intel_idle, menu: POLL C1 C6", "energy_preference": "performance", "clock_limits": "800 to 3500 MHz",
    "cpu_quota": None, "memory_bytes": 512 << 30, "mitigations": ["spectre_v2: Mitigation: IBRS"],
    "firmware": "2.1 of 01/02/2025", "links": [["X", "NV18"], ["NV18", "X"]],
}  # fmt: skip
GPU = {
    "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-5eed", "power_limit_watts": 700.0, "ecc": True, "persistence": True,
    "vbios": "96.00.A5.00.01", "memory_bytes": 85520809984, "pcie": "gen5 x16 (max gen5 x16)", "clocks_max_mhz": 1980,
    "application_clocks": "1980 MHz and 2619 MHz", "compute_mode": "default", "mig": False, "gsp_firmware": "570.133.20",
    "clocks_max_memory_mhz": 2619, "auto_boost": None, "numa_node": 0,
}  # fmt: skip


def launched(
    rate: float | None = 100.0, host: dict[str, Any] | None = None, gpu: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return a launch on one H100, for `write_run`; with other facts of the host or of the GPU."""
    gpus = {"indices": [0], "label": "gpu0", "vendor": "nvidia", "gpus": [GPU | (gpu or {})], "threads": 1, "nodes": 1}
    return {"rate": rate, "host": HOST | (host or {}), "gpus": gpus, **more}


CAPPED = launched(60.0, gpu={"power_limit_watts": 500.0})
"""A launch at a lower power limit."""


def written(root: Path, launches: list[dict[str, Any]], run: str = "20260101T000000Z", **header: Any) -> RunFolder:
    stamped = [{"unix_seconds": 1000.0 + number, **launch} for number, launch in enumerate(launches)]
    return write_run(root, stamped, run=run, **header)


def cell_of(run: RunFolder) -> CellRow:
    (row,) = run_summary.cells_table(CellIndex(run_summary.launch_rows(counting(run.launches()))).every)
    return row


SPLITTING: list[tuple[str, dict[str, Any], str]] = [
    ("gpu", {"power_limit_watts": 500.0}, "power limit 500 W, the others 700 W"),
    ("gpu", {"ecc": False}, "ECC off, the others on"),
    ("gpu", {"persistence": False}, "persistence mode off, the others on"),
    ("gpu", {"pcie": "gen1 x8 (max gen5 x8)"}, "PCIe width x8, the others x16; PCIe maximum gen5 x8, the others gen5 x16"),
    ("gpu", {"vbios": "96.00.89.00.01"}, "vbios 96.00.89.00.01, the others 96.00.A5.00.01"),
    ("gpu", {"clocks_max_mhz": 1755}, "maximum clock 1755 MHz, the others 1980 MHz"),
    ("gpu", {"application_clocks": "1410 MHz and 2619 MHz"},
     "application clocks 1410 MHz and 2619 MHz, the others 1980 MHz and 2619 MHz"),
    ("gpu", {"compute_mode": "exclusive process"}, "compute mode exclusive process, the others default"),
    ("gpu", {"mig": True}, "MIG mode on, the others off"),
    ("gpu", {"gsp_firmware": "off"}, "GSP firmware off, the others 570.133.20"),
    ("gpu", {"clocks_max_memory_mhz": 1593}, "maximum memory clock 1593 MHz, the others 2619 MHz"),
    ("host", {"driver": "575.51.03"}, "driver 575.51.03, the others 570.133.20"),
    ("host", {"kernel": "6.11.0"}, "kernel 6.11.0, the others 6.8.0"),
    ("host", {"governor": "powersave"}, "governor powersave, the others performance"),
    ("host", {"energy_preference": "balance_power"}, "energy preference balance_power, the others performance"),
    ("host", {"clock_limits": "800 to 2100 MHz"}, "clock limits 800 to 2100 MHz, the others 800 to 3500 MHz"),
    ("host", {"turbo": False}, "turbo off, the others on"),
    ("host", {"smt": False}, "SMT off, the others on"),
    ("host", {"cores": [0, 1]}, "cores 2, the others 4"),
    ("host", {"idle_states": "intel_idle, menu: POLL"},
     "idle states intel_idle, menu: POLL, the others intel_idle, menu: POLL C1 C6"),
    ("host", {"hugepages": "never"}, "hugepages never, the others madvise"),
    ("host", {"numa_balancing": True}, "NUMA balancing on, the others off"),
    ("host", {"microcode": "0x2b000620"}, "microcode 0x2b000620, the others 0x2b000603"),
    ("host", {"firmware": "2.4 of 05/06/2026"}, "firmware 2.4 of 05/06/2026, the others 2.1 of 01/02/2025"),
    ("host", {"cpu_quota": 2.5}, "CPU quota 2.5 CPUs, the others no limit"),
    ("host", {"mitigations": ["spectre_v2: Vulnerable"]}, "mitigation spectre_v2 Vulnerable, the others Mitigation: IBRS"),
    ("host", {"mitigations": []}, "mitigation spectre_v2 n/a, the others Mitigation: IBRS"),
]  # fmt: skip


@pytest.mark.parametrize(("of", "facts", "why"), SPLITTING)
def test_one_unlike_launch_of_four_is_no_part_of_the_figure(tmp_path: Path, of: str, facts: dict[str, Any], why: str) -> None:
    run = written(tmp_path, [launched(100.0), launched(60.0, **{of: facts}), launched(101.0), launched(102.0)])
    cell = cell_of(run)
    assert (cell.throughput, cell.n, cell.failed, cell.left_out, cell.left_out_why) == (101.0, 3, 0, 1, why)
    assert [launch.outcome for launch in counting(run.launches())] == ["ok", "unlike", "ok", "ok"]


@pytest.mark.parametrize("of_the_newest", ["older", "newer"])
def test_of_two_groups_as_large_the_newest_makes_the_figure(tmp_path: Path, of_the_newest: str) -> None:
    limits = {"older": (500.0, 700.0), "newer": (700.0, 500.0)}[of_the_newest]
    rates = {700.0: 100.0, 500.0: 60.0}
    run = written(tmp_path, [launched(rates[watts], gpu={"power_limit_watts": watts}) for watts in (*limits, *limits)])
    assert cell_of(run).throughput == rates[limits[1]] and cell_of(run).left_out == 2


def test_the_largest_group_counts_as_a_whole_not_condition_by_condition(tmp_path: Path) -> None:
    settings = [(700.0, True), (700.0, True), (700.0, False), (700.0, False), (500.0, True), (500.0, True), (500.0, True)]
    run = written(tmp_path, [launched(watts, gpu={"power_limit_watts": watts, "ecc": ecc}) for watts, ecc in settings])
    cell = cell_of(run)
    assert (cell.throughput, cell.n, cell.left_out) == (500.0, 3, 4)
    assert cell.left_out_why == (
        "2 of them: power limit 700 W, the others 500 W; 2 of them: power limit 700 W, the others 500 W; ECC off, the others on"
    )


def test_a_launch_that_did_not_record_a_condition_stays_and_is_named(tmp_path: Path) -> None:
    run = written(tmp_path, [launched(100.0), launched(101.0, gpu={"power_limit_watts": None}), launched(102.0)])
    cell = cell_of(run)
    assert (cell.n, cell.left_out, cell.apart) == (3, 0, "power limit not recorded in 1 of 3 launches")


def test_unknown_launches_do_not_join_two_known_groups(tmp_path: Path) -> None:
    limits = [None, None, None, 700.0, 500.0]
    run = written(tmp_path, [launched(100.0, gpu={"power_limit_watts": watts}) for watts in limits])
    cell = cell_of(run)
    assert (cell.n, cell.left_out_why) == (4, "power limit 700 W, the others 500 W")
    assert cell.apart == "power limit not recorded in 3 of 4 launches"


def loaded(memory: float, sm: float, generation: int, **more: Any) -> dict[str, Any]:
    readings = {"device": "GPU-5eed", "memory_clock_mhz": memory, "sm_clock_mhz": sm, "pcie_generation": generation}
    idle = {"device": "GPU-5eed", "memory_clock_mhz": 405, "sm_clock_mhz": 210, "pcie_generation": 1}
    return launched(None, readings=[(95.0, idle), (105.0, readings), (115.0, readings | {"memory_clock_mhz": 405})], **more)


def test_facts_that_scatter_legitimately_split_nothing_and_are_reported_only_under_load(tmp_path: Path) -> None:
    """Clocks by a few per cent, a link that sleeps when idle, memory states while nothing runs, megabytes of the kernel."""
    first = loaded(2619, 1965, 5)
    other = loaded(2619, 1905, 5, gpu={"pcie": "gen1 x16 (max gen5 x16)"}, host={"memory_bytes": (512 << 30) - (3 << 20)})
    cell = cell_of(written(tmp_path / "a", [first, other, first]))
    assert (cell.n, cell.left_out, cell.apart) == (3, 0, "")
    cell = cell_of(written(tmp_path / "b", [first, loaded(1593, 1410, 3), first]))
    assert (cell.n, cell.left_out) == (3, 0)
    assert cell.apart == (
        "clock under load 1410 MHz or 1965 MHz; memory clock under load 1593 MHz or 2619 MHz; PCIe generation under load 3 or 5"
    )


def test_machines_of_a_cluster_that_share_a_cell_are_named_not_split(tmp_path: Path) -> None:
    nodes = [launched(host={"name": f"node{n}"}, gpu={"uuid": f"GPU-{n}"}, machine=f"{n:016x}") for n in (1, 2, 3)]
    cell = cell_of(written(tmp_path, nodes))
    assert (cell.n, cell.left_out) == (3, 0)
    assert cell.apart == "identity of 3 kinds; name of 3 kinds; uuid of 3 kinds"


def test_a_condition_of_one_gpu_of_several_names_it(tmp_path: Path) -> None:
    def pair(watts: float) -> dict[str, Any]:
        common = {"indices": [0, 1], "label": "gpu0+1", "vendor": "nvidia", "threads": 1, "nodes": 1}
        gpus = [GPU, GPU | {"uuid": "GPU-1", "power_limit_watts": watts}]
        return {"rate": 100.0, "devices": (0, 1), "host": HOST, "gpus": {**common, "gpus": gpus}}

    assert cell_of(written(tmp_path, [pair(700.0), pair(450.0), pair(700.0)])).left_out_why == (
        "GPU 1 power limit 450 W, the others 700 W"
    )


def test_software_that_changed_within_a_cell_splits_it_but_not_where_caches_lie(tmp_path: Path) -> None:
    def environment_event(number: int, **change: Any) -> list[dict[str, Any]]:
        variables = {"OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": f"/cache/{number}"}
        usual = {"python": "3.11.7", "torch": "2.5.1", "packages": ["numpy==1.26"], "variables": variables}
        return [{"event": "environment", **usual, **change}]

    def made(root: Path, *changes: dict[str, Any]) -> RunFolder:
        run = written(root, [launched(100.0) for _ in changes])
        for number, (path, change) in enumerate(zip(sorted(run.path.rglob("round*.jsonl")), changes, strict=True)):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            lines[2:3] = environment_event(number, **change)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return run

    assert cell_of(made(tmp_path / "a", {}, {}, {})).left_out == 0
    cell = cell_of(made(tmp_path / "b", {}, {"packages": ["numpy==2.0"]}, {"variables": {"OMP_NUM_THREADS": "2"}}, {}))
    assert cell.left_out_why == (
        "1 of them: package numpy 2.0, the others 1.26; 1 of them: variables OMP_NUM_THREADS 2, the others 1"
    )


@pytest.fixture
def uneven(tmp_path: Path) -> RunFolder:
    """Write a run of four launches, of which one had a lower power limit."""
    return written(tmp_path, [launched(100.0), CAPPED, launched(101.0), launched(102.0)])


def test_the_report_names_the_unlike_launch_at_its_cell_and_in_the_list(uneven: RunFolder) -> None:
    page = report.render(report.view_of(uneven))
    assert "1 of 4 launches, which are unlike the others: power limit 500 W, the others 700 W" in page
    state = page.split("What and why")[0].split("<summary>")[-1]
    assert "1 launch left out, unlike the others of their cell" in state and "failed" not in state
    assert "left out: power limit 500 W, the others 700 W" in page


def test_exports_have_the_figure_without_the_unlike_launch_and_the_reason(uneven: RunFolder) -> None:
    tables = exports.of(report.view_of(uneven)).values
    (cell,) = json.loads(FORMATS["json"]("cells", tables["cells"]))
    assert (cell["items_per_second"], cell["launches_ok"], cell["launches_not_ok"], cell["launches_left_out"]) == (101, 3, 0, 1)
    assert cell["left_out_why"] == "power limit 500 W, the others 700 W"
    launches = json.loads(FORMATS["json"]("launches", tables["launches"]))
    assert [(launch["outcome"], launch["items_per_second"]) for launch in launches] == [
        ("ok", 100.0), ("unlike", None), ("ok", 101.0), ("ok", 102.0),
    ]  # fmt: skip
    assert launches[1]["error"] == "left out: power limit 500 W, the others 700 W"


def test_a_run_ends_with_how_many_are_left_out(uneven: RunFolder) -> None:
    cells = terminal.summaries_of(uneven.launches(), ["stack-a/resnet50-train-fp32-b4/gpu0"])
    assert "stable; 1 left out" in terminal.summaries_in_words(cells, 120, 5) and cells[0].throughput == 101.0


def test_compare_leaves_the_unlike_launch_out_and_says_so(tmp_path: Path, uneven: RunFolder) -> None:
    other = written(tmp_path, [launched(50.0), launched(50.5)], "20260102T000000Z")
    comparison = compare.compare(counting(uneven.launches()), counting(other.launches()))
    assert comparison.rows[0].ratio == pytest.approx(101 / 50.25, rel=1e-3) and comparison.rows[0].launches == (3, 2)
    assert "1 of 4 launches of A left out: power limit 500 W, the others 700 W" in terminal.comparison_in_words(comparison)


def test_compare_pools_no_unlike_launches_of_several_runs(tmp_path: Path) -> None:
    limits = zip(nights(3), (700.0, 700.0, 500.0), strict=True)
    runs = [written(tmp_path, [launched(watts, gpu={"power_limit_watts": watts})], run) for run, watts in limits]
    a = [launch for run in runs for launch in run.launches()]
    b = written(tmp_path, [launched(350.0), launched(350.0)], "20260109T000000Z").launches()
    (row,) = compare.compare(a, b).rows
    assert (row.ratio, row.launches) == (2.0, (2, 2)) and row.left_out == (
        "1 of 3 launches of A left out: power limit 500 W, the others 700 W",
    )


def test_compare_marks_verdicts_of_one_machine_under_other_conditions(tmp_path: Path) -> None:
    a = written(tmp_path, [launched(100.0), launched(100.5)], "20260101T000000Z", machine="a" * 16)
    b = written(tmp_path, [CAPPED, CAPPED | {"rate": 60.2}], "20260102T000000Z", machine="a" * 16)
    comparison = compare.compare(a.launches(), b.launches())
    words = terminal.comparison_in_words(comparison)
    assert (
        "faster (other conditions)\n    other conditions: GPU 0 power limit" in words
        and "GPU 0 power limit: 700 W  |  500 W" in words
    )


def test_unknown_on_both_sides_is_not_recorded_and_never_equal(tmp_path: Path) -> None:
    a = written(tmp_path, [launched(100.0, host={"turbo": None}), launched(100.5, host={"turbo": None})], "20260101T000000Z")
    b = written(tmp_path, [launched(100.0, host={"turbo": None, "smt": None})] * 2, "20260102T000000Z")
    comparison = compare.compare(a.launches(), b.launches())
    assert comparison.environment == {} and {"host turbo", "host SMT"} <= set(comparison.compared.missing)
    assert comparison.compared.recorded + len(comparison.compared.missing) == comparison.compared.of > 40
    assert f"{comparison.compared.recorded} of {comparison.compared.of} conditions were recorded on both sides; not" in (
        terminal.comparison_in_words(comparison)
    )


def test_a_machine_replaced_under_its_name_is_reported(tmp_path: Path) -> None:
    """Compare, history and gate report it; here nothing else changed but the machine's identity."""
    old, new = {"machine": "a" * 16}, {"machine": "b" * 16}
    runs = []
    for night, run in enumerate(nights(12)):
        who = old if night < 7 else new
        gpu = {"uuid": "GPU-old" if night < 7 else "GPU-new"}
        level = 100.0 if night < 7 else 90.0
        launches = [launched(level + number / 10, gpu=gpu, host={"board_id": who["machine"]}, **who) for number in range(3)]
        runs.append(written(tmp_path, launches, run, **who))
    ids = ("a" * 16, "b" * 16)
    changes = {"host identity": ids, "host board identity": ids, "GPU 0 uuid": ("GPU-old", "GPU-new")}
    comparison = compare.compare(counting(runs[0].launches()), counting(runs[-1].launches()))
    assert comparison.environment == changes and not comparison.one_machine
    read = facts_cache.read(Results(tmp_path), runs)
    (trend,) = history.trends(history.series(read))
    assert trend.changes[0].environment == changes
    (judged,) = (cell for cell in judge(read[:8]).cells if cell.metric == "throughput")
    assert judged.changes == changes
    assert "host identity: aaaaaaaaaaaaaaaa -> bbbbbbbbbbbbbbbb" in verdicts.text(judge(read[:8]))


def test_the_gate_names_other_conditions_even_where_nothing_became_slower(tmp_path: Path) -> None:
    governors = ["performance"] * 7 + ["powersave"]
    runs = [
        written(tmp_path, [launched(100.0 + n / 10, host={"governor": governor}) for n in range(3)], run)
        for run, governor in zip(nights(8), governors, strict=True)
    ]
    judgement = judge(facts_cache.read(Results(tmp_path), runs))
    assert judgement.verdict == "PASS"
    (judged,) = (cell for cell in judgement.cells if cell.metric == "throughput")
    assert "other conditions on 7 of the 7 nights of the baseline: host governor" in judged.why
    assert f"other conditions than in {nights(8)[6]}, though not slower: host governor performance -> powersave" in (
        verdicts.text(judgement)
    )


def test_history_and_gate_say_how_much_was_recorded_where_nothing_changed(tmp_path: Path) -> None:
    runs = [written(tmp_path, [launched(rate + n / 10) for n in range(3)], run)
            for run, rate in zip(nights(10), [100.0] * 6 + [90.0] * 4, strict=True)]  # fmt: skip
    read = facts_cache.read(Results(tmp_path), runs)
    (trend,) = history.trends(history.series(read))
    compared = trend.changes[0].compared
    assert f"no recorded condition changed ({compared.recorded} of {compared.of} known on both sides)" in (
        terminal.change_in_words(trend.changes[0])
    )
    assert f"({compared.recorded} of {compared.of} conditions were recorded on both sides)" in verdicts.text(judge(read[:7]))


def test_history_and_gate_leave_the_same_launches_out(tmp_path: Path) -> None:
    runs = [written(tmp_path, [launched(100.0), launched(101.0)], nights(2)[0])]
    runs.append(written(tmp_path, [launched(100.0), CAPPED, launched(101.0)], nights(2)[1]))
    read = facts_cache.read(Results(tmp_path), runs)
    newest = history.series(read)[-1]
    assert (newest.value, newest.n, newest.failed, newest.left_out) == (100.5, 2, 0, 1)
    assert newest.left_out_why == "power limit 500 W, the others 700 W"
    (judged,) = (cell for cell in judge(read).cells if cell.metric == "throughput")
    assert judged.verdict != "failed" and "1 of 3 launches left out: power limit 500 W, the others 700 W" in judged.why


def test_every_condition_of_the_list_has_a_name_of_its_own_and_is_read(tmp_path: Path) -> None:
    names = [condition.name for condition in CONDITIONS]
    assert len(set(names)) == len(names)
    (launch,) = written(tmp_path, [launched()]).launches()
    environment: dict[str, str] = environment_of(launch)
    assert (
        environment["GPU 0 power limit"] == "700 W"
        and environment["host memory"] == "512 GiB"
        and environment["host mitigation spectre_v2"]
    )
    assert environment["GPU 0 auto boost"] == UNKNOWN and isinstance(launch, Launch)


def test_machines_with_one_gpu_model_say_in_what_they_are_unlike(tmp_path: Path) -> None:
    for name, watts, driver in (("one", 700.0, "570.133.20"), ("two", 500.0, "575.51.03")):
        gpu = GPU | {"vendor": "nvidia", "power_limit_watts": watts, "uuid": f"GPU-{name}"}
        host = HOST | {"name": name, "driver": driver, "gpus": [gpu]}
        written(tmp_path, [launched(watts, host=host, gpu=gpu)], folder=name, host=host, machine=name.ljust(16, "0"))
    fleet = machines_page.fleet_of(machines.newest_complete(Results(tmp_path).runs()))
    (row,) = machines.fleet_gpu_table([choice.machine for choice in fleet.chosen], fleet.cells)
    assert row["unlike"] == "GPU power limit 500 W or 700 W, host driver 570.133.20 or 575.51.03"
    page = machines_page.page_of(*machines_page.compared(fleet.chosen))
    assert "unlike machines: GPU power limit 500 W or 700 W" in page


def test_the_conditions_that_a_machine_can_report_are_known_before_a_run() -> None:
    """A GPU server, and a machine without GPUs, for which half of the list means nothing."""
    gpus = [GPU | {"vendor": "nvidia"}, GPU | {"vendor": "nvidia", "power_limit_watts": 650.0, "uuid": "GPU-2"}]
    conditions = of_machine(HOST | {"gpus": gpus})
    assert (
        conditions["GPU power limit"] == "650 W | 700 W" and conditions["GPU auto boost"] == UNKNOWN == conditions["host libc"]
    )
    alone = of_machine(HOST | {"gpus": []})
    assert alone["host governor"] == "performance" and "host driver" not in alone and not any("GPU" in name for name in alone)


@pytest.mark.parametrize("value", [5, "x", True, [], {}, [1, {"a": 2}], 1e300, None])
def test_facts_of_any_kind_are_no_reason_to_fail(tmp_path: Path, value: Any) -> None:
    host = dict.fromkeys(HOST, value)
    run = written(tmp_path, [launched(), launched(host=host, gpu=dict.fromkeys(set(GPU) - {"name", "uuid"}, value))])
    assert sum(launch.outcome == "ok" for launch in counting(run.launches())) >= 1


def test_names_of_boards_and_devices_are_pseudonyms_where_that_is_asked_for(tmp_path: Path) -> None:
    """Facts and environments have pseudonyms; identities of boards are those of machines."""
    board, whole = "0123456789abcdef", "GPU-11111111-5eed-4000-8000-000000000001"
    gpu = {"uuid": "MIG-22222222-5eed-4000-8000-000000000002", "slice_of": whole}
    run = written(tmp_path / "results", [launched(gpu=gpu, host={"board_id": board}, machine="f" * 16)])
    copy, _ = redaction.redacted(Results(tmp_path / "results"), run, tmp_path / "copy", print)
    published = environment_of(copy.launches()[0])
    everything = "".join(path.read_text() for path in copy.path.rglob("*.jsonl"))
    assert not any(name in everything for name in (board, whole, "22222222", "f" * 16, "testhost"))
    assert published["host board identity"] not in (UNKNOWN, board) and published["GPU 0 MIG parent"].startswith("GPU-")
    names = redaction.Redaction(enabled=True, roots={}, names=redaction.Pseudonyms())
    environment = environment_of(run.launches()[0])
    names.learn(environment, fields_of(environment))
    shown = str(names.declared(environment, fields_of(environment)))
    assert not any(name in shown for name in (board, whole, "22222222", "f" * 16, "testhost"))


def test_an_identity_stays_whatever_it_looks_like_and_a_credential_goes(tmp_path: Path) -> None:
    """Two machines must not become equal, because both names look like a token."""
    names = ["0123456789abcdef0123456789abcdef01234567", "f" * 40]
    hosts = [{"name": "h", "os": "Debian token=abcdefgh12345", "board_id": name} for name in names]
    runs = [write_run(tmp_path / str(n), [{"host": hosts[n], "machine": names[n]}], machine=names[n]) for n in range(2)]
    read = [environment_of(run.launches()[0]) for run in runs]
    assert [one["host identity"] for one in read] == names == [one["host board identity"] for one in read]
    assert {one["host os"] for one in read} == {"Debian token=…"}
