"""`python -m faults` in tests/: tries all kinds of fault within a time, and prints what was tried and what held."""

import argparse
import json
import signal
import sys
from difflib import get_close_matches
from random import SystemRandom

from faults.attempts import Attempt, in_this_process
from faults.bench import Bench
from faults.kinds import Kind, kinds, missing
from faults.table import in_words, last_line


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=780, help="no attempt begins later; those under way end by themselves")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6), help="repeats a bench; default: random")
    parser.add_argument("--only", metavar="KIND", help="one kind, or one attempt of it: 'KIND#NUMBER'")
    parser.add_argument("--attempt", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever starts this in the background leaves it deaf to Ctrl-C
    options = arguments(words)
    if options.attempt:
        attempt = Attempt(**json.loads(options.attempt))
        print(in_this_process(attempt, _named(attempt.kind)))
        return 0
    name, _, number = (options.only or "").partition("#")
    chosen = [_named(name)] if name else kinds()
    print(f"seed {options.seed}; --seed {options.seed} repeats it", flush=True)
    lacking = {kind.name: why for kind in chosen if (why := missing(kind))}
    bench = Bench(seed=options.seed, seconds=options.seconds, kinds=[kind for kind in chosen if kind.name not in lacking])
    bench.run(int(number) if number else None)
    print(in_words(bench, lacking))
    print(last_line(bench, lacking))
    return 1 if bench.failures else 0


def _named(name: str) -> Kind:
    """Return the kind of that name; exit with 2 if there is none."""
    by_name = {kind.name: kind for kind in kinds()}
    if name not in by_name:
        near = get_close_matches(name, by_name, 3, 0.3)
        print(f'error: no kind "{name}"; hint: {", ".join(near or by_name)}', file=sys.stderr)
        raise SystemExit(2)
    return by_name[name]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
