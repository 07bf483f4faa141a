"""The archive of a server's log in a folder: where its objects are, and how its pages are read.

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

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pydantic import ValidationError

from tasks.backup.archive import Content, Damaged, quiet, stored_content
from tasks.errors import Away, Failed, Fenced, Unretryable
from tasks.places.place import Place
from tasks.postgres.wal_position import Fork, WalPosition, parse_history
from tasks.wal.counted import Counted
from tasks.wal.pages import ChapterContent, StoredWal, WalChapter, WalIndex, WalPage

PAGES: Final = "pages"
INDEXES: Final = "index"
CHAPTERS: Final = "chapters"

_AT_ONCE: Final = 256
"""The number of pages that are read at once."""


class ArchiveAway(Away):
    """The place of the archive cannot be read or written now."""


_NAMED: Final = (Away, Failed, Fenced, Unretryable, Damaged)


@contextmanager
def storage_errors_named(place: Place) -> Iterator[None]:
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
    pages = place.oldest(PAGES)
    numbers = sorted(page_number(name) for name in pages.names if name.endswith(".json"))
    if not numbers:
        return counted or Counted()
    found = counted if counted is not None and counted.number else _from_newest_index(place, numbers[-1])
    wanted = range(found.number + 1, numbers[-1] + 1)
    for first in wanted[::_AT_ONCE]:
        names = [page_name(number) for number in wanted[first - wanted[0] :][:_AT_ONCE]]
        contents = pages.read([name.removeprefix(f"{PAGES}/") for name in names])
        for name in names:
            content = contents.get(name.removeprefix(f"{PAGES}/"))
            found.take(_page(place, name, content, found.number + 1))
    return found


def archived_ancestors(place: Place, counted: Counted, timeline: int) -> tuple[Fork, ...] | None:
    """The ancestors of a timeline in the archive at `place`; None if it has no history file of it. Raises `Damaged`."""
    stored = counted.histories.get(timeline)
    if stored is None:
        return None
    if stored.ancestors is not None:
        return tuple(Fork(*each) for each in stored.ancestors)
    with storage_errors_named(place):
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
    page = read_page(place, last)
    if page.index is None and page.indexed:
        page = read_page(place, page.indexed)
    if page.index is None:
        return Counted()
    content = Content(stored_content(place, page.index, quiet)).read()
    try:
        found = Counted.from_index(WalIndex.model_validate_json(content))
    except ValidationError as error:
        raise Damaged(f"{place.url}/{page.index.name} is not an index: {error.errors()[0]['msg']}") from None
    found.take(page)
    return found


def read_page(place: Place, number: int) -> WalPage:
    """Read one page. Raises `Damaged`, also if it is missing."""
    name = page_name(number)
    return _page(place, name, place.read_oldest(name), number)


def page_number(name: str) -> int:
    """Return the number of a page, from the name of its file; 0: it is none."""
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
