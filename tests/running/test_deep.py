"""`doctor --deep`: findings from what a workload said and a host read; the whole command with real PyTorch; Ctrl-C."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support import Command, processes_of, until
from torchmatrix.core.errors import ExitCode
from torchmatrix.engines import recipes
from torchmatrix.engines.choose import choose
from torchmatrix.facts.store import Results
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.running import deep
from torchmatrix.running.deep import SelfCheck, all_devices, findings, look
from torchmatrix.running.doctor import Check

STAND_IN = Path(__file__).parents[1] / "box" / "device_stand_in"
UUIDS = ("6a1e0000-0000-0000-0000-000000000000", "6a1e0001-0000-0000-0000-000000000000")


@pytest.fixture
def two_gpus(nvidia_host: Host) -> Host:
    """Return a host of two linked GPUs whose UUIDs NVML writes as it does."""
    gpus = tuple(replace(gpu, uuid=f"GPU-{uuid}") for gpu, uuid in zip(nvidia_host.gpus, UUIDS, strict=False))
    return replace(nvidia_host, gpus=gpus, p2p=(("X", "ok"), ("ok", "X")))


@pytest.fixture
def self_check(two_gpus: Host) -> Callable[..., SelfCheck]:
    """Return a maker of self-checks that found nothing wrong in 12 s of load at 600 W.

    A test replaces events by name, and fields.
    """

    def make(
        readings: dict[str, Any] | None = None, fields: dict[str, Any] | None = None, **events: dict[str, Any]
    ) -> SelfCheck:
        effective = {"matmul": "fp16", "convolution": "fp16"}
        usual: dict[str, dict[str, Any]] = {
            "devices": {"backend": "nccl", "devices": [{"name": "NVIDIA H100", "uuid": uuid} for uuid in UUIDS]},
            "peers": {"access": [[True, True], [True, True]], "bytes_per_second": [[None, 300e9], [280e9, None]], "wrong": []},
            "precision": {"requested": "amp", "effective": [effective, effective], "unsupported": None, "problems": []},
            "all-reduce": {
                "sizes": [{"bytes": 256 << 20, "seconds": 1.0, "bus_bytes_per_second": 400e9}], "wrong_elements": [0, 0],
            },
            "load": {
                "start_monotonic_seconds": 100.0, "stop_monotonic_seconds": 112.0, "dtype": "float16",
                "flops_per_second": [[700e12] * 10, [705e12] * 10], "finite": [True, True],
            },
            "phase": {"phase": "load", "seconds": 12.0},
        }  # fmt: skip
        merged = usual | {name.replace("_", "-"): usual[name.replace("_", "-")] | event for name, event in events.items()}
        steady = {"temperature_celsius": 60, "sm_clock_mhz": 1980, "power_watts": 600.0, "reasons": [], **(readings or {})}
        read = [
            (float(at), {"device": gpu.uuid, "energy_joules": 600.0 * at, **steady})
            for at in range(98, 115)
            for gpu in two_gpus.gpus
        ]
        result = SelfCheck(
            stack="torch2.7.1-cu128", engine="docker", command="docker run", host=two_gpus,
            gpus=all_devices(two_gpus, range(2)),
            events=tuple({"event": name, **event} for name, event in merged.items()), readings=tuple(read), watch_notes=(),
            seconds=60.0, ended=None, tail=(),
        )  # fmt: skip
        return replace(result, **(fields or {}))

    return make


def finding(checks: list[Check], subject: str) -> Check:
    (check,) = (check for check in checks if check.subject == subject)
    return check


def test_a_server_without_faults_is_ok_in_every_line(self_check: Callable[..., SelfCheck]) -> None:
    checks = findings(self_check())
    assert [(check.mark, check.subject) for check in checks] == [
        ("ok", subject)
        for subject in (
            "box", "device mapping", "peer access", "precision amp", "all-reduce", "load", "GPU 0 under load",
            "GPU 1 under load", "energy counter", "time",
        )
    ]  # fmt: skip
    assert finding(checks, "device mapping").finding == "2 devices, in the host's order, by UUID: NVIDIA H100, NVIDIA H100"
    assert finding(checks, "peer access").finding == "between all GPUs; copies arrive whole, at 280.0 to 300.0 GB/s"
    assert finding(checks, "energy counter").finding == "14400 J in 12 s; the power readings agree within 10%"
    assert finding(checks, "GPU 0 under load").finding == "temperature 60 °C, clock 1980 MHz, power 600 W"


def test_gpus_that_a_mask_left_are_counted_from_0_as_their_links_are(
    self_check: Callable[..., SelfCheck], two_gpus: Host
) -> None:
    masked = replace(two_gpus, gpus=tuple(replace(gpu, index=2 + gpu.index) for gpu in two_gpus.gpus))
    checks = findings(self_check(fields={"host": masked, "gpus": all_devices(masked, range(2))}))
    assert {"GPU 0 under load", "GPU 1 under load"} <= {check.subject for check in checks}
    assert finding(checks, "peer access").mark == "ok"


def test_a_gpu_that_the_stack_has_no_code_for_is_left_out_and_told(
    self_check: Callable[..., SelfCheck], two_gpus: Host
) -> None:
    display = replace(two_gpus.gpus[0], name="NVIDIA T400", capability="7.5")
    host = replace(two_gpus, gpus=(two_gpus.gpus[0], display, two_gpus.gpus[1]), p2p=3 * (3 * ("ok",),))
    checks = findings(self_check(fields={"host": host, "gpus": all_devices(host, (0, 2))}))
    assert {"GPU 0 under load", "GPU 2 under load"} <= {check.subject for check in checks}
    assert finding(checks, "GPUs").finding == "not checked, since torch2.7.1-cu128 has no code for it: GPU 1 (NVIDIA T400)"


def test_hips_uuids_are_not_held_against_the_kernels(self_check: Callable[..., SelfCheck], amd_host: Host) -> None:
    """HIP gives the characters of the unique id as the bytes of a UUID."""
    devices = {"devices": [{"name": "AMD Instinct MI100", "uuid": "35656564-3030-3030-3030-303030303030"}] * 2}
    check = finding(
        findings(self_check(fields={"host": amd_host, "gpus": all_devices(amd_host, range(2))}, devices=devices)),
        "device mapping",
    )
    assert (check.mark, check.finding) == ("note", "AMD Instinct MI100; HIP doesn't tell the UUID of GPU 0, 1")


@pytest.mark.parametrize("sizes", [[{"bytes": 1 << 20}], [{}], []])
def test_a_speed_that_was_not_told_is_unknown(self_check: Callable[..., SelfCheck], sizes: list[dict[str, Any]]) -> None:
    assert "– GB/s bus bandwidth at" in finding(findings(self_check(all_reduce={"sizes": sizes})), "all-reduce").finding


SWAPPED = {"devices": [{"name": "NVIDIA H100", "uuid": uuid} for uuid in reversed(UUIDS)]}
WRONG_PRODUCT = {"problems": ["precision amp was requested, but matmul computes in fp32 (measured against float64)"]}


@pytest.mark.parametrize(
    ("events", "subject", "message"),
    [
        (
            {"devices": SWAPPED},
            "device mapping",
            f"device 0 of the container is {UUIDS[1]}, GPU 0 of the host is GPU-{UUIDS[0]}",
        ),
        ({"devices": {"devices": SWAPPED["devices"][:1]}}, "device mapping", "device 0 of the container is"),
        ({"peers": {"access": [[True] * 3] * 3, "bytes_per_second": [[1.0] * 3] * 3}}, "peer access", "reported 3 devices"),
        ({"peers": {"wrong": [[1, 0]]}}, "peer access", "a copy arrives wrong from GPU 1 to 0"),
        ({"precision": WRONG_PRODUCT}, "precision amp", "matmul computes in fp32"),
        ({"all_reduce": {"wrong_elements": [0, 7]}}, "all-reduce", "the sum is wrong on rank 1"),
        ({"load": {"finite": [True, False]}}, "load", "a product is wrong"),
        ({"fields": {"ended": "rank 1: RuntimeError: CUDA error"}}, "box", "rank 1: RuntimeError: CUDA error"),
        ({"readings": {"error": "GPU is lost"}}, "GPU 0 under load", "GPU is lost"),
    ],
)
def test_a_fault_is_bad_with_a_way_out_and_exit_code_1(
    self_check: Callable[..., SelfCheck], events: dict[str, Any], subject: str, message: str
) -> None:
    check = finding(findings(self_check(**events)), subject)
    assert check.mark == "bad" and message in check.finding and check.fix and check.exit_code == ExitCode.CELL_NOT_OK


@pytest.mark.parametrize(
    ("events", "subject", "message"),
    [
        ({"load": {"flops_per_second": [[700e12] * 10, [700e12] * 5 + [600e12] * 5]}}, "load", "device 1 became 14% slower"),
        (
            {"load": {"flops_per_second": [[700e12] * 10, [560e12] * 10]}},
            "load",
            "the slowest device is 20% behind the fastest",
        ),
        ({"readings": {"reasons": ["hw_thermal_slowdown"]}}, "GPU 1 under load", "hw_thermal_slowdown 100%"),
        ({"readings": {"power_watts": 300.0}}, "energy counter", "the power readings say 7200 J, the counter 14400 J"),
        ({"fields": {"readings": ()}}, "energy counter", "no energy counter can be read"),
        ({"devices": {"devices": [{"name": "A100", "uuid": None}] * 2}}, "device mapping", "doesn't tell the UUID of GPU 0, 1"),
    ],
)
def test_what_is_only_worse_than_it_could_be_is_a_note(
    self_check: Callable[..., SelfCheck], events: dict[str, Any], subject: str, message: str
) -> None:
    checks = findings(self_check(**events))
    check = finding(checks, subject)
    assert check.mark == "note" and message in check.finding
    assert max(check.exit_code for check in checks) == ExitCode.OK


def test_a_link_that_driver_and_workload_disagree_about_is_named(self_check: Callable[..., SelfCheck]) -> None:
    closed = {"access": [[True, False], [False, True]]}
    through, disagree = (check for check in findings(self_check(peers=closed)) if check.subject == "peer access")
    assert "through the host's memory between GPU 0 and 1" in through.finding
    assert disagree.finding == "driver and container disagree about GPU 0 to 1, 1 to 0"


def test_a_stack_that_is_unknown_or_not_built_is_said_before_anything_runs(torchmatrix: Command, tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text(
        '[[stack]]\nname = "new"\ntorch = "2.5.1"\ncpu = true\npackages = ["never-built"]\n'
        '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 1\n'
    )
    done = torchmatrix("doctor", "--deep")
    assert done.returncode == ExitCode.NOTHING_SELECTED and "torchmatrix build" in done.stderr
    done = torchmatrix("doctor", "--deep", "--stack", "now")
    assert done.returncode == ExitCode.BAD_INPUT and "the nearest: new" in done.stderr
    assert torchmatrix("doctor", "--stack", "new").returncode == ExitCode.BAD_INPUT
    assert not (tmp_path / "reports").exists()


def test_ctrl_c_ends_the_workload_and_writes_nothing(fake_matrix: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchmatrix", "doctor", "--deep", "--engine", "local"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={"FAKE_BEHAVIOUR": "hang", "PATH": "/usr/bin:/bin", "TORCHMATRIX_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    owner = f"TORCHMATRIX_OWNER={Results(tmp_path / 'results').owner}".encode()
    until(lambda: processes_of(owner), process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == ExitCode.INTERRUPTED and "interrupted" in stderr and "Traceback" not in stderr
    assert not processes_of(owner) and not (tmp_path / "reports").exists()


@pytest.mark.thorough
def test_the_whole_check_on_a_cpu_is_written_without_names(
    torchmatrix: Command, real_matrix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_matrix.write_text(
        real_matrix.read_text(encoding="utf-8") + '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 1\n',
        encoding="utf-8",
    )
    monkeypatch.setattr("socket.gethostname", lambda: "secret-host-7")
    done = torchmatrix("doctor", "--deep", "--seconds", "1", "--json")
    assert done.returncode == 0, done.stderr
    marks = {check["subject"]: check["mark"] for check in json.loads(done.stdout)}
    assert marks["box"] == marks["precision fp32"] == marks["precision amp-bf16"] == "ok"
    assert marks["device mapping"] == marks["peer access"] == marks["precision tf32"] == "note"
    record = json.loads((tmp_path / "reports/doctor.json").read_text())
    assert {event["event"] for event in record["events"]} >= {"hello", "environment", "devices", "precision", "load", "done"}
    text = (tmp_path / "reports/doctor.txt").read_text() + json.dumps(record)
    assert "secret-host-7" not in text and str(tmp_path) not in text and "host-1" in text


def checked_whole(real_python: str, two_gpus: Host, tmp_path: Path, count: int) -> list[Check]:
    """Run the whole check on the first `count` of two invented GPUs."""
    python = tmp_path / "python"
    script = json.dumps({"folder": str(tmp_path), "uuids": UUIDS, "peers": False})
    python.write_text(
        f"#!/bin/sh\nexport PYTHONPATH='{STAND_IN}' STAND_IN='{script}' GLOO_SOCKET_IFNAME=lo\n"
        f'case "$*" in *deep.py*) exec {real_python} "$@" --load-size 64 --megabytes 1;; *) exec {real_python} "$@";; esac\n'
    )
    python.chmod(0o755)
    matrix = f'[[stack]]\nname = "invented"\npython = "{python}"\naccelerator = "cuda"\n'
    (stack,) = matrix_file.parse(f'{matrix}[[workload]]\nmodel = "resnet18"\nbatch = 1\n').stacks
    results = Results(tmp_path / "results")
    local = choose("local", results.owner).local
    image = local.build(recipes.recipes(stack)[0], lambda line: None)
    steps = look(two_gpus, local, image, stack.name, all_devices(two_gpus, range(count)), results.owner, 1.0)
    try:
        while True:
            next(steps)
    except StopIteration as over:
        result = over.value
    checks = findings(result)
    assert finding(checks, "box").mark == "ok", result.tail
    assert deep.as_record(result)["ended"] is None
    return checks


@pytest.mark.thorough
def test_the_whole_check_of_one_gpu_says_what_needs_two(real_python: str, two_gpus: Host, tmp_path: Path) -> None:
    checks = checked_whole(real_python, two_gpus, tmp_path, 1)
    assert "1 device, in the host's order, by UUID" in finding(checks, "device mapping").finding
    assert finding(checks, "all-reduce").finding == "not checked: that needs two devices"


@pytest.mark.thorough
def test_the_whole_check_on_invented_gpus_finds_them_by_uuid(real_python: str, two_gpus: Host, tmp_path: Path) -> None:
    checks = checked_whole(real_python, two_gpus, tmp_path, 2)
    assert "2 devices, in the host's order, by UUID" in finding(checks, "device mapping").finding
    assert {check.subject: check.finding for check in checks}[
        "precision tf32"
    ] == "really computes in: matmul tf32, convolution tf32"
    assert "every element right on every rank; nccl" in finding(checks, "all-reduce").finding
    assert [check.finding for check in checks if check.subject == "peer access"][1].startswith("driver and container disagree")
