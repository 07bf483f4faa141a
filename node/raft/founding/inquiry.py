"""Asks the nodes of a list for their statements while there is no cluster, and answers their questions.

`founding` decides. Connected members are asked over their connection. A node that is not connected, because its log
does not name this node or because it is the one to dial, is called for this one question (`single_call`).
"""

import logging
from typing import Any

from pysyncobj.node import Node

from node.raft.core.parts import RaftCore
from node.raft.founding.founding import Founding, Outlook
from node.raft.founding.statement import (
    Binding,
    KnownCluster,
    Statement,
    read_binding,
    read_known_cluster,
    read_statement,
)
from node.raft.log.journal import SqliteJournal
from node.raft.log.log_store import FOUNDING, KNOWN_CLUSTER, LIFE, LOST
from node.raft.wire.connections import PeerConnection

logger = logging.getLogger(__name__)

AGAIN_S = 0.2
"""The interval between two questions to a connected member."""

CALL_AGAIN_S = 0.5
"""The interval between two calls to a node that is not connected."""

CALL_S = 2.0
"""The timeout of a call."""

LOGGING_S = 3.0
"""The node's reason to wait is logged after this time, and at most this often when it changes."""

LOGGING_AGAIN_S = 60.0
"""The interval for logging a reason that has not changed."""

Message = dict[str, Any]


class FoundingInquiry:
    """This member's part in founding a cluster. Used in Raft's thread."""

    def __init__(self, consensus: RaftCore, journal: SqliteJournal) -> None:
        self._consensus = consensus
        self._journal = journal
        self._calls = consensus.single_calls(self._called)
        listed = frozenset(text.split(" ", 1)[0] for text in journal.note("cluster").split("\n"))
        self.founding = Founding(
            me=consensus.me,
            life=int(journal.note(LIFE) or 0),
            listed=listed | {consensus.me},
            begun_s=consensus.clock(),
            known=read_known_cluster(journal.note(KNOWN_CLUSTER)),
            bound=read_binding(journal.note(FOUNDING)),
        )
        self.outlook: Outlook = None
        self._asked_s = float("-inf")
        self._logged, self._logged_s = "", consensus.clock()

    @property
    def founding_id(self) -> str:
        """The id of the founding to which this member is bound; empty if it is not bound."""
        return self.founding.founding

    @property
    def first_election(self) -> bool:
        """Whether this member may take part in the first election, as all nodes are bound and its log is empty."""
        here = self._consensus
        return self.founding.complete and not self._journal.note(LOST) and here.standing().empty

    def same_founding(self, message: Message) -> bool:
        """Whether a candidate is bound to the same founding as this member."""
        return bool(message.get("founding", "") == self.founding_id)

    def step(self) -> None:
        """Ask the other nodes, and try to found a cluster, while this member has neither a cluster nor a log."""
        here, founding = self._consensus, self.founding
        votes, empty = here.recovery.votes, here.standing().empty
        if here.cluster.known or (votes and not empty):
            self.outlook = None
            self._calls.close()
            return
        now_s = here.clock()
        founding.voted = votes and founding.bound is not None
        founding.blank = not votes and not self._journal.note(LOST) and empty
        while (promise := founding.promise(now_s)) is not None:
            self._keep(promise)
        self.outlook = founding.outlook(now_s)
        self._log_outlook(now_s)
        if now_s - self._asked_s >= AGAIN_S:
            self._asked_s = now_s
            self._ask(now_s)

    def _keep(self, promise: KnownCluster | Binding) -> None:
        """Make a promise durable before it takes effect."""
        here = self._consensus
        self._journal.set_note(KNOWN_CLUSTER if isinstance(promise, KnownCluster) else FOUNDING, promise.note())
        if isinstance(promise, Binding) and promise.without:
            here.elections.poll.open = False
            here.begin_with([here.book.text(name) for name in sorted(promise.members)])
        self._journal.flush()
        self.founding.keep(promise)
        self._asked_s = float("-inf")
        if isinstance(promise, Binding):
            who = ", ".join(sorted(promise.members))
            logger.info("founding a cluster of %s: none of them belongs to one", who)

    def _ask(self, now_s: float) -> None:
        here, founding = self._consensus, self.founding
        question = {"type": "founding", **founding.statement().question(), "called": ""}
        here.send_to_all(question)
        for member in sorted(founding.listed - {here.me}):
            heard_s = founding.heard_s.get(member, founding.begun_s)
            node = here.book.node(member)
            if now_s - self._calls.begun_s(node) > CALL_S:
                self._calls.hang_up(node)
            if not here.transport.reached(node) or now_s - heard_s > 2 * AGAIN_S:
                self._calls.ask(node, {**question, "called": member}, now_s, CALL_AGAIN_S)

    def _log_outlook(self, now_s: float) -> None:
        text = str(self.outlook)
        if now_s - self._logged_s < (LOGGING_AGAIN_S if text == self._logged else LOGGING_S):
            return
        self._logged, self._logged_s = text, now_s
        if not self.founding.complete:
            logger.warning("%s is not ready: %s", self._consensus.me, text)

    # -- other nodes' questions and answers

    def asked(self, node: Node, message: Message) -> None:
        """Answer a connected member's question about founding."""
        self._consensus.transport.send(node, self.answer(message))

    def answer(self, message: Message) -> Message:
        """Return the answer to a node's question about founding, which is this member's statement."""
        if message.get("called") in ("", self._consensus.me):  # else the caller mistakes this member for another one
            self._hear(message)
        return {"type": "founding_answer", **self._statement().message()}

    def answered(self, _node: Node, message: Message) -> None:
        """Handle the statement of a connected member."""
        self._hear(message)

    def _called(self, node: Node, _connection: PeerConnection, message: Message) -> None:
        """Handle the answer of a node that was called for this question."""
        self._calls.hang_up(node)
        if message["type"] == "founding_answer" and message["member"] == node.id:
            self._hear(message)

    def called_by_member(self, member: str, cluster_id: str) -> None:
        """Note that a member of a cluster has connected, and regards this node as a member of the same cluster."""
        if cluster_id and not self._consensus.cluster.known:
            self.founding.hear_of(cluster_id, member)

    def _statement(self) -> Statement:
        here = self._consensus
        known = here.cluster.known
        return self.founding.statement(known, here.members() if known else ())

    def _hear(self, message: Message) -> None:
        if self._consensus.cluster.known:
            return
        try:
            statement = read_statement(message)
        except (KeyError, TypeError, ValueError):
            logger.warning("dropped a statement about founding that cannot be read: does another version of Rota run?")
            return
        self.founding.hear(statement, self._consensus.clock())

    def leave_out(self, without: frozenset[str]) -> str | None:
        """Found a cluster without these members. Returns the reason for a refusal; None: accepted here."""
        here = self._consensus
        if here.cluster.known:
            return f"{here.me} belongs to cluster {here.cluster.known}: no other one is founded beside it"
        refused = self.founding.leave_out(without, here.clock())
        if refused is None:
            self._asked_s = float("-inf")
            logger.warning("asked by hand to found a cluster without %s", ", ".join(sorted(without)))
        return refused

    def close(self) -> None:
        """End all calls."""
        self._calls.close()
