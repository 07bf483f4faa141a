"""What a member that has lost its disk may do: the real `node.raft.recall`, asked as `node.raft.recovery` does."""

from collections.abc import Callable
from typing import NamedTuple

from node.raft.recall import Answer, Ballot, Recall
from tests.simulation.disk import Disk

AGAIN_S = 0.2


class Vote(NamedTuple):
    """What a vote bears for `Ballot`."""

    life: int
    lives: dict[str, int]
    candidate: int


class Recovery:
    """One process's. `settle` keeps a term, and a vote in it."""

    def __init__(self, me: str, disk: Disk, settle: Callable[[int, str], None]) -> None:
        self._disk, self._settle = disk, settle
        self._recall = Recall(me)
        self._ballot = Ballot()
        self._lives: dict[str, int] = {}
        self._asked_s = float("-inf")

    @property
    def may_follow(self) -> bool:
        """Whether a leader may be heeded."""
        return self._disk.voter or self._recall.found(self._disk.term) is not None

    @property
    def first_election(self) -> bool:
        """Whether nobody has anything, as far as is known here."""
        return self._disk.standing.empty and not self._recall.begun

    @property
    def may_stand(self) -> bool:
        """Whether it may ask for votes."""
        return self._disk.voter or self.first_election

    def is_time(self, now_s: float) -> bool:
        """Whether to ask the others now."""
        if self._disk.voter or now_s - self._asked_s < AGAIN_S:
            return False
        self._asked_s = now_s
        return True

    def asked(self, member: str, life: int, *, leads: bool) -> Answer:
        """A member asks."""
        self._lives[member] = life
        disk = self._disk
        return Answer(
            disk.term, disk.standing, leads, frozenset(disk.members), disk.voter, disk.life > 0 and not disk.voter
        )

    def told(self, member: str, answer: Answer) -> None:
        """A member has answered."""
        if self._disk.voter:
            return
        self._recall.answers[member] = answer
        latest = self._recall.found(self._disk.term)
        if latest is not None and (self._disk.term < latest.term or self._disk.vote is None):
            # It may have voted in that term: as if for the leader, since no other can be elected in it any more.
            self._settle(latest.term, latest.leader)

    def matches(self, term: int, index: int) -> None:
        """The log is that of the leader in `term`, up to `index`, and durable."""
        if not self._disk.voter:
            self._recall.matched = (term, index)
            if self._recall.complete(self._disk.term):
                self._disk.voter = True

    def stamp(self, candidate: int) -> Vote:
        """What goes with a vote for a candidate that asked in such a life."""
        return Vote(self._disk.life, dict(self._lives), candidate)

    def counts(self, term: int, member: str, vote: Vote) -> bool:
        """Whether a vote that has come counts."""
        return vote.candidate == self._disk.life and self._ballot.take(term, member, vote.life, vote.lives)
