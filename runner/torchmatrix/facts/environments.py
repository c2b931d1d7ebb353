"""The conditions that can change a figure besides the work: one list, and the values that launches and hosts recorded."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from torchmatrix.core.formatting import clipped
from torchmatrix.core.inputs import is_number
from torchmatrix.core.secrets import cleaned
from torchmatrix.facts.believable import is_believable, limits_of
from torchmatrix.facts.host_parts import Gpu
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.reveals import Field, Fields
from torchmatrix.facts.wire import Facts, Reveals

Environment = dict[str, str]
"""The CONDITIONS that a launch recorded, by label, in words; one that it did not record is UNKNOWN."""
Values = Mapping[str, set[str]]
"""The values that several launches recorded, by label."""

UNKNOWN = "null"
UNDER_LOAD = {"sm_clock_mhz": 0.05, "memory_clock_mhz": 0.01, "pcie_generation": 0.0}
"""Readings whose highest in the timed windows is a condition, each with the fraction by which launches may differ."""
ABSENT = "n/a"
"""The value of an entry of an expanding condition, such as a package, that only other launches have."""
_PLACE = re.compile(r"(?:node \d+ )?(?:(GPU) \d+ )?")
"""The beginning of a label of one GPU, or of another node than the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The place where conditions are read: a launch, the facts of one of its nodes, and one of its GPUs there.

    `highest`: from highest_readings.
    """

    launch: Launch
    host: Facts
    machine: str | None
    highest: Mapping[tuple[str | None, str], float]
    gpu: Gpu | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """One condition that can change a figure: `title` in words, `of` the launch (""), its host, GPUs, engine or container.

    `key`: the field of their facts that holds it, unless `read` takes it elsewhere. `unit`: of a number. `vendors`: of the
    devices for which it is known; empty: all. `expands`: it stands for one condition per name in it, such as a package.

    `splits`: launches of a cell that differ in it don't make one figure. False where the condition only identifies the machine
    (several of a cluster measure one cell), scatters from launch to launch, or is covered more closely by other conditions.
    `within`: numbers that differ by no more than this fraction are the same. `reveals`: the kind of name it is, for redaction.
    """

    of: str
    title: str = ""
    key: str = ""
    unit: str = ""
    vendors: tuple[str, ...] = ()
    splits: bool = True
    expands: bool = False
    within: float = 0.0
    reveals: Reveals = Reveals.TEXT
    read: Callable[[Source], Any] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Return the name, such as "host driver". A label has the number of the GPU, too: "GPU 0 power limit"."""
        return f"{self.of} {self.title}".strip()

    @property
    def is_of_the_software(self) -> bool:
        """Check whether the condition describes the software in the image."""
        return self.of in ("box", "image", "package")

    def value_in(self, source: Source) -> Any:
        """Return the value, None if it was not recorded; "none" if the container reported it as missing."""
        if self.read:
            return self.read(source)
        facts = _FACTS[self.of](source)
        return "none" if self.of == "box" and self.key in facts and facts[self.key] is None else facts.get(self.key)

    def words(self, value: Any) -> str:
        """Format a value as users see it."""
        if isinstance(value, bool):
            return "on" if value else "off"
        if is_number(value):
            return f"{value:.10g} {self.unit}".strip()
        return value if isinstance(value, str) else json.dumps(value)


_FACTS: dict[str, Callable[[Source], Facts]] = {
    "host": lambda source: source.host,
    "GPU": lambda source: source.gpu.facts if source.gpu else {},
    "engine": lambda source: source.launch.engine,
    "image": lambda source: source.launch.image.facts if source.launch.image else {},
    "box": lambda source: source.launch.reported.facts if source.launch.reported else {},
}


def _gib(of: str) -> Callable[[Source], str | None]:
    """Return a reader of a memory size in whole GiB: kernels keep some megabytes more or less from boot to boot."""

    def read(source: Source) -> str | None:
        size: Any = _FACTS[of](source).get("memory_bytes")
        return f"{round(size / 2**30)} GiB" if is_number(size) else None

    return read


def _limit(key: str, unit: str, size: float = 1.0) -> Callable[[Source], str | None]:
    """Return a reader of a limit of the host; None means no limit, where the host was asked for it."""

    def read(source: Source) -> str | None:
        value: Any = source.host.get(key)
        if is_number(value):
            return f"{value / size:.4g} {unit}"
        was_read = key in source.host and not source.host.get("limits_unseen")
        return "no limit" if was_read and value is None else None

    return read


def _cores(source: Source) -> int | None:
    cores = source.host.get("cores")
    return None if cores is None else len(cores)


def _mitigations(source: Source) -> dict[str, str] | None:
    entries = source.host.get("mitigations")
    return None if entries is None else {name: text for name, _, text in (entry.partition(": ") for entry in entries)}


def _pcie(pattern: str) -> Callable[[Source], str | None]:
    """Return a reader of texts such as "gen1 x16 (max gen5 x16)"; the current generation falls while a GPU is idle."""

    def read(source: Source) -> str | None:
        match = re.search(pattern, str(source.gpu.facts.get("pcie"))) if source.gpu else None
        return match[1] if match else None

    return read


def _loaded(title: str, key: str, unit: str = "", vendors: tuple[str, ...] = ()) -> Condition:
    """Return the condition that is the highest reading of a GPU in the timed windows."""

    def read(source: Source) -> float | None:
        return source.highest.get((source.gpu.uuid, key)) if source.gpu else None

    return Condition(of="GPU", title=title, unit=unit, vendors=vendors, splits=False, within=UNDER_LOAD[key], read=read)


def highest_readings(launch: Launch) -> dict[tuple[str | None, str], float]:
    """Return the highest reading in the timed windows of each key in UNDER_LOAD, by device and key; only GPUs have them."""
    usual, limits = limits_of(None), {gpu.uuid: limits_of(gpu) for gpu in launch.devices.gpus}
    spans, highest = [window.edges for window in launch.windows if window.edges], dict[tuple[str | None, str], float]()
    for sample in launch.telemetry if launch.devices.gpus else ():
        if any(begin <= sample.monotonic_seconds <= end for begin, end in spans):
            for reading in sample.readings:
                for key in UNDER_LOAD:
                    value: Any = reading.get(key)
                    if is_believable(key, value, limits.get(reading["device"], usual)):
                        place = (reading["device"], key)
                        highest[place] = max(value, highest.get(place, value))
    return highest


def _between_gpus(key: str) -> Callable[[Source], str | None]:
    """Return a reader of a matrix of the host: its words between the GPUs of the launch, each once; "none" for one GPU."""

    def read(source: Source) -> str | None:
        rows, places = source.host.get(key), source.launch.devices.indices
        if len(places) < 2:
            return "none"
        last = max(places)
        if rows is None or len(rows) <= last or not all(len(row) > last for row in rows):
            return None
        return ", ".join(sorted({rows[a][b] for a in places for b in places if a != b}))

    return read


def _version_of_engine(source: Source) -> Any:
    engine = source.launch.engine
    return next((engine[key] for key in ("ServerVersion", "program", "version") if engine.get(key)), None)


def _image(source: Source) -> str | None:
    image = source.launch.image
    return (image.id or image.reference) if image else None


def _variables(source: Source) -> Any:
    """Return the container's variables without the places of caches, which differ from launch to launch."""
    variables = _FACTS["box"](source).get("variables")
    if not isinstance(variables, dict):
        return variables
    return {name: str(value) for name, value in variables.items() if not name.endswith(("_CACHE_DIR", "_DB_PATH"))}


_GPUS, _NVIDIA, _AMD = ("nvidia", "amd", "intel"), ("nvidia",), ("amd",)
CONDITIONS = (
    Condition(of="host", title="identity", reveals=Reveals.MACHINE, splits=False, read=lambda source: source.machine),
    Condition(of="host", title="name", key="name", reveals=Reveals.HOST, splits=False),
    Condition(of="host", title="board", key="board", splits=False),
    Condition(of="host", title="board identity", key="board_id", reveals=Reveals.MACHINE, splits=False),
    Condition(of="host", title="firmware", key="firmware"),
    Condition(of="host", title="cpu", key="cpu"),
    Condition(of="host", title="microcode", key="microcode"),
    Condition(of="host", title="sockets", key="sockets"),
    Condition(of="host", title="cores", read=_cores),
    Condition(of="host", title="SMT", key="smt"),
    Condition(of="host", title="CPU quota", read=_limit("cpu_quota", "CPUs")),
    Condition(of="host", title="memory", splits=False, read=_gib("host")),
    Condition(of="host", title="memory limit", splits=False, read=_limit("memory_limit_bytes", "GiB", 2**30)),
    Condition(of="host", title="NUMA nodes", key="numa_nodes"),
    Condition(of="host", title="NUMA layout", key="numa", splits=False),
    Condition(of="host", title="NUMA balancing", key="numa_balancing"),
    Condition(of="host", title="governor", key="governor"),
    Condition(of="host", title="frequency driver", key="frequency_driver"),
    Condition(of="host", title="energy preference", key="energy_preference"),
    Condition(of="host", title="clock limits", key="clock_limits"),
    Condition(of="host", title="turbo", key="turbo"),
    Condition(of="host", title="idle states", key="idle_states"),
    Condition(of="host", title="hugepages", key="hugepages"),
    Condition(of="host", title="mitigation", expands=True, read=_mitigations),
    Condition(of="host", title="kernel", key="kernel"),
    Condition(of="host", title="os", key="os", splits=False),
    Condition(of="host", title="libc", key="libc", splits=False),
    Condition(of="host", title="driver", key="driver", vendors=_GPUS),
    Condition(of="host", title="cuda_driver", key="cuda_driver", vendors=_NVIDIA),
    Condition(of="host", title="links of the GPUs", vendors=_GPUS, read=_between_gpus("links")),
    Condition(of="host", title="peer access of the GPUs", vendors=_GPUS, read=_between_gpus("p2p")),
    Condition(of="GPU", title="name", key="name"),
    Condition(of="GPU", title="uuid", key="uuid", reveals=Reveals.GPU, splits=False),
    Condition(of="GPU", title="MIG parent", key="slice_of", reveals=Reveals.GPU, vendors=_NVIDIA, splits=False),
    Condition(of="GPU", title="vbios", key="vbios", reveals=Reveals.VBIOS),
    Condition(of="GPU", title="GSP firmware", key="gsp_firmware", vendors=_NVIDIA),
    Condition(of="GPU", title="memory", read=_gib("GPU")),
    Condition(of="GPU", title="power limit", key="power_limit_watts", unit="W"),
    Condition(of="GPU", title="ECC", key="ecc", vendors=_NVIDIA),
    Condition(of="GPU", title="persistence mode", key="persistence", vendors=_NVIDIA),
    Condition(of="GPU", title="compute mode", key="compute_mode", vendors=_NVIDIA),
    Condition(of="GPU", title="MIG mode", key="mig", vendors=_NVIDIA),
    Condition(of="GPU", title="application clocks", key="application_clocks", vendors=_NVIDIA),
    Condition(of="GPU", title="auto boost", key="auto_boost", vendors=_NVIDIA),
    Condition(of="GPU", title="maximum clock", key="clocks_max_mhz", unit="MHz"),
    Condition(of="GPU", title="maximum memory clock", key="clocks_max_memory_mhz", unit="MHz", vendors=_NVIDIA),
    Condition(of="GPU", title="performance level", key="performance_level", vendors=_AMD),
    Condition(of="GPU", title="partitions", key="partitions", vendors=_AMD),
    Condition(of="GPU", title="PCIe width", read=_pcie(r"(x\d+)")),
    Condition(of="GPU", title="PCIe maximum", read=_pcie(r"max (gen\d+ x\d+)")),
    Condition(of="GPU", title="NUMA node", key="numa_node"),
    Condition(of="GPU", title="IOMMU", key="iommu"),
    Condition(of="GPU", title="ACS redirects at", key="acs", splits=False),
    _loaded("clock under load", "sm_clock_mhz", unit="MHz"),
    _loaded("memory clock under load", "memory_clock_mhz", unit="MHz"),
    _loaded("PCIe generation under load", "pcie_generation", vendors=_NVIDIA),
    Condition(of="", title="threads per process", read=lambda source: source.launch.devices.threads),
    Condition(of="engine", key="engine"),
    Condition(of="engine", title="version", splits=False, read=_version_of_engine),
    Condition(of="engine", title="container runtime", key="DefaultRuntime", splits=False),
    Condition(of="image", splits=False, read=_image),
    *(
        Condition(of="box", title=name, key=name)
        for name in ("torch", "cuda", "hip", "cudnn", "nccl", "triton", "python", "glibc", "os", "torch_config", "compiler")
    ),
    Condition(of="box", title="native kernels", key="native_kernels"),
    Condition(of="box", title="attention that ran", splits=False, read=lambda source: source.launch.attention),
    Condition(of="box", title="variables", expands=True, read=_variables),
    Condition(
        of="package", expands=True, read=lambda source: source.launch.reported.versions if source.launch.reported else None
    ),
)
"""All conditions, from the machine's identity to each package in the container."""
_BY_NAME = {condition.name: condition for condition in CONDITIONS}
_OF_A_GPU = tuple(condition for condition in _BY_NAME.items() if condition[1].of == "GPU")
_OF_A_NODE = tuple(condition for condition in _BY_NAME.items() if condition[1].of == "host")
_OF_ALL = tuple(condition for condition in _BY_NAME.items() if condition[1].of not in ("host", "GPU"))


@lru_cache(4096)
def condition_of(label: str) -> Condition | None:
    """Return the entry of CONDITIONS that a label belongs to; None for any other value that may change from run to run."""
    name = _PLACE.sub(lambda place: f"{place[1]} " if place[1] else "", label, count=1)
    expanding = (condition for condition in CONDITIONS if condition.expands and name.startswith(f"{condition.name} "))
    return _BY_NAME.get(name) or next(expanding, None)


def fields_of(environment: Environment) -> Fields:
    """Return what each entry of an environment may reveal; one that is unknown has no name."""
    named = {
        label: condition for label, words in environment.items() if words != UNKNOWN and (condition := condition_of(label))
    }
    return {label: Field(named[label].reveals if label in named else Reveals.TEXT) for label in environment}


def is_of_the_machine(label: str) -> bool:
    """Check whether a label belongs to a condition that is not of the software in the image."""
    condition = condition_of(label)
    return condition is not None and not condition.is_of_the_software


def environment_of(launch: Launch) -> Environment:
    """Return the CONDITIONS that a launch recorded, by label, without credentials: what is made of them may be cut short, and
    then no pattern would know one.
    """
    first = Source(launch=launch, host=launch.host, machine=launch.machine, highest=highest_readings(launch))
    entries = [*_entries(first, _OF_A_NODE, ""), *_gpu_entries(first, launch.devices.gpus, ""), *_entries(first, _OF_ALL, "")]
    for node in launch.other_nodes:
        place, other = f"node {node.number} ", replace(first, host=node.host, machine=node.machine)
        entries += [*_entries(other, _OF_A_NODE, place), *_gpu_entries(other, node.gpus, place)]
    return {label: words if _HEX.fullmatch(words) else cleaned(words) for label, words in entries}


_HEX = re.compile("[0-9a-fA-F]+")
"""An identity or a digest, of which no pattern of credentials may make two equal ones."""


def of_machine(host: Facts) -> Environment:
    """Return the conditions with a `key` that the record of a host holds: first the GPUs', all GPUs together."""
    environment, gpus = {}, host.get("gpus") or []
    vendors = {gpu.get("vendor") for gpu in gpus}
    for condition in sorted(CONDITIONS, key=lambda condition: condition.of != "GPU"):
        parts: Sequence[Facts] = gpus if condition.of == "GPU" else [host] if condition.of == "host" else []
        if condition.key and parts and (not condition.vendors or vendors.intersection(condition.vendors)):
            words = {condition.words(value) for part in parts if (value := part.get(condition.key)) is not None}
            environment[condition.name] = " | ".join(sorted(words)) or UNKNOWN
    return environment


def _gpu_entries(source: Source, gpus: Iterable[Gpu], place: str) -> Iterator[tuple[str, str]]:
    for index, gpu in enumerate(gpus):
        for label, words in _entries(replace(source, gpu=gpu), _OF_A_GPU, ""):
            yield f"{place}GPU {index} {label.removeprefix('GPU ')}", words


def _entries(source: Source, conditions: Iterable[tuple[str, Condition]], place: str) -> Iterator[tuple[str, str]]:
    """Yield label and words of each condition, given with its name. An expanding condition has no label of its own, unless it
    is unknown."""
    vendor = source.launch.devices.vendor
    for name, condition in conditions:
        if condition.vendors and vendor not in condition.vendors:
            continue
        value = condition.value_in(source)
        if isinstance(value, dict) and condition.expands:
            yield from ((f"{place}{name} {entry}", words) for entry, words in value.items())
        else:
            yield place + name, UNKNOWN if value is None else condition.words(value)


def is_told(environment: Environment) -> bool:
    """Check whether the container reported its environment: not if its image was not built, or the launch crashed early."""
    return environment.get("box python", UNKNOWN) != UNKNOWN


def values_of(environments: Iterable[Environment]) -> dict[str, set[str]]:
    """Return all values that each condition has in `environments`."""
    values: dict[str, set[str]] = {}
    for environment in environments:
        for label, words in environment.items():
            values.setdefault(label, set()).add(words)
    return values


def is_known(label: str, side: Mapping[str, Any]) -> bool:
    """Check whether a condition was recorded; an expanding one was, where none of its entries is unknown."""
    condition = condition_of(label)
    if condition and condition.expands:
        return bool(side) and f"{label[: label.index(condition.name)]}{condition.name}" not in side
    return side.get(label, UNKNOWN) not in (UNKNOWN, {UNKNOWN})


def are_near(condition: Condition | None, values: set[str]) -> bool:
    """Check whether known values lie within the scatter that the condition allows."""
    if condition is None or not condition.within:
        return False
    numbers = [float(words.split(" ")[0]) for words in values]
    return max(numbers) - min(numbers) <= condition.within * max(numbers)


# Differences of environments, and how many conditions could be compared.
#
# A condition that one side did not record is neither equal nor different: `Compared` counts those that could be compared.

Differences = dict[str, tuple[str, str]]
"""Conditions that are not the same, by label: the old value and the new one, or A's and B's."""
_MOST_UNLIKE = 6


def changed(before: Environment, after: Environment) -> Differences:
    """Return how two environments differ, as far as both are known; of expanding conditions also added and removed entries.

    A value that is unknown in one of them is no change: a sensor that failed for a night, another number of GPUs.
    """
    return {} if before == after else differing(values_of([before]), values_of([after]))


def differing(a: Values, b: Values) -> Differences:
    """Return how the values of two sets of launches differ, as `changed` does."""
    differences = {}
    for label in {**a, **b}:
        ours, theirs = (side.get(label, set()) - {UNKNOWN} for side in (a, b))
        if ours != theirs and _both_know(label, a, b) and not are_near(condition_of(label), ours | theirs):
            differences[label] = (_words(ours), _words(theirs))
    return differences


def differences_in_words(environment: Differences, most: int = 3, longest: int = 40) -> str:
    """Format differences such as "host driver 570.1 -> 575.2, box torch 2.7.0 -> 2.7.1, and 4 more"."""
    named = [f"{name} {clipped(a, longest)} -> {clipped(b, longest)}" for name, (a, b) in list(environment.items())[:most]]
    more = len(environment) - len(named)
    return ", ".join(named) + (f", and {more} more" if more else "")


def _both_know(label: str, a: Values, b: Values) -> bool:
    """Check whether both sides recorded a condition."""
    return is_known(label, a) and is_known(label, b)


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """The number of conditions that two sides both recorded, of those that apply; `missing`: the names of the rest."""

    recorded: int
    of: int
    missing: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """Format as "31 of 58 conditions were recorded on both sides"."""
        return f"{self.recorded} of {self.of} conditions were recorded on both sides"


def compared(a: Values, b: Values) -> Compared:
    """Count the conditions that could be compared: of GPUs and nodes, those recorded of at least one on both sides."""
    recorded: dict[str, bool] = {}
    for label in {**a, **b}:
        if condition := condition_of(label):
            recorded[condition.name] = recorded.get(condition.name, False) or _both_know(label, a, b)
    missing = tuple(name for name, is_recorded in recorded.items() if not is_recorded)
    return Compared(recorded=len(recorded) - len(missing), of=len(recorded), missing=missing)


def unlike(machines: Sequence[Environment]) -> str:
    """Name the splitting conditions in which machines differ, such as "GPU power limit 500 W or 700 W"; empty for none."""
    texts = []
    for name, recorded in values_of(machines).items():
        condition, values = condition_of(name), sorted(recorded - {UNKNOWN})
        if condition and condition.splits and len(values) > 1:
            texts.append(f"{name} {' or '.join(clipped(value, 40) for value in values)}")
    return ", ".join(texts[:_MOST_UNLIKE]) + (f", and {len(texts) - _MOST_UNLIKE} more" if len(texts) > _MOST_UNLIKE else "")


def _words(values: set[str]) -> str:
    return " | ".join(sorted(values)) if values else ABSENT
