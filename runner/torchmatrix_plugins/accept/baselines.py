"""The file of what other machines reached: written by `accept --write-baseline`, checked when it is read, never a guess."""

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from torchmatrix.analysis.intervals import NO_PRIOR, Moments
from torchmatrix.core.errors import BadInput
from torchmatrix.core.formatting import UNKNOWN, are, count, figure
from torchmatrix.core.inputs import LARGE_FILE_BYTES, read_bytes
from torchmatrix.core.toml_keys import shown
from torchmatrix.reporting.page import utc
from torchmatrix_plugins.accept import judging
from torchmatrix_plugins.accept.checks import BEYOND, Check
from torchmatrix_plugins.accept.judging import Reference

VERSION, FORMER = 2, 1
"""The version of the files; the former one knows all machines by the folder of their runs."""
FAR_BELOW = 0.2
"""A reference below this share of the device's limit is told: a unit may have slipped."""
MOST_ERROR = 0.5
"""A figure with a larger relative error is none."""
DEFINITION = "mean of logarithms over launches of {unit}/s per {per}, each launch afresh; its error is that of the mean"
FEWEST_MACHINES = 3
"""Other machines that show how much healthy ones differ: devices of one machine share what makes it differ from others."""
MOST_LAUNCHES = 1_000_000
_HINT = "torchmatrix accept --write-baseline FILE writes one"


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """What one device reached, or several together. `log`: the mean of the logarithms of its `launches`, with its `error`.
    `verified`: the machine is known by its identity, else by the folder of its runs.
    """

    machine: str
    device: str
    log: float
    error: float
    launches: int
    software: str = ""
    measured: str = ""
    verified: bool = False


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """All devices of one kind at one operation. `key`: what a device must have to be compared with them."""

    operation: str
    unit: str
    key: dict[str, str]
    together: bool
    devices: list[Device]
    definition: str = ""
    limit: float | None = None


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A baseline file."""

    torchmatrix_baseline: int
    entries: list[Entry]


def read(path: Path) -> Baseline:
    """Read a baseline file. Raises BadInput for one that can't be true: a figure above the limit of its device."""
    try:
        content = read_bytes(path, hint=_HINT, most_bytes=LARGE_FILE_BYTES)
        baseline = msgspec.json.decode(content, type=Baseline)
    except FileNotFoundError:
        raise BadInput(f"there is no baseline {path}", hint=_HINT) from None
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        raise BadInput(f"{path} is no baseline: {shown(str(why))}", hint=_HINT) from None
    if baseline.torchmatrix_baseline not in (VERSION, FORMER):
        raise BadInput(f"{path} has version {baseline.torchmatrix_baseline}; this torchmatrix reads {VERSION}", hint=_HINT)
    for number, entry in enumerate(baseline.entries):
        _refuse_impossible(path, entry, entry.limit)
        if any(_same(entry, other) for other in baseline.entries[:number]):
            raise BadInput(f"{path}: {shown(entry.operation)} is there twice for one kind of device", hint=_HINT)
    return baseline


def _same(entry: Entry, other: Entry) -> bool:
    return (entry.operation, entry.together, entry.key) == (other.operation, other.together, other.key)


def _refuse_impossible(path: Path, entry: Entry, limit: float | None) -> None:
    where = f"{path}: {shown(entry.operation)}"
    if not entry.devices:
        raise BadInput(f"{where} has no device", hint=_HINT)
    if len({(device.machine, device.device) for device in entry.devices}) < len(entry.devices):
        raise BadInput(f"{where}: a device is there twice", hint=_HINT)
    for device in entry.devices:
        is_figure = math.isfinite(device.log) and abs(device.log) < 100 and 1 < device.launches < MOST_LAUNCHES
        if not (is_figure and 0 <= device.error < MOST_ERROR):
            raise BadInput(f"{where}: the figure of {shown(device.device)} is no figure", hint=_HINT)
        if limit is not None and math.exp(device.log) > BEYOND * limit:
            value = f"{figure(math.exp(device.log))} {shown(entry.unit)}/s"
            hint = "look at its unit; a reference that no device can reach fails every healthy one"
            raise BadInput(f"{where}: {value} is more than the device can do, {figure(limit)}", hint=hint)


def refuse_others(baseline: Baseline, ours: Collection[str]) -> None:
    """Raise BadInput if a baseline is about none of `ours`, the names of this machine's devices."""
    theirs = sorted({shown(entry.key.get("device", "unknown")) for entry in baseline.entries})
    if not set(theirs) & set(map(shown, ours)):
        problem = f"the baseline is about {', '.join(theirs[:3]) or 'nothing'}; this machine has {', '.join(sorted(ours)[:3])}"
        raise BadInput(problem, hint="leave --baseline out, or take one of such a machine")


def doubts(baseline: Baseline, checks: Sequence[Check]) -> Iterator[str]:
    """Yield what a reader must know of a baseline, held against these checks. Raises BadInput where units differ, or where it
    is about other devices.
    """
    checks = [check for check in checks if check.key]  # what wasn't launched has no device
    refuse_others(baseline, {check.key["device"] for check in checks})
    found = False
    for entry in baseline.entries:
        name = shown(entry.operation)
        if not entry.definition:
            yield f"the baseline doesn't define {name}: whether it is the same figure isn't known"
        for check in checks:
            if entry.operation == check.operation and entry.unit != check.unit:
                problem = f"the baseline has {name} in {shown(entry.unit)}/s, measured was {check.unit}/s"
                raise BadInput(problem, hint="write it again with this version")
        if any(is_of(entry, check) for check in checks):
            found = True
            limit = max((check.limit for check in checks if is_of(entry, check) and check.limit > 0), default=math.nan)
            _refuse_impossible(Path("the baseline"), entry, None if math.isnan(limit) else limit)
            value = math.exp(max(device.log for device in entry.devices))
            if value < FAR_BELOW * limit:
                yield f"the baseline of {name} is {100 * value / limit:.0f} % of what the device can do: look at its unit"
            ours = {check.software for check in checks if is_of(entry, check) and check.software}
            if theirs := {shown(device.software) for device in entry.devices if device.software} - ours:
                yield f"the baseline of {name} was measured with {', '.join(sorted(theirs))}; this is {', '.join(sorted(ours))}"
    yield from _whole(baseline, checks, found)


def _whole(baseline: Baseline, checks: Sequence[Check], found: bool) -> Iterator[str]:
    """Yield what is to be said of a baseline as a whole. `found`: it has an operation on such a device."""
    names = [shown(entry.operation) for entry in baseline.entries]
    missing = [check for check in checks if not any(is_of(entry, check) for entry in baseline.entries)]
    if found and missing:
        few = f"{len(missing)} of {count(len(checks), 'check')} {are(len(missing))}"
        yield f"{few} not in the baseline{_unlike(baseline, missing)}"
    devices = [device for entry in baseline.entries for device in entry.devices]
    if found and len({check.machine for check in checks}) == 1 and all(_is_own(device, checks[0]) for device in devices):
        yield "the baseline is of this machine alone, which can't be a reference of itself"
    elif not found and not {*names} & {check.operation for check in checks}:
        yield f"the baseline has none of these operations: it has {', '.join(dict.fromkeys(names))}"
    elif not found:
        yield (
            "the baseline has no operation on such a device: memory, link, power limit, partition, number and stack must agree,"
            " too"
        )


def _unlike(baseline: Baseline, missing: Sequence[Check]) -> str:
    """Say in what a check differs from the baseline's device at the same operation; "" where it has no such operation."""
    for check in missing:
        own = (check.operation, check.place is None)
        alike = [entry for entry in baseline.entries if (entry.operation, entry.together) == own]
        each = [
            [f"{name} {shown(entry.key.get(name, UNKNOWN))}, here {shown(check.key.get(name, UNKNOWN))}"
             for name in sorted({*entry.key, *check.key}) if entry.key.get(name) != check.key.get(name)]
            for entry in alike
        ]  # fmt: skip
        if each and (nearest := min(each, key=len)):
            return f": it has {'; '.join(nearest)}"
    return ""


def is_of(entry: Entry, check: Check) -> bool:
    """Check whether an entry is about what was checked: operation, device, link, power limit, partition and number."""
    together = check.place is None
    return (entry.operation, entry.unit, entry.together, entry.key) == (check.operation, check.unit, together, dict(check.key))


def finder(baseline: Baseline) -> Callable[[Check], Reference | None]:
    """Return what finds the reference of a check in a baseline; a machine is never held against itself."""
    prior = judging.prior_of([_moments(entry.devices) for entry in baseline.entries])

    def find(check: Check) -> Reference | None:
        entry = next((entry for entry in baseline.entries if is_of(entry, check)), None)
        others = [device for device in entry.devices if not _is_own(device, check)] if entry else []
        if not others:
            return None
        machines = len({device.machine for device in others})
        source = f"{count(len(others), 'device')} of {count(machines, 'other machine')}"
        found = judging.among(_moments(others), judging.BASELINE, prior if len(others) > 1 else NO_PRIOR, source)
        return found if machines >= FEWEST_MACHINES else replace(found, scatter=math.nan)

    return find


def alone(baseline: Baseline, machines: Mapping[str, Sequence[Check]]) -> Iterator[str]:
    """Yield of each machine how many of its checks no other machine among these has, and why."""
    find = finder(baseline)
    for name, checks in machines.items():
        known = [check for check in checks if check.key and check.outcome == "ok"]
        if missing := [check for check in known if find(check) is None]:
            few = f"{len(missing)} of {count(len(known), 'check')}"
            theirs = [entry for entry in baseline.entries if not all(_is_own(device, missing[0]) for device in entry.devices)]
            why = _unlike(msgspec.structs.replace(baseline, entries=theirs), missing)
            yield f"{name}: {few} {are(len(missing))} held against no other machine{why.replace('it has', 'others have')}"


def _is_own(device: Device, check: Check) -> bool:
    """Check whether a device of a baseline is of the machine of a check: by its identity, else by a folder of its runs."""
    names = [check.identity] if device.verified else [check.identity, *check.folders]
    return device.machine in map(_digest, names)


def _digest(machine: str) -> str:
    """Return what tells a machine from others in a file that may go to others, and says nothing else of it."""
    return hashlib.sha256(machine.encode()).hexdigest()[:16]


def _moments(devices: Sequence[Device]) -> list[Moments]:
    return [Moments(log=d.log, squared_error=d.error**2, freedom=max(1, d.launches - 1)) for d in devices]


def of_checks(checks: Sequence[Check]) -> tuple[Baseline, int]:
    """Make a baseline of the checks that have a sound figure and didn't fail; return how many are left out, too."""
    entries: dict[tuple[object, ...], Entry] = {}
    sound = [(check, reached) for check in checks if (reached := _sound(check))]
    for check, reached in sound:
        told = check.launches[-1]
        device = Device(
            machine=_digest(check.identity), verified=check.verified, device=check.device, log=reached.log,
            error=math.sqrt(reached.squared_error), launches=reached.launches, software=check.software,
            measured=utc(told.unix_seconds),
        )  # fmt: skip
        together, key = check.place is None, (check.operation, check.place is None, *sorted(check.key.items()))
        definition = DEFINITION.format(unit=check.unit, per="launch" if together else "device")
        empty = Entry(
            operation=check.operation, unit=check.unit, key=dict(check.key), together=together, devices=[],
            definition=definition, limit=None if math.isnan(check.limit) else check.limit,
        )  # fmt: skip
        devices = entries.setdefault(key, empty).devices
        if any((other.machine, other.device) == (device.machine, device.device) for other in devices):  # in another set
            device = msgspec.structs.replace(device, device=f"{check.device} of {check.devices}")
        devices.append(device)
    return Baseline(torchmatrix_baseline=VERSION, entries=list(entries.values())), len(checks) - len(sound)


def _sound(check: Check) -> Moments | None:
    """Return the figure that others may be held against; None without one, if launches went wrong, or if the check failed."""
    found = check.figure
    if found is None or found.disturbed or check.said or check.judged.verdict == judging.FAIL:
        return None
    is_possible = found.squared_error < MOST_ERROR**2 and not math.exp(found.log) > BEYOND * check.limit
    return found if is_possible else None


def written(baseline: Baseline) -> str:
    """Return the text of a baseline file."""
    return json.dumps(msgspec.to_builtins(baseline), indent=1, ensure_ascii=False) + "\n"
