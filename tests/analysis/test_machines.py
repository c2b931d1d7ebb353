"""Machines: the one that measured a run, which run stands for each machine, and that nothing of two machines is ever pooled."""

import math
from pathlib import Path
from typing import Any

import pytest

from support.records import write_run
from torchmatrix.analysis import across, machines, run_summary, scaling, speedups
from torchmatrix.analysis.cells import CellIndex
from torchmatrix.analysis.rows import LaunchRow
from torchmatrix.core.errors import BadInput
from torchmatrix.facts.store import Results, RunFolder

H100 = {"name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "memory_bytes": 80 * 2**30}
RTX4090 = {"name": "NVIDIA GeForce RTX 4090", "uuid": "GPU-2", "memory_bytes": 24 * 2**30}


def run_on(
    root: Path, machine: str | None, launches: list[dict[str, Any]] | None = None, gpus: tuple[dict[str, Any], ...] = (H100,),
    folder: str = "gpu01", **more: Any,
) -> RunFolder:  # fmt: skip
    host = {"name": "gpu01", "cpu": "Test CPU", "gpus": list(gpus), "cores": [0, 1], "memory_bytes": 2**30, "driver": "575.1"}
    identity = {} if machine is None else {"machine": machine}
    return write_run(root, launches or [{}], folder=folder, host=host, **identity, **more)


def test_two_machines_of_one_name_have_labels_that_tell_them_apart(tmp_path: Path) -> None:
    runs = [run_on(tmp_path / name, identity) for name, identity in (("a", "1234aa"), ("b", "1234bb"), ("c", None))]
    identified = machines.of_runs(runs)
    assert [machine.label for machine in identified] == ["gpu01#1234a", "gpu01#1234b", "gpu01#unverified"]
    assert [(machine.id, machine.verified) for machine in identified] == [("1234aa", True), ("1234bb", True), ("gpu01", False)]


def test_a_machine_is_known_again_in_another_folder_and_keeps_its_name(tmp_path: Path) -> None:
    runs = [run_on(tmp_path, "1234", folder="one"), run_on(tmp_path, "1234", folder="two")]
    ((machine, its_runs),) = machines.grouped(runs)
    assert machine.label == "gpu01" and its_runs == runs
    assert (machine.gpu, machine.gpu_count, machine.cpu, machine.cores, machine.driver) == (
        "H100 SXM5 80GB", 1, "Test CPU", 2, "575.1",
    )  # fmt: skip


def test_a_machine_without_gpus_is_called_by_its_cpu_and_an_unreadable_record_by_its_folder(tmp_path: Path) -> None:
    (plain,) = machines.of_runs([run_on(tmp_path / "a", None, gpus=(), folder="box")])
    assert (plain.label, plain.gpu, plain.gpu_count) == ("box", "CPU: Test CPU", 0)
    broken = run_on(tmp_path / "b", "1234", folder="box")
    broken.record.write_text("{")
    (unknown,) = machines.of_runs([broken])
    assert (unknown.id, unknown.gpu, unknown.verified) == ("box", "CPU: unknown (box)", False)


NO_CPU = ("unknown CPU", "unknown CPU (aarch64)", "CPU of head (model unknown from here)", "aarch64", "x86_64", "",
          "ARMv8 Processor rev 1 (v8l)", "Common KVM processor", "QEMU Virtual CPU version 2.5+", "QEMU TCG CPU version 2.5+",
          "VirtualApple @ 2.50GHz", "DO-Regular", "Apple part 0x000 (linux,dummy-virt)", "implementer 0x00 part 0x051", "N/A",
          "Virtual CPU 6db7dc0e7704", "unknown", "riscv-virtio,qemu", "linux,dummy-virt",
          "QEMU Standard PC (i440FX + PIIX, 1996)",
          "VMware, Inc. VMware20,1", "Microsoft Corporation Virtual Machine", "Genuine Intel(R) CPU 0000%@", None)  # fmt: skip
NO_GPU = ("", "AMD GPU", "NVIDIA Graphics Device", "Graphics Device", "ip discovery", "unknown AMD GPU renderD128", None)


@pytest.mark.parametrize(
    ("facts", "pooled"),
    [*(({"cpu": name}, False) for name in NO_CPU), ({"cpu": "Arm Neoverse-V2 (Acme Board 1)"}, True),
     ({"cpu": "Arm Neoverse-N1 (QEMU KVM Virtual Machine)"}, True), ({"cpu": "Intel(R) Xeon(R) CPU @ 2.20GHz"}, True),
     *(({"gpus": [{"uuid": "GPU-1", "name": name}]}, False) for name in NO_GPU), ({"gpus": [H100]}, True)],
)  # fmt: skip
def test_facts_that_two_machines_lack_are_never_the_same(tmp_path: Path, facts: dict[str, Any], pooled: bool) -> None:
    fields = {"devices": (0,), "device": (facts["gpus"][0]["name"] or "")} if "gpus" in facts else {"vendor": "cpu"}
    host = {"name": "gpu01", "cpu": "Test CPU", "gpus": [], **facts}
    runs = [
        write_run(tmp_path / identity, [{"rate": 100.0, **fields}], folder="gpu01", host=host, machine=identity)
        for identity in ("1111", "2222")
    ]
    both = machines.of_runs(runs)
    assert (both[0].gpu == both[1].gpu) is pooled
    table = machines.fleet_rows((m, run_summary.launch_rows(run.launches())) for m, run in zip(both, runs, strict=True))
    assert [row.gpu for row in table] == [machine.gpu for machine in both]
    together = across.relative_table(CellIndex(table)).table
    assert max(row.machines for row in together) == (2 if pooled else 1), "one figure of both machines only if they are alike"


def test_a_run_without_an_identity_is_of_the_machine_of_its_folder_if_that_has_one(tmp_path: Path) -> None:
    old, new = run_on(tmp_path, None, run="20250101T000000Z"), run_on(tmp_path, "1234")
    ((machine, its_runs),) = machines.grouped([old, new])
    assert (machine.id, machine.verified, its_runs) == ("1234", True, [old, new])
    other = run_on(tmp_path, "5678", run="20260201T000000Z")
    assert [each.id for each in machines.of_runs([old, new, other])] == ["gpu01", "1234", "5678"]


def test_the_newest_complete_run_stands_for_a_machine(tmp_path: Path) -> None:
    for day, complete in ((1, True), (2, True), (3, False)):
        run_on(tmp_path, "1111", run=f"2026010{day}T000000Z", complete=complete)
    run_on(tmp_path, "2222", folder="other", run="20260104T000000Z", complete=False)
    first, second = machines.newest_complete(Results(tmp_path).runs())
    assert (first.run.id, first.note) == ("20260102T000000Z", None)
    assert second.run.id == "20260104T000000Z" and second.note == "no run of gpu01#2222 is complete; this is the newest one"


def test_a_machine_is_named_by_its_label_its_id_or_its_name_if_that_is_unique(tmp_path: Path) -> None:
    runs = [run_on(tmp_path / "a", "1111"), run_on(tmp_path / "b", "2222"), run_on(tmp_path, None, folder="cpubox", gpus=())]
    for word, number in (("gpu01#2222", 1), ("1111", 0), ("cpubox", 2)):
        machine = machines.find(runs, word)
        assert machine is not None and machine.run is runs[number]
    assert machines.find(runs, "nosuch") is None
    with pytest.raises(BadInput, match="gpu01 names 2 machines") as error:
        machines.find(runs, "gpu01")
    assert "gpu01#1111, gpu01#2222" in error.value.hint


def fleet(tmp_path: Path) -> list[LaunchRow]:
    """Return two machines that measured the same cells: the second is twice as fast, and scales worse."""
    cells = [{"rate": 100.0}, {"rate": 102.0}, {"rate": 190.0, "devices": (0, 1)}, {"rate": 50.0, "stack": "stack-b"}]
    other = [{**cell, "rate": 2 * float(cell["rate"])} for cell in cells[:2]]
    other += [{"rate": 300.0, "devices": (0, 1)}, {"outcome": "oom", "stack": "stack-b"}]
    ours, theirs = ([cell | {"device": gpu["name"]} for cell in side] for side, gpu in ((cells, H100), (other, RTX4090)))
    runs = [run_on(tmp_path / "a", "1111", ours), run_on(tmp_path / "b", "2222", theirs, (RTX4090,))]
    pairs = zip(machines.of_runs(runs), runs, strict=True)
    return machines.fleet_rows((machine, run_summary.launch_rows(run.launches())) for machine, run in pairs)


def test_a_table_of_two_machines_has_every_cell_of_each(tmp_path: Path) -> None:
    cells = run_summary.cells_table(CellIndex(fleet(tmp_path)).every)
    assert [tuple(row.value(name) for name in ("machine", "gpu", "stack", "count", "n", "throughput")) for row in cells] == [
        ("gpu01#1111", "H100 SXM5 80GB", "stack-a", 1, 2, pytest.approx(101)),
        ("gpu01#1111", "H100 SXM5 80GB", "stack-a", 2, 1, pytest.approx(190)),
        ("gpu01#1111", "H100 SXM5 80GB", "stack-b", 1, 1, pytest.approx(50)),
        ("gpu01#2222", "RTX 4090", "stack-a", 1, 2, pytest.approx(202)),
        ("gpu01#2222", "RTX 4090", "stack-a", 2, 1, pytest.approx(300)),
        ("gpu01#2222", "RTX 4090", "stack-b", 1, 0, pytest.approx(math.nan, nan_ok=True)),
    ]


def test_scale_factors_and_speed_ups_stay_within_a_machine(tmp_path: Path) -> None:
    table = CellIndex(fleet(tmp_path))
    scales = scaling.scaling_table(table)
    assert [(row["machine"], row["S"]) for row in scales] == [
        ("gpu01#1111", pytest.approx(190 / math.sqrt(102 * 100))), ("gpu01#2222", pytest.approx(300 / math.sqrt(204 * 200))),
    ]  # fmt: skip
    speeds = speedups.speedup_table(table)
    by_cell = {(ratio.cell.machine, ratio.cell.row.stack, ratio.cell.row.devices): (ratio.pair.value, ratio.pair.why_not)
               for ratio in speeds}  # fmt: skip
    assert by_cell["gpu01#1111", "stack-b", "gpu0"] == (pytest.approx(50 / math.sqrt(102 * 100)), "")
    assert by_cell["gpu01#2222", "stack-b", "gpu0"][1] == "oom"
    assert by_cell["gpu01#2222", "stack-a", "gpu0"][0] == 1.0


def test_a_fleet_takes_one_run_of_each_machine(tmp_path: Path) -> None:
    run = run_on(tmp_path, "1111")
    (machine,), rows = machines.of_runs([run]), run_summary.launch_rows(run.launches())
    with pytest.raises(BadInput, match="two runs of gpu01"):
        machines.fleet_rows([(machine, rows), (machine, rows)])
    assert machines.fleet_rows([]) == []


@pytest.mark.parametrize(
    ("driver", "memory_gib", "short"),
    [
        ("NVIDIA H100 80GB HBM3", 80, "H100 SXM5 80GB"),
        ("NVIDIA GeForce RTX 4090", 24, "RTX 4090"),
        ("AMD Instinct MI300X", 192, "MI300X"),
        ("NVIDIA Unheard Of", None, "Unheard Of"),
        ("", None, "unknown GPU"),
    ],
)
def test_short_names_of_gpus(driver: str, memory_gib: int | None, short: str) -> None:
    assert machines.short_name(driver, memory_gib and memory_gib * 2**30) == short
