"""Whether this start of a member may go by the member's name, or another process does already (pure).

Every start has an id of its own, drawn at random, and each other member lets in one start of a member at a time: the
one that was there first and answers still. Two of them, a machine and its clone, would vote twice in a term, and each
would take the connections of the other.

A start that is refused ends. There are two exceptions. One that hears a leader was let in by that leader: it is the
other one that has to go. And of two that have begun at the same time, each let in by some, the one with the lesser id
stays. A start takes part in no election before all members that can be reached have let it in.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

SETTLE_S: Final = 1.0
"""A member that cannot be reached within so long after the start is not waited for."""

PATIENCE_S: Final = 6.0
"""Nor one that can be reached, and has not answered by then."""

HEARD_S: Final = 0.5
"""A start that is to end goes on for so long, so that all members hear of it, and their logs say so."""

FRESH_S: Final = 4.0
"""A refusal says nothing any more after so long: whoever was there may be gone. It is asked again every two seconds."""

TIE_S: Final = 1.5
"""Of two starts that hear no leader, one goes after so long: all that can be reached have answered by then."""


@dataclass(frozen=True, slots=True)
class Namesake:
    """Another start of this member, as a member that refused this one has it. `led`: it hears a leader, or leads."""

    start: str
    where: str
    led: bool


@dataclass(slots=True)
class Claim:
    """What the others have answered to this `start`, which began at `begun_s`."""

    start: str
    begun_s: float
    settled: bool = False
    _let_in: set[str] = field(default_factory=set)
    _refused: dict[str, tuple[Namesake, float]] = field(default_factory=dict)
    """By member: the start that it has in place of this one, and when it said so."""
    _refused_s: float = 0.0

    def let_in(self, by: str) -> None:
        """A member takes this start for the member."""
        self._let_in.add(by)
        self._refused.pop(by, None)

    def refused(self, by: str, namesake: Namesake, now_s: float) -> None:
        """A member has another start."""
        self._drop_old(now_s)
        if not self._refused:
            self._refused_s = now_s
        self._let_in.discard(by)
        self._refused[by] = namesake, now_s

    def _drop_old(self, now_s: float) -> None:
        self._refused = {by: said for by, said in self._refused.items() if now_s - said[1] <= FRESH_S}

    def parted(self, member: str) -> None:
        """There is no connection with that member any more."""
        self._let_in.discard(member)

    def asks(self, member: str) -> bool:
        """Whether that member has not let it in yet."""
        return member not in self._let_in

    def look(self, others: Collection[str], reached: Collection[str], now_s: float) -> None:
        """See whether it is settled: from then on it takes part in elections. `reached`: who is connected.

        >>> claim = Claim("1", begun_s=0.0)
        >>> claim.let_in("b")
        >>> [claim.look("bc", reached, now_s) or claim.settled for reached, now_s in (("b", 0.9), ("bc", 2), ("b", 2))]
        [False, False, True]
        """
        self._drop_old(now_s)
        waited_s = now_s - self.begun_s
        if waited_s < SETTLE_S:
            awaited = set(others) - self._let_in
        elif waited_s < PATIENCE_S:
            awaited = set(others) & set(reached) - self._let_in
        else:
            awaited = set()
        self.settled = self.settled or not (awaited or self._refused)

    def lost_to(self, led: bool, now_s: float) -> Namesake | None:
        """The start that stays in place of this one; None while this one goes on. `led`: it hears a leader, or leads.

        >>> claim = Claim("5", begun_s=0.0)
        >>> claim.refused("b", Namesake("1", "there", led=True), 2.0)
        >>> claim.lost_to(False, 2.1), claim.lost_to(True, 9.0)
        (None, None)
        >>> claim.lost_to(False, 2.6)
        Namesake(start='1', where='there', led=True)
        """
        if led:
            return None
        self._drop_old(now_s)
        for namesake, _ in self._refused.values():
            first = not self._let_in or namesake.start < self.start
            if now_s - self._refused_s >= (HEARD_S if namesake.led else TIE_S) and (namesake.led or first):
                return namesake
        return None
