"""Site settings: mirrors, a folder of wheels, a CA bundle. They come from the user's settings file and the environment,
never from the matrix, because a matrix must mean the same everywhere.

The file is ~/.config/torchmatrix/settings.toml (or TORCHMATRIX_SETTINGS):

    wheelhouse = "/srv/wheels"                                  # or TORCHMATRIX_WHEELHOUSE
    ca_bundle = "/etc/ssl/certs/site.pem"                       # or TORCHMATRIX_CA_BUNDLE
    parallel_builds = 2                                         # or TORCHMATRIX_PARALLEL_BUILDS
    memory_share = 0.9                                          # or TORCHMATRIX_MEMORY_SHARE
    processes = 16384                                           # or TORCHMATRIX_PROCESSES
    line_mb = 1                                                 # or TORCHMATRIX_LINE_MB
    launch_file_mb = 64                                         # or TORCHMATRIX_LAUNCH_FILE_MB
    log_mb = 20                                                 # or TORCHMATRIX_LOG_MB
    quiet_wait_minutes = 5                                      # or TORCHMATRIX_QUIET_WAIT_MINUTES
    machine = "the third box of rack 7"                         # or TORCHMATRIX_MACHINE; see machine.identity
    variables = ["OMP_PROC_BIND", "KMP_*"]                      # or TORCHMATRIX_VARIABLES="OMP_PROC_BIND,KMP_*"
    [mirrors]                                                   # or TORCHMATRIX_MIRRORS="docker.io=HOST/hub,URL=URL"
    "docker.io" = "registry.example:5000/hub"
    "https://download.pytorch.org/whl" = "https://mirror.example/pytorch"
    [slurm]                                                     # see docs/slurm.md
    partition = "gpu"
    [kubernetes]                                                # see docs/kubernetes.md
    image = "registry.example/torchmatrix"
"""

import math
import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from torchmatrix.core import inputs
from torchmatrix.core.credentials import without_passwords
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import clipped, printable
from torchmatrix.core.toml_keys import Key, Place, Problems, check

HUB = "docker.io"
MEGABYTE = 1_000_000
_FIX = "fix or remove the settings file"
_EXPLAINED = "docs/airgap.md explains its keys, under Site settings"
_MIRROR = Key(
    kind=str,
    pattern=r"[^@?\s]+",
    explanation="is no address, or it contains credentials or a query, which would reach logs and images; use ~/.netrc "
    "(indexes) or docker login (registries)",
)
_NO_VARIABLE = "is no name of a variable, such as OMP_PROC_BIND, nor how some begin, such as KMP_*"
_KEYS = {
    "wheelhouse": Key(kind=str),
    "ca_bundle": Key(kind=str),
    "parallel_builds": Key(kind=int, default=2, minimum=1, maximum=64),
    "memory_share": Key(kind=float, default=0.9, minimum=0.01, maximum=1),
    "processes": Key(kind=int, default=16384, minimum=64, maximum=4194304),
    "line_mb": Key(kind=int, default=1, minimum=1, maximum=64),
    "launch_file_mb": Key(kind=int, default=64, minimum=1, maximum=4096),
    "log_mb": Key(kind=int, default=20, minimum=1, maximum=4096),
    "quiet_wait_minutes": Key(kind=float, minimum=0, maximum=1_440),
    "machine": Key(kind=str),
    "variables": Key(kind=str, default=(), plural=True, pattern=r"[A-Za-z_][A-Za-z0-9_]*\*?", explanation=_NO_VARIABLE),
    "mirrors": Key(kind=dict, default={}),
    "slurm": Key(kind=dict, default={}),
    "kubernetes": Key(kind=dict, default={}),
}
_WORD = Key(kind=str, pattern=r"[^\s,%]+", explanation="is not one word")
_SLURM_KEYS = {
    **dict.fromkeys(("partition", "account", "qos", "constraint"), _WORD),
    "minutes": Key(kind=int, minimum=1, maximum=525_600),
    "launcher": Key(kind=str, default="auto", choices=("auto", "docker", "podman", "apptainer", "pyxis", "bare")),
    "exclusive": Key(kind=bool, default=True),
    "nodes": Key(kind=int, minimum=1, maximum=100_000),
    "interface": _WORD,
}
_KUBERNETES_KEYS = {
    **dict.fromkeys(("image", "claim", "folder", "pull_secret"), _WORD),
    "namespace": replace(_WORD, default="default"),
    "selector": Key(kind=str),
    "minutes": Key(kind=int, minimum=1, maximum=525_600),
    "wait_minutes": Key(kind=int, default=30, minimum=1, maximum=525_600),
    "nodes": Key(kind=int, minimum=1, maximum=100_000),
}


_NUMBERS = {
    "parallel_builds": "a number of builds",
    "memory_share": "a share of the memory",
    "processes": "a number of processes",
    "line_mb": "a number of megabytes",
    "launch_file_mb": "a number of megabytes",
    "log_mb": "a number of megabytes",
    "quiet_wait_minutes": "a number of minutes",
}
"""The meaning of each key that holds a number, for messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmSettings:
    """The table [slurm]. `partition`, `account`, `qos`, `constraint`, `minutes`: options of sbatch; None: not passed.

    `launcher`: the program that runs a launch on its node: docker, podman, apptainer, pyxis, bare (a virtualenv), auto.
    `exclusive`: a job has its node to itself. `nodes`: the most nodes. `interface`: the network interface over which ranks on
    several nodes meet.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    minutes: int | None = None
    launcher: str = "auto"
    exclusive: bool = True
    nodes: int | None = None
    interface: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class KubernetesSettings:
    """The table [kubernetes]. `image`: of torchmatrix. `claim`: the PersistentVolumeClaim that is mounted at `folder`, here and
    in pods. `selector`: labels of the nodes to use, at most `nodes` of them. `pull_secret`: for the image.

    `minutes`: the longest time of a launch. `wait_minutes`: after how long a pod that can't be started is given up.
    """

    image: str | None = None
    claim: str | None = None
    folder: str | None = None
    namespace: str = "default"
    selector: str | None = None
    pull_secret: str | None = None
    minutes: int | None = None
    wait_minutes: int = 30
    nodes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings of a site. `mirrors`: the beginning of an image reference or index URL -> its replacement here.
    `wheelhouse`: a folder of wheels that replaces all indexes. `ca_bundle`: certificate authorities that builds and resolving
    trust. `memory_share` and `processes`: the limits of a launch, as a ratio of the machine's memory, and threads included.
    `line_mb`, `launch_file_mb` and `log_mb`: the megabytes that a launch may write: in one line, into its launch file, into its
    log. `quiet_wait_minutes`: the longest wait of a launch for other programs; None: not said. `machine`: replaces
    the identity that this machine would find for itself. `variables`: variables of the user's shell that reach launches of the
    local engine although they change how programs run."""

    mirrors: dict[str, str] = field(default_factory=dict)
    wheelhouse: Path | None = None
    ca_bundle: Path | None = None
    parallel_builds: int = 2
    memory_share: float = 0.9
    processes: int = 16384
    line_mb: int = 1
    launch_file_mb: int = 64
    log_mb: int = 20
    quiet_wait_minutes: float | None = None
    machine: str | None = None
    variables: tuple[str, ...] = ()
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)

    def index(self, url: str) -> str:
        """Return the URL that serves a package index here."""
        return self._mirrored(url) or url

    def image(self, reference: str) -> str:
        """Return the reference under which an image is pulled here: "python:3.11" is docker.io/library/python:3.11."""
        return self._mirrored(full_reference(reference)) or reference

    def _mirrored(self, address: str) -> str | None:
        fitting = [start for start in self.mirrors if address == start or address.startswith(start.rstrip("/") + "/")]
        start = max(fitting, key=len, default=None)
        return None if start is None else self.mirrors[start].rstrip("/") + address[len(start.rstrip("/")) :]


def full_reference(reference: str) -> str:
    """Return an image reference with its registry; references leave out Docker's own, and its folder `library`."""
    first, slash, _ = reference.partition("/")
    if slash and re.search(r"[.:]|^localhost$", first):
        return reference
    return f"{HUB}/{reference}" if slash else f"{HUB}/library/{reference}"


@cache
def load() -> Settings:
    """Read the file and the environment once. Raises BadInput."""
    usual = Path(os.environ.get("XDG_CONFIG_HOME") or home_folder() / ".config") / "torchmatrix" / "settings.toml"
    values = _from_file(usual)
    for key in _KEYS.keys() - {"slurm", "kubernetes"}:
        if text := os.environ.get(f"TORCHMATRIX_{key.upper()}"):
            values[key] = _from_environment(key, text)
    return Settings(
        **{
            **values,
            "mirrors": dict(values["mirrors"] or {}),
            "wheelhouse": _existing("wheelhouse", values["wheelhouse"]),
            "ca_bundle": _existing("ca_bundle", values["ca_bundle"]),
            "memory_share": float(values["memory_share"]),
            "variables": tuple(values["variables"]),
        }
    )


def _from_file(usual: Path) -> dict[str, Any]:
    """Read the file that TORCHMATRIX_SETTINGS names, which must be there, else the usual one. Raises BadInput."""
    path = Path(os.environ.get("TORCHMATRIX_SETTINGS") or usual)
    try:
        text = inputs.read_text(path, hint=_FIX)
    except FileNotFoundError:
        if path != usual:
            raise _absent("TORCHMATRIX_SETTINGS", path, "fix or unset TORCHMATRIX_SETTINGS") from None
        text = ""
    data = inputs.toml_of(text, str(path), hint=_FIX, complaint=": can't read it")
    problems = Problems(text)
    values = check(data, _KEYS, Place(header="the top"), problems)
    mirrors = values["mirrors"] or {}
    check(mirrors, dict.fromkeys(mirrors, _MIRROR), Place(header="[mirrors]"), problems)
    for name, keys, table in (("slurm", _SLURM_KEYS, SlurmSettings), ("kubernetes", _KUBERNETES_KEYS, KubernetesSettings)):
        values[name] = table(**check(values[name] or {}, keys, Place(header=f"[{name}]"), problems))
    if problems.messages:
        raise BadInput(f"{path}:\n{problems}", hint=_EXPLAINED)
    return values


def _from_environment(key: str, text: str) -> Any:
    if key == "mirrors":
        pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
        if not all(name.strip() and value.strip() for name, _, value in pairs):
            raise BadInput("TORCHMATRIX_MIRRORS is not a list of A=B", hint="such as docker.io=registry.example:5000/hub")
        mirrors = {name.strip(): value.strip() for name, _, value in pairs}
        refused = [name for name, value in mirrors.items() if not re.fullmatch(_MIRROR.pattern, value)]
        if refused:
            raise BadInput(
                f"TORCHMATRIX_MIRRORS: the mirror of {refused[0]} {_MIRROR.explanation}", hint="remove the credentials"
            )
        return mirrors
    if key == "variables":
        return _variables_in(text)
    return _number_in(key, text) if key in _NUMBERS else text


def _variables_in(text: str) -> tuple[str, ...]:
    """Parse the names in a variable. Raises BadInput."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    wrong = next((name for name in names if not re.fullmatch(_KEYS["variables"].pattern, name)), None)
    if wrong is not None:
        raise BadInput(f"TORCHMATRIX_VARIABLES: {clipped(printable(wrong), 80)} {_NO_VARIABLE}", hint="separate them by commas")
    return names


def _number_in(name: str, text: str) -> float:
    """Parse the number in a variable, within the bounds of its key. Raises BadInput."""
    key = _KEYS[name]
    low, high = key.minimum or 0, key.maximum or math.inf
    try:
        value: float = key.kind(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        hint = f"{low:g} to {high:.8g}" + ("" if key.default is None else f", such as {key.default:g}")
        raise BadInput(f"TORCHMATRIX_{name.upper()} is not {_NUMBERS[name]}: {text}", hint=hint)
    return value


def _existing(key: str, text: str | None) -> Path | None:
    if not text:
        return None
    path = Path(text)
    with suppress(OSError, ValueError, RuntimeError):  # a name that is too long, has a NUL, or is of nobody's home
        path = path.expanduser()
        if path.exists():
            return path.absolute()
    raise _absent(key, without_passwords(text), f"fix {key} in the settings or TORCHMATRIX_{key.upper()}")


def _absent(key: str, path: str | Path, hint: str) -> BadInput:
    return BadInput(f"{key}: there is no {clipped(printable(str(path)), 200)}", hint=hint)


def node_name() -> str:
    """Return this machine's name; in a job of a cluster, the name that the node has there."""
    return os.environ.get("TORCHMATRIX_NODE") or os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def home_folder() -> Path:
    """Return this user's home; / for a user without one, such as an arbitrary one in a container, as Docker does."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def cache_folder() -> Path:
    """Return the folder of virtualenvs, compile caches and everything else that can be made again."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or home_folder() / ".cache") / "torchmatrix"
    return Path(os.environ.get("TORCHMATRIX_CACHE") or usual).absolute()


def state_folder() -> Path:
    """Return the folder of what can't be made again: this machine's identity, if the system gives it none."""
    return Path(os.environ.get("XDG_STATE_HOME") or home_folder() / ".local" / "state") / "torchmatrix"
