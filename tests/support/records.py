"""Launch files as the tool writes them, made in memory for tests of reading, analysis and report."""

import csv
import json
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from torchmatrix.facts.store import RunFolder

CLEAN: dict[str, Any] = {
    "vendor": "V", "framework": "pytorch", "gpu": "A100 80GB SXM4", "gpus": 1, "model": "resnet50", "mode": "train",
    "precision": "amp", "memory_format": "nhwc", "compile": "false", "batch_per_gpu": 512, "image_size": 224,
    "data": "synthetic", "throughput": 2400.5, "unit": "images/s", "torch": "2.5.1", "image": "i", "driver": "550.1",
    "date": "2025-01-31", "machine": "m1", "source": "https://example.org",
}  # fmt: skip
"""A row of published figures without audit findings."""


def table(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    """Write a file of published figures with these rows."""
    path = tmp_path / "figures.csv"
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_run(
    root: Path, launches: list[dict[str, Any]], skips: Sequence[tuple[str, str]] = (), complete: bool = True,
    run: str = "20260101T000000Z", folder: str = "testhost", **header: Any,
) -> RunFolder:  # fmt: skip
    """Write a run folder `root`/`folder`/`run` holding `launches` (arguments of `launch_lines`), begun when its id says.

    `header`: fields of the run's line; `machine`, its identity, is one of the launches too.
    """
    made = RunFolder(root / folder / run)
    made.path.mkdir(parents=True)
    host = {"name": folder, "cpu": "Test CPU", "gpus": [], "cores": [0, 1]}
    usual = {"key": "k", "host": host, "matrix": "", "launches": 3, "seed": 0, "command": "torchmatrix run"}
    if not math.isnan(made.started):
        usual["unix_seconds"] = made.started
    made.append("run", **{**usual, **header})
    whose = {"machine": header["machine"]} if "machine" in header else {}
    cells: dict[str, int] = {}
    names: dict[str, dict[str, Any]] = {}
    written = []
    for launch in launches:
        lines = launch_lines(**{"run": run, **whose, **launch})
        cell = lines[0]["cell"]
        cells[cell] = lines[0]["round"] = cells.get(cell, 0) + 1
        names[cell] = {name: lines[0][name] for name in ("cell", "ddp_workload")}
        names[cell] |= {"stack": lines[0]["stack"]["name"], "workload": lines[0]["workload"]["id"]}
        names[cell] |= {"parallel": lines[0]["workload"]["parallel"], "devices": lines[0]["gpus"]["label"]}
        written.append((made.path / cell / f"round{cells[cell]}-try1.jsonl", lines))
    for cell in cells:
        made.append("planned", **names[cell])
    for cell, reason in skips:
        stack, workload, devices = cell.rsplit("/", 2) if cell.count("/") > 1 else (cell, cell, cell)
        name = {"cell": cell, "stack": stack, "workload": workload, "ddp_workload": workload, "parallel": "ddp"}
        made.append("skip", **name, devices=devices, reason=reason, fix="")
    for path, lines in written:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if complete:
        made.append("run-exit", complete=True)
    return made


def nights(count: int, first: str = "2026-01-01") -> list[str]:
    """Return the ids of runs at midnight, on `count` days in a row."""
    begin = datetime.fromisoformat(first)
    return [f"{begin + timedelta(days=day):%Y%m%dT%H%M%SZ}" for day in range(count)]


ROOF = {
    "event": "roof", "rank": 0, "copy_bytes_per_second": 2e12, "triad_bytes_per_second": 2.1e12,
    "read_bytes_per_second": 1.9e12,
    "limit_bytes_per_second": 2.5e12, "product_flops_per_second": 7e14, "product_type": "bfloat16", "weight_bytes": 1.6e10,
    "cache_bytes": 4e9, "prefill_flops": 3e12,
}  # fmt: skip
"""What a generation's launch measured of its device."""


def launch_lines(
    rate: float | None = None, stack: str | dict[str, Any] = "stack-a", workload: str = "resnet50-train-fp32-b4",
    devices: tuple[int, ...] = (0,),
    outcome: str = "ok", vendor: str = "nvidia", model: str = "resnet50", error: str = "RuntimeError: boom",
    parallel: str = "ddp", edges: tuple[float, float] | None = None, readings: Sequence[tuple[float, dict[str, Any]]] = (),
    flops: float | None = None, counter: str | None = None, device: str = "NVIDIA H200", memory_bytes: int = 141 * 2**30,
    torch: str = "2.5.1+cu124",
    job: dict[str, Any] | None = None, steps: int | None = None, served: dict[str, list[float]] | None = None, nodes: int = 1,
    told: Sequence[dict[str, Any]] = (), sharing: Sequence[dict[str, Any]] = (),
    parameters: int | None = None, compile_cache: str = "cold",
    **more: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the lines of one launch whose throughput is exactly `rate` items per second (all ranks together), by default 100.

    `edges`: of the timed window on the monotonic clock; by default from 100 on. `readings`: (monotonic seconds, reading) of the
    telemetry; the default window is then about 20 s long. `job`: other values of the workload's fields. `served`: by kind the
    seconds of each rank's requests, after the window; it infers then. `nodes`: on each of them are these devices; `told`:
    further events. `sharing`: how each rank shared its CPUs in the window.
    """
    prefix = "cpu" if vendor == "cpu" else "gpu"
    label = prefix + "+".join(map(str, devices)) + (f"@{nodes}nodes" if nodes > 1 else "")
    n, batch = len(devices) * nodes, (job or {}).get("batch", 4)
    if served:
        job = {"mode": "infer", "requests": max(map(len, served.values())), **(job or {})}
    used = more.get("batch_used") or (4 if batch == "auto" else batch)
    requested = 1 if more.get("trial") else (job or {}).get("steps", 10)
    if steps is None:
        steps = max(requested, round(rate * 20.0 / (used * n))) if rate and readings and not edges else requested
    named = stack if isinstance(stack, dict) else {"name": stack, "torch": "2.5.1"}
    items = used * steps * n * int((job or {}).get("accumulate") or 1)
    if rate is None and (readings or edges):
        edges = edges or (100.0, 120.0)
        rate = items / (edges[1] - edges[0])
    seconds = items / (rate or 100.0)
    begin, end = edges or (100.0, 100.0 + seconds)
    gpus = [] if vendor == "cpu" else [{"uuid": f"GPU-{i}", "name": device} for i in devices]
    header = {
        "event": "launch", "unix_seconds": 1000.0, "monotonic_seconds": 90.0, "protocol": 1, "workload_hash": "w1",
        "method": {"name": "steady", "statistic": "median", "start_below_celsius": None, "steps": None},
        "batch_used": used, "run": "r", "round": 1, "try": 1, "trial": False,
        "image": {"reference": "img", "environment": "recipe"},
        "cell": f"{named['name']}/{workload}/{label}", "command": "python bench.py --model resnet50",
        "stack": named,
        "ddp_workload": workload.removesuffix(f"-{parallel}"),
        "workload": {
            "id": workload, "model": model, "mode": "train", "unit": "images", "precision": "fp32", "compile": False,
            "channels_last": False, "attention": None, "batch": batch, "parallel": parallel, "image_size": 224,
            **(job or {}),
        },
        "gpus": {"indices": list(devices), "label": label, "vendor": vendor, "gpus": gpus, "threads": 1, "nodes": nodes},
        "engine": {"engine": "docker", "ServerVersion": "20.10"},
        **more,
    }  # fmt: skip
    if outcome == "build-failed":
        exit_line = {"event": "exit", "unix_seconds": 1001.0, "monotonic_seconds": 91.0, "reason": outcome, "message": error}
        return [header, exit_line]
    body: list[dict[str, Any]] = [
        {"event": "hello", "protocol": 1, "compile_cache": compile_cache},
        {"event": "environment", "torch": torch, "python": "3.11.7", "packages": ["torchvision==0.20.1"],
         "torch_config": "cfg", "os": "Debian"},
        {"event": "sample", "phase": "warm-up", "window": 0, "steps": steps, "items": 999, "seconds": [seconds] * n,
         "enqueue_seconds": [seconds / 4] * n, "step_seconds": [[seconds / steps] * steps] * n, "loss": [1.0] * n},
    ]  # fmt: skip
    if outcome == "ok":
        body.append(
            {"event": "setup", "devices": [{"name": device, "memory_bytes": memory_bytes}] * n, "parameters": parameters}
        )
        sample = {**body[-2], "phase": "measure", "items": items}
        sample |= {"start_monotonic_seconds": begin, "stop_monotonic_seconds": end, "sharing": list(sharing)}
        sample["seconds"] = [seconds * (1.0 if nodes > 1 or rank == n - 1 else 0.5) for rank in range(n)]
        sample["step_seconds"] = [[rank / steps] * steps for rank in sample["seconds"]]
        body.append({"event": "memory", "phase": "cold", "peak_bytes": [2**29] * n})
        body += [sample, {"event": "memory", "phase": "warm", "peak_bytes": [2**30] * n}, {"event": "done"}]
        for metric, some in (served or {}).items():
            begun, end = end + 0.5, end + 0.5 + sum(some)
            times = {"start_monotonic_seconds": begun, "stop_monotonic_seconds": end}
            body += [{"event": "requests", "kind": metric, "rank": rank, "seconds": some, **times} for rank in range(n)]
        body += told
        body.append({"event": "precision", "effective": [{"matmul": "fp32", "convolution": "fp32"}] * n})
        counted = {"flops_per_item": flops, **({"flops_counter": counter} if counter else {})}
        body.append({"event": "reference", **counted, "differences": [0.0], "error": None})
        body += [{"event": "telemetry", "monotonic_seconds": t, "readings": [reading]} for t, reading in readings]
        over = max(130.0, end + 10.0)
        times = {"unix_seconds": 910.0 + over, "monotonic_seconds": over}
        exit_line = {"event": "exit", **times, "returncode": 0, "oom_killed": False}
    elif outcome == "timeout":  # which only the host says
        exit_line = {"event": "exit", "unix_seconds": 1010.0, "returncode": 1, "reason": outcome, "message": error}
    else:
        body += [{"event": "failure", "kind": outcome, "rank": 0, "message": error}]
        exit_line = {"event": "exit", "unix_seconds": 1010.0, "returncode": 1, "oom_killed": False, "tail": ["noise"]}
    return [header, *body, exit_line]
