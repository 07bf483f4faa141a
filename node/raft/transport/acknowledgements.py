"""Holds acknowledgements of appends back until the journal is on the disk. Does no I/O; the time is an argument.

Entries that arrive together share one flush of the journal, and one acknowledgement.
"""

from pysyncobj.node import Node

from node.raft.wire.messages import Message


class Acknowledgements:
    """This member's waiting acknowledgements, and the latest one sent to each leader.

    repeat_s: within this time, the same acknowledgement is sent only once on a connection. A leader's commits and
    heartbeats ask for one again, although this member's log has not changed.
    """

    def __init__(self, repeat_s: float) -> None:
        self._repeat_s = repeat_s
        self._waiting: list[tuple[Node, Message]] = []
        self._latest: dict[Node, tuple[object, Message, float]] = {}
        """For each leader: the connection, the latest plain acknowledgement sent on it, and the time of sending."""

    def add(self, node: Node, message: Message) -> None:
        """Keep an acknowledgement for a leader until `take`. `message` has the term in which it was given."""
        self._waiting.append((node, message))

    def take(self, term: int) -> list[tuple[Node, Message]]:
        """Remove and return the acknowledgements to send now that the journal is flushed; `term` is the current term.

        Drops acknowledgements of earlier terms, and each that the next one to the same leader includes.
        """
        waiting, self._waiting = self._waiting, []
        following = [*waiting[1:], None]
        pairs = zip(waiting, following, strict=False)  # empty if `waiting` is empty
        return [one for one, after in pairs if one[1]["term"] == term and not _includes(after, one)]

    def is_repeated(self, node: Node, connection: object, message: Message, now_s: float) -> bool:
        """Whether the same acknowledgement was sent to the leader on this connection within `repeat_s`."""
        latest_connection, latest, at_s = self._latest.get(node, (None, None, 0.0))
        return message == latest and connection is latest_connection and now_s - at_s < self._repeat_s

    def sent(self, node: Node, connection: object, message: Message, now_s: float) -> None:
        """Note that an acknowledgement was sent to a leader."""
        if is_plain(message):
            self._latest[node] = connection, message, now_s


def is_plain(message: Message) -> bool:
    """Whether an acknowledgement only states that the log matches up to an index."""
    return bool(message["success"]) and not message["reset"]


def _includes(after: tuple[Node, Message] | None, one: tuple[Node, Message]) -> bool:
    """Whether the acknowledgement `one` is superfluous because `after`, the next one in the queue, includes it."""
    return after is not None and after[0] == one[0] and is_plain(after[1]) and is_plain(one[1])
