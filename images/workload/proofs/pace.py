"""The time of the step that is proven: it must be that of the timed ones. A step that does its work where it is proven and less
where it is timed takes longer when it is proven.
"""

import collections
import statistics

import extras
import measure

LONGER, LONGER_ALONE = 1.25, 2.0
"""Ratio to the timed steps above which the proven one takes longer; on a GPU, where a step that comes alone begins with an idle
device and an empty queue."""
SLACK = 1e-3
"""Seconds besides, for what a step that comes alone finds in no cache."""
ROUNDS, AWHILE = 5, 0.25
"""How often the proven step and an ordinary one are timed by turns at least, while the proven one takes longer, and until
ordinary ones took so many seconds: a machine that is disturbed slows both, for some time."""


Usual = collections.namedtuple("Usual", "seconds slow_seconds")
"""The seconds of a timed step, and those of slow ones among them."""


def usual(args, blocks, windows, batch):
    """Return the Usual of the timed `windows` on this batch, of the slowest rank: their median or mean, whichever is less, as a
    figure is made of all; of all steps where there are none. `blocks`: all of the warm-up and the windows, as measure.window
    gives them.

    Of a user's own model, which may do something in one of many steps, it is that of all batches, and the mean of the slowest
    tenth.
    """
    count, seconds, of_batch = 0, [], []
    for ranks in sorted(blocks, key=lambda ranks: ranks[0]["start_monotonic_seconds"]):
        steps = [max(together) for together in zip(*(rank["step_seconds"] for rank in ranks))]
        if any(ranks is window for window in windows):
            seconds += steps
            of_batch += [step for number, step in enumerate(steps, count) if number % args.batches == batch % args.batches]
        count += len(steps)
    chosen = seconds if args.model_file else of_batch or seconds
    typical = min(statistics.median(chosen), statistics.mean(chosen))
    slowest = statistics.mean(sorted(seconds)[len(seconds) * 9 // 10 :]) if args.model_file else typical
    return Usual(typical, slowest)


def proven(world, step, batch, prove, timed):
    """Run the step that is proven; return what it gives, and texts about one that takes longer than the timed ones, whose Usual
    is `timed` (None: that isn't known). It is run again while it does, by turns with an ordinary one on `batch`: the fastest
    counts. `prove`: runs it; it returns what it gives, and its seconds.
    """
    most, ordinary = LONGER_ALONE if world.kind.is_gpu else LONGER, []
    given, least = _slowest(world, *prove())
    while timed and least > most * timed.seconds + SLACK and (len(ordinary) < ROUNDS or sum(ordinary) < AWHILE):
        ordinary.append(max(rank["seconds"] for rank in measure.window(world, step, 1, batch)))
        given, least = min((given, least), _slowest(world, *prove()), key=lambda pair: pair[1])
    if not timed or least <= most * timed.seconds + SLACK:
        return given, []
    longer = least / timed.seconds
    if least <= most * statistics.median(ordinary) + SLACK:
        extras.note(_WHAT, _ALIKE % longer)
    elif least <= most * timed.slow_seconds + SLACK:
        extras.note(_WHAT, _VARIES % longer)
    else:
        return given, [_LONGER % (1e3 * least, longer, 1e3 * timed.seconds)]
    return given, []


def _slowest(world, given, seconds):
    return given, max(world.gather(seconds))


_LONGER = (
    "the step that is proven takes %.3g ms, %.2f times the %.3g ms of the same step in the timed windows: there, less was done"
)
_WHAT = "whether the timed steps are those that were proven"
_ALIKE = "the proven one takes %.2f times as long, as others do now: the machine got slower, or the model does less in windows"
_VARIES = (
    "the proven one takes %.2f times as long as most, as few of them do: the model does more in some steps, or less in windows"
)
