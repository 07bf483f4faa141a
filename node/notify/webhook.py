"""Requests to receivers: webhooks, each an HTTP POST whose body is the message, and pings of the outside watcher.

Host names are resolved and secrets read in side threads, so that a call that hangs delays nothing else.
"""

import json
import socket
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from node.notify.secrets_here import SenderSettings, check_sendable, read_secrets, secret_here
from node.notify.side_thread import in_side_thread
from node.notify.teller import NotSent
from node.state.channel import Channel, url_fault
from tasks.secret import Redactor, Reference, shown
from tasks.webhook_signing import signature, signing_keys

SEND_S: Final = 10.0
"""How long a receiver may take to answer."""

ANSWER_BYTES: Final = 500
"""At most this much of an answer is read."""

LOOK_UP_S: Final = 8.0
"""How long a name server may take to answer."""


async def post(settings: SenderSettings, channel: Channel, body: Mapping[str, Any], now_s: int) -> str:
    """Send `body`, whose `id` names the message, signed as of `now_s`, in seconds since the epoch.

    Returns the receiver's answer, shortened. Raises `NotSent`.
    """
    redactor = Redactor()
    url, headers, data = await read_secrets(settings.node, lambda: _request(settings, channel, body, redactor, now_s))
    return await request("POST", url, headers, redactor, data)


def _request(
    settings: SenderSettings, channel: Channel, body: Mapping[str, Any], redactor: Redactor, now_s: int
) -> tuple[str, dict[str, str], bytes]:
    """Return the URL, headers and body of the request. Reads secrets, and may block."""
    url = allowed_url(settings, channel.url, redactor)
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    named = str(body["id"])
    headers = {
        "content-type": "application/json",
        "user-agent": "rota",
        "x-rota-node": settings.node,
        "idempotency-key": named,
        "webhook-id": named,
        "webhook-timestamp": str(now_s),
    }
    if channel.secret is not None:
        try:
            keys = signing_keys(secret_here(settings, channel.secret, redactor))
        except ValueError as error:
            raise NotSent(f"on {settings.node}: the channel's secret: {error}") from None
        headers["webhook-signature"] = signature(keys, named, now_s, data)
    return url, headers, data


def allowed_url(settings: SenderSettings, where: Reference | str, redactor: Redactor) -> str:
    """Resolve `where` to a URL. Raises `NotSent` unless the node allows it as a destination. May read a file."""
    if isinstance(where, str):
        url, named = where, "the url"
    else:
        url, named = secret_here(settings, where, redactor).strip(), f"on {settings.node}: the url in {shown(where)}"
    if (fault := url_fault(url)) is not None:
        raise NotSent(f"{named}: {fault}")
    check_sendable(settings.access, url, secret=not isinstance(where, str))
    return url


async def request(
    method: str, url: str, headers: Mapping[str, str], redactor: Redactor, data: bytes | None = None
) -> str:
    """Send a request. Returns the receiver's answer, shortened and redacted. Raises `NotSent` unless it is 2xx."""
    limits = aiohttp.ClientTimeout(total=SEND_S)
    try:
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=SideResolver()), timeout=limits, auto_decompress=False
            ) as session,
            session.request(method, url, data=data, headers=headers, allow_redirects=False) as response,
        ):
            said, status = await response.content.read(ANSWER_BYTES), response.status
    except TimeoutError:
        raise NotSent(f"the receiver did not answer within {SEND_S:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NotSent(redactor.redact_text(f"the receiver cannot be reached: {_short(str(error))}")) from None
    answer = redactor.redact_text(f"{status} {_short(said.decode('utf-8', 'replace'))}".strip())
    if 300 <= status < 400:
        raise NotSent(f"the receiver answered {status}, a redirect, which is not followed: change the url")
    if not 200 <= status < 300:
        raise NotSent(f"the receiver answered {answer}")
    return answer


async def ping(settings: SenderSettings, where: Reference | str) -> str:
    """GET a URL, given as text or as a reference to a secret. Returns the answer, shortened. Raises `NotSent`."""
    redactor = Redactor()
    url = await read_secrets(settings.node, lambda: allowed_url(settings, where, redactor))
    return await request("GET", url, {"user-agent": "rota", "x-rota-node": settings.node}, redactor)


def _short(said: str) -> str:
    return " ".join(said.split())[:200]


class SideResolver(AbstractResolver):
    """An aiohttp resolver whose look-ups run in side threads."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of `host`. Raises `OSError`."""

        def look_up() -> list[ResolveResult]:
            found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
            numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            return [
                ResolveResult(hostname=host, host=str(address[0]), port=port, family=kind, proto=proto, flags=numeric)
                for kind, _, proto, _, address in found
            ]

        try:
            return await in_side_thread(look_up, LOOK_UP_S)
        except TimeoutError:
            raise OSError(None, f"no name server answered within {LOOK_UP_S:g} s") from None

    async def close(self) -> None:
        """Do nothing, because the resolver has no open files or connections."""
