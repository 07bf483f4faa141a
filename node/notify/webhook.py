"""Sends a message to a webhook: a POST with JSON, signed as Standard Webhooks says (as the sink of `etl` does)."""

import json
from collections.abc import Mapping
from typing import Any

from node.notify.http_request import allowed_url, request
from node.notify.secrets_here import SenderSettings, read_secrets, secret_here
from node.notify.teller import NotSent
from node.state.channel import Channel
from tasks.secret import Redactor
from tasks.webhook_signing import signature, signing_keys


async def post(settings: SenderSettings, channel: Channel, body: Mapping[str, Any], now_s: int) -> str:
    """Send `body`, whose `id` names the message, signed as of `now_s`, in seconds since the epoch.

    The answer, in short. Raises `NotSent`.
    """
    redactor = Redactor()
    url, headers, data = await read_secrets(settings.node, lambda: _request(settings, channel, body, redactor, now_s))
    return await request("POST", url, headers, redactor, data)


def _request(
    settings: SenderSettings, channel: Channel, body: Mapping[str, Any], redactor: Redactor, now_s: int
) -> tuple[str, dict[str, str], bytes]:
    """The URL, headers and body. Reads secrets, and may block."""
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
