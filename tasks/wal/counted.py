"""What counts of an archive: the objects that its pages name, applied one after the other (pure)."""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import AwareDatetime

from tasks.backup.manifest import EncryptionNote
from tasks.postgres.wal_position import WalPosition, segment_start
from tasks.wal.pages import KeptRange, StoredWal, WalChapter, WalEnd, WalGap, WalIndex, WalPage


@dataclass
class Counted:
    """The objects of an archive that count, according to the pages that were applied so far."""

    #: The number of the last page; 0: there is no page.
    number: int = 0
    #: The token for which the archive is claimed; 0: it is not claimed.
    holder: int = 0
    #: The number of the newest page with an index; 0: there is no index.
    indexed: int = 0
    #: The server's size of a segment, in bytes; 0: not known yet.
    segment_bytes: int = 0
    #: The cluster whose attempt claimed the archive; "": not recorded.
    cluster: str = ""
    #: To whom the newest attempt that encrypts does it; None: nothing is encrypted.
    encryption: EncryptionNote | None = None
    #: What is added to the tokens of that cluster, so that they are greater than those of the cluster before it.
    base: int = 0
    #: The older whole segments: ranges whose entries are in objects of their own, in the order of their positions.
    chapters: list[WalChapter] = field(default_factory=list)
    #: The other whole segments, by the positions at which they begin.
    segments: dict[WalPosition, StoredWal] = field(default_factory=dict)
    #: The pieces of each segment that is not whole, in the order of their pages.
    pieces: dict[WalPosition, list[StoredWal]] = field(default_factory=dict)
    #: History files, by their timelines.
    histories: dict[int, StoredWal] = field(default_factory=dict)
    #: The ranges that were lost.
    gaps: list[WalGap] = field(default_factory=list)
    #: The position before which log was removed, because no backup needed it; None: no log was removed.
    removed: WalEnd | None = None
    #: The position up to which the log is archived; None: no log is archived.
    position: WalPosition | None = None
    #: When the page that set `position` was written.
    position_at: AwareDatetime | None = None

    @classmethod
    def from_index(cls, index: WalIndex) -> "Counted":
        """Return the objects that counted when `index` was made."""
        found = cls(
            number=index.number,
            holder=index.holder,
            indexed=index.indexed,
            segment_bytes=index.segment_bytes,
            gaps=list(index.gaps),
            cluster=index.cluster,
            base=index.base,
            chapters=list(index.chapters),
            encryption=index.encryption,
            removed=index.removed,
        )
        for stored in index.objects:
            found._take_object(stored, None)
        found.position = WalPosition(index.timeline, index.lsn) if index.timeline else None
        found.position_at = index.position_at
        return found

    def index(self) -> WalIndex:
        """Return an index of these objects, for storing."""
        pieces = (piece for each in self.pieces.values() for piece in each)
        timeline, lsn = self.position or (0, 0)
        return WalIndex(
            number=self.number,
            holder=self.holder,
            indexed=self.indexed,
            segment_bytes=self.segment_bytes,
            objects=(*self.segments.values(), *pieces, *self.histories.values()),
            chapters=tuple(self.chapters),
            encryption=self.encryption,
            removed=self.removed,
            cluster=self.cluster,
            base=self.base,
            gaps=tuple(self.gaps),
            timeline=timeline,
            lsn=lsn,
            position_at=self.position_at,
        )

    def take(self, page: WalPage) -> bool:
        """Apply the next page. Returns whether it counts."""
        self.number = page.number
        if page.claim and page.token > self.holder:
            self.holder, self.cluster, self.base = page.token, page.cluster, page.base
            self.encryption = page.encryption or self.encryption  # older objects may be encrypted
        if page.token != self.holder:
            return False
        self.segment_bytes = page.segment_bytes
        if page.index is not None:
            self.indexed = page.number
        if page.gap is not None:
            self.gaps.append(page.gap)
            self._reach(WalPosition(page.gap.timeline, page.gap.end), page.at)
        for stored in page.objects:
            self._take_object(stored, page.at)
        if page.chapter is not None:
            self._take_chapter(page.chapter)
        if page.removed is not None:
            position, self.removed = WalPosition(page.removed.timeline, page.removed.lsn), page.removed
            for stored in self.before(position, page.kept):
                self._drop(stored)
            self.chapters = [left for chapter in self.chapters for left in self._left(chapter, position, page.kept)]
        return True

    def _take_chapter(self, chapter: WalChapter) -> None:
        for start in range(chapter.start, chapter.end, self.segment_bytes):
            self.segments.pop(WalPosition(chapter.timeline, start), None)
        insort(self.chapters, chapter, key=_begins)

    def _left(self, chapter: WalChapter, position: WalPosition, kept: Sequence[KeptRange]) -> list[WalChapter]:
        """Return the parts of a chapter that recovery from `position` on, or a kept range needs."""
        if chapter.timeline > position.timeline:
            return [chapter]
        size = self.segment_bytes
        begins = max(chapter.start, segment_start(position.lsn, size))
        starts = (
            [
                start
                for start in range(chapter.start, min(begins, chapter.end), size)
                if any(one.touches(chapter.timeline, start, start + size) for one in kept)
            ]
            if kept
            else []
        )
        parts: list[tuple[int, int]] = []
        for start, end in [*((start, start + size) for start in starts), (begins, chapter.end)]:
            if start >= end:
                continue
            if parts and parts[-1][1] == start:
                parts[-1] = parts[-1][0], end
            else:
                parts.append((start, end))
        return [chapter.model_copy(update={"start": start, "end": end}) for start, end in parts]

    def chapter_of(self, begins: WalPosition) -> WalChapter | None:
        """Return the chapter that lists the segment from `begins`; None if no chapter does."""
        number = bisect_right(self.chapters, begins, key=_begins) - 1
        if number < 0:
            return None
        found = self.chapters[number]
        return found if found.timeline == begins.timeline and begins.lsn < found.end else None

    def due_chapters(self, segments: int) -> list[list[StoredWal]]:
        """Return the segments to list in new chapters, oldest first, each a run without a hole of at most `segments`.

        As many of the newest segments stay as they are.
        """
        runs: list[list[StoredWal]] = []
        ordered = [self.segments[begins] for begins in sorted(self.segments)]
        for stored in ordered[: len(ordered) - segments]:
            last = runs[-1][-1] if runs else None
            if (
                last is None
                or len(runs[-1]) == segments
                or (last.timeline, last.end) != (stored.timeline, stored.start)
            ):
                runs.append([])
            runs[-1].append(stored)
        return runs if len(ordered) >= 2 * segments else []

    def chapters_before(
        self, position: WalPosition, kept: Sequence[KeptRange] = ()
    ) -> list[tuple[WalChapter, list[WalChapter]]]:
        """Return the chapters of which recovery from `position` on does not need all, each with the parts that stay."""
        parts = ((chapter, self._left(chapter, position, kept)) for chapter in self.chapters)
        return [(chapter, left) for chapter, left in parts if left != [chapter]]

    def before(self, position: WalPosition, kept: Sequence[KeptRange] = ()) -> list[StoredWal]:
        """Return the segments outside chapters, and pieces, that neither recovery from `position` on nor `kept` needs.

        A segment of an earlier timeline that ends before the position is one of them: the way to the position has left
        that timeline at or before it.
        """
        stored = [*self.segments.values(), *(piece for each in self.pieces.values() for piece in each)]
        return [
            one
            for one in stored
            if one.timeline <= position.timeline
            and self._ends(one) <= position.lsn
            and not any(
                each.touches(one.timeline, self._ends(one) - self.segment_bytes, self._ends(one)) for each in kept
            )
        ]

    def _ends(self, stored: StoredWal) -> int:
        """Return the end of the segment to which an object belongs."""
        return segment_start(stored.start, self.segment_bytes) + self.segment_bytes

    def _drop(self, stored: StoredWal) -> None:
        begins = WalPosition(stored.timeline, segment_start(stored.start, self.segment_bytes))
        self.segments.pop(begins, None)
        self.pieces.pop(begins, None)

    def end_of(self, timeline: int) -> int | None:
        """Return the LSN up to which log of a timeline is stored; None if there is none."""
        pieces = (piece for each in self.pieces.values() for piece in each)
        stored = (one.end for one in (*self.segments.values(), *pieces) if one.timeline == timeline)
        return max((*stored, *(one.end for one in self.chapters if one.timeline == timeline)), default=None)

    def names(self) -> set[str]:
        """Return the names of all objects that count, except those that chapters list."""
        pieces = (piece for each in self.pieces.values() for piece in each)
        return {stored.file.name for stored in (*self.segments.values(), *pieces, *self.histories.values())}

    def _take_object(self, stored: StoredWal, at: AwareDatetime | None) -> None:
        if stored.type == "history":
            self.histories[stored.timeline] = stored
            return
        begins = WalPosition(stored.timeline, segment_start(stored.start, self.segment_bytes))
        listed = self.chapter_of(begins) is not None
        if stored.type == "segment" and not listed:
            self.segments[begins] = stored
            self.pieces.pop(begins, None)
        elif begins not in self.segments and not listed:
            self.pieces.setdefault(begins, []).append(stored)
        self._reach(WalPosition(stored.timeline, stored.end), at)

    def _reach(self, end: WalPosition, at: AwareDatetime | None) -> None:
        if self.position is None or end > self.position:
            self.position, self.position_at = end, at

    def covered_to(self, begins: WalPosition) -> int:
        """Return the LSN up to which the segment from `begins` is stored without a hole; `begins` if it is not."""
        if begins in self.segments or self.chapter_of(begins) is not None:
            return begins.lsn + self.segment_bytes
        return covered(begins.lsn, ((piece.start, piece.end) for piece in self.pieces.get(begins, ())))

    def missing(self, timeline: int, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between two LSNs of a timeline that are not stored, in order."""
        at = start
        while at < end:
            begins = WalPosition(timeline, segment_start(at, self.segment_bytes))
            if (chapter := self.chapter_of(begins)) is not None:
                at = chapter.end
                continue
            upto = min(end, begins.lsn + self.segment_bytes)
            reached = max(at, min(upto, self.covered_to(begins)))
            if reached < upto:
                yield reached, upto
            at = upto


def _begins(chapter: WalChapter) -> WalPosition:
    return WalPosition(chapter.timeline, chapter.start)


def covered(start: int, ranges: Iterable[tuple[int, int]]) -> int:
    """Return the end of the part after `start` that `ranges` cover without a hole. They may overlap, in any order.

    >>> covered(10, [(20, 30), (10, 22), (40, 50)])
    30
    """
    at = start
    for first, last in sorted(ranges):
        if first > at:
            break
        at = max(at, last)
    return at
