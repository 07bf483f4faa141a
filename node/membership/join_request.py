"""Asks a running cluster for its members, and to add this new node to them (ROTA_JOIN)."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from node.client import ApiProblem, Unreachable
from node.peer.protocol import Roster, read_roster
from node.state.entries import Seed

_log = logging.getLogger("rota.membership")

PAUSE_S: Final = 0.5
TRIES: Final = 120

_FINAL: Final = (400, 401, 404, 413, 415, 421, 422)
"""Statuses of answers that a retry does not change."""


class NotLetIn(Exception):
    """The cluster does not add this node. The message says why, and how to fix it."""


class ClusterApi(Protocol):
    """The part of `node.client.Client` that is used here."""

    def get(self, path: str) -> Any:
        """Return the body of a GET. Raises `ApiProblem` or `Unreachable`."""

    def call(self, method: str, path: str, *, body: Any) -> Any:
        """Make one request. Raises `ApiProblem` or `Unreachable`."""


def let_in_as(
    node: str, url: str, cluster: ClusterApi, sleep: Callable[[float], None] = time.sleep, tries: int = TRIES
) -> Seed:
    """Return the address of `node` from the cluster at `url`, to which an operator added the node before its start.

    Raises `NotLetIn`.
    """
    for one in _founded(node, url, cluster, sleep, tries).members:
        if one.id == node:
            return one
    raise NotLetIn(
        f"the cluster at ROTA_JOIN={url} does not know {node}, and ROTA_MEMBERS does not say where it will be: let it "
        f"in first (rota join {url} --id {node} --at host:raftport:httpport), or set "
        f"ROTA_MEMBERS={node}=host:raftport:httpport as well"
    )


class JoinRequest:
    """Asks the cluster at `url` to add `me`.

    `cluster` signs with the members' secret, so a wrong secret is detected at once.
    """

    def __init__(self, me: Seed, url: str, cluster: ClusterApi) -> None:
        self._me = me
        self._url = url
        self._cluster = cluster
        self.cluster_id = ""
        """The cluster's id, once `members` has returned."""

    def members(self, sleep: Callable[[float], None] = time.sleep, tries: int = TRIES) -> tuple[Seed, ...]:
        """Return the members of the cluster, with `me` at the end if it is no member yet. Blocks. Raises `NotLetIn`."""
        roster = _founded(self._me.id, self._url, self._cluster, sleep, tries)
        self.cluster_id = roster.cluster_id
        return roster.members if self._among(roster) else (*roster.members, self._me)

    async def enter(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, tries: int = TRIES) -> None:
        """Ask to be added. Raises `NotLetIn`.

        Call it when this node's Raft already listens. The second member of two is needed for a majority as soon as it
        is added, so the cluster has no quorum until that member's Raft takes part.
        """
        why = ""
        for _ in range(tries):
            try:
                await asyncio.to_thread(self._ask)
                return
            except (ApiProblem, Unreachable) as error:
                why = str(error)  # a change is under way, or its outcome is unknown: retry
            await sleep(PAUSE_S)
        raise _not_in_time(self._me.id, self._url, why)

    def _ask(self) -> None:
        if self._among(_roster(self._url, self._cluster)):
            return
        _log.info("asking the cluster at %s to let %s in", self._url, self._me.id)
        me = self._me
        body = {"id": me.id, "host": me.host, "raft_port": me.raft_port, "http_port": me.http_port}
        try:
            self._cluster.call("POST", "/peer/members", body=body)
        except ApiProblem as problem:
            if problem.status in _FINAL:
                raise NotLetIn(
                    f"the cluster at ROTA_JOIN={self._url} does not let this node in: {problem}"
                ) from problem
            raise

    def _among(self, roster: Roster) -> bool:
        """Whether `me` is a member. Raises `NotLetIn` if another node has its name or its address."""
        me = self._me
        for one in roster.members:
            if one.id == me.id and one != me:
                raise NotLetIn(
                    f"{me.id} is a member already, at {one.host}:{one.raft_port}:{one.http_port}: set this address in "
                    "ROTA_MEMBERS, choose another id (ROTA_NODE), or remove that member first (rota remove)"
                )
            if one.id != me.id and (one.host, one.raft_port) == (me.host, me.raft_port):
                raise NotLetIn(f"{me.host}:{me.raft_port} is where {one.id} is: choose another port in ROTA_MEMBERS")
        return me in roster.members


def _founded(node: str, url: str, cluster: ClusterApi, sleep: Callable[[float], None], tries: int) -> Roster:
    """Return the members once the cluster is founded. Raises `NotLetIn` if `tries` requests find it not founded."""
    why = ""
    for turn in range(tries):
        try:
            roster = _roster(url, cluster)
            if roster.cluster_id:
                return roster
            why = "it has no members yet"
        except Unreachable as error:
            why = str(error)
        if turn == 0:
            _log.warning("ROTA_JOIN=%s: %s; asking again for %.0f s", url, why, (tries - 1) * PAUSE_S)
        sleep(PAUSE_S)
    raise _not_in_time(node, url, why)


def _roster(url: str, cluster: ClusterApi) -> Roster:
    try:
        return read_roster(cluster.get("/peer/members"))
    except ApiProblem as problem:
        if problem.status == 401:
            raise NotLetIn(
                f"the cluster at ROTA_JOIN={url} has another secret: set ROTA_SECRET to that of its members"
            ) from problem
        raise NotLetIn(f"the server at ROTA_JOIN={url} is no member of a cluster: {problem}") from problem
    except (KeyError, TypeError, ValueError) as error:
        raise NotLetIn(f"the server at ROTA_JOIN={url} is no member of a cluster: {error!r}") from error


def _not_in_time(node: str, url: str, why: str) -> NotLetIn:
    return NotLetIn(f"ROTA_JOIN={url}: the cluster did not let {node} in: {why}")
