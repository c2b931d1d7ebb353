"""Round values for a scale."""

import math


def round_values(low: float, high: float, most: int = 7, is_log: bool = False) -> list[float]:
    """At most about `most` round values from `low` to `high`: multiples of 1, 2 or 5 times a power of ten; on a wide
    logarithmic scale 1, 2, 5, 10, … , or the powers of ten alone. They have 1 (and 0) among them where it lies inside.
    """
    if is_log and high >= 4 * low:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [digit * 10.0**power for power in decades for digit in (1, 2, 5) if low <= digit * 10.0**power <= high]
        return found if len(found) <= most else [value for value in found if math.log10(value) % 1 == 0]
    if not 0 < high - low < math.inf:
        return [low]
    power = math.floor(math.log10((high - low) / most))
    step = next(step for digit in (1, 2, 5, 10) if (high - low) / (step := digit * 10.0**power) <= most * (1 + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(place * step, max(0, -power) + 1) for place in range(first, last + 1)]
