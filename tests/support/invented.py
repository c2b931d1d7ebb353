"""Results of invented GPU servers (tests/data/invented): real plans of real matrices, with figures that nobody measured."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import tomllib

from support.records import write_run
from torchmatrix.facts.store import Results, RunFolder
from torchmatrix.machine.host import Gpu, Host
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.workloads import ddp_id
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import Cell, Plan, make_plan

DATA = Path(__file__).parents[1] / "data" / "invented"
MATRIX = (DATA / "matrix.toml").read_text()
_COMPILED = 1.12
_NEWER_TORCH = 1.04
"""What torch 2.7 gains over 2.5."""
_FLOPS = {"resnet50": 24.5e9, "bert-base-cased": 66.0e9, "bert-large-cased": 232.0e9}
"""Per item, forward and backward."""
_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine of machines.toml with its GPU model's facts; `slower`: what its rates are multiplied with."""

    name: str
    identity: str
    gpu: dict[str, Any]
    count: int
    efficiency: Sequence[float]
    launch_scatter: float
    run: str
    slower: float = 1.0
    fails: dict[str, str] | None = None


def machines() -> list[Machine]:
    """Return the machines in the file's order: 8 H100, 8 H100 of a namesake server, 4 RTX 4090, 8 MI300X, 8 B200."""
    content = tomllib.loads((DATA / "machines.toml").read_text())
    return [Machine(**{**machine, "gpu": content["gpu"][machine["gpu"]]}) for machine in content["machine"]]


def host_of(machine: Machine) -> Host:
    """Return the host as torchmatrix would detect it."""
    gpu, is_amd = machine.gpu, machine.gpu["vendor"] == "amd"
    gpus = tuple(
        Gpu(
            index=i, uuid=f"GPU-{machine.identity[:4]}-{i}", name=gpu["driver_name"], vendor=gpu["vendor"],
            memory_bytes=_memory(gpu), capability=gpu["capability"], power_limit_watts=float(gpu["watts"]) + 50,
            render_node=f"/dev/dri/renderD{128 + i}" if is_amd else None, groups=(44,) if is_amd else (),
        )
        for i in range(machine.count)
    )  # fmt: skip
    return Host(
        name=machine.name, vendor=gpu["vendor"], gpus=gpus, driver="6.8.5" if is_amd else "575.51.03",
        cuda_driver=None if is_amd else "12.9", cpu="Invented CPU, 2 x 48 cores", cores=tuple(range(96)), numa_nodes=2,
        governor="performance", memory_bytes=1 << 40, kernel="6.8.0", os="Ubuntu 24.04", architecture="x86_64", python="3.12.3",
    )  # fmt: skip


def plan_of(machine: Machine, matrix: str = MATRIX) -> Plan:
    """Return the plan of what this machine can run of `matrix`."""
    return make_plan(matrix_file.parse(matrix), host_of(machine), Prerequisites(containers=True))


def write(
    root: Path, machine: Machine, matrix: str = MATRIX, launches: int = 3, run: str | None = None, level: float = 1.0
) -> RunFolder:
    """Write a complete run of `matrix` on `machine` in the results folder `root`; `level` multiplies all rates of this run."""
    plan, host = plan_of(machine, matrix), host_of(machine)
    started = replace(machine, run=run or machine.run)
    lines = [launch for cell in plan.cells for launch in _launches(started, host, cell, launches, level)]
    return _write(root, started, plan, lines, matrix)


def _write(root: Path, machine: Machine, plan: Plan, lines: list[dict[str, Any]], matrix: str) -> RunFolder:
    return write_run(
        root, lines, [(skip.cell.id, skip.why.reason) for skip in plan.skips], run=machine.run, matrix=matrix,
        folder=Results(root).home(machine.name, machine.identity), host=host_of(machine).as_record(), method=_METHOD,
        machine=machine.identity,
    )  # fmt: skip


FATES = ("ok", "ok", "fails", "absent", "mixed")
"""What becomes of a model or a cell on a machine."""
_FAILURES = ("oom", "crashed", "timeout", "numerics", "unsupported", "build-failed")
_DRAWN = (
    MATRIX
    + """
[[workload]]
model = "resnet50"
mode = "infer"
precision = ["fp32", "amp"]
batch = 64
seconds = 10
"""
)


def draw(root: Path, random: Random) -> None:
    """Write runs drawn at random: one to three machines, one or two nights, one to eight GPUs, one to three launches.

    On each machine each model is measured, fails or is absent, as a whole or cell by cell; now and then a launch fails.
    """
    for machine in random.sample(machines(), random.choice((1, 2, 2, 3))):
        plan, host = plan_of(machine, _DRAWN), host_of(machine)
        for night in range(random.choice((1, 1, 2))):
            fates = {model: random.choice(FATES) for model in ("resnet50", "bert-base-cased")}
            counts, most = random.choice(((1,), (2,), (1, 2), (1, 2, 4, 8))), random.choice((1, 3))
            begun, lines = replace(machine, run=f"{machine.run[:6]}{10 + night}{machine.run[8:]}"), []
            for cell in (cell for cell in plan.cells if len(cell.gpus.indices) in counts):
                fate = fates[str(cell.workload.factors["model"])]
                fate = random.choice(FATES[:-1]) if fate == "mixed" else fate
                launches = 0 if fate == "absent" else random.randint(1, most)
                failure, failing = random.choice(_FAILURES), {"fails": 1.0}.get(fate, 0.05)
                for launch in _launches(begun, host, cell, launches, 1.0):
                    lines.append({**launch, "outcome": failure} if random.random() < failing else launch)
            _write(root, begun, plan, lines, _DRAWN)


_METHOD = {
    "name": "steady", "launches": 3, "statistic": "median", "start_below_celsius": None, "cool_down_seconds": 600.0,
    "steps": None, "until": None, "budget_seconds": None,
}  # fmt: skip


def rate_of(machine: Machine, cell: Cell) -> float:
    """Return the items per second of a cell without scatter."""
    gpu, workload, count = machine.gpu, cell.workload, len(cell.gpus.indices)
    model = str(workload.factors["model"])
    rate = gpu["rate"].get(model, gpu["rate"]["bert-base-cased"] * 0.33) * gpu["factors"].get(
        workload.factors["precision"], 1.0
    )
    rate *= _COMPILED if workload.factors["compile"] else 1.0
    rate *= _NEWER_TORCH if str(cell.stack.torch).startswith("2.7") else 1.0
    efficiency = {1: 1.0, **dict(zip((2, 4, 8), machine.efficiency, strict=True))}[count]
    return float(rate * machine.slower * count * efficiency)


def _launches(machine: Machine, host: Host, cell: Cell, launches: int, level: float) -> Iterator[dict[str, Any]]:
    """Yield each launch as `records.launch_lines` takes it."""
    record, gpu, count = cell.workload.as_record(), machine.gpu, len(cell.gpus.indices)
    batch = int(cell.workload.batch)
    outcome = (machine.fails or {}).get(f"{record['model']}/{record['precision']}", "ok")
    for number in range(launches):
        seed = crc32(f"{machine.identity} {machine.run} {cell.id} {number}".encode())
        scatter = Random(seed).gauss(1.0, machine.launch_scatter)
        rate = rate_of(machine, cell) * level * scatter
        steps = max(record["steps"], round(rate * _SECONDS / (batch * count)))
        edges = (100.0, 100.0 + batch * count * steps / rate)
        yield {
            "rate": rate, "stack": asdict(cell.stack), "workload": record["id"], "devices": cell.gpus.indices,
            "vendor": gpu["vendor"], "model": record["model"], "outcome": outcome, "steps": steps, "edges": edges,
            "readings": _readings(host, cell, gpu["watts"], edges), "flops": _FLOPS.get(record["model"]),
            "device": gpu["driver_name"], "memory_bytes": _memory(gpu), "torch": f"{cell.stack.torch}+{cell.stack.variant}",
            "job": record, "cell": cell.id, "ddp_workload": ddp_id(cell.workload), "batch_requested": batch,
            "error": "CUDA out of memory" if outcome == "oom" else "RuntimeError: invented", "host": host.as_record(),
            "gpus": {**asdict(cell.gpus), "label": cell.gpus.label}, "method": _METHOD,
        }  # fmt: skip


def _readings(host: Host, cell: Cell, watts: float, edges: tuple[float, float]) -> list[tuple[float, dict[str, Any]]]:
    """Return readings of each GPU at four moments, with a counter of energy."""
    moments = [edges[0] - 1, edges[0] + 3, edges[0] + 7, edges[1] + 1]
    return [
        (moment, {"device": gpu.uuid, "temperature_celsius": 58 + gpu.index, "sm_clock_mhz": 1700, "power_watts": watts,
                  "energy_joules": watts * moment, "reasons": []})
        for moment in moments for gpu in cell.gpus.gpus
    ]  # fmt: skip


def _memory(gpu: dict[str, Any]) -> int:
    return int(gpu["memory_gib"] * 2**30)
