"""Asking before an election (pre-vote; Ongaro 2014, section 9.6), which the library does not do (pure).

Without it, a member that was cut off or stopped comes back with a later term and unseats a healthy leader. Here a
member whose election is due first asks the others whether they would vote for it, and only then begins the election.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a member's log reaches. The later one wins a vote (Ongaro and Ousterhout 2014, section 5.4.1)."""

    last_term: int
    last_index: int

    @property
    def empty(self) -> bool:
        """Whether the log is empty, except for the library's own first entry."""
        return self.last_term == 0

    def reaches(self, other: "Standing") -> bool:
        """Whether it reaches at least as far as another."""
        return (self.last_term, self.last_index) >= (other.last_term, other.last_index)


@dataclass(slots=True)
class Poll:
    """The rounds of asking, of which the latest may be open.

    number: the first round's number is drawn at random. A question that the same member asked before it lost its log
    may be answered late, and that answer must not count.
    """

    number: int
    open: bool = False
    granted: set[str] = field(default_factory=set)

    def begin(self, me: str) -> int:
        """Begin a round; returns its number. Answers to earlier ones count no more."""
        self.number += 1
        self.open = True
        self.granted = {me}
        return self.number

    def answer(self, number: int, member: str) -> None:
        """Count a member that would vote for this one."""
        if self.open and number == self.number:
            self.granted.add(member)

    def won(self, members: Iterable[str]) -> bool:
        """Whether a majority of `members` would vote for this one. True once in a round at most."""
        voters = set(members)
        if self.open and 2 * len(self.granted & voters) > len(voters):
            self.open = False
            return True
        return False


def may_vote(voter: bool, first: bool, mine: Standing, candidate: Standing) -> bool:
    """Whether this member may help that candidate to leadership.

    voter: whether this member remembers all that it took part in. If not, its folder was empty when it started: if it
    once held entries, what it acknowledged is lost, and its vote could elect a leader that lacks committed entries.
    It votes after it has caught up with a leader, or in the `first` election of a cluster to whose founding all members
    are bound (`founding`).
    """
    if not voter and not (first and mine.empty and candidate.empty):
        return False
    return candidate.reaches(mine)
