"""Recovery of a member that has lost its log: it asks the others, and follows and votes once this is safe."""

import logging
from collections.abc import Callable
from typing import Any

from pysyncobj.node import Node

from node.raft.core.parts import RaftCore
from node.raft.core.prevote import Standing
from node.raft.errors import MajorityLost
from node.raft.log.journal import SqliteJournal
from node.raft.log.log_store import LIFE, LOST, VOTES
from node.raft.recovery.amnesia import AmnesiaAnswer, Ballot, RecoveryProgress, answers_needed, majority_lost

logger = logging.getLogger(__name__)

AGAIN_S = 0.2
"""The interval between two questions to the others."""

LOGGING_S = 5.0
"""The time after which the member logs what it waits for, and then once a minute."""

FAREWELL_S = 1.0
"""A member that is about to give up still answers for this time, so that others, which must give up too, learn why."""

Message = dict[str, Any]


class AmnesiaRecovery:
    """Decides whether this member may follow, vote and stand for election, after it may have lost its log.

    Used in Raft's thread. keep_vote: stores a term, and a vote in it, durably.
    """

    def __init__(self, consensus: RaftCore, journal: SqliteJournal, keep_vote: Callable[[int, str], None]) -> None:
        self._consensus = consensus
        self._journal = journal
        self._keep_vote = keep_vote
        self._progress = RecoveryProgress(consensus.me)
        self._ballot = Ballot()
        self._lives: dict[str, int] = {}
        self._candidates: dict[str, int] = {}
        """For each member: the life (see `Ballot`) in which it last asked for this one's vote."""
        self._asked_s = float("-inf")
        self._hoped_s = consensus.clock()
        self._logging_s = consensus.clock() + LOGGING_S

    @property
    def votes(self) -> bool:
        """Whether this member remembers all its votes and acknowledgements, so that it may vote."""
        return self._journal.note(VOTES) == "yes"

    @property
    def may_follow(self) -> bool:
        """Whether this member may accept entries and snapshots. After a loss, it must first know the latest term."""
        return self.votes or self._progress.leader_log(self._consensus.raftCurrentTerm) is not None

    @property
    def may_stand(self) -> bool:
        """Whether this member may ask for votes now."""
        return self.votes or self._consensus.inquiry.first_election

    def become_voter(self) -> None:
        """Note that this member has caught up with a leader, or takes part in the cluster's first election."""
        if self.votes:
            return
        if self._journal.note(LOST):
            logger.warning("%s has caught up with the others, and votes again", self._consensus.me)
        self._journal.set_note(VOTES, "yes")
        self._journal.set_note(LOST, "")
        self._journal.flush()

    def log_matches(self, term: int, index: int) -> None:
        """Note that the log equals the log of the leader in `term`, up to `index`."""
        if not self.votes:
            self._progress.matched = (term, index)
            if self._progress.complete(self._consensus.raftCurrentTerm):
                self.become_voter()

    # -- asking the others

    def step(self) -> None:
        """Ask the others, if it is time. Raises MajorityLost."""
        now_s = self._consensus.clock()
        self._check_majority(now_s)
        self._log_progress(now_s)
        if self.votes or now_s - self._asked_s < AGAIN_S:
            return
        self._asked_s = now_s
        question = {"type": "recall", "life": self._life}
        self._consensus.send_to_all(question)
        for node in self._consensus.transport.unlisted:  # an unlisted member may be the leader
            self._consensus.transport.send(node, question)

    def answer(self, node: Node, message: Message) -> None:
        """Answer a member that has lost its log."""
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

    def answered(self, node: Node, message: Message) -> None:
        """Handle a member's answer to `step`'s question."""
        if self.votes:
            return
        self._progress.answers[node.id] = AmnesiaAnswer(
            term=message["term"],
            standing=Standing(message["last_log_term"], message["last_log_index"]),
            leads=message["leads"],
            members=frozenset(message["members"]),
            remembers=message["whole"],
            lost=message["lost"],
            base=tuple(message.get("base", ())),
        )
        latest = self._progress.leader_log(self._consensus.raftCurrentTerm)
        if latest is not None and latest.base and self._consensus.standing().empty:
            # This node's list of members may differ from the members with which the cluster's log begins.
            self._consensus.begin_with(latest.base)
        if latest is not None and not self._consensus.voted_in(latest.term):
            # This member may have voted in that term. A vote for its leader is safe, as the term has no other.
            self._keep_vote(latest.term, latest.leader)

    def _check_majority(self, now_s: float) -> None:
        """Raise MajorityLost once it has been known for FAREWELL_S that too many members have lost their logs."""
        here, lost = self._consensus, self._journal.note(LOST)
        losers = majority_lost(here.me, frozenset(here.members()), self._progress.answers) if lost else frozenset()
        if not losers:
            self._hoped_s = now_s
        elif now_s - self._hoped_s > FAREWELL_S:
            raise MajorityLost(
                f"{', '.join(sorted(losers))} have lost their logs, and the other members are too few to know all that "
                "was committed. Put copies of their folders back, or make a member that has its log a new cluster with "
                f"`rota cluster recover` (docs/how-to/recover.md). Here: {lost}"
            )

    def _log_progress(self, now_s: float) -> None:
        if now_s < self._logging_s or self.votes or not self._journal.note(LOST) or self.may_follow:
            return
        self._logging_s = now_s + 60.0
        members = self._consensus.members()
        well = sorted(name for name, answer in self._progress.answers.items() if answer.remembers)
        logger.warning(
            "%s waits: %d of the other members must answer that they have their logs, their leader among them, before "
            "it can catch up; %s",
            self._consensus.me,
            answers_needed(len(members)),
            f"so far {', '.join(well)} answered" if well else "none has answered yet",
        )

    # -- votes given in an earlier life

    @property
    def _life(self) -> int:
        return int(self._journal.note(LIFE) or 0)

    def vote_request(self, message: Message) -> Message:
        """Add this member's life, which votes must name, and its founding to a request for votes."""
        return {**message, "life": self._life, "founding": self._consensus.inquiry.founding_id}

    def note_candidate(self, node: Node, message: Message) -> None:
        """Note that a member has asked for this one's vote, and in which life."""
        self._candidates[node.id] = message.get("life", 0)

    def vote(self, node: Node, vote: Message) -> Message:
        """Add the fields that `counts` reads to a vote."""
        return {**vote, "life": self._life, "lives": dict(self._lives), "candidate": self._candidates.get(node.id, 0)}

    def counts(self, node: Node, vote: Message) -> bool:
        """Whether a received vote counts: one per member, in this term, and requested in this member's present life."""
        asked_for = vote["candidate"] == self._life and vote["term"] == self._consensus.raftCurrentTerm
        return asked_for and self._ballot.take(vote["term"], node.id, vote["life"], vote["lives"])
