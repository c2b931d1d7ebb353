"""The search for the largest batch."""

import pytest

from torchmatrix.running import rounds


@pytest.mark.parametrize(
    ("limit", "largest"),
    [(0, None), (1, 1), (2, 2), (3, 3), (5, 4), (6, 6), (8, 8), (13, 12), (100, 96), (255, 192), (256, 256)],
)
def test_the_search_finds_the_largest_power_of_two_or_one_and_a_half_times_one(limit: int, largest: int | None) -> None:
    looking = rounds.search_batch()
    tried = [next(looking)]
    with pytest.raises(StopIteration) as over:
        while True:
            tried.append(looking.send(tried[-1] <= limit))
    assert over.value.value == largest
    assert len(tried) == len(set(tried)) <= 12


def test_the_search_ends_at_the_largest_batch_that_is_tried_at_all() -> None:
    looking = rounds.search_batch(first=8, largest=64)
    tried = [next(looking)]
    with pytest.raises(StopIteration) as over:
        while True:
            tried.append(looking.send(True))
    assert over.value.value == 64 and max(tried) == 64
