"""Notices, kept by channel until they are sent, as values in the replicated state. Pure.

`apply` makes a notice for each channel that wants it, as a part of applying the entry by which the event happened. So a
crash loses no notice, and no notice is made twice.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgpack
from immutables import Map

from node.state.channel import Severity, channel_of
from node.state.copying import replace

NOTICES_MAX: Final = 500
"""The most notices of one channel that are kept. Beyond it the oldest are dropped, those of successes before all
others; the next message says how many."""

URGENCY: Final[dict[str, int]] = {"digest": 1, "run_succeeded": 2}
"""How urgent events are; 0, the most urgent: all others. What is less urgent is sent later, and dropped earlier."""

NOTICES_BYTES_MAX: Final = 256 * 1024
"""The most bytes of notices of one channel that are kept."""

TEXT_CHARS_MAX: Final = 400
"""The length to which a notice's text is cut."""

GIVE_UP_US: Final = 24 * 3600 * 1_000_000
"""The age at which a notice that could not be sent is given up."""

GIVE_UP_TRIES: Final = 6
"""How many tries in a row must fail, at least, before a notice is given up. They take a minute. Age alone is not
enough, since the cluster itself may have been down for a day."""

BACKOFF_US: Final = 2_000_000
BACKOFF_US_MAX: Final = 300_000_000
"""The bounds of the pause after a message could not be sent. It doubles with each failure in a row."""

_NOTICE_BYTES: Final = 128


@dataclass(frozen=True, slots=True)
class Fact:
    """An event of a task, of a member or of the cluster that may be worth telling."""

    #: The code of the event.
    event: str
    #: How severe the event is.
    severity: Severity
    #: When it happened, in microseconds since the epoch.
    at_us: int
    #: A sentence that says what happened.
    text: str
    #: The task; "": the fact is of no task.
    task: str = ""
    #: The member; "": no member is named.
    member: str = ""
    #: The run; "": no run is named.
    run_id: str = ""
    #: The labels of the task; None: the fact is of no task.
    labels: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """A fact that waits to be sent on one channel."""

    #: The key of the fact, by which receivers recognize a repeated notice.
    key: str
    #: The code of the event.
    event: str
    #: How severe the event is.
    severity: Severity
    #: When it happened, in microseconds since the epoch.
    at_us: int
    #: A sentence of at most `TEXT_CHARS_MAX` characters that says what happened.
    text: str
    #: The task; "": the fact is of no task.
    task: str = ""
    #: The member; "": no member is named.
    member: str = ""
    #: The run; "": no run is named.
    run_id: str = ""
    #: Of a digest, its figures as JSON values; None: it is no digest.
    figures: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TellingResult:
    """How the last try to send a message ended. `error` None: it was accepted."""

    at_us: int
    member: str
    notices: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Permission:
    """`member` in `incarnation` may send the notices `keys` as one message, under `token`."""

    token: int
    member: str
    incarnation: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """A channel, and its pending notices."""

    #: The channel's name.
    name: str
    #: The definition: `Channel.pack()`.
    packed: bytes
    #: The version of the definition, from 1.
    version: int = 1
    #: The permission to send the message in flight; None: no message is in flight.
    sending: Permission | None = None
    #: How many messages failed in a row.
    tries: int = 0
    #: The earliest time for the next message, in microseconds since the epoch.
    again_us: int = 0
    #: How many notices were dropped, for lack of room, since the last message that was accepted.
    dropped: int = 0
    #: How many notices were told (sent and accepted) since the channel was made.
    told: int = 0
    #: How many messages failed since the channel was made.
    failed: int = 0
    #: How many notices were given up since the channel was made.
    given_up: int = 0
    #: How many notices were dropped, for lack of room, since the channel was made.
    lost: int = 0
    #: How the last try to send a message ended; None: there was no try.
    last: TellingResult | None = None
    #: When a notice was last given up, in microseconds since the epoch; None: no notice was given up.
    given_up_us: int | None = None
    #: The pending notices, oldest first.
    notices: tuple[Notice, ...] = ()
    #: The size of `notices`, in bytes.
    notices_bytes: int = 0
    #: How many notices of successes were dropped, for lack of room, since the last message that was accepted. They are
    #: not among `dropped`.
    dropped_successes: int = 0
    #: How many notices of successes were dropped, for lack of room, since the channel was made; not among `lost`.
    lost_successes: int = 0
    #: Of the last message that failed, how urgent its most urgent notice was (`urgency`). The pause after it holds back
    #: nothing that is more urgent.
    failed_urgency: int = 0
    #: The time of the channel's last digest, or since when it has digests, in microseconds since the epoch; 0: it has
    #: none.
    digest_us: int = 0
    #: The index of the last entry that its last digest is about.
    digest_index: int = 0

    def of(self, keys: Collection[str]) -> tuple[Notice, ...]:
        """Return the channel's notices that have these keys, oldest first."""
        return tuple(notice for notice in self.notices if notice.key in keys)

    def without(self, gone: Iterable[Notice]) -> "ChannelRow":
        """Return the row without these notices."""
        keys = {notice.key for notice in gone}
        left = tuple(notice for notice in self.notices if notice.key not in keys)
        return replace(self, notices=left, notices_bytes=sum(map(notice_bytes, left)))


Channels = Map[str, ChannelRow]


def urgency(notice: Notice) -> int:
    """Return how urgent a notice is, by its event: 0 is the most urgent."""
    return URGENCY.get(notice.event, 0)


def notice_bytes(notice: Notice) -> int:
    """Return the approximate size of a notice in a snapshot."""
    texts = sum(len(part.encode()) for part in (notice.text, notice.task, notice.member, notice.run_id))
    return _NOTICE_BYTES + texts + (0 if notice.figures is None else len(msgpack.packb(notice.figures)))


def with_fact(channels: Channels, fact: Fact, key: str) -> Channels:
    """Add a notice of `fact` to each channel that wants it. Returns all channels."""
    labels = None if fact.labels is None else dict(fact.labels)
    what = fact.event, fact.severity, labels
    wanting = [name for name, row in channels.items() if channel_of(row.packed).wants(*what)]
    if not wanting:
        return channels
    notice = Notice(
        key=key,
        event=fact.event,
        severity=fact.severity,
        at_us=fact.at_us,
        text=_cut(fact.text),
        task=fact.task,
        member=fact.member,
        run_id=fact.run_id,
    )
    for name in wanting:
        channels = channels.set(name, _with_notice(channels[name], notice))
    return channels


def with_digest(channels: Channels, name: str, notice: Notice) -> Channels:
    """Add the notice of a digest to the channel of this name. Returns all channels."""
    return channels.set(name, _with_notice(channels[name], replace(notice, text=_cut(notice.text))))


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"


def _with_notice(row: ChannelRow, notice: Notice) -> ChannelRow:
    """Add a notice to the row. To make room, drop the oldest of the least urgent notices that are not being sent.

    If all of these are more urgent than the new one, it is the new one that is dropped.
    """
    kept, size = (*row.notices, notice), row.notices_bytes + notice_bytes(notice)
    sending = frozenset(row.sending.keys) if row.sending is not None else frozenset[str]()
    gone: list[Notice] = []
    while len(kept) > NOTICES_MAX or size > NOTICES_BYTES_MAX:
        free = [one for one in kept if one.key not in sending and (one is not notice or urgency(one))]
        if not free:
            break
        last = max(free, key=urgency)  # the first of these, and so the oldest
        kept = tuple(one for one in kept if one is not last)
        size -= notice_bytes(last)
        gone.append(last)
    successes = sum(one.event == "run_succeeded" for one in gone)
    others = len(gone) - successes
    return replace(
        row,
        notices=kept,
        notices_bytes=size,
        dropped=row.dropped + others,
        lost=row.lost + others,
        dropped_successes=row.dropped_successes + successes,
        lost_successes=row.lost_successes + successes,
    )


def backoff_us(tries: int) -> int:
    """Return the pause after `tries` failures in a row, in microseconds.

    >>> [backoff_us(tries) // 1_000_000 for tries in (1, 2, 3, 8, 9, 1000)]
    [2, 4, 8, 256, 300, 300]
    """
    return min(BACKOFF_US_MAX, BACKOFF_US << min(tries - 1, 20))
