"""Requests of one member to another: progress, logs, finished runs, bootstraps, and checks of params.

Requests and responses are signed (`node.peer.signing`). Every request has a time limit; if a member does not answer in
time, or its response is not signed with the cluster's secret, `PeerAway` is raised.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from pydantic_core import from_json
from yarl import URL

from node.duty.hold import Hold
from node.identity.cluster_id import ClusterId
from node.identity.mismatches import ONE_BUILD
from node.peer.bootstrap import Bootstrap
from node.peer.portions import Gap, Portion, unpack_portion
from node.peer.protocol import (
    CLUSTER,
    MEMBER,
    NoSuchLog,
    PeerAway,
    Roster,
    RunProgress,
    read_progress,
    read_roster,
    url_of,
)
from node.peer.signing import CHALLENGE, SIGNED, is_of_this_form, macs_equal, new_request, response_mac, signing_key
from node.state.value import State
from tasks.definition.field_errors import FieldError

HISTORY_S: Final = 10.0
"""The time limit of a request for finished runs, in seconds."""

KEEPALIVE_S: Final = 5.0
"""Seconds for which an idle connection is kept: less than a member keeps it (`ConnectionTimeouts.request_s`)."""

RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest response that is accepted; no member sends a larger one."""

_INVALID: Final = "its answer is invalid"


class PeerClient:
    """Sends requests to other members, as the member `me`.

    `state` returns the newest state, which has their addresses. If the process at such an address belongs to another
    cluster than `cluster`, requests to it raise `PeerAway`.
    """

    def __init__(
        self, secret: str, state: Callable[[], State], cluster: ClusterId | None = None, me: str = "unnamed"
    ) -> None:
        self.cluster = cluster or ClusterId()
        self._key = signing_key(secret)
        self._me = me
        self._challenges: dict[str, str] = {}
        self._state = state
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the idle connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def progress(
        self, member: str, runs: Sequence[str], tasks: Sequence[str], timeout_s: float
    ) -> tuple[dict[str, RunProgress], dict[str, Hold]]:
        """Return the progress of the attempts of `runs` on a member, and what holds `tasks` there, if it knows."""
        answer = await self._json("POST", member, "/peer/progress", timeout_s, {"runs": runs, "tasks": tasks})
        try:
            return read_progress(answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PeerAway(member, _INVALID) from error

    async def schema(self, member: str, kind: str, timeout_s: float) -> dict[str, Any]:
        """Return the JSON schema of a kind's params, from a member on which it is installed."""
        answer = await self._json("GET", member, f"/peer/kinds/{quote(kind, safe='')}", timeout_s)
        if not isinstance(answer, dict):
            raise PeerAway(member, _INVALID)
        return answer

    async def unoffered(self, member: str, kind: str, timeout_s: float) -> str | None:
        """Return why a member does not offer a kind; None if it does."""
        answer = await self._json("GET", member, f"/peer/kinds/{quote(kind, safe='')}/offer", timeout_s)
        try:
            why = answer["why_not"]
        except (KeyError, TypeError) as error:
            raise PeerAway(member, _INVALID) from error
        return None if why is None else str(why)

    async def check(
        self,
        member: str,
        kind: str,
        params: Sequence[Mapping[str, Any]],
        bound: Sequence[bool],
        timeout_s: float,
        others: Sequence[Mapping[str, Any] | None] = (),
    ) -> list[list[FieldError]]:
        """Return the errors of each item of `params`, from a member on which the kind is installed.

        `bound` says for each item whether its task is bound to one member; `others`, what it is for another occurrence.
        """
        body = {"kind": kind, "params": params, "bound": bound}
        if any(other is not None for other in others):
            body["others"] = others  # members of earlier versions know no such field
        answer = await self._json("POST", member, "/peer/check", timeout_s, body)
        try:
            return [[FieldError(**error) for error in errors] for errors in answer["errors"]]
        except (KeyError, TypeError) as error:
            raise PeerAway(member, _INVALID) from error

    async def roster(self, member: str, timeout_s: float) -> Roster:
        """Return the members, as `member` knows them."""
        answer = await self._json("GET", member, "/peer/members", timeout_s)
        try:
            return read_roster(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise PeerAway(member, _INVALID) from error

    async def history(self, member: str, gap: Gap, timeout_s: float = HISTORY_S) -> Portion | None:
        """Return the first portion that a member has of the finished runs in a gap; None if it has none of them."""
        path = f"/peer/history?after={gap.after}&through={gap.through}"
        status, answer = await self._response("GET", member, path, timeout_s)
        if status == 409:
            return None
        _expect_ok(member, status)
        try:
            return unpack_portion(answer)
        except (ValueError, TypeError) as error:
            raise PeerAway(member, _INVALID) from error

    async def tell_bootstrap(self, member: str, bootstrap: Bootstrap, timeout_s: float) -> None:
        """Send a member the progress of this member's bootstrap. Raises `PeerAway`."""
        status, _ = await self._response("POST", member, "/peer/bootstrap", timeout_s, asdict(bootstrap))
        if status != 204:
            raise PeerAway(member, f"it answered {status}")

    @asynccontextmanager
    async def log(
        self,
        member: str,
        run_id: str,
        attempt: int,
        *,
        follow: bool,
        timeout_s: float,
        tail_bytes: int | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield an attempt's log, or its last `tail_bytes`, in pieces, from the member that ran it.

        Raises `NoSuchLog` or `PeerAway` on entry.

        `timeout_s` limits the time until the response begins, and between its pieces; a followed log may be silent for
        any time.
        """
        query = f"run_id={run_id}&attempt={attempt}&follow={'true' if follow else 'false'}"
        if tail_bytes is not None:
            query += f"&tail_bytes={tail_bytes}"
        limits = aiohttp.ClientTimeout(total=None, sock_connect=timeout_s, sock_read=None if follow else timeout_s)
        path = f"/peer/log?{query}"
        async with self._request("GET", member, path, limits, begin_s=timeout_s) as (response, request_mac):
            if response.status != 200:
                self._verify(member, response, request_mac, await _read(member, response))
                if response.status == 404:
                    raise NoSuchLog
            else:
                self._verify(member, response, request_mac, None)
            _expect_ok(member, response.status)
            yield response.content.iter_any()

    async def _json(self, method: str, member: str, path: str, timeout_s: float, body: Any = None) -> Any:
        status, answer = await self._response(method, member, path, timeout_s, body)
        _expect_ok(member, status)
        try:
            return from_json(answer)
        except ValueError as error:
            raise PeerAway(member, _INVALID) from error

    async def _response(
        self, method: str, member: str, path: str, timeout_s: float, body: Any = None
    ) -> tuple[int, bytes]:
        limits = aiohttp.ClientTimeout(total=timeout_s)
        async with self._request(method, member, path, limits, body) as (response, request_mac):
            answer = await _read(member, response)
            self._verify(member, response, request_mac, answer)
            return response.status, answer

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        member: str,
        path: str,
        limits: aiohttp.ClientTimeout,
        body: Any = None,
        begin_s: float | None = None,
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, str]]:
        """Send a signed request. Yields the response, with its body still to be read, and the request's signature."""
        packed = b"" if body is None else json.dumps(body).encode()
        try:
            async with asyncio.timeout(begin_s):
                response, request_mac = await self._send(method, member, path, limits, packed)
                if response.status == 401 and self._new_challenge(member, response):
                    # The known challenge has expired, or the member was restarted: sign again with the new one.
                    response.close()
                    response, request_mac = await self._send(method, member, path, limits, packed)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise PeerAway(member, str(error) or "timed out") from error
        try:
            if (why := self.cluster.stranger(member, response.headers.get(CLUSTER, ""))) is not None:
                raise PeerAway(member, why)
            self._new_challenge(member, response)
            yield response, request_mac
        except (aiohttp.ClientError, TimeoutError) as error:
            raise PeerAway(member, str(error) or "its answer is incomplete") from error
        finally:
            response.close()

    async def _send(
        self, method: str, member: str, path: str, limits: aiohttp.ClientTimeout, body: bytes
    ) -> tuple[aiohttp.ClientResponse, str]:
        row = self._state().members.get(member)
        if row is None:
            raise PeerAway(member, "it is not a member any more")
        if self._session is None:
            connector = aiohttp.TCPConnector(keepalive_timeout=KEEPALIVE_S)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False, auto_decompress=False)
        request = new_request(method, path, body, self._me, member, self.cluster.known, self._challenges.get(member))
        headers = {"Authorization": request.header(self._key), MEMBER: self._me}
        if self.cluster.known:
            headers[CLUSTER] = self.cluster.known
        if body:
            headers["Content-Type"] = "application/json"
        response = await self._session.request(
            method,
            URL(url_of(row.host, row.http_port) + path, encoded=True),  # exactly the path that is signed
            data=body or None,
            headers=headers,
            timeout=limits,
            allow_redirects=False,
        )
        return response, request.mac(self._key)

    def _new_challenge(self, member: str, response: aiohttp.ClientResponse) -> bool:
        """Keep the challenge in a response. Returns whether it differs from the one that was kept before."""
        challenge = response.headers.get(CHALLENGE)
        if challenge is None or challenge == self._challenges.get(member):
            return False
        self._challenges[member] = challenge
        return True

    def _verify(self, member: str, response: aiohttp.ClientResponse, request_mac: str, body: bytes | None) -> None:
        """Raise `PeerAway` for a response that is not signed with the cluster's secret."""
        if response.status == 401 and not is_of_this_form(response.headers.get(CHALLENGE, "")):
            raise PeerAway(member, f"it runs another build, which signs requests in another form: {ONE_BUILD}")
        if response.status == 401:
            raise PeerAway(member, "it rejects this member's signature: its ROTA_SECRET is another one")
        shown = response.headers.get(SIGNED, "")
        if not macs_equal(shown, response_mac(self._key, request_mac, response.status, body)):
            raise PeerAway(
                member, f"the process at its address (status {response.status}) does not know the cluster's secret"
            )


def _expect_ok(member: str, status: int) -> None:
    if status != 200:
        raise PeerAway(member, f"it answered {status}")


async def _read(member: str, response: aiohttp.ClientResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > RESPONSE_BYTES_MAX:
            raise PeerAway(member, f"its answer is larger than {RESPONSE_BYTES_MAX} bytes")
        pieces.append(piece)
    return b"".join(pieces)
