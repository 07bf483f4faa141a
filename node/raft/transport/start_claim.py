"""Whether this start of a member may use the member's name, or another process does already (pure).

Every start has an id of its own, drawn at random, and each other member admits one start of a member at a time: the one
that was there first and still answers. Two of them, a machine and its clone, would vote twice in a term, and each would
take the connections of the other.

**Which one ends.** Of two starts, one that hears a leader goes before one that does not: that leader has admitted it.
Then one that is settled (below) goes before one that is not; then the one with the lesser id. A start that is told of
one that goes before it ends. It never happens that both end because each has outdated news of the other:

- A start that has decided to end answers no more probes, and decides nothing else.
- A start that has answered that it hears a leader, or is settled, stays for STAY_S. Its answer counts for FRESH_S at
  the other one, which has ended by then, or has not decided on it. By the rule of ids alone, one of two ends.

**Two votes in one term.** A member's vote counts at a candidate that has admitted the voter, once a term (`Ballot`).
Two candidates could each count the vote of another start of the same member. So a start votes, and stands, only when it
is settled: all members that it reaches have admitted it, which has to be shown anew after all of them were lost. Two
starts that are each admitted by some are not settled, and one that all have admitted leaves no place for the other. And
it votes and stands only in terms after `fence`, the latest term of the members that admitted it, as of then: a vote
that an earlier start gave one of these candidates is in no later term.

**Members that are dead.** A start that no member admits any more (a follower whose leader dies at the moment when the
third member is back) has to be admitted anew, and waits `settle_s` for each member that it does not reach: that one may
be alive, and have admitted another start. It does not wait for a member whose port has refused a call: no process
listens there, and a dead one admits none. The refusal counts only if the call began after some member had admitted this
start, and for REFUSAL_S. With that, two starts that reach the same two members are not both settled: the second one
would have to be admitted by one member, and then find the one dead that has admitted the first, which has lost its
place with it. A machine that has vanished refuses nothing; the time `settle_s` is for that case.

What remains: two starts that do not reach the same members. If node-1 reaches only one of them, and node-3 only the
other, for `settle_s` (PATIENCE_S if it is connected and does not answer, as one that does not know where this start is;
at once if something else refuses the calls, a firewall or a host where the member was before), then each of the two is
settled, as a member must be whose others are dead. Then both can vote in one term, and node-1 and node-3 both lead in
it, if they do not reach each other either (or stand within one message's way of each other). No member can tell this
from the death of the rest. Nor can it be told from here that a folder is older than what its member acknowledged since:
a copy must not take the member's place (docs/how-to/recover.md).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

PATIENCE_S: Final = 6.0
"""A member that is reached, and has not answered by then, is not waited for."""

REFUSAL_S: Final = 0.5
"""A port that has refused a call is assumed to be closed for this time. It is called more often than that."""

HEARD_S: Final = 0.5
"""A start that has decided to end stays connected for this time, so that all members learn and log it."""

FRESH_S: Final = 2.0
"""A member's refusal counts for this time: the other start may be gone by then. It is asked again every second."""

TIE_S: Final = 1.5
"""Of two starts that hear no leader, one ends after this time: all that can be reached have answered by then."""

STAY_S: Final = 2 * FRESH_S + 1.0
"""A start that has answered that it hears a leader, or is settled, does not end for this time. One second of it is for
the message's way."""


@dataclass(frozen=True, slots=True)
class OtherStart:
    """Another start of this member, as a member that refused this one describes it. led: it hears a leader."""

    start: str
    where: str
    led: bool
    settled: bool = False


@dataclass(slots=True)
class StartClaim:
    """The answers of other members to one start of a member. Times are in seconds on Raft's clock."""

    #: The id of this start.
    start: str
    #: When it began, or began to settle anew.
    begun_s: float
    #: A member that cannot be reached within this time after the start is not waited for.
    settle_s: float = 1.0
    #: Whether all members that it reaches have admitted it, so that it may vote and stand.
    settled: bool = False
    alone: bool = True
    """Whether no member was reached since the start, or since the last one that had admitted it was lost."""
    fence: int = 0
    """In no term up to this one may it vote or stand: another start may have voted in it."""
    #: The members that admit it.
    _admitted_by: set[str] = field(default_factory=set)
    _held_s: float = 0.0
    """Since when some member has always admitted it, if one does now."""
    _refused: dict[str, tuple[OtherStart, float]] = field(default_factory=dict)
    """By member: the start that it has admitted in place of this one, and when it said so."""
    #: Since when some member has refused it, if one does.
    _refused_s: float = 0.0
    #: It does not end before this time: it has answered that it hears a leader, or is settled.
    _stays_until_s: float = float("-inf")
    #: The other start before which this one ends; None: it goes on.
    _lost: OtherStart | None = None
    #: When it was decided that this start ends.
    _lost_s: float = 0.0

    def admitted(self, by: str, term: int, now_s: float) -> None:
        """A member, whose current term is given, has admitted this start."""
        if self.alone:
            self.alone, self.begun_s = False, now_s
        self.fence = max(self.fence, term)
        if not self._admitted_by:
            self._held_s = now_s
        self._admitted_by.add(by)
        self._refused.pop(by, None)

    def refused(self, by: str, other: OtherStart, now_s: float) -> None:
        """A member has admitted another start."""
        self._drop_old(now_s)
        if not self._refused:
            self._refused_s = now_s
        self.parted(by, now_s)
        self._refused[by] = other, now_s

    def _drop_old(self, now_s: float) -> None:
        self._refused = {by: refusal for by, refusal in self._refused.items() if now_s - refusal[1] <= FRESH_S}

    def parted(self, member: str, now_s: float) -> None:
        """The connection with a member is lost. When no other admits this start, it has to settle anew."""
        if member in self._admitted_by:
            self._admitted_by.discard(member)
            if not self._admitted_by:
                self.settled, self.alone, self.begun_s = False, True, now_s

    def asks(self, member: str) -> bool:
        """Whether that member has not admitted it yet."""
        return member not in self._admitted_by

    @property
    def held(self) -> bool:
        """Whether some member has admitted it."""
        return bool(self._admitted_by)

    def observe(
        self,
        others: Collection[str],
        reached: Collection[str],
        now_s: float,
        refused_s: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Note whether it is settled: from then on it takes part in elections.

        others: all other members. reached: those of them that are connected. refused_s: by member, when the last call
        began that its port has refused; no process listened there.

        >>> claim, settled = StartClaim("1", begun_s=0.0), []
        >>> claim.admitted("b", 7, 0.0)
        >>> for reached, now_s in (("b", 0.9), ("bc", 2), ("b", 2)):
        ...     claim.observe("bc", reached, now_s)
        ...     settled.append(claim.settled)
        >>> settled
        [False, False, True]
        """
        self._drop_old(now_s)
        if self.alone and others:
            if not reached:
                self.begun_s = now_s
                return
            self.alone = False
        waited_s = now_s - self.begun_s
        if waited_s < self.settle_s:
            awaited = set(others) - self._admitted_by
        elif waited_s < PATIENCE_S:
            awaited = set(others) & set(reached) - self._admitted_by
        else:
            awaited = set()
        awaited -= self._dead(refused_s, now_s) - set(reached)
        self.settled = self.settled or not (awaited or self._refused)

    def _dead(self, refused_s: Mapping[str, float], now_s: float) -> set[str]:
        """The members that admit none, since no process was there after some member had admitted this start."""
        if not self._admitted_by:
            return set()
        return {one for one, at_s in refused_s.items() if at_s >= self._held_s and now_s - at_s <= REFUSAL_S}

    def answer(self, led: bool, now_s: float) -> tuple[bool, bool] | None:
        """The answer to a member where another start has come: whether this one hears a leader, and is settled.

        Either binds it to stay. So it claims neither once it knows of a start that goes before it, and answers nothing
        (None) once it has decided to end.
        """
        if self._lost is not None:
            return None
        self._drop_old(now_s)
        settled = self.settled and not any(self._goes_before(one) for one, _ in self._refused.values())
        if led or settled:
            self._stays_until_s = now_s + STAY_S
        return led, settled

    @property
    def ends(self) -> bool:
        """Whether it has decided to end."""
        return self._lost is not None

    def lost_to(self, led: bool, now_s: float) -> OtherStart | None:
        """The start that stays in place of this one; None while this one goes on.

        led: whether this one hears a leader, or leads.

        >>> claim = StartClaim("5", begun_s=0.0)
        >>> claim.refused("b", OtherStart("7", "there", led=True), 2.0)
        >>> claim.lost_to(True, 2.1), claim.ends, claim.lost_to(False, 2.2), claim.ends
        (None, False, None, True)
        >>> claim.lost_to(True, 2.8)
        OtherStart(start='7', where='there', led=True, settled=False)
        """
        self._drop_old(now_s)
        if self._lost is None and not led and now_s >= self._stays_until_s:
            tied_s = now_s - self._refused_s
            before = (one for one, _ in self._refused.values() if self._goes_before(one))
            self._lost = next((one for one in before if one.led or tied_s >= TIE_S), None)
            self._lost_s = now_s
        return self._lost if now_s - self._lost_s >= HEARD_S else None

    def _goes_before(self, other: OtherStart) -> bool:
        """Whether another start goes before this one, which hears no leader."""
        if other.led or other.settled != self.settled:
            return other.led or other.settled
        return other.start < self.start
