"""Sends messages by their channel's kind."""

from typing import Final

from node.duty.telling import Send
from node.notify import webhook
from node.notify.message import document
from node.notify.secrets_here import SenderSettings
from node.notify.teller import NotSent
from node.state.channel import Channel
from node.state.outbox import Notice, Permission

TEST_KEY: Final = "test"


class ChannelSender:
    """Implements `node.notify.teller.MessageSender` on the network."""

    def __init__(self, settings: SenderSettings) -> None:
        self._settings = settings

    async def send(self, cluster_id: str, message: Send) -> str:
        """Send it, within a bounded time; the receiver's answer, in short. Raises `NotSent`."""
        if message.definition.kind == "webhook":
            return await webhook.post(self._settings, message.definition, document(cluster_id, message))
        raise NotSent("there is no such kind of channel")

    async def test(self, cluster_id: str, name: str, definition: Channel, now_us: int) -> str:
        """Send a message that says that it is a test; the receiver's answer, in short. Raises `NotSent`."""
        text = f"a test of channel {name}, sent by {self._settings.node}: nothing is wrong"
        # Each test is a message of its own: receivers drop what has a known id.
        notice = Notice(f"{TEST_KEY}.{now_us}", TEST_KEY, "info", now_us, text)
        permission = Permission(0, self._settings.node, 0, (notice.key,))
        return await self.send(cluster_id, Send(name, permission, definition, (notice,), 0))
