"""Write the search of bisect for the release that changed a level, as lines for the terminal."""

import shlex
from collections.abc import Iterator

from torchmatrix.analysis.intervals import Interval
from torchmatrix.core.formatting import clipped, count, is_known, printable
from torchmatrix.reporting import words
from torchmatrix.reporting.cubes import ratio_of
from torchmatrix_plugins.profile.search import FOUND, SAME, UNDECIDED, AdjacentPair, Search, Step, most_steps, not_monotone


def plan_in_words(search: Search, job: str, rounds: int) -> Iterator[str]:
    """Yield the plan of the search."""
    inside = len(search.stacks) - 2 - len(search.left_out)
    yield printable(f"{job}: {search.stacks[0]} to {search.stacks[-1]}, {count(inside, 'stack')} between them")
    steps = most_steps(inside + 2)
    yield (
        f"first the two in {count(rounds, 'round')}; if they differ, at most {count(steps, 'step')} of three stacks, "
        f"{3 * rounds} launches each; a step without an answer is repeated, twice at most"
    )
    yield from (printable(f"left out: {name}: {why}") for name, why in search.left_out.items())


def step_in_words(step: Step) -> Iterator[str]:
    """Yield the results of a step, and what follows."""
    yield from map(_pair_line, step.pairs)
    if step.goes_on is None:
        yield "  not decided"
    elif step.middle:
        yield printable(f"  so the change lies between {step.goes_on[0]} and {step.goes_on[1]}")


def bisection_text(search: Search, job: str, matrix: str | None) -> str:
    """Write the answer, what it rests on, and what to do next. `matrix`: where the search's matrix was written, if it was."""
    return "\n".join(map(printable, _bisection_lines(search, job, matrix)))


def _bisection_lines(search: Search, job: str, matrix: str | None) -> Iterator[str]:
    change = search.change
    assert change is not None
    yield from _answer_lines(search, change)
    if search.between:
        reasons = {name: f" ({why})" for name, why in search.left_out.items() if why}
        yield f"between them: {', '.join(name + reasons.get(name, '') for name in search.between)}"
    if search.others:
        yield "the level changed more than once; also:"
        yield from (f"  {pair.old} -> {pair.new}: {_ratio(pair)}" for pair in search.others)
    if not_monotone(search):
        yield "it did not only rise or only fall: stacks between two of one level may have another"
    corrected = (
        f"p <= {search.level:.2g}, which is 5 % corrected for all tests of the search; intervals are those of two stacks alone"
    )
    yield f"{count(len(search.steps), 'step')}; a difference counts at {corrected}"
    if search.ended == FOUND and change.environment:
        yield "what else differs between the two:"
        yield from (f"  {name}: {clipped(was)} -> {clipped(now)}" for name, (was, now) in change.environment.items())
    if search.ended == FOUND:
        cells = " ".join(shlex.quote(f"{name}/{job}") for name in (change.old, change.new))
        file = shlex.quote(matrix) if matrix else "FILE (bisect --write FILE makes it)"
        yield f"which operators: torchmatrix why {cells} --matrix {file}"


def _answer_lines(search: Search, change: AdjacentPair) -> Iterator[str]:
    old, new = search.ends
    rests = f"{change.launches[0]} and {change.launches[1]} launches, in turns"
    if search.ended == FOUND and not search.between:
        yield f"the level changed in {new}: {_ratio(change)}, over {old}; {rests}"
    elif search.ended == FOUND:
        yield f"the level changed after {old}, in {new} at the latest: {_ratio(change)}; {rests}"
    elif search.ended == SAME:
        yield f"the level is the same in {old} and {new}: {_ratio(change)}; {rests}"
    elif search.ended == UNDECIDED:
        yield f"the level changed between {old} and {new}: {_ratio(change)}; {rests}"
        yield f"which release is not shown: {search.steps[-1].middle} differs too little from both; use more --launches"
    else:
        verdict = words.verdict("AMBIGUOUS") if is_known(change.p_value) else "too few launches to see a difference"
        yield f"{verdict} between {old} and {new}: {_ratio(change)}; {rests}"
        if is_known(change.detectable):
            yield f"these launches would show {100 * change.detectable:.2g} %; for a smaller difference use more --launches"


def _pair_line(pair: AdjacentPair) -> str:
    verdict = "differs" if pair.differs else words.verdict("AMBIGUOUS")
    verdict = verdict if is_known(pair.p_value) else f"too few launches: {words.verdict('n/a')}"
    return printable(f"  {pair.old} -> {pair.new}: {_ratio(pair)}; {verdict}")


def _ratio(pair: AdjacentPair) -> str:
    """Write a ratio with the 95 % interval of the two alone, and the p-value that decides."""
    chance = f", p = {pair.p_value:.2g}" if is_known(pair.p_value) else ""
    return f"{ratio_of(Interval(value=pair.ratio, low=pair.low, high=pair.high))}{chance}"
