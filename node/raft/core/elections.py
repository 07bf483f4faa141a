"""Decides when this member stands for election: if a majority would vote for it (`prevote`), or its leader hands over.

The library stands for election when its deadline has passed. It does so even right after a slow write, without asking
the others, and on a member that has lost its log and may not stand. So the real deadline is kept here. The library sees
a substitute: a deadline that has passed if it is to stand now, else one that never comes.
"""

from node.raft.core.parts import RaftCore
from node.raft.core.prevote import Poll, Standing

_ASKING_S = 0.3
_NOW_S = 0.0
"""The deadline that the library sets when the leader hands over to this member."""

_NEVER_S = float("inf")


class Elections:
    """Decides when this member stands for election. Used in Raft's thread."""

    def __init__(self, consensus: RaftCore) -> None:
        self.poll = Poll(consensus.rng.getrandbits(62))
        self._consensus = consensus
        self._due_s = _NEVER_S
        self._asked_s = float("-inf")
        self._won = False
        self._handed_over = False

    @property
    def due_s(self) -> float:
        """The time at which this member asks the others for pre-votes, unless it hears a leader before."""
        return self._due_s

    @property
    def deadline_s(self) -> float:
        """The deadline that the library sees: passed if it is to stand for election now, else infinite."""
        return _NOW_S if self._won or self._handed_over else _NEVER_S

    @deadline_s.setter
    def deadline_s(self, deadline_s: float) -> None:
        """Handle a deadline that the library sets when the leader hands over or is heard, or an election begins."""
        self._won = False
        self._handed_over = deadline_s == _NOW_S
        if not self._handed_over:
            self._due_s = deadline_s

    def hasten(self) -> None:
        """Ask the others for pre-votes soon, because the leader may be dead."""
        here = self._consensus
        self._due_s = min(self._due_s, here.clock() + here.rng.uniform(0.2, 1.0) * here.timing.hasty_s)

    def step(self) -> None:
        """Ask for pre-votes if it is time. If a majority has granted them, let the library's next tick stand."""
        here = self._consensus
        self._won = False
        if here.is_leader or self._handed_over or not here.is_settled():
            return
        now_s = here.clock()
        if self._due_s <= now_s:
            self._due_s = now_s + here.rng.uniform(0.5, 1.0) * here.timing.election_min_s
            if here.recovery.may_stand:
                self._ask()
        if self.poll.won(here.members()) and here.recovery.may_stand:
            here.recovery.become_voter()
            if here.raftCurrentTerm < here.fence():  # so that the library stands in a term after the fence
                here.adopt_term(here.fence())
            self._won = True

    def gives_way(self, asking: str, standing: Standing) -> bool:
        """Whether this member lets the candidate `asking` go first. Two candidates at once would split the votes.

        The member with the longer log goes first, since it would not vote for the other. If the logs are equal, the
        member with the lesser id goes first.
        """
        if self._consensus.clock() - self._asked_s > _ASKING_S:
            return True
        here = self._consensus
        longer = not here.standing().reaches(standing)
        if here.is_candidate or (self.poll.open and not longer and asking > here.me):
            return False
        self.poll.open = False
        return True

    def _ask(self) -> None:
        here = self._consensus
        self._asked_s = here.clock()
        standing = here.standing()
        question = {"type": "pre_vote", "number": self.poll.begin(here.me)}
        question |= {"last_log_term": standing.last_term, "last_log_index": standing.last_index}
        question |= {"founding": here.inquiry.founding_id}
        here.send_to_all(question)
