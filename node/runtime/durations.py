"""Durations as text for the command line and the page. Pure."""

from typing import Final

_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(length_s: float) -> str:
    """Format a duration in its two largest units.

    >>> duration(0.4), duration(59), duration(61), duration(7260), duration(200_000)
    ('0 s', '59 s', '1 min 1 s', '2 h 1 min', '2 d 7 h')
    """
    left = max(0, int(length_s))
    for number, (size_s, unit) in enumerate(_UNITS):
        if left >= size_s:
            whole, rest = divmod(left, size_s)
            if number + 1 < len(_UNITS) and (less := rest // _UNITS[number + 1][0]):
                return f"{whole} {unit} {less} {_UNITS[number + 1][1]}"
            return f"{whole} {unit}"
    return "0 s"


def seconds(length_s: float) -> str:
    """Format a duration with decimals if it is short.

    >>> seconds(0.034), seconds(2.46), seconds(75)
    ('0.03 s', '2.5 s', '1 min 15 s')
    """
    if length_s >= 10:
        return duration(length_s)
    return f"{length_s:.1f} s" if length_s >= 1 else f"{length_s:.2f} s"
