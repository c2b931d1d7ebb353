"""In what the fields of one event must agree: what contradicts itself is malformed, so that no reader has to ask again.

Fields that are not valid by themselves (event_fields.py) never come here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchmatrix.facts.checked import Malformed, Record

_OF_RANKS = ("step_seconds", "enqueue_seconds", "scale", "skipped_steps")


def check(event: Record) -> None:
    """Raises Malformed if two fields of a valid event can't both be true."""
    begin, end = (event.get(f"{edge}_monotonic_seconds") for edge in ("start", "stop"))
    if begin is not None and end is not None and end < begin:
        raise Malformed(f"it stops {begin - end:.3f} s before it starts")
    rule = _RULES.get(event["event"])
    if rule:
        rule(event)


def same_ranks(name: str, per_rank: Sequence[Any], seconds: Sequence[float]) -> None:
    """Raises Malformed unless `per_rank`, if there is any, has one entry for each rank whose `seconds` are told."""
    if per_rank and len(per_rank) != len(seconds):
        raise Malformed(f"{name} has {len(per_rank)} ranks, seconds has {len(seconds)}")


def _sample(event: Record) -> None:
    for name in _OF_RANKS:
        same_ranks(name, event.get(name) or (), event["seconds"])
    for rank, steps in enumerate(event.get("step_seconds") or ()):
        if len(steps) != event["steps"]:
            raise Malformed(f"step_seconds has {len(steps)} steps of rank {rank}, steps is {event['steps']}")


def _steps(event: Record) -> None:
    if len(counts := sorted(set(map(len, event["step_seconds"])))) > 1:
        raise Malformed(f"step_seconds has {counts[0]} steps of one rank and {counts[-1]} of another")


def _peers(event: Record) -> None:
    access, speeds = event.get("access") or (), event.get("bytes_per_second") or ()
    if len(access) != len(speeds):
        raise Malformed(f"access is of {len(access)} devices, bytes_per_second of {len(speeds)}")
    if any(speed is None for one, row in enumerate(speeds) for other, speed in enumerate(row) if one != other):
        raise Malformed("bytes_per_second is null between two devices")
    if any(len(pair) != 2 or max(pair) >= len(access) for pair in event.get("wrong") or ()):
        raise Malformed("wrong is no list of pairs of devices")


def _load(event: Record) -> None:
    rates = event["flops_per_second"]
    if not rates or len(rates) != len(event["finite"]):
        raise Malformed(f"flops_per_second has {len(rates)} ranks, finite has {len(event['finite'])}")
    if not all(rank and min(rank) > 0 for rank in rates):
        raise Malformed("flops_per_second has a rank that did nothing")


def _part(event: Record) -> None:
    if event["number"] >= event["count"]:
        raise Malformed(f"number is {event['number']}, count is {event['count']}")


def _profile(event: Record) -> None:
    same_ranks("profiled_seconds", event["profiled_seconds"], event["plain_seconds"])


_RULES: Mapping[str, Callable[[Record], None]] = {
    "sample": _sample,
    "steps": _steps,
    "peers": _peers,
    "load": _load,
    "part": _part,
    "profile": _profile,
}
