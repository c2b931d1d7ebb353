"""Pyxis: containers as steps of a Slurm job (srun --container-image), run by Enroot.

The srun of a launch is a process of this user. What it starts belongs to Slurm's daemon, which ends it with the job; it carries
the launch's mark, and is ended with the launch.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchmatrix.engines.commands import Isolation, box_environment, visible_devices
from torchmatrix.engines.engine import LaunchSpec
from torchmatrix.engines.processes import MARKS
from torchmatrix.ground.errors import EngineUnusable

PROGRAM = "enroot"
CLOSED = ("--container-readonly", "--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint")
SHARED = Isolation(network="machine", note="Pyxis shares the machine's network and processes with the container")
_SHELL = 'PATH=/opt/torchmatrix/bin:/opt/stack/bin:$PATH exec env "$@"'
"""Inside: a login shell of Enroot's has reset PATH, and Slurm has said which GPUs the whole job has."""


def is_here() -> bool:
    """Whether Enroot is."""
    return shutil.which(PROGRAM) is not None


class Pyxis:
    """`job`: the variables of the job that this process is in, or those outside of jobs."""

    name = "pyxis"
    ending = ".sqsh"

    def __init__(self, job: Mapping[str, str] = os.environ) -> None:
        self._job = job

    def version(self) -> str:
        """Enroot's, such as 4.1.2. Raises EngineUnusable."""
        try:
            said = subprocess.run(
                [PROGRAM, "version"], capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=True
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise EngineUnusable(f"{PROGRAM} can't be used: {error}", hint=f"see what `{PROGRAM} version` says") from None
        return said.strip()

    def facts(self) -> dict[str, Any]:
        """Whose version it is."""
        return {"program": PROGRAM}

    def conversion(self, tag: str, path: Path) -> list[str]:
        """Docker's command line gives the image."""
        return [PROGRAM, "import", "--output", str(path), f"dockerd://{tag}"]

    def why_unlimited(self) -> str:
        """What runs is no child of ours."""
        return "a launch has the limits of its Slurm job"

    def isolation(self, image: str, spec: LaunchSpec) -> Isolation:
        """Newer releases can do without the network; whether that works depends on each node's hooks of Enroot's."""
        self._remove_earlier_life()
        return SHARED

    def box(self, image: str, spec: LaunchSpec, scratch: Path, binds: Sequence[str], shared: Isolation) -> list[str]:
        """A step on this node, which takes what the job has of it: with no folders but the given ones, and the box's variables
        alone. Pure.
        """
        words = [
            "srun",
            "--overlap",
            "--nodes=1",
            "--ntasks=1",
            "--mem=0",
            "--mpi=none",
            "--cpu-bind=none",
            "--kill-on-bad-exit=1",
        ]
        words += [f"--nodelist={self._job['SLURMD_NODENAME']}"] if "SLURMD_NODENAME" in self._job else []
        words += [f"--cpus-per-task={self._job['SLURM_CPUS_ON_NODE']}"] if "SLURM_CPUS_ON_NODE" in self._job else []
        words += [f"--export={','.join(MARKS)}", f"--container-image={image}", *CLOSED, "--container-workdir=/tmp"]
        words += [f"--container-mounts={','.join([f'{scratch}:/tmp', *binds])}", "sh", "-c", _SHELL, "box"]
        variables = box_environment(spec.gpus.vendor, spec.meeting) | visible_devices(spec.gpus)
        return [*words, *(f"{key}={value}" for key, value in (variables | {"USER": "bench", "HOME": "/tmp"}).items())]

    def _remove_earlier_life(self) -> None:
        """Remove the containers of this job that a node which died left on its disk: the job runs again under the same number,
        and Pyxis refuses to make a container that is there.
        """
        if not int(self._job.get("SLURM_RESTART_COUNT", "0")) or "SLURM_JOB_ID" not in self._job:
            return
        there = subprocess.run(
            [PROGRAM, "list"], capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=False
        ).stdout.split()
        for name in there:
            if name.startswith(f"pyxis_{self._job['SLURM_JOB_ID']}."):
                subprocess.run([PROGRAM, "remove", "--force", name], capture_output=True, timeout=600, check=False)
