"""Renews the locks of an archive in a bucket with Object Lock, a part at a time, beside the storing."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from tasks.places.object_lock import LockTime
from tasks.places.place import Place
from tasks.wal.archive import INDEXES, PAGES, chapter_segments, page_number, read_page, storage_errors_named
from tasks.wal.counted import Counted

PART: Final = 1000
"""The number of locks that are renewed at a time."""


class ArchiveLocks:
    """The locks of all that counts in the archive at `place`, whose Place has a lock of `days`.

    All are renewed each time that half of the days have passed: one request for each object, and none to ask for when
    it is locked. `renewed`: when all were last renewed, as an earlier attempt has noted it; None: not known.
    """

    def __init__(self, place: Place, days: int, renewed: datetime | None) -> None:
        self.renewed = renewed
        self._place = place
        self._days = days
        self._left: Iterator[tuple[str, str | None]] | None = None
        self._began: datetime | None = None

    def renew(self, counted: Counted, now: datetime) -> int:
        """Renew the next locks if they are due, and lock what is written from now on. Returns how many were renewed.

        Raises `ArchiveAway` and `Damaged`. Then all are renewed from the beginning.
        """
        lock = LockTime.of(self._days, now)
        assert lock is not None
        self._place.lock_until(lock)
        if self._left is None:
            if self.renewed is not None and now - self.renewed < timedelta(days=self._days) / 2:
                return 0
            self._left, self._began = lockable_objects(self._place, counted), now
        left, self._left = self._left, None
        with storage_errors_named(self._place):
            part = list(islice(left, PART))
            self._place.renew(dict(part))
        if len(part) == PART:
            self._left = left
        else:
            self.renewed = self._began
        return len(part)


def lockable_objects(place: Place, counted: Counted) -> Iterator[tuple[str, str | None]]:
    """Yield the name and the version of each object that a restore may need; None: the oldest version.

    What counts later is left out: it is locked for long enough when it is written. Raises the storage's errors and
    `Damaged`.
    """
    chapters = tuple(counted.chapters)
    pieces = (piece for each in counted.pieces.values() for piece in each)
    entries = [one.file for one in (*counted.segments.values(), *pieces, *counted.histories.values())]
    entries += [chapter.file for chapter in chapters]
    first = read_page(place, counted.indexed).indexed if counted.indexed else 0
    for entry in entries:
        yield entry.name, entry.version
    for folder, begin in ((PAGES, first), (INDEXES, first - 1)):
        files = place.oldest(folder)
        for name in files.names:
            if page_number(name.partition(".")[0]) >= begin and files.versions is not None:
                yield f"{folder}/{name}", files.versions[name].version
    for chapter in chapters:
        for stored in chapter_segments(place, chapter).values():
            yield stored.file.name, stored.file.version
