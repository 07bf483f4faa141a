"""Pre-votes (Ongaro 2014, section 9.6), which the library lacks (pure).

Without pre-votes, a member that was cut off or stopped returns with a later term and unseats a healthy leader. So a
member whose election is due first asks the others whether they would vote for it, and only then begins the election.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Standing:
    """The term and index of a log's last entry. The later log wins (Ongaro and Ousterhout 2014, section 5.4.1)."""

    last_term: int
    last_index: int

    @property
    def empty(self) -> bool:
        """Whether the log is empty, except for the library's own first entry."""
        return self.last_term == 0

    def reaches(self, other: "Standing") -> bool:
        """Whether this log reaches at least as far as another."""
        return (self.last_term, self.last_index) >= (other.last_term, other.last_index)


@dataclass(slots=True)
class Poll:
    """The rounds of pre-votes. Only the latest one may be open.

    number: the latest round's number. The first number is random, so that an answer to a question that this member
    asked before it lost its log does not count.
    """

    number: int
    open: bool = False
    granted: set[str] = field(default_factory=set)

    def begin(self, me: str) -> int:
        """Begin a round. Returns its number. Answers to earlier rounds no longer count."""
        self.number += 1
        self.open = True
        self.granted = {me}
        return self.number

    def answer(self, number: int, member: str) -> None:
        """Count a member that would vote for this one."""
        if self.open and number == self.number:
            self.granted.add(member)

    def won(self, members: Iterable[str]) -> bool:
        """Whether a majority of `members` would vote for this one. Ends the round if so: True only once in a round."""
        voters = set(members)
        if self.open and 2 * len(self.granted & voters) > len(voters):
            self.open = False
            return True
        return False


def may_vote(voter: bool, first: bool, mine: Standing, candidate: Standing) -> bool:
    """Whether this member may vote for a candidate, or grant it a pre-vote.

    voter: whether this member remembers all its votes and acknowledgements. If not, its folder was empty when it
    started. The folder may have held acknowledged entries before, and a vote could then elect a leader that lacks
    committed entries. Such a member votes after it has caught up with a leader, or in the `first` election of a cluster
    to whose founding all members are bound (`founding`).
    """
    if not voter and not (first and mine.empty and candidate.empty):
        return False
    return candidate.reaches(mine)
