"""Acknowledgements of appends, which wait until the journal is on the disk. Decides only: it is told the time.

Entries that arrive together share one flush of the journal, and one acknowledgement.
"""

from pysyncobj.node import Node

from node.raft.wire.messages import Message


class Acknowledgements:
    """The acknowledgements of this member that wait, and the latest that each leader was sent.

    repeat_s: within this time, the same acknowledgement is sent once on a connection. A leader announces each commit,
    and sends heartbeats, and neither changes anything about this member's log.
    """

    def __init__(self, repeat_s: float) -> None:
        self._repeat_s = repeat_s
        self._waiting: list[tuple[Node, Message]] = []
        self._latest: dict[Node, tuple[object, Message, float]] = {}
        """By leader: the connection, the latest plain acknowledgement sent on it, and when."""

    def add(self, node: Node, message: Message) -> None:
        """Keep an acknowledgement for a leader until `take`. It names the term in which it was given."""
        self._waiting.append((node, message))

    def take(self, term: int) -> list[tuple[Node, Message]]:
        """The acknowledgements to send now that the journal is flushed; `term` is the current term.

        Acknowledgements given in an earlier term are void, and so is one that the next to the same leader includes.
        """
        waiting, self._waiting = self._waiting, []
        following = [*waiting[1:], None]
        pairs = zip(waiting, following, strict=False)  # with none waiting, there is nothing before the None
        return [one for one, after in pairs if one[1]["term"] == term and not _includes(after, one)]

    def is_repeated(self, node: Node, connection: object, message: Message, now_s: float) -> bool:
        """Whether the leader was sent this very acknowledgement on this connection within `repeat_s`."""
        latest_connection, latest, at_s = self._latest.get(node, (None, None, 0.0))
        return message == latest and connection is latest_connection and now_s - at_s < self._repeat_s

    def sent(self, node: Node, connection: object, message: Message, now_s: float) -> None:
        """Note the acknowledgement that a leader was sent."""
        if is_plain(message):
            self._latest[node] = connection, message, now_s


def is_plain(message: Message) -> bool:
    """Whether an acknowledgement says only that the log matches up to an index."""
    return bool(message["success"]) and not message["reset"]


def _includes(after: tuple[Node, Message] | None, one: tuple[Node, Message]) -> bool:
    """Whether an acknowledgement makes the one before it superfluous."""
    return after is not None and after[0] == one[0] and is_plain(after[1]) and is_plain(one[1])
