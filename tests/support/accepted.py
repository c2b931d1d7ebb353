"""Invented servers to be accepted: operations of the preset, each device at its own pace, faults planted on purpose."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any

from support.records import write_run
from torchmatrix.facts import operations
from torchmatrix.facts.store import RunFolder

H100: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3", "vendor": "nvidia", "memory_bytes": int(79.6 * 2**30), "capability": "9.0",
    "power_limit_watts": 700.0, "pcie": "gen5 x16 (max gen5 x16)", "ecc": True, "persistence": True, "mig": False,
    "application_clocks": "1980 MHz and 2619 MHz", "repairs": "0 rows remapped",
}  # fmt: skip
MI300X: dict[str, Any] = {
    "name": "AMD Instinct MI300X", "vendor": "amd", "memory_bytes": 192 * 2**30, "power_limit_watts": 750.0,
    "pcie": "gen5 x16 (max gen5 x16)", "performance_level": "auto", "partitions": "SPX/NPS1",
}  # fmt: skip
RTX_4090: dict[str, Any] = {
    "name": "NVIDIA GeForce RTX 4090", "vendor": "nvidia", "memory_bytes": 24 * 2**30, "capability": "8.9",
    "power_limit_watts": 450.0, "pcie": "gen4 x16 (max gen4 x16)", "persistence": True, "mig": False,
}  # fmt: skip
READING = {
    "temperature_celsius": 61.0,
    "sm_clock_mhz": 1755.0,
    "power_watts": 690.0,
    "ecc_uncorrected": 0,
    "reasons": ["sw_power_cap"],
}
WORK: dict[str, dict[str, Any]] = {
    "gemm": {"unit": "TFLOP", "precision": "bf16-weights", "shape": "8192x8192x8192"},
    "gemm-fp32": {"unit": "TFLOP", "precision": "fp32", "shape": "8192x8192x8192"},
    "triad": {"unit": "GB", "bytes": 2**31},
    "copy": {"unit": "GB", "bytes": 2**31},
    "host-copy": {"unit": "GB", "bytes": 2**30, "direction": "to-device", "pinned": True},
    "peer-copy": {"unit": "GB", "bytes": 2**28},
    "all-reduce": {"unit": "GB", "bytes": 2**33},
}
RATES = {
    "gemm": 720.0,
    "gemm-fp32": 51.0,
    "triad": 2950.0,
    "copy": 2800.0,
    "host-copy": 53.0,
    "peer-copy": 390.0,
    "all-reduce": 470.0,
}
"""TFLOP/s and GB/s of a device of an H100, about."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server of `count` GPUs. `slow`: by (operation, place) the factor of its rate; `change`: by place other fields of the
    GPU; `read`: other readings; `errors`: by place how many corrected memory errors are counted in a second; `pairs`: all of
    its GPUs copy to each other, too; `sets`: on which GPUs operations run, by default on all; `slow_pairs`: the factor of a
    pair's rate; `multiprocessors`: of a device, as torch tells them; `host`: other fields of the machine. `within`, `between`:
    the scatter of launches and devices.
    """

    gpu: Mapping[str, Any] = field(default_factory=lambda: H100)
    count: int = 8
    slow: Mapping[tuple[str, int], float] = field(default_factory=dict)
    change: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    read: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    errors: Mapping[int, int] = field(default_factory=dict)
    pairs: bool = False
    sets: Sequence[Sequence[int]] = ()
    slow_pairs: Mapping[tuple[int, int], float] = field(default_factory=dict)
    multiprocessors: int | None = None
    cpus: Mapping[int, str] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)
    work: Sequence[str] = tuple(name for name in WORK if name != "peer-copy")
    launches: int = 5
    within: float = 0.003
    between: float = 0.003
    seed: int = 1
    name: str = "h100-a"

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """Return the records of its GPUs."""
        half = self.count // 2
        return [
            {
                **self.gpu, "index": place, "uuid": f"GPU-{self.name}-{place}", "numa_node": int(place >= half),
                "local_cpus": "48-95" if place >= half else "0-47", **self.change.get(place, {}),
            }
            for place in range(self.count)
        ]  # fmt: skip


def write(
    root: Path, server: Server, edit: Callable[[dict[str, Any]], None] = lambda line: None, identity: str = ""
) -> RunFolder:
    """Write the run of an acceptance of a server; `edit` may change each line. `identity`: of the machine; else by its name."""
    random, places = Random(server.seed), list(range(server.count))
    links = [["X" if a == b else "NV18" for b in places] for a in places]
    host = {
        "name": server.name, "cpu": "Invented CPU", "gpus": server.gpus, "cores": [0, 1], "governor": "performance",
        "numa_nodes": 2, "links": links, "p2p": [["n/a" if a == b else "ok" for b in places] for a in places],
        "driver": "575.51.03", "kernel": "6.8.0", **server.host,
    }  # fmt: skip
    launches, files = [], []
    for name, used in product(server.work, server.sets or (places,)):
        own = [1 + random.gauss(0, server.between) for _ in places]
        for number in range(server.launches):
            rates = [
                RATES[name] * own[place] * server.slow.get((name, place), 1.0) * (1 + random.gauss(0, server.within))
                for place in used
            ]
            launches.append(_launch(server, host, name, used))
            files.append((name, used, number + 1, rates))
    for pair in combinations(places, 2) if server.pairs else ():
        for number in range(server.launches):
            factor = RATES["peer-copy"] * server.slow_pairs.get(pair, 1.0)
            launches.append(_launch(server, host, "peer-copy", pair))
            files.append(("peer-copy", pair, number + 1, [factor * (1 + random.gauss(0, server.within)) for _ in pair]))
    run = write_run(root, launches, host=host, folder=server.name, machine=identity or f"id-{server.name}")
    for name, used, number, rates in files:
        (path,) = run.path.glob(f"*/{_id(name)}/gpu{'+'.join(map(str, used))}/round{number}-try1.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            _time(line, name, rates, server, used)
            edit(line)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def _id(name: str) -> str:
    model = name.partition("-fp32")[0]
    work = WORK[name]
    return f"{model}-micro-{work.get('precision', 'fp32')}-{work.get('shape') or str(work['bytes']) + 'B'}"


def _launch(server: Server, host: dict[str, Any], name: str, places: Sequence[int]) -> dict[str, Any]:
    job = {
        "mode": "micro",
        "precision": "fp32",
        "image_size": None,
        "pattern": "random",
        "batch": 1,
        "steps": 10,
        "seconds": 5,
        **WORK[name],
    }
    label, used = "gpu" + "+".join(map(str, places)), [server.gpus[place] for place in places]
    gpus = {
        "indices": [*places], "label": label, "vendor": server.gpu["vendor"], "gpus": used, "threads": 8, "nodes": 1,
    }  # fmt: skip
    readings = [
        (100.0 + second, {"device": server.gpus[place]["uuid"], **READING, **server.read.get(place, {}),
                          "ecc_corrected": server.errors.get(place, 0) * second})
        for second in (1.0, 5.0, 9.0) for place in places
    ]  # fmt: skip
    return {
        "workload": _id(name), "model": name.partition("-fp32")[0], "job": job, "devices": tuple(places), "gpus": gpus,
        "vendor": server.gpu["vendor"], "readings": readings, "edges": (100.0, 110.0), "steps": 10, "host": host,
        "device": server.gpu["name"],
    }  # fmt: skip


def _time(line: dict[str, Any], name: str, rates: Sequence[float], server: Server, places: Sequence[int]) -> None:
    """Let each rank's window take as long as its rate says, beginning at 100 s."""
    if line.get("event") == "setup":
        line["devices"] = [{"name": server.gpu["name"], "multiprocessors": server.multiprocessors} for _ in places]
    if line.get("event") != "sample" or line["phase"] != "measure":
        return
    model, steps = name.partition("-fp32")[0], 100_000
    amount = operations.amount(model, WORK[name], len(places))
    together = model in operations.TOGETHER
    scale = len(places) if together else 1
    seconds = [steps * amount * scale / (rates[0] if together else rate) for rate in rates]
    longest = 10.0 / max(seconds)
    steps = max(1, round(steps * longest))
    seconds = [steps * amount * scale / (rates[0] if together else rate) for rate in rates]
    line |= {
        "steps": steps, "items": steps * len(places), "seconds": seconds, "step_seconds": [], "enqueue_seconds": [],
        "start_monotonic_seconds": 100.0, "stop_monotonic_seconds": 100.0 + max(seconds), "losses": [],
        "sharing": [{"cpus": server.cpus.get(place, server.gpus[place]["local_cpus"])} for place in places],
    }  # fmt: skip
