"""How many messages are sent at a time."""

import asyncio
from pathlib import Path

import pytest

from node.duty.telling import Send
from node.notify import sender
from node.notify.secrets_here import SenderSettings
from node.notify.sender import APPRISE_MAX, ChannelSender
from node.state.channel import Channel
from tasks.access import Access


def test_a_storm_on_many_channels_starts_some_processes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"now": 0, "most": 0, "all": 0}

    async def send(_: SenderSettings, cluster_id: str, message: Send) -> str:
        counts["now"] += 1
        counts["most"] = max(counts["most"], counts["now"])
        await asyncio.sleep(0)
        counts["now"] -= 1
        counts["all"] += 1
        return "accepted"

    monkeypatch.setattr(sender, "send_by_apprise", send)
    channel = Channel.model_validate({"kind": "apprise", "url": {"secret": "mail"}})

    async def storm() -> None:
        sends = ChannelSender(SenderSettings("a", Access("a"), Path()), lambda: 0)
        await asyncio.gather(*(sends.test("c", f"ops-{number}", channel, 0) for number in range(100)))

    asyncio.run(storm())
    assert (counts["most"], counts["all"]) == (APPRISE_MAX, 100)
