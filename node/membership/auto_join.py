"""Asks the running cluster in ROTA_MEMBERS to add this node if it is no member yet (ROTA_AUTO_JOIN), or logs the
command that adds it.

Only the new node has a setting. Any holder of the members' secret can add a member anyway, so a switch on the cluster's
side would protect nothing. The setting is off by default, so that no node joins by mistake. Even with the setting, a
member that lost its data folder does not ask, since the cluster still knows it; nor does a removed member, which finds
its removal in its folder.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from random import Random, SystemRandom
from typing import Any, Final, Protocol

from node.client import ApiProblem, Unreachable
from node.raft.founding.founding import ClusterElsewhere, Outlook
from node.runtime.aligned import sleep_to_grid
from node.state.entries import Seed

_log = logging.getLogger("rota.membership")

POLL_S: Final = 0.5
PAUSE_S: Final = 1.0
"""The first wait between two tries. It doubles up to `PAUSE_S_MAX`. The cluster makes one change of members at a time,
so if two new nodes ask, one has to ask again."""

PAUSE_S_MAX: Final = 10.0
REFUSED_S: Final = 60.0
"""The wait before the next try, after an answer that stays the same until an operator changes a setting."""

_FINAL: Final = (400, 401, 403, 404, 413, 415, 421, 422)


class JoinTarget(Protocol):
    """The part of `node.peer.join_client.JoinClient` that is used here."""

    def call(self, method: str, path: str, *, body: Any) -> Any:
        """Make one request. Raises `ApiProblem` or `Unreachable`."""


class AutoJoin:
    """Gets the node `me` added to the cluster of `listed`, its ROTA_MEMBERS.

    `asks`: whether the node asks by itself. `outlook` returns why the node waits (`node.raft.founding`). `cluster`
    makes a client for the APIs at the given URLs, which signs with the members' secret. `rng` spreads the tries of
    several nodes.
    """

    def __init__(
        self,
        me: Seed,
        listed: tuple[Seed, ...],
        asks: bool,
        outlook: Callable[[], Outlook],
        cluster: Callable[[list[str]], JoinTarget],
        sleep: Callable[[float], Awaitable[None]] = sleep_to_grid,
        rng: Random | None = None,
    ) -> None:
        self._me = me
        self._listed = listed
        self._asks = asks
        self._outlook = outlook
        self._cluster = cluster
        self._sleep = sleep
        self._rng = rng or SystemRandom()
        self._remedy = ""

    @property
    def outlook(self) -> Outlook:
        """The reason why this node waits, and the remedy: what the node does, or what an operator must do."""
        outlook = self._outlook()
        return replace(outlook, remedy=self._remedy) if isinstance(outlook, ClusterElsewhere) else outlook

    async def run(self) -> None:
        """Run until cancelled."""
        pause_s = PAUSE_S
        while True:
            outlook = self._outlook()
            if not isinstance(outlook, ClusterElsewhere) or outlook.knows_me is not False:
                known = outlook is None or (isinstance(outlook, ClusterElsewhere) and outlook.knows_me)
                if self._remedy and known:
                    self._remedy, pause_s = "", PAUSE_S
                    _log.info("%s has been added to the cluster", self._me.id)
                await self._sleep(POLL_S)
                continue
            if not self._asks:
                self._say(logging.WARNING, f"let it in with: {self._command(outlook)} (or set ROTA_AUTO_JOIN=1 here)")
                await self._sleep(POLL_S)
                continue
            again_s = await self._ask(outlook, pause_s * self._rng.uniform(0.75, 1.25))
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            await self._sleep(again_s)

    async def _ask(self, outlook: ClusterElsewhere, pause_s: float) -> float:
        """Ask once. Returns the seconds to wait before the next poll."""
        urls = [_url(seed) for seed in self._reached(outlook)]
        if not urls:
            how = f"ROTA_MEMBERS has no address of that cluster: let this node in with: {self._command(outlook)}"
            self._say(logging.WARNING, how)
            return REFUSED_S
        self._say(logging.INFO, "this node asks to be let in (ROTA_AUTO_JOIN)")
        try:
            await asyncio.to_thread(self._cluster(urls).call, "POST", "/peer/members", body=asdict(self._me))
        except ApiProblem as problem:
            if problem.status in _FINAL:
                self._say(logging.ERROR, f"this node asked to be let in, and was refused: {problem}")
                return REFUSED_S
            self._say(logging.INFO, f"this node asked to be let in, and asks again until it is: {problem}")
        except Unreachable as error:
            self._say(logging.INFO, f"this node asked to be let in, and asks again until it is: {error}")
        return pause_s

    def _reached(self, outlook: ClusterElsewhere) -> list[Seed]:
        of_it = {outlook.told_by, *outlook.members} - {self._me.id}
        return [seed for seed in self._listed if seed.id in of_it]

    def _command(self, outlook: ClusterElsewhere) -> str:
        me = self._me
        url = next((_url(seed) for seed in self._reached(outlook)), "URL-OF-A-MEMBER")
        return f"rota join {url} --id {me.id} --at {me.host}:{me.raft_port}:{me.http_port}"

    def _say(self, level: int, remedy: str) -> None:
        if self._remedy != remedy:
            self._remedy = remedy
            _log.log(level, "the cluster does not know %s: %s", self._me.id, remedy)


def _url(seed: Seed) -> str:
    host = f"[{seed.host}]" if ":" in seed.host else seed.host
    return f"http://{host}:{seed.http_port}"
