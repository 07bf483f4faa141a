"""What members ask one another over HTTP: progress, logs, finished runs, and what kinds say of params.

Questions and answers are signed (`node.peer.signing`). Every question has a limit of its own; a member that does not
answer in time, or whose answer is not signed with the cluster's secret, is a `PeerAway`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from pydantic_core import from_json
from yarl import URL

from node.identity.cluster_id import ClusterId
from node.peer.portions import Gap, Portion, unpack_portion
from node.peer.protocol import CLUSTER, MEMBER, NoSuchLog, PeerAway, Roster, RunProgress, read_roster, url_of
from node.peer.signing import CHALLENGE, SIGNED, answer_mac, asked, member_key, same_mac
from node.state.value import State
from tasks.field_errors import FieldError

HISTORY_S: Final = 10.0

KEPT_OPEN_S: Final = 5.0
"""A connection is kept for the next question for so long: less than a member keeps it (`Patience.request_s`)."""

ANSWER_BYTES: Final = 64 * 1024 * 1024
"""An answer that is larger is not read: none of a member's is."""


class Peers:
    """Asks other members, as `me`. `state` gives the state as applied here: their addresses are in it.

    What is at such an address may be of another cluster than `cluster` by now: then it is as good as away.
    """

    def __init__(
        self, secret: str, state: Callable[[], State], cluster: ClusterId | None = None, me: str = "somebody"
    ) -> None:
        self.cluster = cluster or ClusterId()
        self._key = member_key(secret)
        self._me = me
        self._challenges: dict[str, str] = {}
        self._state = state
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections that are kept for later questions."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def progress(
        self, member: str, runs: Sequence[str], tasks: Sequence[str], timeout_s: float
    ) -> tuple[dict[str, RunProgress], dict[str, str]]:
        """How far the attempts at `runs` are, and why `tasks` wait; what is not known there is left out.

        A member of an earlier version does not say what is frozen.
        """
        answer = await self._json("POST", member, "/peer/progress", timeout_s, {"runs": runs, "tasks": tasks})
        try:
            known = {run: RunProgress(**said) for run, said in answer["progress"].items()}
            for run, since_us in answer.get("frozen", {}).items():
                known[run] = known.get(run, RunProgress())._replace(frozen_since_us=int(since_us))
            return known, dict(answer["waiting"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PeerAway(member, "its answer does not make sense") from error

    async def schema(self, member: str, kind: str, timeout_s: float) -> dict[str, Any]:
        """The JSON schema of a kind's params, from a member on which it is installed."""
        answer = await self._json("GET", member, f"/peer/kinds/{quote(kind, safe='')}", timeout_s)
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
        status, answer = await self._answer("GET", member, path, timeout_s)
        if status == 409:
            return None
        _expect_ok(member, status)
        try:
            return unpack_portion(answer)
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
        path = f"/peer/log?{query}"
        async with self._asking("GET", member, path, limits, answer_s=timeout_s) as (response, question):
            if response.status != 200:
                self._check(member, response, question, await _read(member, response))
                if response.status == 404:
                    raise NoSuchLog
            else:
                self._check(member, response, question, None)
            _expect_ok(member, response.status)
            yield response.content.iter_any()

    async def _json(self, method: str, member: str, path: str, timeout_s: float, body: Any = None) -> Any:
        status, answer = await self._answer(method, member, path, timeout_s, body)
        _expect_ok(member, status)
        try:
            return from_json(answer)
        except ValueError as error:
            raise PeerAway(member, "its answer does not make sense") from error

    async def _answer(
        self, method: str, member: str, path: str, timeout_s: float, body: Any = None
    ) -> tuple[int, bytes]:
        limits = aiohttp.ClientTimeout(total=timeout_s)
        async with self._asking(method, member, path, limits, body) as (response, question):
            answer = await _read(member, response)
            self._check(member, response, question, answer)
            return response.status, answer

    @asynccontextmanager
    async def _asking(
        self,
        method: str,
        member: str,
        path: str,
        limits: aiohttp.ClientTimeout,
        body: Any = None,
        answer_s: float | None = None,
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, str]]:
        """The answer's beginning, and the signature of the question that it is to."""
        packed = b"" if body is None else json.dumps(body).encode()
        try:
            async with asyncio.timeout(answer_s):
                response, question = await self._ask(method, member, path, limits, packed)
                if response.status == 401 and self._challenged(member, response):
                    # It has been started since, or was not asked for a while: once more, as it asks for.
                    response.close()
                    response, question = await self._ask(method, member, path, limits, packed)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PeerAway(member, str(error) or "no answer in time") from error
        try:
            if (why := self.cluster.stranger(member, response.headers.get(CLUSTER, ""))) is not None:
                raise PeerAway(member, why)
            self._challenged(member, response)
            yield response, question
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PeerAway(member, str(error) or "its answer broke off") from error
        finally:
            response.close()

    async def _ask(
        self, method: str, member: str, path: str, limits: aiohttp.ClientTimeout, body: bytes
    ) -> tuple[aiohttp.ClientResponse, str]:
        row = self._state().members.get(member)
        if row is None:
            raise PeerAway(member, "it is no member any more")
        if self._session is None:
            connector = aiohttp.TCPConnector(keepalive_timeout=KEPT_OPEN_S)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False, auto_decompress=False)
        question = asked(method, path, body, self._me, member, self.cluster.known, self._challenges.get(member))
        headers = {"Authorization": question.header(self._key), MEMBER: self._me}
        if self.cluster.known:
            headers[CLUSTER] = self.cluster.known
        if body:
            headers["Content-Type"] = "application/json"
        response = await self._session.request(
            method,
            URL(url_of(row.host, row.http_port) + path, encoded=True),  # as it is signed
            data=body or None,
            headers=headers,
            timeout=limits,
            allow_redirects=False,
        )
        return response, question.mac(self._key)

    def _challenged(self, member: str, response: aiohttp.ClientResponse) -> bool:
        """Take note of the challenge that an answer bears. Whether it is another one."""
        challenge = response.headers.get(CHALLENGE)
        if challenge is None or challenge == self._challenges.get(member):
            return False
        self._challenges[member] = challenge
        return True

    def _check(self, member: str, response: aiohttp.ClientResponse, question: str, body: bytes | None) -> None:
        """Raise `PeerAway` for an answer that nobody has signed who knows the secret."""
        if response.status == 401:
            raise PeerAway(member, "it does not take this member's signature: its ROTA_SECRET is another one")
        shown = response.headers.get(SIGNED, "")
        if not same_mac(shown, answer_mac(self._key, question, response.status, body)):
            raise PeerAway(member, f"what answers {response.status} at its address does not know the cluster's secret")


def _expect_ok(member: str, status: int) -> None:
    if status != 200:
        raise PeerAway(member, f"it answered {status}")


async def _read(member: str, response: aiohttp.ClientResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > ANSWER_BYTES:
            raise PeerAway(member, "its answer has no end")
        pieces.append(piece)
    return b"".join(pieces)
