"""The archive of a server's log in a folder. Reads its pages, claims it, and adds to it if the caller holds the claim.

    SYSTEM/pages/000000000042.json            the pages, in order
    SYSTEM/00000001/NAME.TOKEN.zst            a whole segment
    SYSTEM/00000001/NAME.START-END.TOKEN.zst  a piece of one, its LSNs in hex
    SYSTEM/00000002/00000002.history.TOKEN.zst
    SYSTEM/index/000000000512.TOKEN.zst       an index of all objects that counted up to a page

SYSTEM is the server's system identifier: a standby has the same one as its primary. Each object is one zstd frame.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, Literal

from pydantic import ValidationError

from tasks.backup.archive import Content, Damaged, Writer, quiet, stored_content, storing
from tasks.backup.manifest import FileEntry
from tasks.errors import Away, Failed, Fenced, Unretryable
from tasks.places.place import Place
from tasks.postgres.wal_position import WalPosition, segment_name
from tasks.wal.pages import Counted, StoredWal, WalEnd, WalGap, WalIndex, WalPage

PAGES: Final = "pages"
INDEXES: Final = "index"

_TIMELINE: Final = re.compile(r"[0-9A-F]{8}")
_OBJECT: Final = re.compile(r"(?P<segment>[0-9A-F]{24})(\.[0-9A-F]+-[0-9A-F]+)?\.(?P<token>[0-9]+)\.zst")

INDEX_PAGES: Final = 500
"""The number of pages after which an index is stored."""

_AT_ONCE: Final = 256
"""The number of pages that are read at once."""


class ArchiveUnfit(Unretryable):
    """The storage cannot hold an archive, because it does not refuse the second of two writers that create one file."""


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


def archived_history(place: Place, counted: Counted, timeline: int) -> bytes | None:
    """The history file of a timeline in the archive at `place`; None if there is none. Raises `Damaged`."""
    stored = counted.histories.get(timeline)
    if stored is None:
        return None
    with _errors_named(place):
        return Content(stored_content(place, stored.file, quiet)).read()


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

    `counted`: the objects that count, by all pages except those of an attempt that has taken over since.
    """

    def __init__(
        self,
        place: Place,
        token: int,
        node: str,
        segment_bytes: int,
        level: int = 3,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._place = place
        self._token = token
        self._node = node
        self._segment_bytes = segment_bytes
        self._level = level
        self._now = now
        self.counted = Counted()

    def claim(self) -> None:
        """Claim the archive for this attempt. Raises `Fenced`, `ArchiveUnfit`, `Damaged`."""
        with _errors_named(self._place):
            self._check_conditional()
            self.counted = read_archive(self._place)
        self._check_holder()
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

    def _check_holder(self) -> None:
        if self.counted.holder > self._token:
            raise Fenced(f"{self._place.url} is claimed by an attempt with the token {self.counted.holder}")

    def _check_conditional(self) -> None:
        """Raise `ArchiveUnfit` unless the place refuses to create a file that exists."""
        name = f"conditional-writes.{self._token}"
        self._place.write_new(name, b"1")
        unfit = self._place.write_new(name, b"2")
        self._place.remove(name)
        if unfit:
            raise ArchiveUnfit(
                f"{self._place.url} replaced a file that was to be written only if there was none, so two attempts "
                "could spoil the archive: give a folder, or an object store that knows conditional writes"
            )

    def history(self, timeline: int) -> bytes | None:
        """The archived history file of a timeline; None if there is none. Raises `Damaged`."""
        return archived_history(self._place, self.counted, timeline)

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
            base = segment_name(timeline, start, self._segment_bytes)
            if type_ == "piece":
                base += f".{start:X}-{end:X}"
        name = f"{timeline:08X}/{base}.{self._token}.zst"
        with _errors_named(self._place), storing(self._place, name, self._level, quiet) as out:
            dump(out)
        entry = out.entry
        return StoredWal.model_validate(
            {"type": type_, "timeline": timeline, "start": start, "end": end, "file": entry}
        )

    def add(self, objects: Sequence[StoredWal]) -> None:
        """Write a page that makes stored objects count. Raises `Fenced`."""
        self._append(objects=tuple(objects))

    def add_index(self) -> None:
        """Store an index after `INDEX_PAGES` pages, so that readers need no earlier page. Raises `Fenced`."""
        if self.counted.number - self.counted.indexed < INDEX_PAGES:
            return
        content = self.counted.index().model_dump_json(exclude_none=True).encode()
        name = f"{INDEXES}/{self.counted.number:012d}.{self._token}.zst"
        with _errors_named(self._place), storing(self._place, name, self._level, quiet) as out:
            out.write(content)
        self._append(index=out.entry)

    def add_gap(self, gap: WalGap) -> None:
        """Record that a range is lost. Raises `Fenced`."""
        self._append(gap=gap)

    def remove_before(self, position: WalPosition) -> int:
        """Remove the segments that recovery from `position` on does not need. Returns their number. Raises `Fenced`.

        A page says so first, so that no page names an object that is gone. If the removal stops midway, `sweep` removes
        the rest.
        """
        going = self.counted.before(position)
        if going:
            self._append(removed=WalEnd(timeline=position.timeline, lsn=position.lsn))
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
        named, removed = self.counted.names(), 0
        filling = segment_name(*self.counted.position, self._segment_bytes)
        with _errors_named(self._place):
            for folder in self._place.folders():
                for name in self._place.names(folder) if _TIMELINE.fullmatch(folder) else ():
                    made = _OBJECT.fullmatch(name)
                    if made is None or f"{folder}/{name}" in named or int(made["token"]) > self._token:
                        continue
                    if made["segment"] < filling:
                        self._place.remove(f"{folder}/{name}")
                        removed += 1
            removed += self._sweep_pages()
        return removed

    def _sweep_pages(self) -> int:
        if not self.counted.indexed:
            return 0
        first = _read_page(self._place, self.counted.indexed).indexed
        old = [f"{PAGES}/{name}" for name in self._place.names(PAGES) if 0 < _number(name) < first]
        old += [f"{INDEXES}/{name}" for name in self._place.names(INDEXES) if int(name.partition(".")[0]) < first - 1]
        for name in old:
            self._place.remove(name)
        return len(old)

    def _append(
        self,
        *,
        claim: bool = False,
        objects: tuple[StoredWal, ...] = (),
        gap: WalGap | None = None,
        index: FileEntry | None = None,
        removed: WalEnd | None = None,
    ) -> None:
        """Write the next page. Raises `Fenced` if another attempt has claimed the archive."""
        while True:
            page = WalPage(
                number=self.counted.number + 1,
                token=self._token,
                node=self._node,
                at=self._now(),
                segment_bytes=self._segment_bytes,
                claim=claim,
                objects=objects,
                gap=gap,
                removed=removed,
                index=index,
                indexed=self.counted.indexed,
            )
            content = page.model_dump_json(exclude_none=True).encode()
            with _errors_named(self._place):
                written = self._place.write_new(page_name(page.number), content)
                found = page if written else _read_page(self._place, page.number)
            self.counted.take(found)
            self._check_holder()
            if written:
                return
            if found.token == self._token and found.model_copy(update={"at": page.at}) == page:
                return  # an earlier attempt to write this page succeeded, but its reply was lost
            if index is not None:
                return  # another page came first, whose objects this index lacks: a later index will have them
