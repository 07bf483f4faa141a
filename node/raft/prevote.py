"""Asking before an election (pre-vote; Ongaro 2014, section 9.6), which the library does not do.

Without it, a member that was cut off or stopped comes back with a later term and unseats a healthy leader. Here a
member whose election is due first asks the others whether they would vote for it, and only then begins.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a member's log is. The later one wins a vote (Ongaro and Ousterhout 2014, section 5.4.1)."""

    last_term: int
    last_index: int

    @property
    def empty(self) -> bool:
        """Whether nothing was ever proposed to it: it holds the library's first entry at most."""
        return self.last_term == 0

    def reaches(self, other: "Standing") -> bool:
        """Whether it is at least as far as another."""
        return (self.last_term, self.last_index) >= (other.last_term, other.last_index)


@dataclass(slots=True)
class Poll:
    """One round of asking. `members` are those whose vote counts, this one among them.

    `number` is where the rounds of this process begin, drawn at random: what was asked before by the same member, which
    has lost its log since, may be answered late, and that answer must not count for it.
    """

    number: int
    open: bool = False
    granted: set[str] = field(default_factory=set)

    def begin(self, me: str) -> int:
        """Begin a new round; returns its number. Answers to earlier ones count no more."""
        self.number += 1
        self.open = True
        self.granted = {me}
        return self.number

    def answer(self, number: int, member: str) -> None:
        """A member would vote for this one."""
        if self.open and number == self.number:
            self.granted.add(member)

    def won(self, members: Iterable[str]) -> bool:
        """Whether a majority would. A round is won once."""
        voters = set(members)
        if self.open and 2 * len(self.granted & voters) > len(voters):
            self.open = False
            return True
        return False


def may_vote(voter: bool, first: bool, mine: Standing, candidate: Standing) -> bool:
    """Whether this member may help that candidate to leadership.

    One that is no `voter` yet has an empty folder, or had one when it started: if it once held entries, what it
    acknowledged is lost, and its vote could elect a leader that lacks committed entries. It votes after it has
    caught up with a leader, or in the `first` election of a cluster to whose founding all are bound (`founding`).
    """
    if not voter and not (first and mine.empty and candidate.empty):
        return False
    return candidate.reaches(mine)
