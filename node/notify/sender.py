"""Sends messages by their channel's kind."""

import asyncio
from collections.abc import Callable
from typing import Final

from node.duty.telling import Send
from node.notify import webhook
from node.notify.by_apprise import send_by_apprise
from node.notify.message import document
from node.notify.secrets_here import SenderSettings
from node.notify.webhook import ping
from node.state.channel import Channel
from node.state.outbox import Notice, Permission
from tasks.secret import Reference

TEST_KEY: Final = "test"

APPRISE_MAX: Final = 8
"""The most messages sent by Apprise at a time. Each has a process, which takes 55 MB and half a second of a core."""


class ChannelSender:
    """Implements `node.notify.teller.MessageSender` on the network. `now_us` is the clock that the members agree on."""

    def __init__(self, settings: SenderSettings, now_us: Callable[[], int]) -> None:
        self._settings, self._now_us = settings, now_us
        self._apprise = asyncio.Semaphore(APPRISE_MAX)

    async def send(self, cluster_id: str, message: Send) -> str:
        """Send a message. Returns the receiver's answer, shortened. Raises `NotSent`.

        The time limit does not include the wait until earlier messages have been sent by Apprise.
        """
        if message.definition.kind == "webhook":
            now_s = self._now_us() // 1_000_000
            return await webhook.post(self._settings, message.definition, document(cluster_id, message), now_s)
        async with self._apprise:
            return await send_by_apprise(self._settings, cluster_id, message)

    async def ping(self, where: Reference | str) -> str:
        """Ping the outside watcher at its URL. Returns its answer, shortened. Raises `NotSent`."""
        return await ping(self._settings, where)

    async def test(self, cluster_id: str, name: str, definition: Channel, now_us: int) -> str:
        """Send a message that says that it is a test. Returns the receiver's answer, shortened. Raises `NotSent`."""
        text = f"a test of channel {name}, sent by {self._settings.node}: nothing is wrong"
        # Each test needs an id of its own, because receivers drop a message whose id they know.
        notice = Notice(f"{TEST_KEY}.{now_us}", TEST_KEY, "info", now_us, text)
        permission = Permission(0, self._settings.node, 0, (notice.key,))
        return await self.send(cluster_id, Send(name, permission, definition, (notice,), 0))
