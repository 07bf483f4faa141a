"""Removes from the archive of a server's log what no page names."""

import re
from collections.abc import Sequence
from typing import Final

from tasks.places.place import Place
from tasks.postgres.wal_position import WalPosition, segment_name, segment_position
from tasks.wal.archive import CHAPTERS, INDEXES, PAGES, chapter_segments, page_number, read_page
from tasks.wal.counted import Counted

_TIMELINE: Final = re.compile(r"[0-9A-F]{8}")
_OBJECT: Final = re.compile(r"(?P<segment>[0-9A-F]{24})(\.[0-9A-F]+-[0-9A-F]+)?\.(?P<token>[0-9]+)\.zst(\.age)?")

_LOG: Final = re.compile(r"[0-9A-F]{8}")


class Sweep:
    """Objects that no page names, and pages that no reader needs, for the attempt with `token`.

    The objects are pieces of segments that are stored whole now, and what attempts that were taken over have left.
    Objects of later attempts stay, and so do those of the segment that is being filled: their pages may come next.
    Pages and indexes stay from the index before the newest on, because a reader may have begun there.
    """

    def __init__(self, place: Place, counted: Counted, token: int, *, everywhere: bool = False) -> None:
        """Sweep the archive at `place`. `everywhere`: also folders that were swept before, where locks kept objects."""
        self._everywhere = everywhere
        self._place = place
        self._counted = counted
        self._token = token

    def run(self) -> int:
        """Remove them. Returns their number. Raises the storage's errors, and `Damaged`."""
        if self._counted.position is None:
            return 0
        removed = 0
        for timeline in filter(_TIMELINE.fullmatch, self._place.folders()):
            names = self._place.names(timeline)
            removed += self._folder(timeline, [name for name in names if not _LOG.fullmatch(name)])
            for log in filter(_LOG.fullmatch, names):
                folder = f"{timeline}/{log}"
                if not self._everywhere and self._is_settled(int(timeline, 16), int(log, 16) << 32):
                    continue
                found = self._place.names(folder)
                swept = self._folder(folder, found)
                removed += swept
                if swept == len(found) and int(log, 16) < self._counted.position.lsn >> 32:
                    self._place.inside(folder).remove_folder()
        removed += self._pages()
        return removed

    def _is_settled(self, timeline: int, start: int) -> bool:
        """Whether chapters list all segments of the 4 GiB from `start` on, so that an earlier sweep has been here."""
        first = WalPosition(timeline, start)
        found = self._counted.chapter_of(first)
        while found is not None and found.end < start + (1 << 32):
            found = self._counted.chapter_of(WalPosition(timeline, found.end))
        return found is not None and found.end - start >= 1 << 32

    def _folder(self, folder: str, names: Sequence[str]) -> int:
        assert self._counted.position is not None
        filling = segment_name(*self._counted.position, self._counted.segment_bytes)
        named, read, going = self._counted.names(), set[str](), list[str]()
        for name in names:
            made = _OBJECT.fullmatch(name)
            if made is None or made["segment"] >= filling or int(made["token"]) > self._token:
                continue
            chapter = self._counted.chapter_of(segment_position(made["segment"], self._counted.segment_bytes))
            if chapter is not None and chapter.file.name not in read:
                named |= {one.file.name for one in chapter_segments(self._place, chapter).values()}
                read.add(chapter.file.name)
            if f"{folder}/{name}" not in named:
                going.append(name)
        # Pieces are locked once, and segments again and again, so they are told apart.
        whole = {name for name in going if name.count(".") == name.endswith(".age") + 2}
        return sum(self._place.remove_files(folder, some) for some in (whole, set(going) - whole))

    def _pages(self) -> int:
        if not self._counted.indexed:
            return 0
        first = read_page(self._place, self._counted.indexed).indexed
        named = {chapter.file.name for chapter in self._counted.chapters}
        old = {
            PAGES: {name for name in self._place.names(PAGES) if 0 < page_number(name) < first},
            INDEXES: {name for name in self._place.names(INDEXES) if int(name.partition(".")[0]) < first - 1},
            # A reader that began at the index before the newest may still look for it.
            CHAPTERS: {
                name
                for name in self._place.names(CHAPTERS)
                if f"{CHAPTERS}/{name}" not in named and int(name.partition(".")[0]) < first
            },
        }
        return sum(self._place.remove_files(folder, names) for folder, names in old.items())
