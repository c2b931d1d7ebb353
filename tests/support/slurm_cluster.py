"""A real Slurm on this machine, of one controller and some nodes, for the tests; nothing of it outlives them."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from support import until
from support.bad_days import Cable

COMMANDS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
FAKE_STACK = """
[cpus]
counts = [1]
when = "always"
[[stack]]
name = "fake"
python = "{python}"
accelerator = "cpu"
[[workload]]
device = "cpu"
"""
"""Most of a matrix that stand-ins measure on each node: a test adds what the workload is."""
_CONF = """\
ClusterName=tests
SlurmctldHost={host}({address})
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=5
KillWait=5
BatchStartTimeout=5
CompleteWait=0
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
{gres}
{nodes}
PartitionName=tests Nodes=ALL Default=YES State=UP
"""
_NODE = "NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs=2 RealMemory={memory}{gres} State={state}"


_POWER = """\
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=600
PrivateData=cloud
"""
"""Of a cluster whose nodes are powered down until a job needs them, and take as long to start as the test likes."""


class Cluster:
    """A running cluster. `variables`: what a command needs to reach it. `cable`: to the last node, if it is on a network of its
    own.

    `around`: the command that runs the last node's daemon, if it isn't started as it is.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int,
        memory: tuple[int, ...],
        gpus: int,
        more: str = "",
        cable: Cable | None = None,
        around: Sequence[str] = (),
        asleep: bool = False,
    ) -> None:
        self._folder, self._asleep = folder, asleep
        self._around = cable.around if cable else around
        self.nodes = tuple(f"node{number}" for number in range(1, nodes + 1))
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        host, ports = socket.gethostname(), _free_ports(nodes + 1)
        self._spool = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # sockets lie there, whose paths must be short
        self._spool.chmod(0o755)  # jobs of all users find their scripts there
        for place in (folder / "state", *(self._spool / node for node in self.nodes)):
            place.mkdir()
        address = cable.here if cable else "127.0.0.1"
        addresses = dict.fromkeys(self.nodes, address) | ({self.nodes[-1]: cable.there} if cable else {})
        rows = [
            _NODE.format(
                name=name,
                address=addresses[name],
                host=host,
                port=port,
                memory=memory[i % len(memory)],
                state="CLOUD" if asleep else "UNKNOWN",
                gres=f" Gres=gpu:{gpus}" * bool(gpus),
            )
            for i, (name, port) in enumerate(zip(self.nodes, ports[1:], strict=True))
        ]
        kinds = "GresTypes=gpu" if gpus else ""
        text = _CONF.format(
            host=host, address=address, controller=ports[0], folder=folder, spool=self._spool, gres=kinds, nodes="\n".join(rows)
        )
        (folder / "slurm.conf").write_text(text + more + _POWER * asleep)
        if _version() >= 24:  # it looks for cgroups, which may not be here
            (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        for number in range(gpus):  # of a device number that no driver has: Slurm wants devices, and nothing opens them
            os.mknod(folder / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(240, number))
        if gpus:
            (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{gpus - 1}]\n")

    def start(self) -> None:
        self._run("slurmctld", "-c", "-i")
        if self._asleep:
            until(lambda: self.states().count("idle~") == len(self.nodes))
            return
        for node in self.nodes:
            self.start_node(node)
        until(lambda: self.states().count("idle") == len(self.nodes) or self._dead())
        assert not self._dead(), "\n".join(path.read_text() for path in self._folder.glob("*.log"))

    def _dead(self) -> list[str]:
        """Return the nodes whose daemon doesn't run."""
        return [node for node in self.nodes if not self._daemons(f"slurmd -N {node}")]

    def start_node(self, node: str) -> None:
        self._run(*(self._around if node == self.nodes[-1] else ()), "slurmd", "-N", node)

    def kill_node(self, node: str) -> None:
        """Kill a node as if its power were cut: what belongs to it is gone at once."""
        jobs = self._marked(f"SLURMD_NODENAME={node}")
        steps = {pid for pid in map(_parent_of, jobs) if _command_of(pid).startswith("slurmstepd")}
        for pid in [*self._daemons(f"slurmd -N {node}"), *steps, *jobs]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def restart_controller(self) -> None:
        for pid in self._daemons("slurmctld"):
            os.kill(pid, signal.SIGTERM)  # it writes its state
        until(lambda: not self._daemons("slurmctld"))  # a zombie has no environment to be found by
        self._run("slurmctld")

    def stop(self) -> None:
        for node in self.nodes:
            self.kill_node(node)
        for pid in self._daemons("slurmctld"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self._spool, ignore_errors=True)

    def states(self) -> list[str]:
        """Return the states of the nodes."""
        return self.asked("sinfo", "-h", "-N", "-p", "tests", "-o", "%T").split()

    def jobs(self, states: str = "PENDING,RUNNING,COMPLETING") -> list[str]:
        """Return the jobs in these states, each as its id, state and node."""
        return self.asked("squeue", "-h", "-r", "-t", states, "-o", "%i %T %N").splitlines()

    def asked(self, *words: str) -> str:
        return self._run(*words).stdout

    def _run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(words, env=os.environ | self.variables, capture_output=True, text=True, timeout=60, check=False)

    def _daemons(self, command: str) -> list[int]:
        return [
            pid for pid in self._marked(f"SLURM_CONF={self.variables['SLURM_CONF']}") if _command_of(pid).startswith(command)
        ]

    def _marked(self, mark: str) -> list[int]:
        """Return the processes of this cluster with `mark` in their environment."""
        ours = f"SLURM_CONF={self.variables['SLURM_CONF']}".encode()
        ids = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                variables = (path / "environ").read_bytes().split(b"\0")
                ids += [int(path.name)] if ours in variables and mark.encode() in variables else []
        return [pid for pid in ids if pid != os.getpid()]


def why_not() -> str:
    """Return why no cluster can be had here; empty if one can."""
    missing = [name for name in COMMANDS if not shutil.which(name)]
    if missing:
        return f"there is no {missing[0]} here: tests/install-packages slurm-wlm"
    return "" if os.geteuid() == 0 else "only root can start Slurm's daemons"


@contextmanager
def started(
    folder: Path,
    nodes: int = 2,
    memory: tuple[int, ...] = (1000,),
    gpus: int = 0,
    more: str = "",
    cable: Cable | None = None,
    around: Sequence[str] = (),
    asleep: bool = False,
) -> Iterator[Cluster]:
    """Start a cluster, and end it with the block.

    `memory`: of the nodes, in megabytes, in turns: nodes that differ in it are of different kinds. `gpus`: of each node.

    `more`: further lines of slurm.conf. `cable`: laid already, to the last node. `around`: a command that runs its daemon.
    `asleep`: its nodes are powered down until a job needs them.
    """
    cluster = Cluster(folder, nodes, memory, gpus, more, cable, around, asleep)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _version() -> int:
    version = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=True).stdout
    return int(version.split()[-1].split(".")[0])


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").rpartition("/")[2]
    except OSError:
        return ""


def _parent_of(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return 0


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(number)]
        for sock in held:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in held]
