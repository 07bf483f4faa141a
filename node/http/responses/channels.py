"""Channels, and how sending on them goes."""

from typing import Any

from typing_extensions import TypedDict

from node.http.responses.common import Cursor, Time


class LastMessageView(TypedDict):
    """The last try to send a message. `error` null: it was accepted."""

    at: Time
    node: str
    notices: int
    error: str | None


class ChannelView(TypedDict):
    """A channel: its definition without defaults left out, and how sending goes.

    `sender` is the member that sends the next message, `sending` the one that is sending now. `waiting` notices are not
    told yet, the oldest of them `waiting_since`; `failures` tries failed in a row, and the next one begins at
    `retry_at`. `told`, `given_up` and `dropped` count notices since the channel was made: those that were accepted,
    those that could not be sent for a day, and those that had no room.
    """

    name: str
    version: int
    definition: dict[str, Any]
    sender: str | None
    sending: str | None
    waiting: int
    waiting_since: Time | None
    failures: int
    retry_at: Time | None
    told: int
    given_up: int
    given_up_at: Time | None
    dropped: int
    last: LastMessageView | None


class ChannelPage(TypedDict):
    """Channels, by name."""

    items: list[ChannelView]
    next: Cursor


class ChannelTestView(TypedDict):
    """A test message was accepted: which node sent it, and the receiver's answer.

    `tasks` is the number of tasks that have the channel's labels; null: it has none, and is told of all tasks.
    """

    node: str
    answer: str
    tasks: int | None
