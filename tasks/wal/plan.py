"""Decides from which position an attempt continues the archive, given the server's state (pure)."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tasks.errors import Away, Unretryable
from tasks.postgres.wal_position import Fork, WalPosition, lsn_text, next_timeline, segment_start

_SLOT_SHOWN: Final = 24


class ServerBehind(Away):
    """The server has less of the log than the archive: it is a former primary, or a standby that lags."""


class OtherHistory(Unretryable):
    """The server's log does not continue the archived one."""


class WalServer(NamedTuple):
    """A server's own report of its state."""

    #: The identifier that all copies of one database system share.
    system: str
    #: The server's present timeline.
    timeline: int
    #: The LSN up to which its log is on its disk.
    flushed: int
    #: The size of a segment.
    segment_bytes: int
    #: The ancestors of its timeline.
    forks: tuple[Fork, ...]
    #: The LSN from which on the slot keeps the log; None: the slot is new and keeps none, or is lost.
    kept_from: int | None


class StreamPart(NamedTuple):
    """A part of one timeline to stream."""

    timeline: int
    start: int
    #: The LSN at which the timeline ends; None: it is the server's present one.
    end: int | None


def stream_part(archived: WalPosition | None, server: WalServer) -> StreamPart:
    """Return the part to stream next. It begins at a segment's start, so that one attempt stores each segment whole.

    Raises `ServerBehind` and `OtherHistory`.
    """
    size = server.segment_bytes
    ends = {fork.timeline: fork.end for fork in server.forks}
    if archived is None:
        start = server.flushed if server.kept_from is None else server.kept_from
        timeline = timeline_of(server.forks, server.timeline, start)
        return StreamPart(timeline, segment_start(start, size), ends.get(timeline))
    if archived.timeline > server.timeline:
        raise ServerBehind(
            f"the server is on timeline {server.timeline}, and the log is archived up to {archived}: it is a primary "
            "from before a switch-over. Name the present primary in `servers`"
        )
    if archived.timeline == server.timeline:
        if archived.lsn > server.flushed:
            raise ServerBehind(
                f"the server's log ends at {lsn_text(server.flushed)}, and the archived one at {archived}: it lags, or "
                "was restored to an earlier state without a timeline of its own"
            )
        return StreamPart(archived.timeline, segment_start(archived.lsn, size), None)
    if archived.timeline not in ends:
        raise OtherHistory(
            f"the server's timeline {server.timeline} does not descend from timeline {archived.timeline}, which is "
            "archived: it was promoted from another copy. Archive it under another task, and begin with a full backup"
        )
    end = ends[archived.timeline]
    if archived.lsn < end:
        return StreamPart(archived.timeline, segment_start(archived.lsn, size), end)
    follows = next_timeline(server.forks, archived.timeline, server.timeline)
    return StreamPart(follows, segment_start(end, size), ends.get(follows))


def check_history(archived: int, ancestors: Sequence[Fork], server: WalServer) -> None:
    """Raise `OtherHistory` unless the server's timeline `archived` has these `ancestors`, which the archived one has.

    Two copies of a server that are promoted on their own give their new timelines the same number.
    """
    own = tuple(fork for fork in server.forks if fork.timeline < archived)
    if own != tuple(ancestors):
        raise OtherHistory(
            f"the server's timeline {archived} began elsewhere than the archived one of that number: it was promoted "
            "from another copy. Archive it under another task, and begin with a full backup"
        )


def application_prefix(slot: str, task: str, cluster: str) -> str:
    """The prefix of the application names of all attempts at a task that stream from a slot.

    Another task has another prefix, also if it uses the same slot by mistake: its stream is not that of an earlier
    attempt. PostgreSQL cuts application names to 63 bytes, of which the token takes up to 20.

    >>> application_prefix("orders", "log", "c1"), len(application_prefix("o" * 63, "log", "c1"))
    ('rota-wal orders 9c466b5c', 42)
    """
    if len(slot) > _SLOT_SHOWN:
        slot = f"{slot[: _SLOT_SHOWN - 9]}_{_short(slot)}"
    return f"rota-wal {slot} {_short(f'{cluster} {task}')}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def timeline_of(forks: Sequence[Fork], newest: int, lsn: int) -> int:
    """Return the timeline to which the byte at `lsn` belongs, for a server on timeline `newest`.

    >>> [timeline_of((Fork(1, 100), Fork(3, 300)), 4, lsn) for lsn in (99, 100, 300)]
    [1, 3, 4]
    """
    return next((fork.timeline for fork in forks if lsn < fork.end), newest)


def tokens_up_to(names: Mapping[int, str], prefix: str, token: int) -> list[int]:
    """Return the process ids of attempts with this prefix, up to the one with `token`. `names` are by process id.

    >>> names = {6: "rota-wal a x 42", 7: "rota-wal a x 41", 8: "rota-wal a x 43", 9: "rota-wal b x 1", 10: "psql"}
    >>> tokens_up_to(names, "rota-wal a x", 42)
    [6, 7]
    """
    found = []
    for pid, name in names.items():
        head, _, number = name.rpartition(" ")
        if head == prefix and number.isdecimal() and int(number) <= token:
            found.append(pid)
    return found
