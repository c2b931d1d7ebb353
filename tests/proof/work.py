"""Rows on the proof of work: launches of the real stack that don't do their work, and launches that do."""

import itertools
from collections.abc import Iterator
from functools import partial

import bare_loop
import honest
from proof.row import Claim, Random, at_least
from support import sabotaged
from support.boxes import bench

PARTS = 4
"""Rows of sabotaged launches, so that cores share them; each has every fourth one."""


def caught(part: int, random: Random) -> Iterator[bool]:
    """Yield whether each sabotaged launch ends as numerics, for its reason."""
    python = bare_loop.built_python()
    for sabotage in sabotaged.EVERY[part::PARTS]:
        yield sabotage.is_caught(*sabotage.launch(python)[:2])


def proven(mode: str, ranks: int, random: Random) -> Iterator[bool]:
    """Yield whether honest launches are proven; tests/bench/honest.py counts hundreds of them, on any interpreter."""
    python = bare_loop.built_python()
    for model, precision in itertools.product(honest.MODELS, ("fp32", "amp-bf16")):
        code, events, _ = bench(python, *model, "--mode", mode, "--precision", precision, processes=ranks)
        yield honest.verdict(code, events)[0] == "ok"


CLAIMS = (
    *(
        Claim(what=f"work: sabotaged launches that end as numerics, for the right reason ({part + 1} of {PARTS})",
              goal=at_least(1), trial=partial(caught, part), trials=1) for part in range(PARTS)
    ),
    *(
        Claim(what=f"work: honest launches that are proven: {mode}, ranks: {ranks}", goal=at_least(1),
              trial=partial(proven, mode, ranks), trials=1) for mode in ("train", "infer") for ranks in (1, 2)
    ),
)  # fmt: skip
