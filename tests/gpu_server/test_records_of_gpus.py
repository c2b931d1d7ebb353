"""What the suite for GPUs saw on real ones: kept without identities, and the invented GPUs are held against it."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stand_ins import Running

KEEP = Path(__file__).parents[1] / "gpu" / "keep"
RECORDS = Path(__file__).parents[1] / "data" / "gpu"
ENERGY = "test_energy_power_and_clocks_agree"
UUID = "GPU-0123abcd-5eed-4000-8000-0123456789ab"
SEEN = {
    "machine": {"is_real": True, "name": "NVIDIA H100 80GB HBM3", "commit": "c0ffee"},
    "tests": {
        "test_a": {
            "outcome": "passed",
            "seconds": 1.0,
            "error": f"in /home/alice/x: {UUID}",
            "seen": {"driver": {"uuid": UUID, "serial": "1650", "pci_bus": "0000:1b", "name": "H100"}, "sensors": [UUID]},
        },
        ENERGY: {"outcome": "passed", "seconds": 1.0, "error": None, "seen": {"fields": ["device", "power_watts"]}},
    },
}


def keep(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(KEEP), *map(str, words)], capture_output=True, text=True)


def lacking(record: Mapping[str, Any], fields: Iterable[str]) -> set[str]:
    """Return the fields of a real GPU's readings that an invented GPU doesn't have."""
    return {*record["tests"].get(ENERGY, {}).get("seen", {}).get("fields", ())} - {*fields}


def test_a_record_has_what_was_seen_and_no_identity(tmp_path: Path) -> None:
    (tmp_path / "seen.json").write_text(json.dumps(SEEN))
    done = keep(tmp_path / "seen.json", tmp_path / "gpu" / "h100.json")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "gpu" / "h100.json").read_text()
    for identity in (UUID, UUID[4:], "1650", "0000:1b", "alice", "c0ffee"):
        assert identity not in text
    record = json.loads(text)
    assert record["tests"]["test_a"]["seen"] == {"driver": {"name": "H100"}, "sensors": ["UUID"]}
    assert record["machine"]["name"] == "NVIDIA H100 80GB HBM3"


def test_what_an_invented_gpu_showed_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "seen.json").write_text(json.dumps({**SEEN, "machine": {"is_real": False}}))
    done = keep(tmp_path / "seen.json", tmp_path / "record.json")
    assert done.returncode == 2 and "not of a real GPU" in done.stderr and not (tmp_path / "record.json").exists()


def test_invented_gpus_say_what_real_ones_say(eight_h100: Running) -> None:
    eight_h100.matrix("counts = [1]")
    assert eight_h100.run("run", "--engine", "local").returncode == 0
    readings = [reading for launch in eight_h100.launches() for each in launch.telemetry for reading in each.readings]
    fields = {key for reading in readings if reading["device"] != "cpu" for key in reading}
    assert lacking(SEEN, fields) == set()
    assert lacking({"tests": {ENERGY: {"seen": {"fields": ["power_watts", "flux"]}}}}, fields) == {"flux"}
    for path in sorted(RECORDS.glob("*.json")):
        assert lacking(json.loads(path.read_text(encoding="utf-8")), fields) == set(), path.name
