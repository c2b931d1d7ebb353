"""What is computed beside a figure and proves nothing: where that fails, the launch goes on and a remark tells it."""

import failures
from channel import Numerics, Unsupported

_missing = []


def attempt(what, action):
    """Return the result of `action`; None where it fails, which `missing` tells. What is disproved or refused is raised."""
    try:
        return action()
    except (Numerics, Unsupported):
        raise
    except Exception as error:  # of any class: libraries, models and devices differ in how they refuse
        note(what, failures.describe(error))
        return None


def note(what, why):
    """Note that something isn't known, and why."""
    _missing.append("%s: not known (%s)" % (what, why))


def missing(world):
    """Return what has failed on any rank since the last call, in words."""
    texts, _missing[:] = list(_missing), []
    return sorted({text for rank in world.gather(texts) for text in rank})
