"""Whether other programs slowed a launch: how long its threads waited for CPUs that others used.

The workload reads what its kernel counts at the edges of its windows (images/workload/sharing.py). docs/method-launch.md has
the measurements behind the limit, and what no counter of a machine shows.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torchmatrix.analysis.rows import group_by
from torchmatrix.analysis.watched import foreign_in
from torchmatrix.core.formatting import is_known
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.wire import Sharing

WAITED = 0.03
"""A launch is disturbed if its threads waited for others in this share of the time in which they ran or waited for a CPU."""
IMPOSSIBLE = 10.0
"""So many times what the CPUs can do in the windows and a second around them, and nothing is known."""
CROWDED = 0.2
"""More threads than CPUs compute where those of a lone process waited for each other in this share of that time: 0 to 2 % were
seen where each has its CPU, 49 % with two threads on one."""
TOO_MANY_THREADS = "its own threads waited for each other in a fifth of the time or more: more of them compute than it has CPUs"
NOTEWORTHY = 0.01
"""Less than this share isn't named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """How a launch shared its CPUs in the timed windows; NaN for what the kernel doesn't tell.

    `waited`: the time in which its threads waited for CPUs that others used, over that in which they ran or waited at all.
    `others`: how many CPUs' worth of work other programs did on its CPUs; `stolen`: the share of its CPUs' time that a
    hypervisor took. Of ranks with CPUs of their own, those that waited most. `foreign`: others' processes that were seen on
    its GPUs; `disturbed`: by these, or by waiting; None if it can't be told. `crowded`: like `waited`, for threads of its own.
    """

    waited: float = math.nan
    crowded: float = math.nan
    others: float = math.nan
    stolen: float = math.nan
    foreign: tuple[str, ...] = ()
    disturbed: bool | None = None

    @property
    def in_words(self) -> str:
        """Say what is known of it; empty for nothing."""
        waited = f"its threads waited {100 * self.waited:.0f} % of the time for CPUs that others used ({self.others:.2g} CPUs)"
        return ", ".join([*([waited] if self.waited >= NOTEWORTHY else []), *self.foreign])

    @property
    def remarks(self) -> tuple[str, ...]:
        """Say whether it has more threads than CPUs. Of several ranks, whose collectives wait, nothing is said."""
        return (TOO_MANY_THREADS,) if self.crowded >= CROWDED else ()


def shared_by(launch: Launch) -> Shared:
    """Return how a launch shared its CPUs and devices."""
    windows = [window for window in launch.windows if window.sharing]
    seconds = math.fsum(window.slowest for window in windows)
    ranks = [list(parts) for parts in zip(*(window.sharing for window in windows), strict=False)]
    together = [_shared(seconds, members) for members in _with_same_cpus(ranks)] if seconds > 0 else []
    most = max((shared for shared in together if is_known(shared.waited)), key=lambda shared: shared.waited, default=Shared())
    foreign = foreign_in(launch)
    disturbed = True if foreign else most.waited >= WAITED if is_known(most.waited) else None
    return replace(most, foreign=foreign, disturbed=disturbed, crowded=most.crowded if len(ranks) == 1 else math.nan)


def _with_same_cpus(ranks: Sequence[Sequence[Sharing]]) -> list[list[Sequence[Sharing]]]:
    """Return the ranks that may use the same CPUs together; none whose CPUs changed, or aren't known."""
    known = [parts for parts in ranks if len({part.cpus for part in parts}) == 1 and parts[0].cpus]
    return list(group_by(known, lambda parts: parts[0].cpus).values())


def _shared(seconds: float, ranks: Sequence[Sequence[Sharing]]) -> Shared:
    """Return how ranks with the same CPUs shared them with others, in windows of so many seconds.

    They wait for each other, too, if they have more threads than CPUs: of their waiting no more is for others than these ran.
    """
    run, wait = (_sum(getattr(part, name) for parts in ranks for part in parts) for name in ("run_seconds", "wait_seconds"))
    busy, stolen = (
        max(_sum(getattr(part, name) for part in parts) for parts in ranks) for name in ("busy_seconds", "stolen_seconds")
    )
    cpus = _count(ranks[0][0].cpus or "")
    if max(busy, stolen, run) > IMPOSSIBLE * cpus * (1 + seconds):
        return Shared()
    others = max(busy - run, 0.0)  # in this order NaN stays NaN, as below
    for_others, together = min(others, wait), run + wait if run + wait > 0 else math.nan
    return Shared(
        waited=for_others / together, crowded=(wait - for_others) / together, others=others / seconds,
        stolen=stolen / seconds / cpus,
    )  # fmt: skip


def _count(cpus: str) -> int:
    """Return how many numbers stand in a list such as "0-3,8"."""
    ends = (part.partition("-") for part in cpus.split(","))
    return max(1, sum(int(last or first) - int(first) + 1 for first, _, last in ends))


def _sum(values: Iterable[float | None]) -> float:
    """Return the sum; NaN where one is unknown."""
    return math.fsum(math.nan if value is None else value for value in values)
