"""Decides whether this start of a member may use the member's id, or another process already does (pure).

Every start of the process has a random id, and each other member admits only one start of a member at a time: the one
that came first and still answers. Two starts at once, such as a machine and its clone, would vote twice in a term, and
each would take over the other's connections.

**Which start ends.** Of two starts, one that hears a leader goes before one that does not, because the leader has
admitted it. If both or neither hear one, a settled start (see below) goes before one that is not settled. If that is
equal too, the start with the lesser id goes first. A start ends when a member reports another start that goes before
it. Outdated reports never make both end:

- A start that has decided to end answers no more probes, and decides nothing else.
- A start that has answered that it hears a leader, or is settled, stays for STAY_S. The other start uses this answer
  for FRESH_S only: by the end of STAY_S it has ended, or will not end because of the answer. The rule of ids alone
  makes only one of two starts end.

**Two votes in one term.** A candidate counts a member's vote once a term, and only from a start that it has admitted
(`Ballot`). But two candidates could each count the vote of another start of the same member. So a start votes, and
stands for election, only when it is settled: all members that it reaches have admitted it. Once it has lost all of
them, it has to settle anew. Two starts that are each admitted by some members are not settled; a start that all members
have admitted leaves no member to admit another one. Also, a start votes and stands only in terms after `fence`: the
latest term that a member had when it admitted this start. A vote that an earlier start gave to such a member is in no
later term.

**Dead members.** A start that no member admits any more (such as a follower whose leader dies just when the third
member is back) has to be admitted anew. It waits `settle_s` for each member that it does not reach, because this member
may be alive and have admitted another start. It does not wait for a member whose port has refused a call: no process
listens there, so this member admits no start. The refusal counts only if the call began after some member had admitted
this start, and only for REFUSAL_S. So two starts that reach the same two members are never both settled. The second one
would have to be admitted by one member, and then find the other one dead, which had admitted the first start. But with
that dead member, the first start has lost its last admission, so it is not settled any more. A machine that has
vanished refuses no calls; `settle_s` is for this case.

**Not prevented:** two starts that reach different members. Suppose that node-1 reaches only one start, and node-3 only
the other, for `settle_s`. (The time is PATIENCE_S if a member is connected but does not answer, because it does not
know the start's address; it is 0 if a firewall, or a host that the member has left, refuses the calls.) Then each start
is settled, just as a member must be if all others are dead. So both starts may vote in one term, and node-1 and node-3
may both lead in it, if they do not reach each other either (or stand before the other's message arrives). No member can
distinguish this from the death of the others. Nor can a start see that its folder is older than its member's latest
acknowledgement: a copy of a folder must not take the member's place (docs/how-to/recover.md).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

PATIENCE_S: Final = 6.0
"""The longest wait for the answer of a member that is connected."""

REFUSAL_S: Final = 0.5
"""The time for which a port that has refused a call counts as closed. It is called more often than this."""

HEARD_S: Final = 0.5
"""A start that has decided to end stays connected for this time, so that all members learn and log it."""

FRESH_S: Final = 2.0
"""The time for which a member's refusal counts, since the other start may end. The member is asked every second."""

TIE_S: Final = 1.5
"""Of two starts that hear no leader, one ends after this time, when all reachable members have answered."""

STAY_S: Final = 2 * FRESH_S + 1.0
"""A start that has answered that it hears a leader, or is settled, does not end for this time. It includes one second
for the delay of the answer."""


@dataclass(frozen=True, slots=True)
class OtherStart:
    """Another start of this member, as described by a member that refused this one. led: it hears a leader."""

    start: str
    where: str
    led: bool
    settled: bool = False


@dataclass(slots=True)
class StartClaim:
    """The answers of other members to one start of a member. Times are in seconds on Raft's clock."""

    #: The id of this start.
    start: str
    #: When this start began, or began to settle anew.
    begun_s: float
    #: A member that cannot be reached within this time after the start is not waited for.
    settle_s: float = 1.0
    #: Whether all members that this start reaches have admitted it, so that it may vote and stand for election.
    settled: bool = False
    alone: bool = True
    """Whether this start has reached no member since it began, or since it lost the last member that admitted it."""
    fence: int = 0
    """The latest term in which another start may have voted, so that this one may not vote or stand in it."""
    #: The members that admit this start.
    _admitted_by: set[str] = field(default_factory=set)
    _held_s: float = 0.0
    """The time since which at least one member has admitted this start, if one does now."""
    _refused: dict[str, tuple[OtherStart, float]] = field(default_factory=dict)
    """For each member: the start that it has admitted in place of this one, and when its refusal arrived."""
    #: The time since which at least one member has refused this start, if one does now.
    _refused_s: float = 0.0
    #: This start does not end before this time, because it has answered that it hears a leader, or is settled.
    _stays_until_s: float = float("-inf")
    #: The other start because of which this one ends; None: this one goes on.
    _lost: OtherStart | None = None
    #: When this start decided to end.
    _lost_s: float = 0.0

    def admitted(self, by: str, term: int, now_s: float) -> None:
        """Note that a member has admitted this start. `term`: that member's current term."""
        if self.alone:
            self.alone, self.begun_s = False, now_s
        self.fence = max(self.fence, term)
        if not self._admitted_by:
            self._held_s = now_s
        self._admitted_by.add(by)
        self._refused.pop(by, None)

    def refused(self, by: str, other: OtherStart, now_s: float) -> None:
        """Note that a member has refused this start, because it has admitted another one."""
        self._drop_old(now_s)
        if not self._refused:
            self._refused_s = now_s
        self.parted(by, now_s)
        self._refused[by] = other, now_s

    def _drop_old(self, now_s: float) -> None:
        self._refused = {by: refusal for by, refusal in self._refused.items() if now_s - refusal[1] <= FRESH_S}

    def parted(self, member: str, now_s: float) -> None:
        """Note that a member's connection is lost. If no other member admits this start, it has to settle anew."""
        if member in self._admitted_by:
            self._admitted_by.discard(member)
            if not self._admitted_by:
                self.settled, self.alone, self.begun_s = False, True, now_s

    def asks(self, member: str) -> bool:
        """Whether a member still has to be asked, because it has not admitted this start."""
        return member not in self._admitted_by

    @property
    def held(self) -> bool:
        """Whether some member has admitted this start."""
        return bool(self._admitted_by)

    def observe(
        self,
        others: Collection[str],
        reached: Collection[str],
        now_s: float,
        refused_s: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Update `settled`, from which on this start takes part in elections.

        others: all other members. reached: the connected ones. refused_s: for each member, when the last call that its
        port has refused began; no process listened there.

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
        """Return the members without a process, whose ports refused a call that began after this start's admission."""
        if not self._admitted_by:
            return set()
        return {one for one, at_s in refused_s.items() if at_s >= self._held_s and now_s - at_s <= REFUSAL_S}

    def answer(self, led: bool, now_s: float) -> tuple[bool, bool] | None:
        """Return the answer to a member's probe: whether this start hears a leader, and whether it is settled.

        A True in the answer binds this start to stay for STAY_S. So it does not claim to be settled if it knows of a
        start that goes before it. Returns None, which means no answer, once this start has decided to end.
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
        """Whether this start has decided to end."""
        return self._lost is not None

    def lost_to(self, led: bool, now_s: float) -> OtherStart | None:
        """Decide whether this start ends. Returns the start that stays in its place; None: this one goes on.

        led: whether this start hears a leader, or leads.

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
