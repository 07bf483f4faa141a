"""Asks the members of a list how they stand while there is no cluster, and tells them (`founding` decides).

Members that are connected are asked over their connection. Those that are not, because their log does not know this
node, or they are not to be called by it, are called for the one question (`calls`).
"""

import logging
from typing import Any

from pysyncobj.monotonic import monotonic
from pysyncobj.node import Node

from node.raft.connections import PeerConnection
from node.raft.core import Core
from node.raft.founding import Bound, Founding, Outlook, Statement, Told, bound_by, read, told_by
from node.raft.journal import SqliteJournal
from node.raft.log_store import FOUNDING, LIFE, LOST, TOLD
from node.raft.single_call import Calls

logger = logging.getLogger(__name__)

AGAIN_S = 0.2
"""Connected members are asked again after so long."""

CALL_AGAIN_S = 0.5
"""A member that is not connected is called again after so long."""

CALL_S = 2.0
"""A call that has had no answer for so long is given up."""

TELLING_S = 3.0
"""What is waited for is said after so long, and when it has changed."""

TELLING_AGAIN_S = 60.0
"""As long as it is the same, it is said again after so long."""

Message = dict[str, Any]


class Inquiry:
    """What this member does towards founding. Used in Raft's thread."""

    def __init__(self, consensus: Core, journal: SqliteJournal) -> None:
        self._consensus = consensus
        self._journal = journal
        self._calls = Calls(consensus, self._called)
        listed = frozenset(text.split(" ", 1)[0] for text in journal.note("cluster").split("\n"))
        self.founding = Founding(
            consensus.me,
            int(journal.note(LIFE) or 0),
            listed | {consensus.me},
            monotonic(),
            told_by(journal.note(TOLD)),
            bound_by(journal.note(FOUNDING)),
        )
        self.outlook: Outlook = None
        self._asked_s = float("-inf")
        self._told, self._told_s = "", monotonic()

    @property
    def first_election(self) -> bool:
        """Whether this member may take part in the first election: all are bound to it, and it has nothing."""
        here = self._consensus
        return self.founding.complete and not self._journal.note(LOST) and here.standing().empty

    def same(self, message: Message) -> bool:
        """Whether a candidate stands in the founding to which this member is bound."""
        return bool(message.get("founding", "") == self.founding.founding)

    def step(self) -> None:
        """Decide, and ask, as long as this member is of no cluster and has no part in a log."""
        here, founding = self._consensus, self.founding
        votes, empty = here.recovery.votes, here.standing().empty
        if here.cluster.known or (votes and not empty):
            self.outlook = None
            self._calls.end()
            return
        now_s = monotonic()
        founding.voted = votes and founding.bound is not None
        founding.blank = not votes and not self._journal.note(LOST) and empty
        while (promise := founding.promise(now_s)) is not None:
            self._keep(promise)
        self.outlook = founding.outlook(now_s)
        self._tell(now_s)
        if now_s - self._asked_s >= AGAIN_S:
            self._asked_s = now_s
            self._ask(now_s)

    def _keep(self, promise: Told | Bound) -> None:
        """On the disk first."""
        here = self._consensus
        self._journal.set_note(TOLD if isinstance(promise, Told) else FOUNDING, promise.note())
        if isinstance(promise, Bound) and promise.without:
            here.elections.poll.open = False
            here.begin_with([here.book.text(name) for name in sorted(promise.members)])
        self._journal.flush()
        self.founding.keep(promise)
        self._asked_s = float("-inf")
        if isinstance(promise, Bound):
            who = ", ".join(sorted(promise.members))
            logger.info("all of %s have answered that they have nothing: they are to found a cluster", who)

    def _ask(self, now_s: float) -> None:
        here, founding = self._consensus, self.founding
        question = {"type": "founding", **founding.statement().question(), "called": ""}
        here.tell_all(question)
        for member in sorted(founding.listed - {here.me}):
            heard_s = founding.heard_s.get(member, founding.begun_s)
            node = here.book.node(member)
            if now_s - self._calls.begun_s(node) > CALL_S:
                self._calls.hang_up(node)
            if not here.transport.reached(node) or now_s - heard_s > 2 * AGAIN_S:
                self._calls.ask(node, {**question, "called": member}, now_s, CALL_AGAIN_S)

    def _tell(self, now_s: float) -> None:
        said = str(self.outlook)
        if now_s - self._told_s < (TELLING_AGAIN_S if said == self._told else TELLING_S):
            return
        self._told, self._told_s = said, now_s
        if not self.founding.complete:
            logger.warning("%s is not ready: %s", self._consensus.me, said)

    # -- what others ask and say

    def asked(self, node: Node, message: Message) -> None:
        """A connected member asks."""
        self._consensus.transport.send(node, self.answer(message))

    def answer(self, message: Message) -> Message:
        """What this member says to whoever asks, be it a member by its log or not."""
        if message.get("called") in ("", self._consensus.me):  # else it takes this member for another one
            self._heard(message)
        return {"type": "founding_answer", **self._statement().message()}

    def answered(self, _node: Node, message: Message) -> None:
        """A connected member has answered."""
        self._heard(message)

    def _called(self, node: Node, _connection: PeerConnection, message: Message) -> None:
        """What a member says that was called for the one question."""
        self._calls.hang_up(node)
        if message["type"] == "founding_answer" and message["member"] == node.id:
            self._heard(message)

    def counted_on(self, member: str, cluster_id: str) -> None:
        """A member has called this one as one of its cluster."""
        if cluster_id and not self._consensus.cluster.known:
            self.founding.hear_of(cluster_id, member)

    def _statement(self) -> Statement:
        here = self._consensus
        known = here.cluster.known
        return self.founding.statement(known, here.members() if known else ())

    def _heard(self, message: Message) -> None:
        if self._consensus.cluster.known:
            return
        try:
            said = read(message)
        except (KeyError, TypeError, ValueError):
            logger.warning("a question that cannot be read is left out: is it of another version of Rota?")
            return
        self.founding.hear(said, monotonic())

    def leave_out(self, without: frozenset[str]) -> str | None:
        """Found without these members. Returns why not; None: it is so, once the others accept it."""
        here = self._consensus
        if here.cluster.known:
            return f"{here.me} is of cluster {here.cluster.known}: there is nothing to be founded beside it"
        refused = self.founding.leave_out(without, monotonic())
        if refused is None:
            self._asked_s = float("-inf")
            logger.warning("by hand: a cluster is to be founded without %s", ", ".join(sorted(without)))
        return refused

    def close(self) -> None:
        """End the calls."""
        self._calls.end()
