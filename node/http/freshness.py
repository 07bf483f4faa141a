"""Whether a value computed from an earlier state may be shown again. Pure."""

from typing import Final

SHARE: Final = 20
"""It is used again for this many times the processor time that it took, whatever has changed: 5% of a core."""

CHEAP_S: Final = 0.05
"""What took less processor time is computed anew whenever the state has changed."""

STILL_US: Final = 2_000_000
"""What is of the present state is used again for this long, in microseconds: what is due changes with the time."""


def is_spared(age_s: float, cost_s: float, old_s: float) -> bool:
    """Whether a value that cost much is used again although the state has changed; never beyond `old_s`."""
    return cost_s > CHEAP_S and age_s < min(SHARE * cost_s, old_s)


def is_current(made_index: int, made_us: int, index: int, now_us: int) -> bool:
    """Whether a value is of the present state and time."""
    return made_index == index and abs(now_us - made_us) < STILL_US
