"""Posts requests one after the other, each until it is acknowledged, refused, or given up for now."""

import asyncio
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from spark_tasks.contracts.sink import SinkAway, SinkUnfit
from tasks.retry_after import asked_wait_s
from tasks.webhook_signing import signature

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from aiohttp import ClientResponse, ClientSession

PATIENCE_S: Final = 180.0
"""A request that is not acknowledged within this time after its first failure is left to a later attempt."""

RETRY_AFTER_MAX_S: Final = 60.0
"""The longest wait that a server may ask for."""

SAID_CHARS: Final = 200
"""The number of characters of a server's answer that an error repeats."""

_LOOK_S: Final = 0.2
_BACKOFF_MAX_S: Final = 15.0

_LATER: Final = frozenset({408, 409, 425, 429})
"""Status codes of temporary refusals. 409: the server is still processing a request with the same key."""


@dataclass(frozen=True)
class Receiver:
    """The server that receives the requests. Secrets in `headers` are resolved; `keys`, if there are any, sign
    requests.
    """

    url: str
    headers: Mapping[str, str]
    keys: Sequence[bytes]
    timeout_s: float

    @property
    def shown(self) -> str:
        """The URL without its query, which may hold a secret."""
        return self.url.partition("?")[0]


@dataclass(frozen=True)
class Message:
    """A request: its idempotency key, its id, and its body. All three stay the same, even if the request is
    sent again.
    """

    key: str
    id: str
    body: bytes


class Delivery:
    """Posts messages over one connection. `stopped` returns True to stop before the next request."""

    def __init__(self, receiver: Receiver, stopped: Callable[[], bool], patience_s: float) -> None:
        self.receiver = receiver
        self.stopped = stopped
        self.patience_s = patience_s
        self._session: ClientSession

    @asynccontextmanager
    async def connected(self) -> "AsyncIterator[Delivery]":
        """Open the connection for `post` within the block."""
        import aiohttp

        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self.receiver.timeout_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        ) as self._session:
            yield self

    async def post(self, message: Message) -> bool:
        """Post a message until it is acknowledged. Returns False if asked to stop. Raises `SinkAway` and
        `SinkUnfit`.
        """
        import aiohttp

        failed_first_s: float | None = None
        tries = 0
        while not self.stopped():
            pause_s: float | None = None
            tries += 1
            try:
                async with self._sent(message) as response:
                    if 200 <= response.status < 300:
                        return True
                    problem = f"the server answered {response.status}: {await _said(response)}"
                    if response.status < 500 and response.status not in _LATER:
                        raise SinkUnfit(f"{self.receiver.shown}: {problem}")
                    asked_s = asked_wait_s(response.headers.get("Retry-After"), datetime.now(UTC))
                    pause_s = None if asked_s is None else min(asked_s, RETRY_AFTER_MAX_S)
            except TimeoutError:
                problem = f"no answer within {self.receiver.timeout_s:g} s"
            except (aiohttp.ClientError, OSError) as error:
                problem = without_queries(f"{type(error).__name__}: {error}")[:SAID_CHARS]
            now_s = time.monotonic()
            failed_first_s = now_s if failed_first_s is None else failed_first_s
            if pause_s is None:
                pause_s = min(0.25 * 2**tries, _BACKOFF_MAX_S) * random.uniform(0.5, 1)
            if now_s + pause_s - failed_first_s > self.patience_s:
                raise SinkAway(f"{self.receiver.shown}: {problem} (tried {tries} times)")
            await self._wait(pause_s)
        return False

    def _sent(self, message: Message) -> "AbstractAsyncContextManager[ClientResponse]":
        now_s = int(time.time())
        headers = {
            **self.receiver.headers,
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "Idempotency-Key": message.key,
            "webhook-id": message.id,
            "webhook-timestamp": str(now_s),
        }
        if self.receiver.keys:
            headers["webhook-signature"] = signature(self.receiver.keys, message.id, now_s, message.body)
        return self._session.post(self.receiver.url, data=message.body, headers=headers, allow_redirects=False)

    async def _wait(self, pause_s: float) -> None:
        until_s = time.monotonic() + pause_s
        while not self.stopped() and (left_s := until_s - time.monotonic()) > 0:  # noqa: ASYNC110  no event for stops
            await asyncio.sleep(min(_LOOK_S, left_s))


def without_queries(text: str) -> str:
    """Return the text without the queries of its URLs, which may contain secrets.

    >>> without_queries("message='Bad', url='http://hooks/in?token=x'")
    "message='Bad', url='http://hooks/in?...'"
    """
    return re.sub(r"\?[^\s'\"]+", "?...", text)


async def _said(response: "ClientResponse") -> str:
    """Return the first characters of an answer, in one line."""
    content = await response.content.read(4 * SAID_CHARS)
    text = content.decode(errors="replace")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:SAID_CHARS]
