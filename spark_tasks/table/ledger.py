"""The ledger of a task in a table: one page for each batch that the task has committed, with its files and rows.

Each page names the previous one, and is in a file of its own. The file of a page may hold copies of all earlier pages
as well (`Ledger.merge`), so that a ledger of thousands of batches is read from one file.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Final

from spark_tasks.storage.errors import store_errors
from tasks.places.place import Place
from tasks.source_identity import Facts

AHEAD: Final = 200
"""The number of pages that are read at once from an object store, because each request takes long there."""


class LedgerDamaged(Exception):
    """A page of a committed batch is missing or cannot be read."""


@dataclass(frozen=True, order=True)
class Mark:
    """A batch, and the token of the attempt that wrote it."""

    batch: int
    token: int

    @property
    def name(self) -> str:
        """The name of the batch's folder and of its page."""
        return f"{self.batch:08d}-{self.token}"


def mark_named(name: str) -> Mark | None:
    """Return the mark with that name; None if the name is not that of a mark.

    >>> mark_named("00000007-42"), mark_named("part-7")
    (Mark(batch=7, token=42), None)
    """
    batch, _, token = name.partition("-")
    return Mark(int(batch), int(token)) if batch.isdecimal() and token.isdecimal() else None


def quarantine_of(table: str) -> str:
    """Return the path or the URL of the quarantine of the table at that path or URL.

    >>> quarantine_of("/data/flights"), quarantine_of("s3://lake/flights")
    ('/data/flights_quarantine', 's3://lake/flights_quarantine')
    """
    return f"{table.rstrip('/')}_quarantine"


@dataclass(frozen=True)
class Page:
    """A page of the ledger: one batch."""

    #: The batch's mark.
    mark: Mark
    #: The mark of the previous batch; None if this is the first batch.
    previous: Mark | None
    #: The id of the run that made the batch.
    run_id: str
    #: The number of rows that it added to the table.
    rows: int
    #: The number of rows that were put into the quarantine.
    quarantined: int
    #: The files that the batch was made from, as (path, size in bytes).
    files: tuple[tuple[str, int], ...]
    #: The facts that identify the disk of each local folder, by folder.
    disks: Mapping[str, Facts] = field(default_factory=dict)
    #: The number of rows that were dropped.
    dropped: int = 0
    #: The number of rows that fail an expectation, by the expectation's name.
    failed: Mapping[str, int] = field(default_factory=dict)
    #: The paths of the Parquet files that the batch added to the table: files with its own rows, and files with rows of
    #: earlier batches that it wrote again.
    parts: tuple[str, ...] = ()
    #: The cursor: how far the source has been read, as JSON; None: the source has no cursor.
    cursor: dict[str, Any] | None = None


@dataclass(frozen=True)
class PageFile:
    """The file of `page`. `earlier` are all previous pages, newest first, if they were merged into it at `merged_s`.

    `merged_s` is in seconds since 1970, by the clock of the node that merged them; None if the file has its own page
    only.
    """

    page: Page
    earlier: tuple[Page, ...] = ()
    merged_s: float | None = None


class Ledger:
    """The pages of `task` in the table at `place`. All paths are relative to the table."""

    def __init__(self, place: Place, task: str) -> None:
        self.place = place
        self.task = task
        self.folder = f"_rota/{task}"

    def path(self, mark: Mark) -> str:
        """Return the path of the page of the batch and attempt that `mark` names."""
        return f"{self.folder}/{mark.name}.json"

    def malformed(self, mark: Mark) -> str:
        """Return the path of the file that keeps the malformed rows of that batch until they are in the quarantine."""
        return f"{self.folder}/{mark.name}.malformed.jsonl"

    def pages(self, last: Mark | None) -> Iterator[Page]:
        """Yield the pages from `last` backwards. Raises `LedgerDamaged`, and the errors of `store_errors`."""
        for file in self.files(last):
            yield file.page
            yield from file.earlier

    def files(self, last: Mark | None) -> Iterator[PageFile]:
        """Yield the page files backwards from the file of `last`, until the file of the first batch or one with all
        earlier pages.

        Raises the same errors as `pages`.
        """
        paths: list[str] | None = None
        ahead: dict[str, bytes] = {}
        first = True
        while last is not None:
            path = self.path(last)
            try:
                with store_errors(self.place):
                    if path not in ahead and not first and not self.place.is_local:
                        paths = self._paths() if paths is None else paths
                        ahead = self.place.read_many([one for one in paths if one <= path][-AHEAD:])
                    content = ahead.get(path) or self.place.read(path)
                if content is None:
                    raise FileNotFoundError("it does not exist")
                file = _read(content)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise LedgerDamaged(
                    f"the table contains batch {last.batch} of {self.task}, but {self.place.shown(path)} cannot be "
                    f"read ({error}), so the files that are in the table are not known. Restore this file, or ingest "
                    "into a new table"
                ) from None
            yield file
            first, last = False, None if file.merged_s is not None else file.page.previous

    def _paths(self) -> list[str]:
        """Return the paths of all pages, committed or not, sorted by their batches."""
        return [f"{self.folder}/{mark.name}.json" for mark in self.marks()]

    def marks(self) -> list[Mark]:
        """Return the marks of all pages that have a file, committed or not, sorted. Raises the errors of
        `store_errors`.
        """
        with store_errors(self.place):
            names = self.place.names(self.folder)
        found = (mark_named(name.removesuffix(".json")) for name in names if name.endswith(".json"))
        return sorted(mark for mark in found if mark is not None)

    def has(self, batch: int) -> bool:
        """Whether any attempt has written a page of that batch, committed or not."""
        return any(mark.batch == batch for mark in self.marks())

    def write(self, page: Page) -> None:
        """Write the batch's page durably. The page becomes valid when the batch is committed."""
        with store_errors(self.place):
            self.place.write_whole(self.path(page.mark), json.dumps(asdict(page)).encode())

    def merge(self, pages: Sequence[Page], merged_s: float, writer: str) -> None:
        """Put copies of all of `pages`, newest first, into the file of the newest.

        `pages` are committed, and go back to the first batch. Readers may read at any time, because the newest page in
        the file stays the same. Writers that merge the same pages at once write the same content. `writer` keeps the
        temporary files of several writers apart. Raises `LedgerDamaged` if pages are missing.
        """
        file = PageFile(pages[0], tuple(pages[1:]), merged_s)
        try:
            _check_follow(file)
        except ValueError as error:
            raise LedgerDamaged(f"the ledger of {self.task} is not merged: {error}") from None
        value = asdict(file.page) | {"earlier": [asdict(page) for page in file.earlier], "merged_s": merged_s}
        path = self.path(file.page.mark)
        with store_errors(self.place):
            self.place.write_whole(path, json.dumps(value).encode(), writer)
            content = self.place.read(path)
        if content is None or _read(content).earlier != file.earlier:
            raise LedgerDamaged(f"{self.place.shown(path)} does not hold the pages that were written into it")


def _check_follow(file: PageFile) -> None:
    """Raise `ValueError` if a page between the first batch and the file's own page is missing."""
    for newer, older in pairwise((file.page, *file.earlier)):
        if newer.previous != older.mark:
            raise ValueError(f"the page before that of batch {newer.mark.batch} is missing")
    oldest = (file.page, *file.earlier)[-1]
    if oldest.previous is not None:
        raise ValueError(f"the pages before that of batch {oldest.mark.batch} are missing")


def _read(kept: bytes) -> PageFile:
    value = json.loads(kept)
    merged_s = value.get("merged_s")
    if merged_s is None:
        return PageFile(_page(value))
    file = PageFile(_page(value), tuple(map(_page, value["earlier"])), merged_s)
    _check_follow(file)
    return file


def _page(value: Mapping[str, Any]) -> Page:
    previous = value["previous"]
    return Page(
        mark=Mark(**value["mark"]),
        previous=None if previous is None else Mark(**previous),
        run_id=value["run_id"],
        rows=value["rows"],
        quarantined=value.get("quarantined", value.get("skipped", 0)),  # older pages call them skipped
        files=tuple((path, size) for path, size in value["files"]),
        disks=value.get("disks", {}),  # older pages lack this and the next fields
        dropped=value.get("dropped", 0),
        failed=value.get("failed", {}),
        parts=tuple(value.get("parts", ())),
        cursor=value.get("cursor"),
    )
