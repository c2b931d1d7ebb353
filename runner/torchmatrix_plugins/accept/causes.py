"""Why a check failed, by what the facts of its launches show: likeliest first, and what was looked at and is fine.

A table of causes: each looks at one thing and says what is wrong with it, that it is fine, or that it isn't known.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torchmatrix.analysis import watched
from torchmatrix.analysis.centers import mean_of, median_of
from torchmatrix.facts.host_parts import Gpu
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.operations import TOGETHER
from torchmatrix.machine.telemetry import SLOWDOWNS
from torchmatrix_plugins.accept.checks import PCIE, Check, gpu_of, is_square, spec_of
from torchmatrix_plugins.accept.judging import FEWEST_SIBLINGS, SIBLINGS

SLOWER_CLOCK = 0.02
"""A clock that is lower than that of the others by this share is told."""
HOTTER_CELSIUS = 8.0
OFTEN = 0.05
"""A reason for a lower clock that stood in this share of the readings is told."""
_FINE, _UNKNOWN = "", None


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What a cause is looked for in: a check, its GPU (None for CPUs and several) and that GPU's place, the others' too."""

    check: Check
    gpu: Gpu | None
    others: Sequence[Gpu]

    @property
    def launch(self) -> Launch:
        """Return the launch that tells of the machine: the last one."""
        return self.check.launches[-1]

    @cached_property
    def readings(self) -> list[list[dict[str, Any]]]:
        """Return for each GPU of the launch its readings in the timed windows of all launches."""
        places = range(len(self.launch.devices.gpus))
        return [[reading for launch in self.check.launches for reading in readings_of(launch, place)] for place in places]

    def of_own(self, key: str) -> float:
        """Return the mean of a reading of the GPU; NaN if there is none, as of GPUs of other nodes."""
        return _mean(self.own_readings if self.check.place is not None else [], key)

    def of_others(self, key: str) -> float:
        """Return the median over the other GPUs of the means of their readings."""
        means = [_mean(some, key) for place, some in enumerate(self.readings) if place != self.check.place]
        means += [_mean(readings_of(launch, 0), key) for launch in self.check.alone]
        known = [mean for mean in means if not math.isnan(mean)]
        return median_of(known) if known else math.nan

    @property
    def own_readings(self) -> list[dict[str, Any]]:
        """Return the readings of the GPU; those of all for a check of several."""
        if self.check.place is None:
            return [reading for some in self.readings for reading in some]
        return self.readings[self.check.place] if self.check.place < len(self.readings) else []


def readings_of(launch: Launch, place: int) -> list[dict[str, Any]]:
    """Return the readings of a launch's GPU in its timed windows."""
    gpus = launch.devices.gpus[place : place + 1]
    return [
        dict(read) for one in watched.series_of(launch, [g.uuid for g in gpus]) for read in one.inside(watched.edges(launch))
    ]


def _mean(readings: Sequence[dict[str, Any]], key: str) -> float:
    values = known(readings, key)
    return mean_of(values) if values else math.nan


def known(readings: Sequence[dict[str, Any]], key: str) -> list[float]:
    """Return what these readings say of `key`."""
    return [float(reading[key]) for reading in readings if reading.get(key) is not None]


def _link(scene: Scene) -> str | None:
    gpus = [scene.gpu] if scene.gpu else list(scene.launch.devices.gpus)
    links = [(gpu, match) for gpu in gpus if (match := PCIE.match(gpu.pcie or ""))]
    if not links:
        return _UNKNOWN
    narrow = [f"{_name(gpu)} runs at x{now[2]} of x{now[4]}" for gpu, now in links if int(now[2]) < int(now[4])]
    if narrow:
        return f"its link is trained too narrow: {', '.join(narrow)}" if scene.gpu else f"links: {', '.join(narrow)}"
    busy = [reading["pcie_generation"] for reading in scene.own_readings if reading.get("pcie_generation")]
    if scene.gpu and busy and max(busy) < int(links[0][1][3]):
        return f"its link runs at generation {max(busy):.0f} of {links[0][1][3]} while it works"
    return _FINE


def _power(scene: Scene) -> str | None:
    if scene.gpu is None or scene.gpu.power_limit_watts is None:
        return _UNKNOWN
    own, limits = float(scene.gpu.power_limit_watts), [gpu.power_limit_watts for gpu in scene.others if gpu.power_limit_watts]
    usual = median_of(list(map(float, limits))) if limits else math.nan
    if own < usual:
        return f"its power limit is {own:.0f} W, that of others {usual:.0f} W"
    sheet = spec_of(scene.gpu)
    if sheet and sheet.power_watts and own < sheet.power_watts:
        return f"its power limit is {own:.0f} W, its data sheet says {sheet.power_watts:.0f} W"
    return _FINE


def _slowed(scene: Scene) -> str | None:
    readings = scene.own_readings
    if not any(reading.get("reasons") is not None for reading in readings):
        return _UNKNOWN
    shares = {reason: share for reason, share in watched.reason_shares(readings).items() if reason in SLOWDOWNS}
    often = [
        f"{reason.replace('_', ' ')} in {100 * share:.0f} % of the readings"
        for reason, share in shares.items()
        if share > OFTEN
    ]
    return f"it was slowed down: {', '.join(often)}" if often else _FINE


def _heat(scene: Scene) -> str | None:
    own, others = (of("temperature_celsius") for of in (scene.of_own, scene.of_others))
    if math.isnan(own) or math.isnan(others):
        return _UNKNOWN
    return f"it is hotter: {own:.0f} °C, the others {others:.0f} °C" if own - others >= HOTTER_CELSIUS else _FINE


def _clock(scene: Scene) -> str | None:
    pinned = _unlike(scene, "application_clocks") or _unlike(scene, "performance_level")
    if pinned:
        return f"its clocks are set: {pinned}"
    own, others = (of("sm_clock_mhz") for of in (scene.of_own, scene.of_others))
    if math.isnan(own) or math.isnan(others):
        return _UNKNOWN
    return f"its clock was lower: {own:.0f} MHz, the others' {others:.0f} MHz" if own < (1 - SLOWER_CLOCK) * others else _FINE


def _memory(scene: Scene) -> str | None:
    if scene.gpu is None:
        return _UNKNOWN
    kinds = {kind: known(scene.own_readings, f"ecc_{kind}") for kind in ("uncorrected", "corrected")}
    found = [f"{kind} memory errors were counted" for kind, counts in kinds.items() if counts and max(counts) > min(counts)]
    repairs = scene.gpu.repairs or ""
    found += [f"its memory was repaired: {repairs}"] if repairs and not repairs.startswith("0 rows remapped") else []
    found += [f"its memory: {repairs}"] if ";" in repairs and not found else []
    if found:
        return "; ".join(found)
    return _FINE if kinds["uncorrected"] or repairs else _UNKNOWN


def _numa(scene: Scene) -> str | None:
    gpu, windows = scene.gpu, scene.launch.windows
    if gpu is None or not gpu.local_cpus or not windows or scene.check.place is None:
        return _UNKNOWN
    sharing = windows[0].sharing
    cpus = sharing[scene.check.place].cpus if scene.check.place < len(sharing) else None
    if not cpus:
        return _UNKNOWN
    if not _cpus(cpus) & _cpus(gpu.local_cpus):
        return f"its process ran on CPUs {cpus}, far from the GPU, whose node has {gpu.local_cpus}"
    nodes = Counter(other.numa_node for other in scene.others if other.numa_node is not None)
    if gpu.numa_node is not None and len(nodes) == 1 and gpu.numa_node not in nodes and len(scene.others) > 1:
        return f"it sits on NUMA node {gpu.numa_node}, all others on node {next(iter(nodes))}"
    return _FINE


def _cpus(text: str) -> set[int]:
    """Parse CPUs such as "0-3,8"."""
    ends = [part.partition("-") for part in text.split(",") if part[:1].isdigit()]
    return {cpu for first, _, last in ends for cpu in range(int(first), min(int(last or first), int(first) + 4096) + 1)}


def _fabric(scene: Scene) -> str | None:
    """Look at the links between the GPUs of a check: a pair that has fewer, or another kind, than the others."""
    links: Any = scene.launch.host.get("links")
    places = scene.launch.devices.indices
    if len(places) < 2 or not is_square(links, max(places)):
        return _UNKNOWN
    pairs = [(a, b) for a in places for b in places if a < b]
    known = range(len(links)) if len(places) == 2 and is_square(links, len(links) - 1) else places  # of one pair: all pairs
    kinds = Counter(str(links[a][b]) for a in known for b in known if a < b)
    usual = kinds.most_common(1)[0][0]
    odd = [f"GPU {a} and {b} have {links[a][b]}" for a, b in pairs if str(links[a][b]) != usual]
    if odd and scene.check.place is not None:
        own = places[scene.check.place]
        odd = [f"GPU {a} and {b} have {links[a][b]}" for a, b in pairs if str(links[a][b]) != usual and own in (a, b)]
    if odd:
        return f"links between GPUs: {', '.join(odd[:3])}, the others {usual}"
    return _FINE


def _peers(scene: Scene) -> str | None:
    """Look whether the driver lets the GPUs of a check read each other's memory."""
    table: Any = scene.launch.host.get("p2p")
    places = scene.launch.devices.indices
    if len(places) < 2 or not is_square(table, max(places)):
        return _UNKNOWN
    without = [f"{a} and {b}" for a in places for b in places if a < b and table[a][b] not in ("ok", "n/a")]
    return f"no peer access between GPU {'; '.join(without[:3])}: copies go through the host" if without else _FINE


def _transport(scene: Scene) -> str | None:
    """Look by what the library sends between GPUs of one node, as its log says."""
    transport = scene.launch.transport
    if transport is None or not transport.paths or scene.launch.devices.nodes > 1:
        return _UNKNOWN
    slow = [path for path in transport.paths if path.startswith(("SHM", "NET"))]
    return f"{transport.library} goes through the host: {', '.join(slow)}" if slow else _FINE


def _others_use(scene: Scene) -> str | None:
    foreign = {str(phrase) for reading in scene.own_readings for phrase in reading.get("foreign") or ()}
    if not scene.own_readings:
        return _UNKNOWN
    return f"other programs were on it: {', '.join(sorted(foreign))}" if foreign else _FINE


def _persistence(scene: Scene) -> str | None:
    if scene.gpu is None or scene.gpu.persistence is None:
        return _UNKNOWN
    return _FINE if scene.gpu.persistence else "persistence mode is off: the driver forgets its settings between launches"


def _governor(scene: Scene) -> str | None:
    governor = scene.launch.host.get("governor")
    if not governor:
        return _UNKNOWN
    return _FINE if governor == "performance" else f"the CPU's governor is {governor}"


def _iommu(scene: Scene) -> str | None:
    """Look whether an IOMMU translates what the GPUs read and write."""
    gpus = [scene.gpu] if scene.gpu else list(scene.launch.devices.gpus)
    if not gpus or any(gpu.iommu is None for gpu in gpus):
        return _UNKNOWN
    kinds = sorted({str(gpu.iommu) for gpu in gpus if str(gpu.iommu).startswith("DMA")})
    return f"the IOMMU translates its transfers ({', '.join(kinds)}): try iommu=pt" if kinds else _FINE


def _acs(scene: Scene) -> str | None:
    """Look whether switches send what GPUs ask of each other up to the host."""
    gpus = list(scene.launch.devices.gpus)
    if not gpus or any(gpu.acs is None for gpu in gpus):
        return _UNKNOWN
    ports = sorted({str(gpu.acs) for gpu in gpus} - {"none"})
    return f"ACS sends transfers between GPUs through the host, at {', '.join(ports)}" if ports else _FINE


def _setting(words: str, *names: str) -> "Look":
    """Return what looks whether a setting of the GPU, by any of its names, differs from that of the others."""

    def look(scene: Scene) -> str | None:
        odd = next(filter(None, (_unlike(scene, name) for name in names)), "")
        return _UNKNOWN if scene.gpu is None else f"{words}: {odd}" if odd else _FINE

    return look


def _unlike(scene: Scene, name: str) -> str:
    """Return how a setting differs from that of most other GPUs, of two or more; "" if it doesn't, or that isn't known."""
    values = Counter(value for gpu in scene.others if (value := getattr(gpu, name)) is not None)
    own = getattr(scene.gpu, name) if scene.gpu else None
    if own is None or values.total() < FEWEST_SIBLINGS:
        return ""
    usual, times = values.most_common(1)[0]
    return f"{_word(own)}, the others {_word(usual)}" if own != usual and 2 * times > values.total() else ""


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.index}"


Look = Callable[[Scene], str | None]
_LOOKS: dict[str, Look] = {
    "link": _link, "power limit": _power, "slow-downs": _slowed, "temperature": _heat, "clock": _clock, "memory": _memory,
    "NUMA": _numa, "links between GPUs": _fabric, "peer access": _peers, "transport": _transport, "IOMMU": _iommu, "ACS": _acs,
    "partition": _setting("it is partitioned otherwise", "partitions", "mig"), "other programs": _others_use,
    "ECC": _setting("ECC", "ecc"), "persistence mode": _persistence, "governor": _governor,
}  # fmt: skip
_COMPUTES = ("power limit", "slow-downs", "clock", "temperature", "memory", "partition", "ECC", "other programs")
_ORDERS: dict[str, tuple[str, ...]] = {
    "host-copy": ("link", "NUMA", "IOMMU", "governor", "other programs"),
    "peer-copy": ("links between GPUs", "peer access", "ACS", "IOMMU", "link", "partition"),
    "triad": ("memory", "ECC", "clock", "slow-downs", "power limit", "temperature", "partition"),
    "together": ("links between GPUs", "peer access", "transport", "ACS", "link", "slow-downs", "power limit", "NUMA"),
}
"""What is likeliest for an operation; all else is looked at behind it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Causes:
    """What was found, likeliest first; what was looked at and is fine; and what isn't known."""

    found: Sequence[str]
    fine: Sequence[str]
    unknown: Sequence[str]


_BETWEEN = ("links between GPUs", "peer access", "transport", "ACS")
"""What is between GPUs, and so no cause where each works by itself."""


def causes_of(check: Check) -> Causes:
    """Look for what made a check slow."""
    if not check.launches:
        return Causes(found=(), fine=(), unknown=tuple(_LOOKS))
    kind = "together" if check.model in TOGETHER or check.place is None else check.model
    if check.is_of_pair:
        check = replace(check, place=None)  # either end may be what is slow
    apart = () if kind in ("together", "peer-copy") else _BETWEEN if kind == "host-copy" else (*_BETWEEN, "IOMMU")
    order = [name for name in dict.fromkeys((*_ORDERS.get(kind, _COMPUTES), *_LOOKS)) if name not in apart]
    scene = _scene(check)
    looked = {name: _LOOKS[name](scene) for name in order}
    found = [name for name, text in looked.items() if text]
    shared = set(found) & _shared(check, found) if check.reference and check.reference.kind == SIBLINGS else set()
    return Causes(
        found=[str(looked[name]) for name in found if name not in shared],
        fine=[*(name for name, text in looked.items() if text == _FINE), *(f"{name} as on all" for name in sorted(shared))],
        unknown=[name for name, text in looked.items() if text is _UNKNOWN],
    )


def _scene(check: Check) -> Scene:
    gpu, gpus = gpu_of(check), check.launches[-1].devices.gpus
    uuid = gpu.uuid if gpu else None
    return Scene(check=check, gpu=gpu, others=[other for other in gpus if gpu and other.uuid != uuid] or _rest(check, uuid))


def _shared(check: Check, names: Sequence[str]) -> set[str]:
    """Return which of the causes at least half of the siblings have, too: that makes none slower than the others."""
    places = range(len(check.launches[-1].devices.gpus)) if check.count > 1 else ()
    siblings = [replace(check, place=place) for place in places if place != check.place]
    siblings += [replace(check, launches=[launch]) for launch in check.alone]
    scenes = list(map(_scene, siblings))
    return {name for name in names if scenes and 2 * sum(bool(_LOOKS[name](scene)) for scene in scenes) >= len(scenes)}


def _rest(check: Check, uuid: str | None) -> list[Gpu]:
    """Return the machine's other GPUs, where the launch used one alone."""
    recorded = check.launches[-1].host.get("gpus") or ()
    rest = [Gpu(**{name: row[name] for name in Gpu.__struct_fields__ if name in row and name != "facts"}) for row in recorded]
    return [gpu for gpu in rest if gpu.uuid != uuid]
