"""What members ask one another over HTTP: progress, logs, finished runs, and what kinds say of params.

They show a credential derived from the cluster's secret. Every question has a limit of its own; a member
that does not answer in time is a `PeerAway`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

from node.cluster_id import ClusterId
from node.history.gaps import Gap, Portion, unpack_portion
from node.http.auth import member_credential
from node.http.surface import Progress
from node.http.views import url_of
from node.state.entries import Seed
from node.state.value import State
from tasks.fields import FieldError

HISTORY_S: Final = 10.0

CLUSTER: Final = "Rota-Cluster"
"""The header with which a member says which cluster it is of, asking and answering."""

MEMBER: Final = "Rota-Member"
"""The header with which it says who it is, asking."""


class PeerAway(Exception):
    """A member does not answer, or not as it should. `member` is its id."""

    def __init__(self, member: str, why: str) -> None:
        super().__init__(f"{member} does not answer: {why}")
        self.member = member


class NoSuchLog(Exception):
    """The member that ran the attempt has no log of it (any more)."""


@dataclass(frozen=True, slots=True)
class Roster:
    """The members, as one of them knows them at `index`. `cluster_id` is empty where there is no cluster yet."""

    cluster_id: str
    index: int
    members: tuple[Seed, ...]


def roster_of(state: State) -> Roster:
    """The members of a state, by slot."""
    rows = [state.members[name] for name in state.slots if name is not None]
    seeds = tuple(Seed(row.id, row.host, row.raft_port, row.http_port) for row in rows)
    return Roster(state.cluster_id, state.index, seeds)


def read_roster(answer: Any) -> Roster:
    """A roster out of JSON. Raises `KeyError`, `TypeError` or `ValueError`."""
    seeds = [
        Seed(str(one["id"]), str(one["host"]), int(one["raft_port"]), int(one["http_port"]))
        for one in answer["members"]
    ]
    return Roster(str(answer["cluster_id"]), int(answer["index"]), tuple(seeds))


class Peers:
    """Asks other members, as `me`. `state` gives the state as applied here: their addresses are in it.

    What is at such an address may be of another cluster than `cluster` by now: then it is as good as away.
    """

    def __init__(
        self, secret: str, state: Callable[[], State], cluster: ClusterId | None = None, me: str = "somebody"
    ) -> None:
        self.cluster = cluster or ClusterId()
        self._headers = {"Authorization": f"Bearer {member_credential(secret)}", MEMBER: me}
        self._state = state
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections that are kept for later questions."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def progress(
        self, member: str, runs: Sequence[str], tasks: Sequence[str], timeout_s: float
    ) -> tuple[dict[str, Progress], dict[str, str]]:
        """How far the attempts at `runs` are, and why `tasks` wait; what is not known there is left out."""
        answer = await self._json("POST", member, "/peer/progress", timeout_s, {"runs": runs, "tasks": tasks})
        try:
            return {run: Progress(**said) for run, said in answer["progress"].items()}, dict(answer["waiting"])
        except (KeyError, TypeError, AttributeError) as error:
            raise PeerAway(member, "its answer does not make sense") from error

    async def schema(self, member: str, kind: str, timeout_s: float) -> dict[str, Any]:
        """The JSON schema of a kind's params, from a member on which it is installed."""
        answer = await self._json("GET", member, f"/peer/kinds/{kind}", timeout_s)
        if not isinstance(answer, dict):
            raise PeerAway(member, "its answer does not make sense")
        return answer

    async def check(
        self, member: str, kind: str, params: Sequence[Mapping[str, Any]], bound: Sequence[bool], timeout_s: float
    ) -> list[list[FieldError]]:
        """What is wrong with each of `params`, from a member on which the kind is installed.

        `bound` says of each whether its task is bound to one member.
        """
        body = {"kind": kind, "params": params, "bound": bound}
        answer = await self._json("POST", member, "/peer/check", timeout_s, body)
        try:
            return [[FieldError(**error) for error in errors] for errors in answer["errors"]]
        except (KeyError, TypeError) as error:
            raise PeerAway(member, "its answer does not make sense") from error

    async def roster(self, member: str, timeout_s: float) -> Roster:
        """Who the members are, as that one knows."""
        answer = await self._json("GET", member, "/peer/members", timeout_s)
        try:
            return read_roster(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise PeerAway(member, "its answer does not make sense") from error

    async def history(self, member: str, gap: Gap, timeout_s: float = HISTORY_S) -> Portion | None:
        """The first that a member has of what ended under the indexes of a gap; None if it has nothing of it."""
        path = f"/peer/history?after={gap.after}&through={gap.through}"
        async with self._asking("GET", member, path, aiohttp.ClientTimeout(total=timeout_s)) as response:
            if response.status == 409:
                return None
            self._expect_ok(member, response)
            try:
                return unpack_portion(await response.read())
            except (ValueError, TypeError) as error:
                raise PeerAway(member, "its answer does not make sense") from error

    @asynccontextmanager
    async def log(
        self, member: str, run_id: str, attempt: int, *, follow: bool, timeout_s: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """An attempt's log, in pieces, from the member that ran it. Raises `NoSuchLog` or `PeerAway` on entry.

        `timeout_s` counts until the answer begins, and between its pieces; a log that is followed may be silent for
        as long as it likes.
        """
        query = f"run_id={run_id}&attempt={attempt}&follow={'true' if follow else 'false'}"
        limits = aiohttp.ClientTimeout(total=None, sock_connect=timeout_s, sock_read=None if follow else timeout_s)
        async with self._asking("GET", member, f"/peer/log?{query}", limits, answer_s=timeout_s) as response:
            if response.status == 404:
                raise NoSuchLog
            self._expect_ok(member, response)
            yield response.content.iter_any()

    async def _json(self, method: str, member: str, path: str, timeout_s: float, body: Any = None) -> Any:
        async with self._asking(method, member, path, aiohttp.ClientTimeout(total=timeout_s), body) as response:
            self._expect_ok(member, response)
            try:
                return await response.json()
            except ValueError as error:
                raise PeerAway(member, "its answer does not make sense") from error

    def _expect_ok(self, member: str, response: aiohttp.ClientResponse) -> None:
        if response.status != 200:
            raise PeerAway(member, f"it answered {response.status}")

    @asynccontextmanager
    async def _asking(
        self,
        method: str,
        member: str,
        path: str,
        limits: aiohttp.ClientTimeout,
        body: Any = None,
        answer_s: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        row = self._state().members.get(member)
        if row is None:
            raise PeerAway(member, "it is no member any more")
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, trust_env=False)
        asking = self._session.request(
            method,
            url_of(row.host, row.http_port) + path,
            json=body,
            headers={CLUSTER: self.cluster.known} if self.cluster.known else None,
            timeout=limits,
            allow_redirects=False,
        )
        try:
            async with asyncio.timeout(answer_s):
                response = await asking
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PeerAway(member, str(error) or "no answer in time") from error
        try:
            if (why := self.cluster.stranger(member, response.headers.get(CLUSTER, ""))) is not None:
                raise PeerAway(member, why)
            yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PeerAway(member, str(error) or "its answer broke off") from error
        finally:
            response.close()
