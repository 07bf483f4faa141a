"""A member that does not remember what it took part in asks the others; it follows and votes when it may (`recall`)."""

import logging
from collections.abc import Callable
from typing import Any

from pysyncobj.monotonic import monotonic
from pysyncobj.node import Node

from node.raft.amnesia import AmnesiaAnswer, Ballot, Recall, hopeless, needed
from node.raft.core import Core
from node.raft.errors import MajorityLost
from node.raft.journal import SqliteJournal
from node.raft.log_store import LIFE, LOST
from node.raft.prevote import Standing

logger = logging.getLogger(__name__)

AGAIN_S = 0.2
"""The others are asked again after so long."""

TELLING_S = 5.0
"""What it waits for is said after so long, and once a minute from then on."""

FAREWELL_S = 1.0
"""A member that gives up goes on answering for so long, so that the others that must give up too learn why."""

_VOTES = "votes"

Message = dict[str, Any]


class Recovery:
    """What this member may do, by what it remembers. Used in Raft's thread.

    `settle` keeps a term, and a vote in it.
    """

    def __init__(self, consensus: Core, journal: SqliteJournal, settle: Callable[[int, str], None]) -> None:
        self._consensus = consensus
        self._journal = journal
        self._settle = settle
        self._recall = Recall(consensus.me)
        self._ballot = Ballot()
        self._lives: dict[str, int] = {}
        self._candidates: dict[str, int] = {}
        """By member, the life in which it asked for this one's vote last."""
        self._asked_s = float("-inf")
        self._hoped_s = monotonic()
        self._telling_s = monotonic() + TELLING_S

    @property
    def votes(self) -> bool:
        """Whether it remembers all that it took part in, so that its vote may be relied on."""
        return self._journal.note(_VOTES) == "yes"

    @property
    def may_follow(self) -> bool:
        """Whether a leader may be heeded: not before it is known which term is the latest."""
        return self.votes or self._recall.found(self._consensus.raftCurrentTerm) is not None

    @property
    def may_stand(self) -> bool:
        """Whether it may ask for votes, as far as is known by now."""
        return self.votes or self._consensus.inquiry.first_election

    def now_votes(self) -> None:
        """It has caught up with a leader, or takes part in the cluster's first election."""
        if self.votes:
            return
        if self._journal.note(LOST):
            logger.warning("%s has caught up with the others, and votes again", self._consensus.me)
        self._journal.set_note(_VOTES, "yes")
        self._journal.set_note(LOST, "")
        self._journal.flush()

    def matches(self, term: int, index: int) -> None:
        """The log is that of the leader in `term`, up to `index`."""
        if not self.votes:
            self._recall.matched = (term, index)
            if self._recall.complete(self._consensus.raftCurrentTerm):
                self.now_votes()

    # -- asking how things stand

    def step(self) -> None:
        """Ask the others, if it is time. Raises MajorityLost."""
        now = monotonic()
        self._see_hope(now)
        self._say_what_for(now)
        if self.votes or now - self._asked_s < AGAIN_S:
            return
        self._asked_s = now
        question = {"type": "recall", "life": self._life}
        self._consensus.tell_all(question)
        for node in self._consensus.transport.unlisted:  # one of them may be the leader
            self._consensus.transport.send(node, question)

    def asked(self, node: Node, message: Message) -> None:
        """A member asks."""
        here = self._consensus
        self._lives[node.id] = message["life"]
        standing = here.standing()
        answer = {
            "type": "recall_answer",
            "term": here.raftCurrentTerm,
            "last_log_term": standing.last_term,
            "last_log_index": standing.last_index,
            "leads": here.is_leader,
            "members": sorted(here.members()),
            "base": here.agreed_members(),
            "whole": self.votes,
            "lost": bool(self._journal.note(LOST)),
        }
        here.transport.send(node, answer)

    def told(self, node: Node, message: Message) -> None:
        """A member has answered."""
        if self.votes:
            return
        self._recall.answers[node.id] = AmnesiaAnswer(
            message["term"],
            Standing(message["last_log_term"], message["last_log_index"]),
            message["leads"],
            frozenset(message["members"]),
            message["whole"],
            message["lost"],
            tuple(message.get("base", ())),
        )
        latest = self._recall.found(self._consensus.raftCurrentTerm)
        if latest is not None and latest.base and self._consensus.standing().empty:
            # What there is of a list here may be another one than that with which the cluster's log begins.
            self._consensus.begin_with(latest.base)
        if latest is not None and not self._consensus.voted_in(latest.term):
            # It may have voted in that term: as if for the leader, since no other can be elected in it any more.
            self._settle(latest.term, latest.leader)

    def _see_hope(self, now_s: float) -> None:
        here, lost = self._consensus, self._journal.note(LOST)
        losers = hopeless(here.me, frozenset(here.members()), self._recall.answers) if lost else frozenset()
        if not losers:
            self._hoped_s = now_s
        elif now_s - self._hoped_s > FAREWELL_S:
            raise MajorityLost(
                f"{', '.join(sorted(losers))} have lost their logs, and the other members are too few to know all that "
                "was agreed on. Put copies of their folders back, or make the member that is well a new cluster with "
                f"`rota cluster recover` (RECOVERY.md). Here: {lost}"
            )

    def _say_what_for(self, now_s: float) -> None:
        if now_s < self._telling_s or self.votes or not self._journal.note(LOST) or self.may_follow:
            return
        self._telling_s = now_s + 60.0
        members = self._consensus.members()
        well = sorted(name for name, answer in self._recall.answers.items() if answer.whole)
        logger.warning(
            "%s waits: %d of the other members must be well, their leader among them, before it can catch up; %s",
            self._consensus.me,
            needed(len(members)),
            f"so far {', '.join(well)} answered" if well else "nobody has answered yet",
        )

    # -- votes of a life before

    @property
    def _life(self) -> int:
        return int(self._journal.note(LIFE) or 0)

    def question(self, message: Message) -> Message:
        """A request for votes, with the life that the votes are to name, and the founding if it is the first."""
        return {**message, "life": self._life, "founding": self._consensus.inquiry.founding.founding}

    def asked_for_vote(self, node: Node, message: Message) -> None:
        """A member asks for this one's vote."""
        self._candidates[node.id] = message.get("life", 0)

    def stamped(self, node: Node, vote: Message) -> Message:
        """A vote, with what `counts` asks of it."""
        return {**vote, "life": self._life, "lives": dict(self._lives), "candidate": self._candidates.get(node.id, 0)}

    def counts(self, node: Node, vote: Message) -> bool:
        """Whether a vote that has come counts: one a member, in this term, asked for with the log of this life."""
        asked_for = vote["candidate"] == self._life and vote["term"] == self._consensus.raftCurrentTerm
        return asked_for and self._ballot.take(vote["term"], node.id, vote["life"], vote["lives"])
