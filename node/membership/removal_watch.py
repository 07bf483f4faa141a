"""Whether this node still belongs to its cluster: the others stop speaking to a member that they have removed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from node.membership.joining import Joining
from node.peer.protocol import PeerAway, Roster
from node.raft.ports import RaftRole
from node.state.value import State

_log = logging.getLogger("rota.membership")

LOOK_S: Final = 2.0
ALONE_LOOKS: Final = 3
"""So many looks without a leader, and the others are asked."""

FAREWELL_S: Final = 3.0
"""How long a member that was removed goes on voting: until its removal from Raft is committed."""

ASK_S: Final = 2.0


class Removed(Exception):
    """This node is no member of its cluster any more."""


class Roll(Protocol):
    """Tells who belongs to the cluster: `node.peer.client.Peers`."""

    async def roster(self, member: str, timeout_s: float) -> Roster:
        """The members, as another one knows them. Raises `PeerAway`."""


class Belonging:
    """Looks now and then."""

    def __init__(
        self,
        me: str,
        state: Callable[[], State],
        role: Callable[[], RaftRole],
        joining: Joining,
        roll: Roll,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._me = me
        self._state = state
        self._role = role
        self._joining = joining
        self._roll = roll
        self._sleep = sleep
        self._alone = 0
        self._said = False

    async def run(self) -> None:
        """Serve until this node has been removed: raises `Removed`."""
        while True:
            await self._sleep(LOOK_S)
            if await self._removed():
                _log.warning("%s has been removed from the cluster", self._me)
                await self._sleep(FAREWELL_S)
                raise Removed(f"{self._me} has been removed from the cluster, and its data folder is of no more use")

    async def _removed(self) -> bool:
        state, role = self._state(), self._role()
        if not state.cluster_id:
            return False
        self._alone = 0 if role.leader else self._alone + 1
        if self._alone >= ALONE_LOOKS:
            self._alone = 0
            return await self._others_say_so(state)
        if self._me in state.members:
            return False
        joined = self._joining.has_joined  # not its incarnation: who is being removed has resigned by now
        if not joined and role.ready and not self._said:
            self._said = True
            _log.error(
                "this cluster has no member called %s; its members are %s. ROTA_MEMBERS must be the same on every node "
                "of a first start; let another one in with: rota join",
                self._me,
                ", ".join(sorted(state.members)),
            )
        return joined

    async def _others_say_so(self, state: State) -> bool:
        """Whether another member knows of the removal, or of one; what is known here is known to be no later."""
        for member in sorted(state.members):
            if member == self._me:
                continue
            try:
                roster = await self._roll.roster(member, ASK_S)
            except PeerAway:
                continue
            if roster.index >= state.index and roster.cluster_id == state.cluster_id:
                return all(seed.id != self._me for seed in roster.members)
        return False
