# ruff: noqa: N802, N803 - the library calls its transport by these names
"""Connections between members that do not know one another yet, because the log of one of them is behind.

A member that the log here does not name is accepted as `unlisted`: it may be the leader that would send the entry that
names it (a server hears others whatever its own configuration says: Ongaro 2014, section 4.1). And a member that is to
dial this one, and does not, is dialled from here: its log may not name this one. A member that the log here removes
calls again too, until it has learnt of that: its log still names this one.
"""

import logging
from typing import Any

from pysyncobj.node import Node
from pysyncobj.transport import TCPTransport

from node.raft.core.parts import RaftCore
from node.raft.log import membership

DIAL_SILENT_S = 3.0
"""A member that is to dial this one is dialled from here once it has not been connected for this long."""
UNLISTED_MAX = 16
"""At most this many unlisted members are accepted at a time."""

logger = logging.getLogger(__name__)


class OpenTransport(TCPTransport):  # type: ignore[misc]  # the library ships no types
    """The library's transport, which also connects with members that its configuration does not name."""

    def __init__(self, syncObj: RaftCore, selfNode: Node, otherNodes: set[Node]) -> None:
        self._consensus = syncObj
        self._clusters: dict[object, str] = {}
        """By connection whose other side is known: the cluster that it names; empty while it belongs to none."""
        self.unlisted: set[Node] = set()
        """The callers that are no members by the log here. They are asked nothing, and have no vote."""
        self._calls: set[Any] = set()
        """The open connections of members that have called."""
        self._to_dial: set[Node] = set()
        """The members that are dialled from here, though they are to dial: they have not done so for long."""
        self._apart_since: dict[Node, float] = {}
        super().__init__(syncObj, selfNode, otherNodes)

    def reached(self, node: Node) -> bool:
        """Whether a member is connected, and known to be the one start of it."""
        return self._connections.get(node) in self._clusters

    def others(self) -> set[Node]:
        """All other members, by the log."""
        return set(self._nodes) - self.unlisted

    def dials(self, node: Node) -> bool:
        """Whether this member dials that one, and not the other way round."""
        return bool(self._shouldConnect(node))

    def listed(self, name: str) -> Node | None:
        """The node of a member that is in the log here, or was accepted as unlisted."""
        return self._nodeAddrToNode.get(name)

    def accept_unlisted(self, name: str, cluster_id: str) -> Node | None:
        """The node of a caller that the log here does not name; None if it is refused.

        It has the secret, and has this member in its log. A caller without a cluster has nothing to send, and is
        refused.
        """
        if not cluster_id or len(self.unlisted) >= UNLISTED_MAX:
            return None
        node = self._consensus.book.node(name)
        self._nodes.add(node)
        self._nodeAddrToNode[node.address] = node
        self.unlisted.add(node)
        if name in membership.removed(self._consensus.journal[:]):
            logger.info("%s has connected, and has no vote: the log here removes it", name)
        else:
            logger.info("%s is accepted as a member of this cluster, although the log here does not name it yet", name)
        return node

    def addNode(self, node: Node) -> None:
        """Add a member by the log. One that called before its entry arrived keeps its connection."""
        calling = self._connections.get(node) if node in self.unlisted else None
        self.unlisted.discard(node)
        super().addNode(node)
        if calling is not None:
            self._connections[node] = calling

    def dropNode(self, node: Node) -> None:
        """Drop a member that was removed."""
        self.unlisted.discard(node)
        self._to_dial.discard(node)
        self._apart_since.pop(node, None)
        super().dropNode(node)

    def _shouldConnect(self, node: Node) -> bool:
        if node in self.unlisted or node in self._preventConnectNodes:
            return False
        return node in self._to_dial or bool(super()._shouldConnect(node))

    def _connectIfNecessarySingle(self, node: Node) -> bool:
        if self._connections.get(node) in self._calls and not self.reached(node) and self._shouldConnect(node):
            super().addNode(node)  # it had called; from here on it is dialled
        return bool(super()._connectIfNecessarySingle(node))

    def _dial_silent(self, now_s: float) -> None:
        """Dial the members that are to dial this one, and have not done so for DIAL_SILENT_S."""
        for node in self._nodes - self.unlisted:
            if self.reached(node) or self._shouldConnect(node):
                self._apart_since.pop(node, None)
            elif now_s - self._apart_since.setdefault(node, now_s) > DIAL_SILENT_S:
                self._to_dial.add(node)
                super().addNode(node)

    def _forget_call(self, connection: Any, node: Node | None) -> None:
        """Forget a connection that has ended, and with it a member that was accepted as unlisted."""
        self._calls.discard(connection)
        if node is not None and node in self.unlisted:
            self.unlisted.discard(node)
            self._nodes.discard(node)
            self._connections.pop(node, None)
            self._nodeAddrToNode.pop(node.address, None)
