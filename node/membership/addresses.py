"""The addresses of the members' Raft ports: the configured ones or the agreed ones, whichever are newer.

A member states its address when it joins; from then on the replicated state holds this agreed address. The
configuration is newer only if it was edited later. In that case an operator has changed names or ports, and the member
has not joined at the new address yet.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from node.replication.proposer import MemberPort

_log = logging.getLogger("rota.membership")

Address = tuple[str, int]

AGAIN_S: Final = 10.0
"""The wait between two tries to write the addresses to the data folder."""


@dataclass(frozen=True, slots=True)
class Agreed:
    """A member's agreed address, and the address configured when it was learnt (None: no address was configured)."""

    at: Address
    configured: Address | None


class NoMember(Exception):
    """The data folder belongs to a member that has been removed."""


def at_start(me: str, configured: Mapping[str, Address], agreed: Mapping[str, Agreed]) -> dict[str, Address]:
    """Return the members' addresses to use until members answer. Raises `NoMember`."""
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
    """Return the agreed addresses to store. `now`: the addresses in the state, after the log has been replayed."""
    return {
        name: known if (known := agreed.get(name)) is not None and known.at == at else Agreed(at, configured.get(name))
        for name, at in now.items()
    }


class Addresses:
    """Reports each new address to Raft (`relocate`) and to the data folder (`keep`, which may raise OSError).

    `agreed` are the addresses that the folder held at the start.
    """

    def __init__(
        self,
        member: MemberPort,
        configured: Mapping[str, Address],
        agreed: Mapping[str, Agreed],
        relocate: Callable[[str, Address], None],
        keep: Callable[[Mapping[str, Agreed]], Awaitable[None]],
    ) -> None:
        self._port = member
        self._configured = configured
        self._agreed = dict(agreed)
        self._relocate = relocate
        self._keep = keep
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Check again, because the members have changed or this one has caught up."""
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        kept = self._agreed
        while True:
            await self._changed.wait()
            self._changed.clear()
            # While the log is replayed after a start, the state holds addresses that are no longer in use.
            if not self._port.role().ready:
                continue
            members = self._port.state().members.values()
            now = learnt(self._configured, self._agreed, {one.id: (one.host, one.raft_port) for one in members})
            for name, known in now.items():
                if name != self._port.me and self._agreed.get(name) != known:
                    self._relocate(name, known.at)
            self._agreed = now
            if now != kept:
                try:
                    await self._keep(now)
                    kept = now
                except OSError as error:
                    _log.error("cannot save the members' addresses: %s; retrying in %g s", error, AGAIN_S)
                    asyncio.get_running_loop().call_later(AGAIN_S, self._changed.set)
