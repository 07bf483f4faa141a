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

    #: When it was proposed, in microseconds since the epoch.
    at_us: int
    #: The channel's name.
    channel: str
    #: The keys of the notices.
    keys: tuple[str, ...]
    #: The member that sends.
    member: str
    #: The member's incarnation.
    incarnation: int


@dataclass(frozen=True, slots=True)
class Told:
    """The message under a token was sent, or was not."""

    #: When it was proposed, in microseconds since the epoch.
    at_us: int
    #: The channel's name.
    channel: str
    #: The token of the permission.
    token: int
    #: Whether the message was accepted, the try failed, or the permission is given back unused.
    end: TellingEnd
    #: Why the try failed; "": it did not.
    error: str = ""
    #: How many dropped notices the message told of.
    dropped: int = 0


ChannelEntry = PutChannel | DeleteChannel | Tell | Told
