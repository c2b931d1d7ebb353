"""Measures how long it takes to submit many launches to a real Slurm on this machine, and what waiting for them costs.

    cd tests && python bench/slurm.py [LAUNCHES [NODES]]

The launches do nothing (tests/fake_python). Prints the seconds of `run --detach`, of which the seconds inside sbatch, how many
requests a watching tool makes in a minute, and the largest memory of both.
"""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import FAKE_PYTHON, slurm_cluster

MATRIX = f"""
[run]
launches = {{rounds}}
{slurm_cluster.FAKE_STACK}
model = ["resnet18", "resnet50", "vgg16", "alexnet", "densenet121"]
batch = [2, 4]
steps = 1
"""
CELLS = 10


def main(launches: int = 1000, nodes: int = 2) -> None:
    """Submit, watch for a minute, cancel."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        (folder / "slurm").mkdir()
        (folder / "matrix.toml").write_text(MATRIX.format(rounds=launches // CELLS, python=FAKE_PYTHON))
        (folder / "settings.toml").write_text('[slurm]\nlauncher = "bare"\n')
        _wrap(folder)
        more = "MaxJobCount=20000\nMaxArraySize=20001\n"
        with slurm_cluster.started(folder / "slurm", nodes=nodes, more=more) as cluster:
            changes = {"TORCHMATRIX_SETTINGS": str(folder / "settings.toml"), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
            environment = os.environ | cluster.variables | changes
            command = [sys.executable, "-m", "torchmatrix", "run", "--engine", "slurm"]
            quiet = {"cwd": folder, "env": environment, "check": True, "capture_output": True}
            # Another run before it, so that nodes and disk are warm.
            subprocess.run([*command, "--detach", "--where", "batch=2"], **quiet)
            cluster.asked("scancel", f"--user={os.getuid()}")
            (folder / "asked").write_text("")
            begin = time.monotonic()
            subprocess.run([*command, "--detach"], **quiet)
            seconds, calls = time.monotonic() - begin, (folder / "asked").read_text().split()
            print(
                f"{launches} launches on {nodes} nodes: submitted in {seconds:.1f} s, {calls.count('sbatch')} calls of sbatch"
            )
            (folder / "asked").write_text("")
            watching = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(60)
            watching.send_signal(signal.SIGINT)
            print(f"watched for a minute: {(folder / 'asked').read_text().split().count('squeue')} requests")
            watching.wait(timeout=300)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(f"largest memory of a process: {peak / 1024:.0f} MiB")


def _wrap(folder: Path) -> None:
    """Write commands of Slurm that count themselves."""
    (folder / "bin").mkdir()
    for command in ("sbatch", "squeue"):
        path = folder / "bin" / command
        path.write_text(f'#!/bin/sh\necho {command} >>{folder}/asked\nexec /usr/bin/{command} "$@"\n')
        path.chmod(0o755)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
