"""The archive of a server's log in a folder. Reads its pages, claims it, and adds to it if the caller holds the claim.

    SYSTEM/pages/000000000042.json                     the pages, in order
    SYSTEM/00000001/000000A3/NAME.TOKEN.zst            a whole segment
    SYSTEM/00000001/000000A3/NAME.START-END.TOKEN.zst  a piece of one, its LSNs in hex
    SYSTEM/00000002/00000002.history.TOKEN.zst
    SYSTEM/chapters/000000000500.TOKEN.zst             the entries of a few hundred whole segments
    SYSTEM/index/000000000512.TOKEN.zst                an index of all objects that counted up to a page

The second folder is the upper half of the LSN, so that no folder has the names of more than 4 GiB of log. Archives of
earlier versions have their segments beside it.

SYSTEM is the server's system identifier: a standby has the same one as its primary. Each object is one zstd frame.
Segments, pieces and history files may be encrypted (`.zst.age`). Pages, chapters and indexes are not: the next attempt
reads them, without an identity, and they tell names, ranges and checksums only.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, Literal

from pydantic import ValidationError

from tasks.backup.archive import Content, Damaged, Writer, quiet, stored_content, storing
from tasks.backup.encryption import Encryption
from tasks.backup.manifest import ENCRYPTED, FileEntry
from tasks.errors import Away, Failed, Fenced, Unretryable
from tasks.places.place import Place
from tasks.postgres.wal_position import Fork, WalPosition, parse_history, segment_name, segment_position
from tasks.wal.pages import ChapterContent, Counted, KeptRange, StoredWal, WalChapter, WalEnd, WalGap, WalIndex, WalPage

PAGES: Final = "pages"
INDEXES: Final = "index"
CHAPTERS: Final = "chapters"

_TIMELINE: Final = re.compile(r"[0-9A-F]{8}")
_OBJECT: Final = re.compile(r"(?P<segment>[0-9A-F]{24})(\.[0-9A-F]+-[0-9A-F]+)?\.(?P<token>[0-9]+)\.zst(\.age)?")

_LOG: Final = re.compile(r"[0-9A-F]{8}")

INDEX_PAGES: Final = 500
"""The number of pages after which an index is stored."""

CHAPTER_SEGMENTS: Final = 512
"""The number of segments in a chapter. So many of the newest ones are in no chapter, and up to twice as many."""

_AT_ONCE: Final = 256
"""The number of pages that are read at once."""


class ArchiveUnfit(Unretryable):
    """The storage cannot hold an archive, because it does not refuse the second of two writers that create one file."""


class ClaimedElsewhere(Unretryable):
    """Another cluster has claimed the archive."""


class ArchiveAway(Away):
    """The place of the archive cannot be read or written now."""


_NAMED: Final = (Away, Failed, Fenced, Unretryable, Damaged)


@contextmanager
def _errors_named(place: Place) -> Iterator[None]:
    """Turn any exception of the storage's libraries into `ArchiveAway`."""
    try:
        yield
    except _NAMED:
        raise
    except Exception as error:
        raise ArchiveAway(f"{place.url}: {type(error).__name__}: {error}") from error


def page_name(number: int) -> str:
    """Return the name of a page's file in the folder of a system.

    >>> page_name(42)
    'pages/000000000042.json'
    """
    return f"{PAGES}/{number:012d}.json"


def archived_systems(place: Place) -> list[str]:
    """Return the system identifiers of the archives at `place`."""
    return [name for name in place.folders() if name.isdecimal()]


def read_archive(place: Place, counted: Counted | None = None) -> Counted:
    """Read the pages of one system's archive at `place`; `counted`: the result of an earlier call. Raises `Damaged`."""
    numbers = sorted(_number(name) for name in place.names(PAGES) if name.endswith(".json"))
    if not numbers:
        return counted or Counted()
    found = counted if counted is not None and counted.number else _from_newest_index(place, numbers[-1])
    wanted = range(found.number + 1, numbers[-1] + 1)
    for first in wanted[::_AT_ONCE]:
        names = [page_name(number) for number in wanted[first - wanted[0] :][:_AT_ONCE]]
        contents = place.read_many(names)
        for name in names:
            found.take(_page(place, name, contents.get(name), found.number + 1))
    return found


def archived_ancestors(place: Place, counted: Counted, timeline: int) -> tuple[Fork, ...] | None:
    """The ancestors of a timeline in the archive at `place`; None if it has no history file of it. Raises `Damaged`."""
    stored = counted.histories.get(timeline)
    if stored is None:
        return None
    if stored.ancestors is not None:
        return tuple(Fork(*each) for each in stored.ancestors)
    with _errors_named(place):
        return parse_history(Content(stored_content(place, stored.file, quiet)).read().decode())


def chapter_segments(place: Place, chapter: WalChapter) -> dict[WalPosition, StoredWal]:
    """Read the entries of a chapter's segments, by the positions at which they begin. Raises `Damaged`."""
    content = Content(stored_content(place, chapter.file, quiet)).read()
    try:
        found = ChapterContent.model_validate_json(content).segments
    except ValidationError as error:
        raise Damaged(f"{place.url}/{chapter.file.name} is not a chapter: {error.errors()[0]['msg']}") from None
    held = range(chapter.start, chapter.end)
    return {WalPosition(one.timeline, one.start): one for one in found if one.start in held}


def stored_segment(place: Place, counted: Counted, begins: WalPosition) -> StoredWal | None:
    """Return the entry of a whole segment of the archive at `place`; None if there is none. Raises `Damaged`."""
    if (known := counted.segments.get(begins)) is not None:
        return known
    chapter = counted.chapter_of(begins)
    if chapter is None:
        return None
    found = chapter_segments(place, chapter).get(begins)
    if found is None:
        raise Damaged(f"{place.url}/{chapter.file.name} lacks the segment from {begins}")
    return found


def _from_newest_index(place: Place, last: int) -> Counted:
    """Return the objects that counted when the newest index was made; an empty `Counted` if there is no index."""
    page = _read_page(place, last)
    if page.index is None and page.indexed:
        page = _read_page(place, page.indexed)
    if page.index is None:
        return Counted()
    content = Content(stored_content(place, page.index, quiet)).read()
    try:
        found = Counted.from_index(WalIndex.model_validate_json(content))
    except ValidationError as error:
        raise Damaged(f"{place.url}/{page.index.name} is not an index: {error.errors()[0]['msg']}") from None
    found.take(page)
    return found


def _read_page(place: Place, number: int) -> WalPage:
    name = page_name(number)
    return _page(place, name, place.read(name), number)


def _number(name: str) -> int:
    stem = name.removesuffix(".json")
    return int(stem) if stem.isdecimal() else 0


def _page(place: Place, name: str, content: bytes | None, number: int) -> WalPage:
    if content is None:
        raise Damaged(f"{place.url}/{name} is missing")
    try:
        page = WalPage.model_validate_json(content)
    except ValidationError as error:
        raise Damaged(f"{place.url}/{name} is not a page of version 1: {error.errors()[0]['msg']}") from None
    if page.number != number or name != page_name(number):
        raise Damaged(f"{place.url}/{page_name(number)} is missing, or another page has its name")
    return page


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
        with _errors_named(self._place):
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
        with _errors_named(self._place):
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
        name = f"conditional-writes.{self._cluster}.{self.token}"
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
        with _errors_named(self._place), storing(self._place, name, self._level, quiet, keys) as out:
            dump(out)
        return out.entry

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

    def remove_before(self, position: WalPosition, kept: Sequence[KeptRange] = ()) -> int:
        """Remove the segments that neither recovery from `position` on nor a range in `kept` needs.

        Returns their number. Raises `Fenced`.

        A page says so first, so that no page names an object that is gone. If the removal stops midway, `sweep` removes
        the rest.
        """
        with _errors_named(self._place):
            going = self.counted.before(position, kept)
            for chapter, left in self.counted.chapters_before(position, kept):
                listed = chapter_segments(self._place, chapter).values()
                going += [one for one in listed if not any(part.start <= one.start < part.end for part in left)]
        if going:
            self._append(removed=WalEnd(timeline=position.timeline, lsn=position.lsn), kept=tuple(kept))
            with _errors_named(self._place):
                for stored in going:
                    self._place.remove(stored.file.name)
        return len(going)

    def sweep(self) -> int:
        """Remove objects that no page names. Returns their number.

        They are pieces of segments that are stored whole now, and objects of attempts that were taken over. Objects of
        later attempts stay, and so do those of the segment that is being filled: their pages may come next. Pages and
        indexes stay from the index before the newest on, because a reader may have begun there.
        """
        if self.counted.position is None:
            return 0
        removed = 0
        with _errors_named(self._place):
            for timeline in filter(_TIMELINE.fullmatch, self._place.folders()):
                names = self._place.names(timeline)
                removed += self._sweep_folder(timeline, [name for name in names if not _LOG.fullmatch(name)])
                for log in filter(_LOG.fullmatch, names):
                    folder = f"{timeline}/{log}"
                    if self._is_settled(int(timeline, 16), int(log, 16) << 32):
                        continue
                    found = self._place.names(folder)
                    swept = self._sweep_folder(folder, found)
                    removed += swept
                    if swept == len(found) and int(log, 16) < self.counted.position.lsn >> 32:
                        self._place.inside(folder).remove_folder()
            removed += self._sweep_pages()
        return removed

    def _is_settled(self, timeline: int, start: int) -> bool:
        """Whether chapters list all segments of the 4 GiB from `start` on, so that an earlier sweep has been here."""
        first = WalPosition(timeline, start)
        found = self.counted.chapter_of(first)
        while found is not None and found.end < start + (1 << 32):
            found = self.counted.chapter_of(WalPosition(timeline, found.end))
        return found is not None and found.end - start >= 1 << 32

    def _sweep_folder(self, folder: str, names: Sequence[str]) -> int:
        assert self.counted.position is not None
        filling = segment_name(*self.counted.position, self._segment_bytes)
        named, read, removed = self.counted.names(), set[str](), 0
        for name in names:
            made = _OBJECT.fullmatch(name)
            if made is None or made["segment"] >= filling or int(made["token"]) > self.token:
                continue
            chapter = self.counted.chapter_of(segment_position(made["segment"], self._segment_bytes))
            if chapter is not None and chapter.file.name not in read:
                named |= {one.file.name for one in chapter_segments(self._place, chapter).values()}
                read.add(chapter.file.name)
            if f"{folder}/{name}" not in named:
                self._place.remove(f"{folder}/{name}")
                removed += 1
        return removed

    def _sweep_pages(self) -> int:
        if not self.counted.indexed:
            return 0
        first = _read_page(self._place, self.counted.indexed).indexed
        old = [f"{PAGES}/{name}" for name in self._place.names(PAGES) if 0 < _number(name) < first]
        old += [f"{INDEXES}/{name}" for name in self._place.names(INDEXES) if int(name.partition(".")[0]) < first - 1]
        named = {chapter.file.name for chapter in self.counted.chapters}
        for name in self._place.names(CHAPTERS):
            # A reader that began at the index before the newest may still look for it.
            if f"{CHAPTERS}/{name}" not in named and int(name.partition(".")[0]) < first:
                old.append(f"{CHAPTERS}/{name}")
        for name in old:
            self._place.remove(name)
        return len(old)

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
            with _errors_named(self._place):
                written = self._place.write_new(page_name(page.number), content)
                found = page if written else _read_page(self._place, page.number)
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
