"""Steady means steady, row by row (a minute, no torch)."""

import steady_state


def test_every_goal_of_the_steady_state_is_met() -> None:
    found = steady_state.rows()
    for row in found:
        print(f"{row.what:52} {row.figure:32} goal: {row.goal}")
    assert all(row.met for row in found)
