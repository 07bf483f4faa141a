"""What a member that has lost its disk may do: the real `node.raft.recovery.amnesia`, asked as `amnesia_recovery` does.

And what one does that has nothing: the real `Founding`, asked as `node.raft.founding.inquiry` does.
"""

from collections.abc import Callable
from typing import NamedTuple

from node.raft.core.prevote import Standing
from node.raft.founding.founding import Founding
from node.raft.founding.statement import KnownCluster, Statement
from node.raft.recovery.amnesia import AmnesiaAnswer, Ballot, RecoveryProgress
from tests.simulation.disk import Disk

AGAIN_S = 0.2


class Vote(NamedTuple):
    """What a vote bears for `Ballot`."""

    life: int
    lives: dict[str, int]
    candidate: int


class Recovery:
    """One process's. `settle` keeps a term, and a vote in it."""

    def __init__(self, me: str, disk: Disk, settle: Callable[[int, str], None], now_s: float) -> None:
        self._disk, self._settle = disk, settle
        listed = frozenset({*disk.first_members, me})
        self.founding = Founding(me, disk.life, listed, now_s, disk.told, disk.bound)
        self._progress = RecoveryProgress(me)
        self._ballot = Ballot()
        self._lives: dict[str, int] = {}
        self._asked_s = float("-inf")

    @property
    def may_follow(self) -> bool:
        """Whether a leader may be heeded."""
        return self._disk.voter or self._progress.leader_log(self._disk.term) is not None

    @property
    def first_election(self) -> bool:
        """Whether all are bound to one founding, and nothing is here."""
        return self.founding.complete and self._disk.standing.empty

    def same(self, founding: str, standing: Standing) -> bool:
        """Whether a candidate without a log stands in the founding to which this member is bound."""
        return not standing.empty or founding == self.founding.founding

    def inquires(self, now_s: float) -> bool:
        """Keep what is to be kept; whether there is no cluster yet, so that the members of the list are asked."""
        disk, founding = self._disk, self.founding
        if disk.cluster_id or (disk.voter and not disk.standing.empty):
            return False
        founding.voted = disk.voter and founding.bound is not None
        founding.blank = not disk.voter and disk.standing.empty
        while (promise := founding.promise(now_s)) is not None:
            if isinstance(promise, KnownCluster):
                disk.told = promise
            else:
                disk.bound = promise
            founding.keep(promise)
        return True

    def statement(self) -> Statement:
        """How this member stands."""
        disk = self._disk
        return self.founding.statement(disk.cluster_id, disk.members if disk.cluster_id else ())

    def heard(self, said: Statement, now_s: float) -> None:
        """How another one stands."""
        if not self._disk.cluster_id:
            self.founding.hear(said, now_s)

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

    def asked(self, member: str, life: int, base: tuple[str, ...], *, leads: bool) -> AmnesiaAnswer:
        """A member asks; `base` are the members by what is committed."""
        self._lives[member] = life
        disk = self._disk
        lost = disk.life > 0 and not disk.voter
        return AmnesiaAnswer(disk.term, disk.standing, leads, frozenset(disk.members), disk.voter, lost, base)

    def told(self, member: str, answer: AmnesiaAnswer) -> None:
        """A member has answered."""
        if self._disk.voter:
            return
        self._progress.answers[member] = answer
        latest = self._progress.leader_log(self._disk.term)
        if latest is not None and latest.base and self._disk.standing.empty:
            self._disk.begin_with(latest.base)
        if latest is not None and (self._disk.term < latest.term or self._disk.vote is None):
            # It may have voted in that term: as if for the leader, since no other can be elected in it any more.
            self._settle(latest.term, latest.leader)

    def matches(self, term: int, index: int) -> None:
        """The log is that of the leader in `term`, up to `index`, and durable."""
        if not self._disk.voter:
            self._progress.matched = (term, index)
            if self._progress.complete(self._disk.term):
                self._disk.voter = True

    def stamp(self, candidate: int) -> Vote:
        """What goes with a vote for a candidate that asked in such a life."""
        return Vote(self._disk.life, dict(self._lives), candidate)

    def counts(self, term: int, member: str, vote: Vote) -> bool:
        """Whether a vote that has come counts."""
        return vote.candidate == self._disk.life and self._ballot.take(term, member, vote.life, vote.lives)
