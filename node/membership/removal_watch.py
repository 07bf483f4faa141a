"""Detects that this node has been removed. Its state may not show it, because the members no longer connect to it."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from node.peer.protocol import PeerAway, Roster
from node.replication.proposer import MemberPort
from node.runtime.aligned import sleep_to_grid
from node.state.value import State

_log = logging.getLogger("rota.membership")

POLL_S: Final = 2.0
POLLS_ALONE: Final = 3
"""After this many polls without a leader, the other members are asked."""

FAREWELL_S: Final = 3.0
"""How long a removed member goes on voting, because its vote may be needed to commit its removal from Raft."""

ASK_S: Final = 2.0


class Removed(Exception):
    """This node has been removed from its cluster."""


class RosterSource(Protocol):
    """The part of `node.peer.client.PeerClient` that is used here."""

    async def roster(self, member: str, timeout_s: float) -> Roster:
        """Return the members, as another member knows them. Raises `PeerAway`."""


class RemovalWatch:
    """Polls the state, and the other members while there is no leader.

    `has_joined`: returns whether this process has ever joined.
    """

    def __init__(
        self,
        member: MemberPort,
        has_joined: Callable[[], bool],
        peers: RosterSource,
        sleep: Callable[[float], Awaitable[None]] = sleep_to_grid,
    ) -> None:
        self._port = member
        self._has_joined = has_joined
        self._peers = peers
        self._sleep = sleep
        self._alone = 0
        self._logged = False

    async def run(self) -> None:
        """Run until this node has been removed, then raise `Removed`."""
        while True:
            await self._sleep(POLL_S)
            if await self._removed():
                _log.warning("%s has been removed from the cluster", self._port.me)
                await self._sleep(FAREWELL_S)
                raise Removed(
                    f"{self._port.me} has been removed from the cluster; its data folder cannot be used again"
                )

    async def _removed(self) -> bool:
        state, role = self._port.state(), self._port.role()
        if not state.cluster_id:
            return False
        self._alone = 0 if role.leader else self._alone + 1
        if self._alone >= POLLS_ALONE:
            self._alone = 0
            return await self._removed_by_peers(state)
        if self._port.me in state.members:
            return False
        joined = self._has_joined()  # not the incarnation: a member that is being removed has given it up
        if not joined and role.ready and not self._logged:
            self._logged = True
            _log.error(
                "this cluster has no member called %s; its members are %s. ROTA_MEMBERS must be the same on every node "
                "of a first start; let another one in with: rota join",
                self._port.me,
                ", ".join(sorted(state.members)),
            )
        return joined

    async def _removed_by_peers(self, state: State) -> bool:
        """Whether another member, whose state is at least as new as the one here, no longer lists this node."""
        for member in sorted(state.members):
            if member == self._port.me:
                continue
            try:
                roster = await self._peers.roster(member, ASK_S)
            except PeerAway:
                continue
            if roster.index >= state.index and roster.cluster_id == state.cluster_id:
                return all(seed.id != self._port.me for seed in roster.members)
        return False
