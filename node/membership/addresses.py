"""Where the members' Raft ports are: by the configuration, by what the members last agreed on, and by what is newer.

A member says where it is when it joins, and the state has it from then on. The configuration is newer than that only
if it has been changed since: then names or ports were changed on purpose, and the member has yet to join there.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from node.raft.ports import RaftRole
from node.state.value import State

_log = logging.getLogger("rota.membership")

Address = tuple[str, int]

AGAIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Agreed:
    """Where a member is by the state, and where the configuration had it when that came to be known, if it did."""

    at: Address
    configured: Address | None


class NoMember(Exception):
    """The data folder is that of a member that has been removed."""


def at_start(me: str, configured: Mapping[str, Address], agreed: Mapping[str, Agreed]) -> dict[str, Address]:
    """Where to look for the members before any of them has been heard. Raises `NoMember`."""
    if not agreed:
        return dict(configured)
    if me not in agreed:
        raise NoMember(
            f"{me} has been removed from the cluster that its data folder remembers, which is now "
            f"{', '.join(sorted(agreed))}. To let it in again, empty the folder (ROTA_DATA), and start it with "
            "ROTA_JOIN set to the address of a member's API"
        )
    found = {}
    for name, known in agreed.items():
        wanted = configured.get(name)
        changed = wanted is not None and (name == me or wanted != known.configured)
        found[name] = wanted if changed and wanted is not None else known.at
    return found


def learnt(
    configured: Mapping[str, Address], agreed: Mapping[str, Agreed], now: Mapping[str, Address]
) -> dict[str, Agreed]:
    """What is agreed on, by a state that has all that was committed before this node started."""
    return {
        name: known if (known := agreed.get(name)) is not None and known.at == at else Agreed(at, configured.get(name))
        for name, at in now.items()
    }


class Whereabouts:
    """Keeps Raft, and the data folder, told where the members are. `agreed` is what the folder knew at the start."""

    def __init__(
        self,
        me: str,
        configured: Mapping[str, Address],
        agreed: Mapping[str, Agreed],
        state: Callable[[], State],
        role: Callable[[], RaftRole],
        relocate: Callable[[str, Address], None],
        keep: Callable[[Mapping[str, Agreed]], None],
    ) -> None:
        self._me = me
        self._configured = configured
        self._agreed = dict(agreed)
        self._state = state
        self._role = role
        self._relocate = relocate
        self._keep = keep
        self._changed = asyncio.Event()

    def stir(self) -> None:
        """The members have changed, or this one has caught up."""
        self._changed.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        kept = self._agreed
        while True:
            await self._changed.wait()
            self._changed.clear()
            # While the log of before is replayed, addresses pass by that nobody is at any more.
            if not self._role().ready:
                continue
            members = self._state().members.values()
            now = learnt(self._configured, self._agreed, {one.id: (one.host, one.raft_port) for one in members})
            for name, known in now.items():
                if name != self._me and self._agreed.get(name) != known:
                    self._relocate(name, known.at)
            self._agreed = now
            if now != kept:
                try:
                    await asyncio.to_thread(self._keep, now)
                    kept = now
                except OSError as error:
                    _log.error("cannot write down who the members are: %s; trying again", error)
                    asyncio.get_running_loop().call_later(AGAIN_S, self._changed.set)
