"""The daily digests of channels: when one is due, and what it says. Pure.

The member that sends for a channel makes its digests, each by an entry (`node.state.digest`). A digest is about the
runs that ended in the entries since the digest before it, so that each run is in one of them, whatever the clocks read.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgpack

from node.duty.telling import LOOK_US, sender
from node.state.channel import Channel, DailyDigest, channel_of
from node.state.digest import MakeDigest
from node.state.outbox import ChannelRow
from node.state.times import rfc3339
from node.state.value import State
from tasks.definition.cron import CronLine, cron_line, known_zone
from tasks.definition.run import RunState
from tasks.definition.schedule import latest_due_us
from tasks.definition.spec import Cron, labels_of

NAMES_SHOWN: Final = 5
"""How many tasks a digest names of each group for each reason."""

GROUPS_SHOWN: Final = 40
GROUPS_BYTES_MAX: Final = 10 * 1024
"""The most groups in a digest, and the most bytes of them, packed. What is left out is in the totals."""

COUNTS: Final = ("ran", "succeeded", "failed", "cancelled", "not_run", "missed", "late", "paused")
"""The counts of a digest: runs that ended, by how they did; occurrences that were missed, or did not run because of
another run; tasks that are late or paused now."""

_DAY_US: Final = 86_400_000_000

_COUNTED_AS: Final[dict[RunState, str]] = {
    "succeeded": "succeeded",
    "failed": "failed",
    "timed_out": "failed",
    "abandoned": "failed",
    "upstream_late": "failed",
    "cancelled": "cancelled",
    "missed": "missed",
    "skipped": "not_run",
    "upstream_failed": "not_run",
    "upstream_skipped": "not_run",
}
"""Which count of a digest a final state is in. `not_needed` is in none."""

_RAN: Final = frozenset({"succeeded", "failed", "timed_out", "abandoned", "cancelled"})
_NAMED: Final = ("failed", "late", "missed", "paused")
"""The counts of which tasks are named, the worst first."""


@dataclass(frozen=True, slots=True)
class RunTally:
    """The finished runs in a member's history, from one entry to another, counted."""

    #: The index of the last entry that was counted.
    through: int
    #: How many runs ended, by task and final state; each occurrence that was skipped or missed counts.
    ends: Mapping[tuple[str, RunState], int]
    #: How many of them were of backfills.
    backfilled: int = 0
    #: Whether this member knows all of them; False: its history has gaps.
    complete: bool = True


@dataclass(frozen=True, slots=True)
class DueDigest:
    """A digest that is to be made."""

    #: The channel's name.
    channel: str
    #: The channel's definition.
    definition: Channel
    #: The time of the digest before it, or since when there are digests, in microseconds since the epoch.
    since_us: int
    #: The time for which it is made, in microseconds since the epoch.
    nominal_us: int
    #: The index of the last entry that the digest before it is about.
    after: int


@dataclass(frozen=True, slots=True)
class DigestSummary:
    """What a digest says."""

    #: The index of the last entry that it is about.
    through: int
    #: One line.
    text: str
    #: The figures, as JSON values.
    figures: dict[str, Any]

    @property
    def complete(self) -> bool:
        """Whether all runs are in it."""
        return bool(self.figures["complete"])

    def entry(self, due: DueDigest, at_us: int) -> MakeDigest:
        """Return the entry that makes it, stamped `at_us`."""
        return MakeDigest(
            at_us,
            due.channel,
            due.since_us,
            due.nominal_us,
            through=self.through,
            text=self.text,
            figures=self.figures,
        )


def digests_due(state: State, me: str, now_us: int, busy: Collection[str]) -> tuple[list[DueDigest], int | None]:
    """Return the digests that member `me` has to make now, and when to look again; None: it has none to make.

    `busy`: the channels whose digest is being made.
    """
    found: list[DueDigest] = []
    looks: list[int] = []
    for name in sorted(state.channels):
        row = state.channels[name]
        if not row.digest_us or name in busy or sender(state, name, row.tries) != me:
            continue
        due = digest_due(row, now_us)
        if isinstance(due, DueDigest):
            found.append(due)
        elif due is not None:
            looks.append(min(due, now_us + LOOK_US))  # the wall clock may be set meanwhile
    return found, min(looks, default=None)


def digest_due(row: ChannelRow, now_us: int) -> DueDigest | int | None:
    """Return the digest of a channel that is due now; else when the next one is; None if there is none.

    Of several that were not made, because all members were down, it is the latest, and about all that came since.
    """
    definition = channel_of(row.packed)
    if definition.digest is None or not row.digest_us:
        return None
    # A time that is too far ahead was stamped by a wrong clock.
    since_us = row.digest_us if row.digest_us <= now_us + 2 * _DAY_US else now_us - _DAY_US
    next_us = _cron(definition.digest)[1].next_us(since_us)
    if next_us is None or next_us > now_us:
        return next_us
    nominal_us = latest_due_us(_cron(definition.digest)[0], None, since_us, now_us)
    assert nominal_us is not None
    return DueDigest(row.name, definition, row.digest_us, nominal_us, row.digest_index)


def next_digest_us(row: ChannelRow) -> int | None:
    """Return when the next digest of a channel is due, in microseconds since the epoch; None: it has none."""
    digest = channel_of(row.packed).digest
    return _cron(digest)[1].next_us(row.digest_us) if digest is not None and row.digest_us else None


def digest_so_far(row: ChannelRow, now_us: int) -> DueDigest | None:
    """Return the next digest of a channel as if it were due now; None if it has none."""
    definition = channel_of(row.packed)
    if definition.digest is None or not row.digest_us:
        return None
    return DueDigest(row.name, definition, row.digest_us, now_us, row.digest_index)


def _cron(digest: DailyDigest) -> tuple[Cron, CronLine]:
    """Return the times of a digest: a cron line follows the wall clock, and knows what happens when that is changed."""
    hour, minute = digest.at.split(":")
    # Another member may know a time zone that this one does not know. Late is better than never.
    zone = digest.timezone if known_zone(digest.timezone) else "UTC"
    line = f"{int(minute)} {int(hour)} * * *"
    return Cron.model_construct(cron=line, timezone=zone), cron_line(line, zone)


@dataclass(slots=True)
class _Group:
    """The tasks with one value of the label."""

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    tasks: dict[str, dict[str, int]] = field(default_factory=lambda: {what: {} for what in _NAMED})

    def add(self, task: str, what: str, count: int = 1) -> None:
        self.counts[what] += count
        if what in self.tasks:
            self.tasks[what][task] = self.tasks[what].get(task, 0) + count


def digest_summary(state: State, due: DueDigest, tally: RunTally, now_us: int) -> DigestSummary:
    """Say what ran, and what is late or paused now, by the channel's label. Visits all tasks: call it in a thread."""
    by, wanted = due.definition.digest.by if due.definition.digest else None, due.definition.labels
    groups: dict[str | None, _Group] = {}

    def group_of(task: str) -> _Group | None:
        row = state.tasks.get(task)
        # A task that was deleted has no labels any more.
        labels = labels_of(row.spec_packed) if row is not None else {}
        if not wanted.items() <= labels.items():
            return None
        return groups.setdefault(None if by is None else labels.get(by), _Group())

    for (task, end), count in sorted(tally.ends.items()):
        if (group := group_of(task)) is not None:
            if end in _COUNTED_AS:
                group.add(task, _COUNTED_AS[end], count)
            if end in _RAN:
                group.add(task, "ran", count)
    for task in sorted(name for name, row in state.tasks.items() if row.breaches or row.paused):
        if (group := group_of(task)) is not None:
            for what, holds in (("late", state.tasks[task].breaches), ("paused", state.tasks[task].paused)):
                if holds:
                    group.add(task, what)
    total = {what: sum(group.counts[what] for group in groups.values()) for what in COUNTS}
    ordered = sorted(groups.items(), key=lambda one: (_worst_first(one[1]), one[0] is None, one[0] or ""))
    shown = _shown(ordered)
    zone = due.definition.digest.timezone if due.definition.digest else "UTC"
    figures = {
        "from": rfc3339(due.since_us),
        "to": rfc3339(now_us),
        "timezone": zone,
        "by": by,
        "complete": tally.complete,
        "total": total,
        "backfilled": tally.backfilled,
        "groups": shown,
        "groups_left_out": len(ordered) - len(shown),
    }
    return DigestSummary(tally.through, _headline(total, due.since_us, zone), figures)


def _worst_first(group: _Group) -> tuple[int, ...]:
    return tuple(-group.counts[what] for what in ("failed", "late", "missed", "ran"))


def _shown(ordered: list[tuple[str | None, _Group]]) -> list[dict[str, Any]]:
    """Return the first of the groups as JSON values: as many as fit in a notice."""
    shown: list[dict[str, Any]] = []
    left = GROUPS_BYTES_MAX
    for value, group in ordered[:GROUPS_SHOWN]:
        tasks = {what: _first(found) for what, found in group.tasks.items() if found}
        one = {"value": value, **group.counts, "tasks": tasks}
        left -= len(msgpack.packb(one))
        if left < 0:
            break
        shown.append(one)
    return shown


def _first(found: dict[str, int]) -> list[dict[str, Any]]:
    ordered = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    return [{"task": task, "count": count} for task, count in ordered[:NAMES_SHOWN]]


def _headline(total: Mapping[str, int], since_us: int, zone: str) -> str:
    """Sum a digest up in a line, what is wrong first.

    >>> none = dict.fromkeys(COUNTS, 0)
    >>> _headline(none, 1_794_000_000_000_000, "Europe/Paris")
    'nothing ran since 2026-11-06 22:20 Europe/Paris'
    >>> _headline(none | {"ran": 9, "succeeded": 7, "failed": 2, "late": 1}, 1_794_000_000_000_000, "UTC")
    '2 failed, 1 late; 7 of 9 runs succeeded since 2026-11-06 21:20 UTC'
    >>> _headline(none | {"ran": 9, "succeeded": 9}, 1_794_000_000_000_000, "UTC")
    'all 9 runs succeeded since 2026-11-06 21:20 UTC'
    """
    wrong = ", ".join(f"{total[what]} {what}" for what in _NAMED if total[what])
    ran, succeeded = total["ran"], total["succeeded"]
    if not ran:
        how = "nothing ran"
    elif ran == succeeded:
        how = f"all {ran} runs succeeded" if ran > 1 else "the only run succeeded"
    else:
        how = f"{succeeded} of {ran} runs succeeded"
    known = known_zone(zone)
    since = datetime.fromtimestamp(since_us // 1_000_000, UTC).astimezone(known or UTC)
    return f"{wrong + '; ' if wrong else ''}{how} since {since:%Y-%m-%d %H:%M} {zone if known else 'UTC'}"
