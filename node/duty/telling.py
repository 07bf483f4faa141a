"""Decides which notices this member sends, and when, by the state, the time and the work in progress here. Pure.

One member sends for a channel: the first in the succession of the key `channel:NAME`, as for tasks. After a failed try
it is the next member, which may have a secret that the first one lacks. As for tasks, placement is only advice; a
member may send only with the permission of an entry (`node.state.telling`).
"""

from collections.abc import Container
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from hashing.key import key64
from hashing.succession import succession
from node.state.channel import Channel, Quiet, channel_of
from node.state.outbox import BACKOFF_US_MAX, URGENCY, ChannelRow, Notice, Permission, urgency
from node.state.telling import KEYS_MAX, Tell, holds
from node.state.value import State
from tasks.definition.cron import check_timezone

LOOK_US: Final = 60_000_000
"""The longest time between two decisions while notices wait, because the wall clock may be set meanwhile."""


@dataclass(frozen=True, slots=True)
class Send:
    """A message that this member has the permission to send."""

    #: The channel's name.
    channel: str
    #: The committed permission.
    permission: Permission
    #: The channel's definition: where to send, and with which secrets.
    definition: Channel
    #: The notices in the message, oldest first.
    notices: tuple[Notice, ...]
    #: How many notices were dropped, for lack of room, before these.
    dropped: int
    #: How many notices of successes were dropped, for lack of room, before these; not among `dropped`.
    dropped_successes: int = 0


@dataclass(frozen=True, slots=True)
class TellingStep:
    """The entries to propose and the messages to send now. `look_us`: when to decide again; None: on a change."""

    proposals: tuple[Tell, ...] = ()
    sends: tuple[Send, ...] = ()
    look_us: int | None = None


def telling_step(state: State, me: str, incarnation: int, now_us: int, busy: Container[str]) -> TellingStep:
    """Decide the next step of member `me`, which holds a lease as `incarnation`, for its channels.

    `busy`: the channels for which this member has work in progress.
    """
    proposals: list[Tell] = []
    sends: list[Send] = []
    looks: list[int] = []
    for name in sorted(state.channels):
        row = state.channels[name]
        if name in busy or not row.notices:
            continue
        permission = row.sending
        if permission is not None and holds(state, permission):
            if (permission.member, permission.incarnation) == (me, incarnation):
                notices = row.of(frozenset(permission.keys))
                definition = channel_of(row.packed)
                successes = row.dropped_successes
                sends.append(Send(name, permission, definition, notices, row.dropped, dropped_successes=successes))
            continue
        if not channel_of(row.packed).enabled or sender(state, name, row.tries) != me:
            continue
        keys, look_us = due(row, now_us)
        if keys:
            proposals.append(Tell(now_us, name, keys, me, incarnation))
        elif look_us is not None:
            looks.append(min(look_us, now_us + LOOK_US))
    return TellingStep(tuple(proposals), tuple(sends), min(looks, default=None))


def sender(state: State, channel: str, tries: int) -> str | None:
    """Return the member that sends for a channel after `tries` failures in a row. None: all members are down.

    If no member is up, draining members send, so that even full disks on all members are reported.
    """
    order = [state.slots[slot] for slot in succession(key64(f"channel:{channel}"), len(state.slots))]
    members = [state.members[member] for member in order if member is not None]
    able = [one.id for one in members if one.status == "up"] or [one.id for one in members if one.status == "draining"]
    return able[tries % len(able)] if able else None


def due(row: ChannelRow, now_us: int) -> tuple[tuple[str, ...], int | None]:
    """Return the keys of the notices to send now, as one message; if there are none, the time to look again.

    A message has notices of one urgency (`node.state.outbox.URGENCY`), and the most urgent ones are sent first. So
    successes wait while a failure waits for others to go with it, and no reader has to look for it among them. A digest
    is a message of its own.

    A time that is too far ahead was stamped by a wrong clock, and counts as past.
    """
    channel = channel_of(row.packed)
    waiting = row.notices
    if now_us < row.again_us <= now_us + BACKOFF_US_MAX:
        waiting = tuple(notice for notice in waiting if urgency(notice) < row.failed_urgency)
        if not waiting:
            return (), row.again_us
    quiet_us = quiet_until_us(channel.quiet, now_us)
    if quiet_us is not None:
        waiting = tuple(notice for notice in waiting if notice.severity == "critical")
        if not waiting:
            return (), quiet_us
    most = min(map(urgency, waiting))
    waiting = tuple(notice for notice in waiting if urgency(notice) == most)
    if most == URGENCY["digest"]:
        return (waiting[0].key,), None
    group_us = round(channel.group_s * 1_000_000)
    since_us = waiting[0].at_us
    if len(waiting) < KEYS_MAX and abs(now_us - since_us) < group_us:
        return (), since_us + group_us
    return tuple(notice.key for notice in waiting[:KEYS_MAX]), None


def quiet_until_us(quiet: Quiet | None, now_us: int) -> int | None:
    """Return when the present quiet hours end; None: there are none now, or this machine does not know the time zone.

    >>> night = Quiet.model_validate({"from": "22:00", "to": "07:00"})
    >>> quiet_until_us(night, 21 * 3600 * 10**6), quiet_until_us(night, 23 * 3600 * 10**6) == 31 * 3600 * 10**6
    (None, True)
    """
    if quiet is None:
        return None
    try:
        check_timezone(quiet.timezone)
    except ValueError:
        return None
    zone = ZoneInfo(quiet.timezone)
    now = datetime.fromtimestamp(now_us // 1_000_000, UTC).astimezone(zone)
    begin, end, at = time.fromisoformat(quiet.from_), time.fromisoformat(quiet.to), now.time()
    if begin < end:
        if not begin <= at < end:
            return None
        day = now.date()
    else:
        if end <= at < begin:
            return None
        day = now.date() if at < end else now.date() + timedelta(days=1)
    ends = datetime.combine(day, end, zone)
    if ends.timestamp() * 1e6 <= now_us:  # if summer time ends then, this time of day comes twice
        ends = ends.replace(fold=1)
    return max(round(ends.timestamp()) * 1_000_000, now_us + 1_000_000)
