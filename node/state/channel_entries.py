"""The entries about channels (`node.state.telling` applies them)."""

from dataclasses import dataclass
from typing import Literal

TellingEnd = Literal["accepted", "failed", "given_back"]
"""How the sending of a message ended. `given_back`: it was not sent."""


@dataclass(frozen=True, slots=True)
class PutChannel:
    """Make or change a channel: `packed` is `node.state.channel.Channel.pack()`."""

    at_us: int
    name: str
    packed: bytes


@dataclass(frozen=True, slots=True)
class DeleteChannel:
    """Delete a channel, with the notices that are not told yet."""

    at_us: int
    name: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Permit a member to send these notices of a channel, as one message.

    Accepted only if the member is up or draining in that incarnation, and no other such member has a permission for the
    channel. Result: `{"token"}`.
    """

    at_us: int
    channel: str
    keys: tuple[str, ...]
    member: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Told:
    """The message under `token` was accepted, or the try failed, or it was not sent (`given_back`).

    `dropped`: how many dropped notices it told of.
    """

    at_us: int
    channel: str
    token: int
    end: TellingEnd
    error: str = ""
    dropped: int = 0


ChannelEntry = PutChannel | DeleteChannel | Tell | Told
