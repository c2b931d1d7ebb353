"""Measures what a launch on a cluster's node costs beside the workload process: seconds of a job's command without its launch.

    cd tests && python bench/slurm_launch.py [TIMES]

The command is that of a job's script, started by hand as often as asked, so that nothing of Slurm's is in it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import FAKE_PYTHON, slurm_cluster
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results

MATRIX = f'[run]\nlaunches = 1\n{slurm_cluster.FAKE_STACK}model = "resnet18"\nbatch = 2\nsteps = 1\n'


def main(times: int = 7) -> None:
    """Make one launch by Slurm, then the same again and again."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        (folder / "slurm").mkdir()
        (folder / "matrix.toml").write_text(MATRIX.format(python=FAKE_PYTHON))
        (folder / "settings.toml").write_text('[slurm]\nlauncher = "bare"\n')
        with slurm_cluster.started(folder / "slurm", nodes=1) as cluster:
            environment = os.environ | cluster.variables | {"TORCHMATRIX_SETTINGS": str(folder / "settings.toml")}
            command = [sys.executable, "-m", "torchmatrix"]
            subprocess.run([*command, "run", "--engine", "slurm"], cwd=folder, env=environment, check=True, capture_output=True)
            (place,) = (folder / "results" / ".slurm").iterdir()
            job = environment | {"SLURM_ARRAY_TASK_ID": "0", "SLURMD_NODENAME": "node1", "SLURM_JOB_ID": "99"}
            seconds = [_seconds(folder, [*command, "on-node", "launch", str(place), "1"], job) for _ in range(times)]
    print(f"beside the box: median {statistics.median(seconds):.3f} s, {min(seconds):.3f} to {max(seconds):.3f} s, n = {times}")


def _seconds(folder: Path, command: list[str], environment: dict[str, str]) -> float:
    _launch(folder).path.unlink()
    for log in folder.glob("results/*/*/*/*/*/*.log"):
        log.unlink()
    begin = time.monotonic()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    took = time.monotonic() - begin
    times = [json.loads(line)["unix_seconds"] for line in _launch(folder).path.read_text().splitlines()]
    return took - (times[-1] - times[0])


def _launch(folder: Path) -> Launch:
    (run,) = Results(folder / "results").runs()
    (launch,) = run.launches()
    return launch


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
