"""Sends a message to a webhook: a POST with JSON, signed as Standard Webhooks says (as the sink of `etl` does)."""

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from node.notify.secrets_here import SenderSettings, check_url, resolved
from node.notify.teller import NotSent
from node.state.channel import Channel, url_fault
from tasks.secret import Redactor
from tasks.webhook_signing import signature, signing_keys

_log = logging.getLogger("rota.notify")

SEND_S: Final = 10.0
"""How long a receiver may take to answer."""

ANSWER_BYTES: Final = 500
"""How much of an answer is read."""


async def post(settings: SenderSettings, channel: Channel, body: Mapping[str, Any]) -> str:
    """Send `body`, whose `id` names the message. The answer, in short. Raises `NotSent`; redirects are not followed."""
    redactor = Redactor()
    url, headers, data = await asyncio.to_thread(_request, settings, channel, body, redactor)
    limits = aiohttp.ClientTimeout(total=SEND_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=limits, auto_decompress=False) as session,
            session.post(url, data=data, headers=headers, allow_redirects=False) as response,
        ):
            said = await response.content.read(ANSWER_BYTES)
    except TimeoutError:
        raise NotSent(f"the receiver did not answer within {SEND_S:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NotSent(redactor.redact_text(f"the receiver cannot be reached: {_short(str(error))}")) from None
    answer = f"{response.status} {_short(said.decode('utf-8', 'replace'))}".strip()
    answer = redactor.redact_text(answer)
    if 300 <= response.status < 400:
        raise NotSent(f"the receiver answered {response.status}, a redirect, which is not followed: change the url")
    if not 200 <= response.status < 300:
        raise NotSent(f"the receiver answered {answer}")
    return answer


def _request(
    settings: SenderSettings, channel: Channel, body: Mapping[str, Any], redactor: Redactor
) -> tuple[str, dict[str, str], bytes]:
    """The URL, headers and body. Reads secrets, and may block."""
    secret = not isinstance(channel.url, str)
    url = channel.url if isinstance(channel.url, str) else resolved(settings, channel.url, redactor).strip()
    if (fault := url_fault(url)) is not None:
        raise NotSent(f"the channel's url: {fault}")
    check_url(settings.access, url, secret=secret)
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    named, now_s = str(body["id"]), int(time.time())
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
            keys = signing_keys(resolved(settings, channel.secret, redactor))
        except ValueError as error:
            raise NotSent(f"on {settings.node}: the channel's secret: {error}") from None
        headers["webhook-signature"] = signature(keys, named, now_s, data)
    return url, headers, data


def _short(said: str) -> str:
    return " ".join(said.split())[:200]
