"""An HTTP server that takes webhooks as one should: it checks signatures, and takes what has a known key only once.

It can be told to fail, before it has taken a request or after. What a sender did wrong is noted.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

KEY: Final = b"a key of 32 bytes, which signs!!"
SECRET: Final = "whsec_" + base64.b64encode(KEY).decode()

_TOLERANCE_S: Final = 300


@dataclass(frozen=True)
class Fault:
    """What happens to a request. `status` None: its connection is dropped. `taken`: it is taken all the same."""

    status: int | None
    taken: bool = False
    delay_s: float = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass
class WebhookReceiver:
    """`fault` says for each arriving request, numbered from 0, what goes wrong; `arrived` is called before it fails."""

    url: str = ""
    fault: Callable[[int], Fault | None] = lambda number: None
    arrived: Callable[[int], None] = lambda number: None
    signed: bool = True
    arrivals: int = 0
    paths: set[str] = field(default_factory=set)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    taken: dict[str, bytes] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    seen: dict[str, bytes] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        """All rows that were taken, in the order in which their requests first came."""
        return [row for body in self.taken.values() for row in json.loads(body)]

    def notices(self) -> list[dict[str, Any]]:
        """All notices in the messages of channels that were taken."""
        return [notice for body in list(self.taken.values()) for notice in json.loads(body)["notices"]]

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        number = self.arrivals
        self.arrivals += 1
        self.paths.add(request.path_qs)
        self.headers.append(dict(request.headers))
        key = request.headers.get("Idempotency-Key", "")
        self._check(key, request.headers, body)
        fault = self.fault(number)
        if fault is None or fault.taken:
            self.taken.setdefault(key, body)
        self.arrived(number)
        if fault is None:
            return web.Response(status=204)
        await asyncio.sleep(fault.delay_s)
        if fault.status is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return web.Response(status=fault.status, headers=dict(fault.headers), text=fault.text)

    def _check(self, key: str, headers: Mapping[str, str], body: bytes) -> None:
        message_id, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not key or self.ids.setdefault(key, message_id) != message_id or "." in message_id:
            self.wrong.append(f"{key!r} came with the id {message_id!r}")
        if self.seen.setdefault(key, body) != body:
            self.wrong.append(f"{key} came with another content")
        if abs(time.time() - int(sent)) > _TOLERANCE_S:
            self.wrong.append(f"{key} came at {sent}")
        made = hmac.new(KEY, f"{message_id}.{sent}.".encode() + body, hashlib.sha256).digest()
        wanted = f"v1,{base64.b64encode(made).decode()}" if self.signed else None
        if headers.get("webhook-signature") != wanted:
            self.wrong.append(f"{key} came with the signature {headers.get('webhook-signature')}")


@contextmanager
def webhook_receiver() -> Iterator[WebhookReceiver]:
    """A receiver on loopback that lasts as long as the block."""
    receiver = WebhookReceiver()
    loop = asyncio.new_event_loop()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{tail:.*}", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)

    async def start() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return int(runner.addresses[0][1])

    port = loop.run_until_complete(start())
    receiver.url = f"http://127.0.0.1:{port}/in"
    serving = threading.Thread(target=loop.run_forever, name="webhook-receiver")
    serving.start()
    try:
        yield receiver
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        serving.join()
        loop.close()
