"""When this member stands for election: once a majority would have it (`prevote`), or when its leader hands over to it.

The library stands when it finds that a deadline has passed, which it looks at right after a write that may have taken
long: without asking anybody, and also where the member has lost its log and may not. So its deadline is kept here, and
all that it is shown of it is whether to stand now.
"""

import random

from pysyncobj.monotonic import monotonic

from node.raft.core import Core
from node.raft.prevote import Poll, Standing

_ASKING_S = 0.3
_NOW_S = 0.0
"""The deadline that the library sets when the leader hands over."""

_NEVER_S = float("inf")


class Elections:
    """Used in Raft's thread."""

    def __init__(self, consensus: Core) -> None:
        self.poll = Poll(random.getrandbits(62))
        self._consensus = consensus
        self._due_s = _NEVER_S
        self._asked_s = float("-inf")
        self._won = False
        self._handed_over = False

    @property
    def deadline_s(self) -> float:
        """What the library is to take for the deadline: one that has passed, or none."""
        return _NOW_S if self._won or self._handed_over else _NEVER_S

    @deadline_s.setter
    def deadline_s(self, deadline_s: float) -> None:
        """The library sets it: when the leader hands over, else when it has been heard or there is an election."""
        self._won = False
        self._handed_over = deadline_s == _NOW_S
        if not self._handed_over:
            self._due_s = deadline_s

    def hasten(self) -> None:
        """The leader may be dead: ask soon."""
        self._due_s = min(self._due_s, monotonic() + random.uniform(0.2, 1.0) * self._consensus.timing.hasty_s)

    def step(self) -> None:
        """Ask the others if it is time; stand if a majority would have it. The library's tick is next."""
        here = self._consensus
        self._won = False
        if here.is_leader or self._handed_over or not here.is_settled():
            return
        now = monotonic()
        if self._due_s <= now:
            self._due_s = now + random.uniform(0.5, 1.0) * here.timing.election_min_s
            if here.recovery.may_stand:
                self._ask()
        if self.poll.won(here.members()) and here.recovery.may_stand:
            here.recovery.now_votes()
            if here.raftCurrentTerm < here.fence():  # the library stands in the next one
                here.adopt(here.fence())
            self._won = True

    def gives_way(self, asking: str, standing: Standing) -> bool:
        """Two that ask at the same time would split the votes: the one whose log is further goes first, since the other
        does not get its vote; if they are the same, the one with the lesser id.
        """
        if monotonic() - self._asked_s > _ASKING_S:
            return True
        here = self._consensus
        further = not here.standing().reaches(standing)
        if here.is_candidate or (self.poll.open and not further and asking > here.me):
            return False
        self.poll.open = False
        return True

    def _ask(self) -> None:
        here = self._consensus
        self._asked_s = monotonic()
        standing = here.standing()
        question = {"type": "pre_vote", "number": self.poll.begin(here.me)}
        question |= {"last_log_term": standing.last_term, "last_log_index": standing.last_index}
        question |= {"founding": here.inquiry.founding.founding}
        here.tell_all(question)
