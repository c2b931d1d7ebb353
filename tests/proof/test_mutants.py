"""The breaks of `python -m proof.mutants` name what exists: else the run would end in its middle, half an hour later."""

import pytest

from proof.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.name}: {mutant.said}")
def test_what_a_break_replaces_is_there(mutant: Mutant) -> None:
    assert callable(getattr(mutant.place, mutant.name))
