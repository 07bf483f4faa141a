# ruff: noqa: N802, N803 - the library calls its transport by these names
"""Connections between two members, one of which is not in the other's log yet, because that log is behind.

A member that this log does not list is accepted as `unlisted`, because it may be the leader, which would send the entry
that lists it. (A server must accept messages whatever its own configuration is: Ongaro 2014, section 4.1.) If a member
should dial this one but does not, this one dials it, since the other's log may not list this one. A removed member
still calls until it learns of its removal, because its log still lists this one.
"""

import logging
from typing import Any

from pysyncobj.node import Node
from pysyncobj.transport import TCPTransport

from node.raft.core.parts import RaftCore
from node.raft.log import membership

DIAL_SILENT_S = 3.0
"""If a member that should dial this one has not been connected for this time, this one dials it."""
UNLISTED_MAX = 16
"""The maximum number of unlisted members that are accepted at a time."""

logger = logging.getLogger(__name__)


class OpenTransport(TCPTransport):  # type: ignore[misc]  # the library ships no types
    """The library's transport, extended to members that its configuration does not list."""

    def __init__(self, syncObj: RaftCore, selfNode: Node, otherNodes: set[Node]) -> None:
        self._consensus = syncObj
        self._clusters: dict[object, str] = {}
        """For each connection with an identified member: the cluster that the member names; empty without a cluster."""
        self.unlisted: set[Node] = set()
        """The callers that are not members by this log. They are not asked for votes or entries."""
        self._calls: set[Any] = set()
        """The open connections on which members have called this one."""
        self._to_dial: set[Node] = set()
        """The members that should dial this one but have not for DIAL_SILENT_S, so that this one dials them."""
        self._apart_since: dict[Node, float] = {}
        super().__init__(syncObj, selfNode, otherNodes)

    def reached(self, node: Node) -> bool:
        """Whether a member is connected, and the connected process is known to be the only one of that member."""
        return self._connections.get(node) in self._clusters

    def others(self) -> set[Node]:
        """Return all other members, by the log."""
        return set(self._nodes) - self.unlisted

    def dials(self, node: Node) -> bool:
        """Whether this member dials `node`, and not the other way round."""
        return bool(self._shouldConnect(node))

    def listed(self, name: str) -> Node | None:
        """Return the node of a member that this log lists, or that was accepted as unlisted; else None."""
        return self._nodeAddrToNode.get(name)

    def accept_unlisted(self, name: str, cluster_id: str) -> Node | None:
        """Accept a caller that this log does not list, and return its node; None if it is refused.

        The caller has the secret, and lists this member in its log. A caller without a cluster is refused, since it has
        no entries to send.
        """
        if not cluster_id or len(self.unlisted) >= UNLISTED_MAX:
            return None
        node = self._consensus.book.node(name)
        self._nodes.add(node)
        self._nodeAddrToNode[node.address] = node
        self.unlisted.add(node)
        if name in membership.removed(self._consensus.journal[:]):
            logger.info("%s has connected, but has no vote: this member's log removes it", name)
        else:
            logger.info("%s is accepted as a member of this cluster, although this log does not list it yet", name)
        return node

    def addNode(self, node: Node) -> None:
        """Add a member that the log lists now. If it has called before its entry arrived, its connection is kept."""
        calling = self._connections.get(node) if node in self.unlisted else None
        self.unlisted.discard(node)
        super().addNode(node)
        if calling is not None:
            self._connections[node] = calling

    def dropNode(self, node: Node) -> None:
        """Drop a member that the log has removed."""
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
            super().addNode(node)  # the member called before; from now on this one dials it
        return bool(super()._connectIfNecessarySingle(node))

    def _dial_silent(self, now_s: float) -> None:
        """Dial the members that should dial this one but have not done so for DIAL_SILENT_S."""
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
