"""The interface behind which containers and virtualenvs are the same: an engine builds a recipe and runs a launch.

Every engine offers `Engine` and `Execution`; the other classes are what passes through this interface.
"""

import shlex
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from types import TracebackType
from typing import IO, Any, Protocol

from torchmatrix.core import settings
from torchmatrix.core.settings import MEGABYTE
from torchmatrix.engines.lockfile import StackLock
from torchmatrix.machine.host import Host
from torchmatrix.machine.vendors import VENDORS
from torchmatrix.planning.fit import Disk
from torchmatrix.planning.plan import GpuSet

# The output of a launch, cut into lines, with a bound on what is kept of a line that doesn't end.

Line = tuple[str, bytes]
"""The stream ("out" or "err") and a line with its line break."""


class Output:
    """Cuts two streams into lines. A line that is longer than the setting `line_mb` comes in pieces, without line breaks."""

    def __init__(self) -> None:
        self._rest = {"out": b"", "err": b""}
        self._longest = settings.load().line_mb * MEGABYTE

    def add(self, stream: str, data: bytes) -> Iterator[Line]:
        """Yield the lines that these bytes complete."""
        *complete, rest = (self._rest[stream] + data).split(b"\n")
        yield from ((stream, line + b"\n") for line in complete)
        self._rest[stream] = b"" if len(rest) > self._longest else rest
        if len(rest) > self._longest:
            yield stream, rest

    def end(self) -> Iterator[Line]:
        """Yield what was printed without a line break at the end."""
        yield from ((stream, rest) for stream, rest in self._rest.items() if rest)


def line_text(line: bytes) -> str:
    """Return a line as text, without its line break."""
    return line.decode(errors="replace").removesuffix("\n")


Log = Callable[[str], None]
"""Takes one line of a build log."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """How to build one stack. `environment` hashes everything but the workload, `content` that and the workload.

    `requires`: what is to be installed, unresolved. `lock`: the resolved packages and the base's digest, if they are
    prescribed.
    """

    stack: str
    source: str
    accelerator: str
    dockerfile: str | None
    arguments: Mapping[str, str]
    python: str | None
    python_range: str | None
    base: str | None
    index: str | None
    requires: tuple[str, ...]
    lock: StackLock | None
    environment: str
    content: str
    can_compile: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """A built stack: an image's id, or a virtualenv's interpreter; `lock`: what it is made of, if that is known.

    `facts` go into every launch's header.
    """

    reference: str
    environment: str
    lock: StackLock | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendezvous:
    """Where the ranks of several nodes find each other: `address` and `port` are those of node 0.

    `node`: this node's number among the `nodes`, from 0. `interface`: the network interface that reaches the others; empty
    if that is left to the libraries. `devices`: what a container needs of the network's hardware, such as /dev/infiniband.
    """

    node: int
    nodes: int
    address: str
    port: int
    interface: str = ""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSpec:
    """What to run in an image: a program of images/workload with its flags, one process per device, and its owner.

    `cache`: the name of the compile cache, one per image and workload; empty if it isn't kept. `owner`: marks what is started,
    for `remove_orphans`. `model_file`: the file of a user's own model, which the workload gets under the same name, read-only.
    `rendezvous`: None on one machine.
    """

    arguments: tuple[str, ...]
    gpus: GpuSet
    cache: str
    owner: str
    program: str = "bench.py"
    model_file: Path | None = None
    rendezvous: Rendezvous | None = None

    @property
    def processes(self) -> int:
        """Return how many processes run on this node."""
        return len(self.gpus.indices)

    def model_flags(self, folder: PurePath) -> tuple[str, ...]:
        """Return the workload's flags for the user's model; `folder`: where its launches find the file."""
        return ("--model-file", str(folder / self.model_file.name)) if self.model_file else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Exit:
    """How an execution ended. `oom_killed`: the kernel killed it for memory. `problem`: why it can't count all the same."""

    returncode: int
    oom_killed: bool
    problem: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftover:
    """Something of ours on disk that may be removed. `kind`: image, volume, virtualenv or cache. `bytes`: None if unknown."""

    kind: str
    name: str
    bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    """What distinguishes engines, so that no code outside this package asks for their names.

    `runs_images`: stacks become container images, vendors' images can be run, and a lock holds the base's digest.
    `isolates`: a launch finds Python and compiler in its image; otherwise it uses those of the machine, and its network.
    `build_seconds`: how long building a stack usually takes.
    `has_own_groups`: a launch is not below this process's control groups, so that their limits don't hold for it.
    """

    runs_images: bool
    isolates: bool
    build_seconds: float
    has_own_groups: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuild:
    """Commands that build an image again, ready to paste, and the reference of the result."""

    commands: tuple[str, ...]
    reference: str


class ImageStore(Protocol):
    """Images that can be carried from one machine's engine to another's."""

    def save(self, recipes: Sequence[Recipe], path: Path) -> dict[str, str]:
        """Write the built images of `recipes` into one archive; return the images' ids by tag."""
        ...

    def load(self, archive: IO[bytes], ids: Mapping[str, str], force: bool) -> None:
        """Load what `save` wrote: the images of `ids` and nothing else.

        Raises BadInput, with nothing changed, if the archive holds another image or tag, or if a tag stands for another image
        here; with `force` the tag is moved. Raises EngineLost if the engine didn't load them.
        """
        ...


class Execution(Protocol):
    """One running launch. Leaving the `with` block always ends and removes it, whatever happened."""

    command: str
    """The command, ready to paste."""
    started: Mapping[str, Any]
    """How it is started, for the record: its limits, the state of its compile cache."""

    def __enter__(self) -> "Execution": ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def lines(self) -> Iterator[Line]:
        """Yield lines as they come, until the launch ends."""
        ...

    def stop(self) -> None:
        """End the launch from another thread; `lines` then finishes."""
        ...

    def wait(self) -> Exit:
        """Return how the launch ended; call after `lines` has finished."""
        ...

    def owns(self, pid: int) -> bool:
        """Check whether this process of the machine is part of the launch."""
        ...


class Engine(Protocol):
    """Builds recipes and runs launches."""

    name: str
    capabilities: Capabilities

    @property
    def store(self) -> ImageStore | None:
        """Return where the engine keeps its images; None for an engine without images to carry."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return version and settings, for the record."""
        ...

    def version(self) -> str:
        """Return the version that users know."""
        ...

    def machine(self, here: Host) -> Host:
        """Return the machine that launches run on: `here`, or the engine's description of another one."""
        ...

    def disk(self) -> Disk | None:
        """Return the disk that holds what the engine builds; None if that can't be seen from here."""
        ...

    def why_unlimited(self) -> str:
        """Return why the engine's launches have no limit of memory; empty if they have one."""
        ...

    def why_not_built(self) -> str:
        """Return why the engine can't build stacks here, but only run what was built elsewhere; empty if it can."""
        ...

    def is_ready(self, recipe: Recipe) -> bool:
        """Check whether this recipe is already built, with the current workload."""
        ...

    def is_stored(self, recipe: Recipe) -> bool:
        """Check whether the large parts of this recipe are already on disk, so that building it takes little more."""
        ...

    def platform(self) -> str:
        """Return the platform of the engine's packages and images, such as linux/amd64."""
        ...

    def resolve(self, recipe: Recipe, log: Log, *, fresh: bool = False) -> StackLock:
        """Resolve the recipe now: the base's digest, every package with its hashes. Raises BuildFailed.

        `fresh`: take the digest that the base has in its registry now, not that of an earlier pull; pulls nothing.
        """
        ...

    def build(self, recipe: Recipe, log: Log) -> Image:
        """Build the recipe, or find it built. Raises BuildFailed."""
        ...

    def sizes(self, images: Sequence[Image]) -> list[tuple[int, int]] | None:
        """Return the bytes of each image, and how many of them no earlier image in the list has; None if unknown."""
        ...

    def rebuild(self, recipe: Recipe, lock: StackLock, folder: Path) -> Rebuild | None:
        """Return commands that build the recipe as locked; write what they need to `folder`. None if no commands can."""
        ...

    def start(self, image: Image, spec: LaunchSpec) -> Execution:
        """Prepare an execution to be used in a `with` block, which starts it. Both may raise LaunchFailed."""
        ...

    def remove_orphans(self, owner: str) -> list[str]:
        """End and remove what an earlier, killed run of `owner` left; return what was removed."""
        ...

    def leftovers(self, keep: Collection[str]) -> list[Leftover]:
        """Return what this engine keeps for recipes whose `environment` is not in `keep`; only what is ours."""
        ...

    def remove(self, leftover: Leftover) -> str | None:
        """Remove a leftover; return why that could not be done, or None."""
        ...


def disk_of(folder: Path, larger: str) -> Disk | None:
    """Return the disk that `folder` lies on, if it can be seen. `larger`: how the engine moves to a larger one."""
    try:
        return Disk(place=str(folder), free_bytes=shutil.disk_usage(folder).free, larger=larger)
    except OSError:
        return None


def requested_lock(recipe: Recipe, platform: str) -> StackLock:
    """Return what the recipe requests, unresolved."""
    return StackLock(
        name=recipe.stack,
        platform=platform,
        python=recipe.python or "",
        base=recipe.base or "",
        index=recipe.index or "",
        requires=recipe.requires,
    )


@contextmanager
def time_limit(execution: Execution, seconds: float) -> Iterator[threading.Event]:
    """Stop `execution` after `seconds` from another thread; the event says whether that happened."""
    timed_out = threading.Event()

    def stop() -> None:
        timed_out.set()
        with suppress(Exception):  # it may just have ended by itself
            execution.stop()

    watchdog = threading.Timer(seconds, stop)
    watchdog.daemon = True
    watchdog.start()
    try:
        yield timed_out
    finally:
        watchdog.cancel()


# Hints for known messages of the engines.

_DESCRIBE = "sudo nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
_HINTS = {
    "no space left on device": "free space (docker system df; TORCHMATRIX_CACHE moves virtualenvs to another disk)",
    "could not select device driver": "install the NVIDIA Container Toolkit and restart Docker",
    "unknown runtime specified": "install the NVIDIA Container Toolkit and restart Docker",
    "unresolvable cdi devices": f"describe the GPUs: {_DESCRIBE}",
    "certificate verify failed": "the image or this machine lacks your proxy's certificate authority",
    "no such image": "it was removed in the meantime; build it again: torchmatrix build",
    "no such host": "check the network, the proxy settings and the name",
}


def with_hint(message: str) -> str:
    """Return `message`, with a hint if it is a known one."""
    hint = next((hint for sign, hint in _HINTS.items() if sign in message.lower()), None)
    return f"{message}; {hint}" if hint else message


# The workload's command line and its variables. Pure.

MONITOR_SECONDS = "0.1"
"""How often torchrun checks whether its ranks have ended: the default of newer releases; before 2.4 it was 5 s."""

WORKLOAD_FOLDER = PurePosixPath("/opt/workload")
"""Where a container finds images/workload."""
MODEL_FOLDER = PurePosixPath("/opt/model")
"""Where a container finds the file of a user's own model."""

CACHE_FOLDERS = ("/cache", "/sealed-cache")
"""Where a container finds its compile cache, and the sealed copy of it."""


def bench_command(python: str, script: str, spec: LaunchSpec, port: int) -> list[str]:
    """Return the workload's command line: python for one process, torchrun for more. `port`: a free one of this machine."""
    if spec.processes == 1 and not spec.rendezvous:
        return [python, script, *spec.arguments]
    rendezvous = spec.rendezvous or Rendezvous(node=0, nodes=1, address="127.0.0.1", port=port)
    return [python, *torchrun(script, spec.processes, rendezvous), script, *spec.arguments]


def torchrun(script: str, processes: int, rendezvous: Rendezvous) -> list[str]:
    """Return the program that runs torchrun, beside `script` in images/workload, and its flags; `processes`: on this node."""
    program = str(PurePosixPath(script).with_name("torchrun.py"))
    flags = ["--nnodes", str(rendezvous.nodes), "--node_rank", str(rendezvous.node)]
    flags += ["--master_addr", rendezvous.address, "--master_port", str(rendezvous.port)]
    return [program, *flags, "--nproc_per_node", str(processes), "--monitor_interval", MONITOR_SECONDS]


def workload_environment(vendor: str | None, rendezvous: Rendezvous | None = None) -> dict[str, str]:
    """Return the variables of every workload process, for `vendor` (nvidia, amd or cpu).

    With a `rendezvous`, NCCL says by what it sends from node to node (https://docs.nvidia.com/deeplearning/nccl/user-guide/).
    """
    common = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if vendor == "cpu":
        common |= {"GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
    else:
        common |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if rendezvous and rendezvous.interface:
        common |= {"GLOO_SOCKET_IFNAME": rendezvous.interface, "NCCL_SOCKET_IFNAME": rendezvous.interface}
    return common | ({"NCCL_DEBUG": "INFO"} if rendezvous else {})


def visible_devices(gpus: GpuSet) -> dict[str, str]:
    """Return the variable that shows a process only the chosen GPUs, in the chosen order."""
    if gpus.vendor not in VENDORS:
        return {}
    vendor = VENDORS[gpus.vendor]
    return {vendor.visible: ",".join(gpu.uuid if vendor.by_uuid else str(gpu.index) for gpu in gpus.gpus)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Isolation:
    """What a launch shares with its machine. `network`: none, or the machine's. `note`: what else, or why not less."""

    network: str
    note: str | None = None

    def as_facts(self) -> dict[str, Any]:
        """Return the field of a launch's header under `started`."""
        return {"isolation": {"network": self.network, "note": self.note}}


def pasted(command: Sequence[str], scratch: Path) -> str:
    """Return the command with a new folder instead of `scratch`, which a launch removes."""
    return " ".join('"$(mktemp -d)"'.join(part and shlex.quote(part) for part in word.split(str(scratch))) for word in command)
