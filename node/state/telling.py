"""Entries that put and delete channels, permit a member to send a message, and report how the sending ended.

As an attempt needs a claim, a message needs a permission by an entry. At most one member at a time holds the permission
for a channel. The member holds it until it reports, or is no longer up in the incarnation that got the permission.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

import msgpack
from pydantic import ValidationError

from node.state.channel import accepted_channel, channel_of
from node.state.copying import replace
from node.state.draft import DONE, Draft, refused
from node.state.entries import Entry, applies
from node.state.facts import SINCE_RULES, SINCE_RULES_OF
from node.state.outbox import (
    GIVE_UP_TRIES,
    GIVE_UP_US,
    TEXT_CHARS_MAX,
    ChannelRow,
    Permission,
    TellingResult,
    backoff_us,
    urgency,
)
from node.state.value import Result, State
from tasks.definition.spec import NAME_PATTERN

CHANNELS_MAX: Final = 100
PACKED_BYTES_MAX: Final = 16 * 1024
GIVE_UP_TRIES_RULES: Final = 3
"""From these rules on, an old notice is given up after `GIVE_UP_TRIES` failed tries; before, after the first one."""
RULES_DIGESTS: Final = 10
"""From these rules on, channels have digests (`node.state.digest`)."""
KEYS_MAX: Final = 100
"""The most notices in one message."""

TellingEnd = Literal["accepted", "failed", "given_back"]
"""How the delivery of a message ended. `given_back`: the member did not send it, and gives its permission back."""

_FAULT_CHARS_MAX: Final = 500
_NAME: Final = re.compile(NAME_PATTERN)
_NAME_RULE: Final = "1 to 128 letters, digits, '.', '_' and '-', the first a letter or a digit"


@dataclass(frozen=True, slots=True)
class PutChannel(Entry):
    """Make or change a channel: `packed` is `node.state.channel.Channel.pack()`."""

    name: str
    packed: bytes


@applies(PutChannel, code=25)
def save_channel(draft: Draft, entry: PutChannel) -> Result:
    """Make or change a channel. Its pending notices may be sent again at once. Result: `{"change", "version"}`."""
    if draft.lead.rules < SINCE_RULES:
        return refused("invalid", "some members run a version that knows no channels: update them first")
    if _NAME.fullmatch(entry.name) is None:
        return refused("invalid", f"{entry.name[:200]!r} is no name of a channel: {_NAME_RULE}")
    if (fault := _fault(entry.packed, draft.lead.rules)) is not None:
        return refused("invalid", fault)
    row = draft.channels.get(entry.name)
    if row is None:
        if len(draft.channels) >= CHANNELS_MAX:
            return refused("full", f"a cluster has {CHANNELS_MAX} channels at most: delete some")
        row = _with_digests(draft, ChannelRow(entry.name, entry.packed), entry.at_us)
        change = "created"
    elif row.packed == entry.packed:
        return Result("ok", {"change": "unchanged", "version": row.version})
    else:
        row = replace(row, packed=entry.packed, version=row.version + 1, tries=0, again_us=0)
        row = _with_digests(draft, row, entry.at_us)
        change = "changed"
    draft.channels = draft.channels.set(row.name, row)
    return Result("ok", {"change": change, "version": row.version})


def _with_digests(draft: Draft, row: ChannelRow, at_us: int) -> ChannelRow:
    """Return the row of a channel that was put. If it has digests from now on, the first is about what comes from now.

    If it had them before, the next is about what came since the last, also if it comes at another time of day.
    """
    channel = channel_of(row.packed)
    if channel.digest is None or not channel.enabled:
        return replace(row, digest_us=0, digest_index=0)
    return row if row.digest_us else replace(row, digest_us=max(1, at_us), digest_index=draft.index)


@dataclass(frozen=True, slots=True)
class DeleteChannel(Entry):
    """Delete a channel, with its pending notices."""

    name: str


@applies(DeleteChannel, code=26)
def drop_channel(draft: Draft, entry: DeleteChannel) -> Result:
    """Delete a channel, with its pending notices."""
    if entry.name not in draft.channels:
        return _no_such_channel(entry.name)
    draft.channels = draft.channels.delete(entry.name)
    return DONE


@dataclass(frozen=True, slots=True)
class Tell(Entry):
    """Permit a member to send these notices of a channel, as one message.

    Accepted only if the member is up or draining in that incarnation, and no member that is up or draining has a
    permission for the channel. Result: `{"token"}`.
    """

    #: The channel's name.
    channel: str
    #: The keys of the notices.
    keys: tuple[str, ...]
    #: The member that sends.
    member: str
    #: The member's incarnation.
    incarnation: int


@applies(Tell, code=27)
def tell(draft: Draft, entry: Tell) -> Result:
    """Permit a member to send notices as one message. Result: `{"token"}`."""
    row = draft.channels.get(entry.channel)
    if row is None:
        return _no_such_channel(entry.channel)
    member = draft.members.get(entry.member)
    if member is None:
        return refused("no-such-member", f"there is no member {entry.member!r}")
    if member.incarnation != entry.incarnation:
        return refused("incarnation", f"{member.id} is in incarnation {member.incarnation}, not {entry.incarnation}")
    if member.status == "down":
        return refused("not-up", f"{member.id} is down")
    if row.sending is not None and holds(draft, row.sending):
        return refused("held", f"{row.sending.member} is sending a message on {row.name}")
    keys = tuple(notice.key for notice in row.of(frozenset(entry.keys)))[:KEYS_MAX]
    if not keys:
        return refused("no-such-notice", f"these notices of {row.name} have been told")
    permission = Permission(draft.index, member.id, member.incarnation, keys)
    draft.channels = draft.channels.set(row.name, replace(row, sending=permission))
    return Result("ok", {"token": permission.token})


@dataclass(frozen=True, slots=True)
class Told(Entry):
    """Report whether the message under a token was sent."""

    #: The channel's name.
    channel: str
    #: The token of the permission.
    token: int
    #: Whether the message was accepted, the try failed, or the permission is given back unused.
    end: TellingEnd
    #: Why the try failed; "": it did not fail.
    error: str = ""
    #: How many dropped notices the message reported.
    dropped: int = 0
    #: How many dropped notices of successes the message reported.
    dropped_successes: int = 0


@applies(Told, code=28)
def told(draft: Draft, entry: Told) -> Result:
    """Record how a delivery ended. Result: `{"given_up"}`: the number of notices dropped after retries."""
    row = draft.channels.get(entry.channel)
    if row is None:
        return _no_such_channel(entry.channel)
    sending = row.sending
    if sending is None or sending.token != entry.token:
        return refused("fenced", f"this token is not the present one of {row.name}")
    row = replace(row, sending=None)
    notices = row.of(frozenset(sending.keys))
    given_up = 0
    if entry.end == "accepted":
        last = TellingResult(entry.at_us, sending.member, len(notices))
        dropped = max(0, row.dropped - entry.dropped)
        row = replace(row.without(notices), told=row.told + len(notices), last=last)
        successes = max(0, row.dropped_successes - entry.dropped_successes)
        row = replace(row, dropped=dropped, dropped_successes=successes, tries=0, again_us=0, failed_urgency=0)
    elif entry.end == "failed":
        last = TellingResult(entry.at_us, sending.member, len(notices), entry.error[:TEXT_CHARS_MAX])
        urgent = min((urgency(notice) for notice in notices), default=0)
        # The first failure of what is more urgent is not put off for as long as those of the less urgent were.
        tries = 1 if urgent < row.failed_urgency else row.tries + 1
        tried = tries >= GIVE_UP_TRIES or draft.lead.rules < GIVE_UP_TRIES_RULES
        old = [notice for notice in notices if tried and notice.at_us + GIVE_UP_US <= entry.at_us]
        given_up = len(old)
        if old:
            row = replace(row.without(old), given_up=row.given_up + given_up, given_up_us=entry.at_us)
        again_us = entry.at_us + backoff_us(tries)
        row = replace(row, tries=tries, failed=row.failed + 1, again_us=again_us, last=last, failed_urgency=urgent)
    draft.channels = draft.channels.set(row.name, row)
    return Result("ok", {"given_up": given_up})


def holds(state: State | Draft, permission: Permission) -> bool:
    """Whether the member that has the permission is still up in the incarnation that got it."""
    member = state.members.get(permission.member)
    return member is not None and member.incarnation == permission.incarnation and member.status != "down"


def _no_such_channel(name: str) -> Result:
    return refused("no-such-channel", f"there is no channel {name[:200]!r}")


def _fault(packed: bytes, rules: int) -> str | None:
    """Describe the fault of a packed channel under these rules; None if valid. The same on every member."""
    if len(packed) > PACKED_BYTES_MAX:
        return f"a channel has {PACKED_BYTES_MAX} bytes at most"
    try:
        channel = accepted_channel(msgpack.unpackb(packed, max_bin_len=0, max_ext_len=0))
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False)]
        return f"this is no channel: {'; '.join(faults)}"[:_FAULT_CHARS_MAX]
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        return f"this is no channel: {error}"[:_FAULT_CHARS_MAX]
    if later := [event for event in channel.events if rules < SINCE_RULES_OF.get(event, 0)]:
        return f"events: the leader's version does not know {later[0]}: update it first"
    if channel.digest is not None and rules < RULES_DIGESTS:
        return "digest: the leader's version makes no digests: update it first"
    return None
