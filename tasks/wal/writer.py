"""Adds to the archive of a server's log, for the attempt that has claimed it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from tasks.backup.archive import Writer, quiet, storing
from tasks.backup.encryption import Encryption
from tasks.backup.manifest import ENCRYPTED, FileEntry
from tasks.errors import Fenced, Unretryable
from tasks.places.place import Place
from tasks.postgres.wal_position import Fork, WalPosition, parse_history, segment_name
from tasks.wal.archive import (
    CHAPTERS,
    INDEXES,
    archived_ancestors,
    chapter_segments,
    page_name,
    read_archive,
    read_page,
    storage_errors_named,
)
from tasks.wal.counted import Counted
from tasks.wal.pages import ChapterContent, KeptRange, StoredWal, WalChapter, WalEnd, WalGap, WalPage
from tasks.wal.sweep import Sweep

INDEX_PAGES: Final = 500
"""The number of pages after which an index is stored."""

CHAPTER_SEGMENTS: Final = 512
"""The number of segments in a chapter. So many of the newest ones are in no chapter, and up to twice as many."""


Ask = Callable[[Callable[[], Any]], Any]
"""Runs a function in the thread that uses a writer, and returns its result."""


def at_once(work: Callable[[], Any]) -> Any:
    """Run it in this thread, which is the one that uses the writer."""
    return work()


class ArchiveUnfit(Unretryable):
    """The storage cannot hold an archive, because it does not refuse the second of two writers that create one file."""


class ClaimedElsewhere(Unretryable):
    """Another cluster has claimed the archive."""


class ArchiveWriter:
    """Adds to the archive of one system, for the attempt with `token`.

    `cluster` is the id of the attempt's cluster. `accept`: whether it may take the archive over from another cluster.
    `encryption` encrypts segments, pieces and history files; None: they are not encrypted.
    `counted`: the objects that count, by all pages except those of an attempt that has taken over since. `token`: that
    of the attempt, and after a takeover from another cluster greater than all tokens of that.
    """

    def __init__(
        self,
        place: Place,
        token: int,
        node: str,
        segment_bytes: int,
        level: int = 3,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        cluster: str = "",
        accept: bool = False,
        encryption: Encryption | None = None,
    ) -> None:
        self._place = place
        self._encryption = encryption
        self._cluster = cluster
        self._accept = accept
        self._base = 0
        self.token = token
        self._node = node
        self._segment_bytes = segment_bytes
        self._level = level
        self._now = now
        self.counted = Counted()

    def claim(self) -> None:
        """Claim the archive for this attempt. Raises `Fenced`, `ClaimedElsewhere`, `ArchiveUnfit`, `Damaged`."""
        with storage_errors_named(self._place):
            self._check_conditional()
            self.counted = read_archive(self._place)
        before = self.counted
        taken_over = self._accept and before.cluster not in {"", self._cluster}
        self._base = before.holder if taken_over else before.base
        self.token += self._base
        self._check_holder(of_this=not taken_over)
        if self.counted.segment_bytes not in {0, self._segment_bytes}:
            raise ArchiveUnfit(
                f"{self._place.url} holds segments of {self.counted.segment_bytes} bytes, and the server's have "
                f"{self._segment_bytes}: it was made anew with another --wal-segsize. Archive it under another task"
            )
        self._append(claim=True)

    def check_claim(self) -> None:
        """Raise `Fenced` if another attempt has claimed the archive since the last page that this one wrote."""
        with storage_errors_named(self._place):
            read_archive(self._place, self.counted)
        self._check_holder()

    def _check_holder(self, *, of_this: bool = True) -> None:
        """Raise an error if another attempt has claimed the archive. `of_this`: also if another cluster has."""
        found = self.counted
        if of_this and self._cluster and found.cluster not in {"", self._cluster}:
            raise ClaimedElsewhere(
                f"{self._place.url} is claimed by the cluster {found.cluster}, and this task is of the cluster "
                f"{self._cluster}: one of them would undo what the other does. Give the task of one cluster another "
                f"name or destination. If this cluster is to take the archive over, for good, set `accept_cluster: "
                f"{self._cluster}` in this task's params, and remove the task of the other cluster"
            )
        if found.holder > self.token:
            raise Fenced(f"{self._place.url} is claimed by an attempt with the token {found.holder}")

    def _check_conditional(self) -> None:
        """Raise `ArchiveUnfit` unless the place refuses to create a file that exists."""
        # Where nothing may be removed, each claim uses the same file.
        name = f"conditional-writes.{self._cluster}.{self.token}" if self._place.removes else "conditional-writes"
        self._place.write_new(name, b"1")
        unfit = self._place.write_new(name, b"2")
        self._place.remove(name)
        if unfit:
            raise ArchiveUnfit(
                f"{self._place.url} replaced a file that was to be written only if there was none, so two attempts "
                "could spoil the archive: give a folder, or an object store that knows conditional writes"
            )

    def ancestors(self, timeline: int) -> tuple[Fork, ...] | None:
        """The archived ancestors of a timeline; None if its history file is not archived. Raises `Damaged`."""
        return archived_ancestors(self._place, self.counted, timeline)

    def store(
        self,
        type_: Literal["segment", "piece", "history"],
        timeline: int,
        start: int,
        end: int,
        dump: Callable[[Writer], object],
    ) -> StoredWal:
        """Store the output of `dump`: a whole segment, a piece, or a history file. It counts only after `add`."""
        if type_ == "history":
            base = f"{timeline:08X}.history"
        else:
            base = f"{start >> 32:08X}/{segment_name(timeline, start, self._segment_bytes)}"
            if type_ == "piece":
                base += f".{start:X}-{end:X}"
        entry = self._store(f"{timeline:08X}/{base}", dump, self._encryption)
        return StoredWal(type=type_, timeline=timeline, start=start, end=end, file=entry)

    def store_history(self, timeline: int, content: bytes) -> StoredWal:
        """Store a timeline's history file, as `store` does. Its page has the ancestors, which attempts read."""
        stored = self.store("history", timeline, 0, 0, lambda out: out.write(content))
        return stored.model_copy(update={"ancestors": parse_history(content.decode())})

    def _store(self, base: str, dump: Callable[[Writer], object], encryption: Encryption | None = None) -> FileEntry:
        name = f"{base}.{self.token}.zst" + (ENCRYPTED if encryption is not None else "")
        keys = None if encryption is None else encryption.keys()
        with storage_errors_named(self._place), storing(self._place, name, self._level, quiet, keys) as out:
            dump(out)
        return out.entry.model_copy(update={"version": self._place.versions.pop(name, None)})

    def add(self, objects: Sequence[StoredWal]) -> None:
        """Write a page that makes stored objects count. Raises `Fenced`."""
        self._append(objects=tuple(objects))

    def add_index(self) -> None:
        """Store an index after `INDEX_PAGES` pages, so that readers need no earlier page. Raises `Fenced`."""
        if self.counted.number - self.counted.indexed < INDEX_PAGES:
            return
        for segments in self.counted.due_chapters(CHAPTER_SEGMENTS):
            self._add_chapter(segments)
        content = self.counted.index().model_dump_json(exclude_defaults=True).encode()
        self._append(index=self._store(f"{INDEXES}/{self.counted.number:012d}", lambda out: out.write(content)))

    def _add_chapter(self, segments: Sequence[StoredWal]) -> None:
        content = ChapterContent(segments=tuple(segments)).model_dump_json(exclude_defaults=True).encode()
        entry = self._store(f"{CHAPTERS}/{self.counted.number:012d}", lambda out: out.write(content))
        first, last = segments[0], segments[-1]
        self._append(chapter=WalChapter(timeline=first.timeline, start=first.start, end=last.end, file=entry))

    def add_gap(self, gap: WalGap) -> None:
        """Record that a range is lost. Raises `Fenced`."""
        self._append(gap=gap)

    def remove_before(self, position: WalPosition, kept: Sequence[KeptRange] = (), ask: Ask = at_once) -> int:
        """Remove the segments that neither recovery from `position` on nor a range in `kept` needs.

        Returns their number. Another thread may call this while objects are added, if `ask` runs what it is given
        between two of these. Raises `Fenced`.

        A page says so first, so that no page names an object that is gone. If the removal stops midway, `sweep` removes
        the rest.
        """
        counted: Counted = ask(self.copy_counted)
        with storage_errors_named(self._place):
            going = counted.before(position, kept)
            for chapter, left in counted.chapters_before(position, kept):
                listed = chapter_segments(self._place, chapter).values()
                going += [one for one in listed if not any(part.start <= one.start < part.end for part in left)]
        if going:
            end = WalEnd(timeline=position.timeline, lsn=position.lsn)
            ask(lambda: self._append(removed=end, kept=tuple(kept)))
            with storage_errors_named(self._place):
                for stored in going if self._place.removes else ():
                    self._place.remove(stored.file.name)
        return len(going)

    def sweep(self, ask: Ask = at_once) -> int:
        """Remove objects that no page names (`Sweep`). Returns their number. `ask` is as in `remove_before`."""
        if not self._place.removes:
            return 0
        counted: Counted = ask(self.copy_counted)
        with storage_errors_named(self._place):
            return Sweep(self._place, counted, self.token).run()

    def copy_counted(self) -> Counted:
        """Return a copy of `counted`, for another thread."""
        return Counted.from_index(self.counted.index())

    def _append(
        self,
        *,
        claim: bool = False,
        objects: tuple[StoredWal, ...] = (),
        gap: WalGap | None = None,
        chapter: WalChapter | None = None,
        index: FileEntry | None = None,
        removed: WalEnd | None = None,
        kept: tuple[KeptRange, ...] = (),
    ) -> None:
        """Write the next page. Raises `Fenced` or `ClaimedElsewhere` if another attempt has claimed the archive."""
        while True:
            page = WalPage(
                number=self.counted.number + 1,
                token=self.token,
                node=self._node,
                cluster=self._cluster if claim else "",
                base=self._base if claim else 0,
                encryption=self._encryption.note if claim and self._encryption is not None else None,
                at=self._now(),
                segment_bytes=self._segment_bytes,
                claim=claim,
                objects=objects,
                gap=gap,
                removed=removed,
                kept=kept,
                chapter=chapter,
                index=index,
                indexed=self.counted.indexed,
            )
            content = page.model_dump_json(exclude_defaults=True).encode()
            with storage_errors_named(self._place):
                written = self._place.write_new(page_name(page.number), content)
                found = page if written else read_page(self._place, page.number)
            self.counted.take(found)
            # While the claim is being made, the pages are those of the cluster that it is taken over from.
            self._check_holder(of_this=written or not claim or not self._accept)
            if written:
                return
            if found.token == self.token and found.model_copy(update={"at": page.at}) == page:
                return  # an earlier attempt to write this page succeeded, but its reply was lost
            if index is not None:
                return  # another page came first, whose objects this index lacks: a later index will have them
            if chapter is not None:
                return  # as above; a later chapter will list these segments
