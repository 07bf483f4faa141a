"""Which set of files made a pool or a calendar: that set alone may prune it. Values, without I/O.

What was made by hand is no set's, also once the files of a set name it. Two sets may name the same pool: it is that of
the set which made it, and stays while tasks of either use it.
"""

import re
from typing import Final

from tasks.definition.spec import NAME_PATTERN

RULES_SET_OWNED: Final = 10
"""From these rules on (`Lead.rules`), pools and calendars know the set that made them."""


def owner_after(known: bool, owner: str, by_set: str, *, adopt: bool) -> str:
    """Return the set that a pool or a calendar is of, once `by_set` has made or changed it; "": none.

    `known`: it was there, of the set `owner`. `adopt`: it is taken from that set, but never from nobody.

    >>> [owner_after(*one, adopt=False) for one in ((False, "", "a"), (True, "b", "a"), (True, "", "a"))]
    ['a', 'b', '']
    >>> [owner_after(True, owner, "a", adopt=True) for owner in ("b", "")]
    ['a', '']
    """
    if not known:
        return by_set
    return by_set if adopt and owner and by_set else owner


def owner_fault(rules: int, by_set: str) -> str | None:
    """Describe why nothing can be of the set `by_set`; None: it can, or no set is named."""
    if not by_set:
        return None
    if rules < RULES_SET_OWNED:
        return "pools and calendars of a set need a leader of this version"
    if re.fullmatch(NAME_PATTERN, by_set) is None:
        return f"{by_set[:200]!r} is no name of a set"
    return None


def prune_fault(what: str, owner: str, by_set: str) -> str | None:
    """Describe why the set `by_set` may not remove something that is of the set `owner`; None: it may, or none asks."""
    if not by_set or owner == by_set:
        return None
    made = f"the set {owner} made it" if owner else "no set made it"
    return f"{what} is not of the set {by_set}: {made}"
