"""Checks each message from another member before the library gets it.

It corrects five defects of PySyncObj 0.3.17, each of which could lose or contradict an acknowledged entry:
- Of an append, only the new entries are passed on (`append_filter`).
- The commit index of a message counts only up to the entry at which the message has matched the log.
- An acknowledgement counts only in its own term, and never moves back the index of the next entry to send.
- A snapshot is not loaded if the log already has its entries.
- A member that lost its log accepts no entries and does not vote before enough others have answered it (`amnesia`).
"""

from collections.abc import Callable
from typing import Final

from pysyncobj.node import Node

from node.raft.core.parts import RaftCore
from node.raft.core.prevote import Standing, may_vote
from node.raft.log.append_filter import Known, New, Unmatched, trim
from node.raft.wire.messages import Message

_FROM_UNLISTED: Final = frozenset(
    ("append_entries", "request_vote", "pre_vote", "recall", "recall_answer", "apply_command_response", "ping")
)
"""The kinds of messages accepted from a member that this log does not list: those of a leader or a candidate. Other
kinds are answers to questions that an unlisted member is not asked."""


class Inbound:
    """Handles all messages from members. Used in Raft's thread."""

    def __init__(self, consensus: RaftCore) -> None:
        self._consensus = consensus
        self.leader_heard_s = float("-inf")
        self._kinds: dict[str, Callable[[Node, Message], None]] = {
            "append_entries": self._append,
            "next_node_idx": self._acknowledged,
            "request_vote": self._vote_requested,
            "response_vote": self._vote_received,
            "timeout_now": self._asked_to_lead,
            "apply_command": self._command,
            "apply_command_response": self._pass_on,
            "pre_vote": self._pre_vote_requested,
            "pre_vote_answer": self._pre_vote_answered,
            "late_term": self._later_term,
            "founding": consensus.inquiry.asked,
            "founding_answer": consensus.inquiry.answered,
            "recall": consensus.recovery.answer,
            "recall_answer": consensus.recovery.answered,
            "ping": lambda _node, _message: None,
        }

    def take(self, node: Node, message: Message) -> None:
        """Handle a message from a member."""
        kind = message["type"]
        if node in self._consensus.transport.unlisted and kind not in _FROM_UNLISTED:
            return
        take = self._kinds.get(kind)
        if take is not None:  # other kinds belong to the beginning of a connection, and are ignored
            take(node, message)

    def _pass_on(self, node: Node, message: Message) -> None:
        self._consensus.transport.pass_to_library(node, message)

    # -- the log

    def _append(self, node: Node, message: Message) -> None:
        here = self._consensus
        if message["term"] < here.raftCurrentTerm:
            here.transport.send(node, {"type": "late_term", "term": here.raftCurrentTerm})
            return
        if not here.recovery.may_follow:
            return
        # Record the cluster before an entry is acknowledged, so that leaders of two clusters cannot both count this
        # member.
        here.join_cluster(here.transport.cluster_of(node))
        self.leader_heard_s = here.clock()
        here.elections.poll.open = False
        if "prevLogIdx" not in message:
            self._snapshot_part(node, message)
            return
        prev, term, entries = message["prevLogIdx"], message["prevLogTerm"], message["entries"]
        if prev is None:  # the leader's own log begins later, so a snapshot will follow
            self._heartbeat(node, message, 0)
            return
        found = trim(here.journal, here.raftCommitIndex, prev, term, entries)
        match found:
            case Unmatched():
                self._pass_on(node, message)
                return
            case Known(index):
                self._heartbeat(node, message, index)
                self._acknowledge(node, index)
            case New(prev_index, prev_term, new):
                index = new[-1][1]
                trimmed = {"prevLogIdx": prev_index, "prevLogTerm": prev_term, "entries": list(new)}
                self._pass_on(node, {**message, **trimmed})
        here.recovery.log_matches(message["term"], index)

    def _heartbeat(self, node: Node, message: Message, matched: int) -> None:
        """Pass on only the message's leader and its commit index, which is limited to `matched`, without entries."""
        commit_index = min(message["commit_index"], matched)
        self._pass_on(node, {"type": "append_entries", "term": message["term"], "commit_index": commit_index})

    def _acknowledge(self, node: Node, index: int, *, success: bool = True, reset: bool = False) -> None:
        answer = {"type": "next_node_idx", "next_node_idx": index + 1, "success": success, "reset": reset}
        self._consensus.transport.send(node, answer)

    def _snapshot_part(self, node: Node, message: Message) -> None:
        """Handle a part of a snapshot, if the message has one. Always answer, so that the leader hears a follower."""
        here = self._consensus
        self._heartbeat(node, message, 0)
        part = message.get("serialized")
        header = here.snapshots.receive(part) if part else None
        if header is None:
            self._acknowledge(node, here.journal.last_index, success=False)
        elif header.index <= here.raftCommitIndex or (
            here.journal.first_index <= header.index <= here.journal.last_index
            and here.journal.term_at(header.index) == header.last[2]
        ):
            self._acknowledge(node, header.index, reset=True)
        else:
            here.snapshots.install(header)
            self._pass_on(node, {**message, "commit_index": 0, "serialized": True})

    def _acknowledged(self, node: Node, message: Message) -> None:
        here = self._consensus
        if message.get("term") != here.raftCurrentTerm or not here.is_leader:
            return
        before = here.next_index(node)
        self._pass_on(node, message)
        if message["success"] and not message["reset"]:
            here.keep_next_index(node, before)

    def _command(self, node: Node, message: Message) -> None:
        """Handle a proposal, if this member leads. Otherwise drop it: its sender tries again."""
        if self._consensus.is_leader or "request_id" in message:
            self._pass_on(node, message)

    # -- elections

    def _vote_requested(self, node: Node, message: Message) -> None:
        here = self._consensus
        if self._may_vote(message) and message["term"] > here.fence():
            here.recovery.note_candidate(node, message)
            self._pass_on(node, message)

    def _may_vote(self, message: Message) -> bool:
        """Whether this member may vote for the candidate. If its log is empty, both must be bound to one founding."""
        here, candidate = self._consensus, _standing(message)
        if not here.is_settled() or (candidate.empty and not here.inquiry.same_founding(message)):
            return False
        return may_vote(here.recovery.votes, here.inquiry.first_election, here.standing(), candidate)

    def _vote_received(self, node: Node, message: Message) -> None:
        if self._consensus.recovery.counts(node, message):
            self._pass_on(node, message)

    def _asked_to_lead(self, node: Node, message: Message) -> None:
        here = self._consensus
        if here.is_settled() and here.recovery.votes and here.raftCurrentTerm >= here.fence():
            self._pass_on(node, message)

    def _pre_vote_requested(self, node: Node, message: Message) -> None:
        here = self._consensus
        standing = _standing(message)
        granted = self._may_vote(message) and not self._has_leader(node) and here.elections.gives_way(node.id, standing)
        answer = {"type": "pre_vote_answer", "number": message["number"], "granted": granted}
        here.transport.send(node, {**answer, "term": here.raftCurrentTerm})

    def _has_leader(self, asking: Node) -> bool:
        here = self._consensus
        if here.is_leader:
            return True
        heard_lately = here.clock() - self.leader_heard_s < here.timing.election_min_s
        return heard_lately and here.leader_node() not in (None, asking)

    def _pre_vote_answered(self, node: Node, message: Message) -> None:
        self._later_term(node, message)
        if message["granted"]:
            self._consensus.elections.poll.answer(message["number"], node.id)

    def _later_term(self, _node: Node, message: Message) -> None:
        """Step down to follower if another member's term is later than this one's."""
        if message["term"] > self._consensus.raftCurrentTerm:
            self._consensus.adopt_term(message["term"])


def _standing(message: Message) -> Standing:
    return Standing(message["last_log_term"], message["last_log_index"])
