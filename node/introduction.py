"""A new node asks a running cluster to let it in (ROTA_JOIN): who the members are, and to be one of them."""

import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from node.cli.client import Problem, Unreachable
from node.peers import Roster, read_roster
from node.state.entries import Seed

_log = logging.getLogger("rota.membership")

PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.5

_FINAL: Final = (400, 401, 404, 413, 415, 421, 422)
"""Answers that stay the same when one asks again."""


class NotLetIn(Exception):
    """The cluster does not take this node. The message says why, and what to do."""


class Cluster(Protocol):
    """What is needed of `node.cli.client.Client`."""

    def get(self, path: str) -> Any:
        """The body of a GET. Raises `Problem` or `Unreachable`."""

    def call(self, method: str, path: str, *, body: Any) -> Any:
        """One request. Raises `Problem` or `Unreachable`."""


def introduce(
    me: Seed,
    url: str,
    cluster: Cluster,
    sleep: Callable[[float], None] = time.sleep,
    tries: int = int(PATIENCE_S / PAUSE_S),
) -> tuple[Seed, ...]:
    """The members of the cluster at `url`, `me` among them: it is added if it is none yet. Raises `NotLetIn`.

    `cluster` shows the members' credential, so that it is known beforehand whether the secrets are the same.
    """
    why = ""
    for _ in range(tries):
        try:
            roster = _roster(cluster)
            if roster.cluster_id:
                if _among(me, roster):
                    return roster.members
                _log.info("asking the cluster at %s to let %s in", url, me.id)
                body = {"id": me.id, "host": me.host, "raft_port": me.raft_port, "http_port": me.http_port}
                cluster.call("POST", "/v1/members", body=body)
                continue
            why = "it has no members yet"
        except Problem as problem:
            if problem.status in _FINAL:
                raise NotLetIn(_said(url, problem)) from problem
            why = str(problem)  # a change is under way, or its outcome is unknown: look again
        except Unreachable as error:
            why = str(error)
        sleep(PAUSE_S)
    raise NotLetIn(f"ROTA_JOIN={url}: the cluster did not let {me.id} in: {why}")


def _roster(cluster: Cluster) -> Roster:
    try:
        return read_roster(cluster.get("/peer/members"))
    except (KeyError, TypeError, ValueError) as error:
        raise NotLetIn(f"what answers at ROTA_JOIN is no member of a cluster: {error!r}") from error


def _among(me: Seed, roster: Roster) -> bool:
    """Whether `me` is a member. Raises `NotLetIn` where somebody else is in its place."""
    for one in roster.members:
        if one.id == me.id and one != me:
            raise NotLetIn(
                f"{me.id} is a member already, at {one.host}:{one.raft_port}:{one.http_port}: say so in ROTA_MEMBERS, "
                "choose another id (ROTA_NODE), or remove that member first (rota remove)"
            )
        if one.id != me.id and (one.host, one.raft_port) == (me.host, me.raft_port):
            raise NotLetIn(f"{me.host}:{me.raft_port} is where {one.id} is: choose another port in ROTA_MEMBERS")
    return me in roster.members


def _said(url: str, problem: Problem) -> str:
    if problem.status == 401:
        return f"the cluster at ROTA_JOIN={url} has another secret: set ROTA_SECRET to that of its members"
    return f"the cluster at ROTA_JOIN={url} does not let this node in: {problem}"
