"""The ledger of a task in a table: one page for each batch that the task has committed, with its files and rows."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from spark_tasks.storage.errors import store_errors
from tasks.place import Place
from tasks.source_identity import Facts

AHEAD: Final = 200
"""The number of pages that are read at once from an object store, where each request takes its time."""


class LedgerDamaged(Exception):
    """A page of a committed batch is missing or cannot be read."""


@dataclass(frozen=True, order=True)
class Mark:
    """A batch, and the token of the attempt that wrote it."""

    batch: int
    token: int

    @property
    def name(self) -> str:
        """The name of its folder and of its page."""
        return f"{self.batch:08d}-{self.token}"


def named(name: str) -> Mark | None:
    """The mark with that name; None for any other name.

    >>> named("00000007-42"), named("part-7")
    (Mark(batch=7, token=42), None)
    """
    batch, _, token = name.partition("-")
    return Mark(int(batch), int(token)) if batch.isdecimal() and token.isdecimal() else None


def quarantine_of(table: str) -> str:
    """The path or the URL of the quarantine of the table at that path or URL.

    >>> quarantine_of("/data/flights"), quarantine_of("s3://lake/flights")
    ('/data/flights_quarantine', 's3://lake/flights_quarantine')
    """
    return f"{table.rstrip('/')}_quarantine"


@dataclass(frozen=True)
class Page:
    """A page of the ledger.

    `files` are the sources as `(path, size in bytes)`; `disks` are the identity facts of local folders; `parts` are the
    paths of the batch's Parquet files in the table. `failed` has the number of rows of which an expectation is not
    true, by its name. `cursor` is how far the source has been read, if it was by a cursor (JSON).
    """

    mark: Mark
    previous: Mark | None
    run_id: str
    rows: int
    quarantined: int
    files: tuple[tuple[str, int], ...]
    disks: Mapping[str, Facts] = field(default_factory=dict)
    dropped: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    cursor: dict[str, Any] | None = None


class Ledger:
    """The pages of `task` in the table at `place`. All paths are relative to the table."""

    def __init__(self, place: Place, task: str) -> None:
        self.place = place
        self.task = task
        self.folder = f"_rota/{task}"

    def path(self, mark: Mark) -> str:
        """The path of the page of that batch, as the attempt with that token writes it."""
        return f"{self.folder}/{mark.name}.json"

    def malformed(self, mark: Mark) -> str:
        """The path of the file that keeps the malformed rows of that batch until they are in the quarantine."""
        return f"{self.folder}/{mark.name}.malformed.jsonl"

    def pages(self, last: Mark | None) -> Iterator[Page]:
        """The pages from `last` backwards. Raises `LedgerDamaged`, and what `store_errors` names."""
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
                page = _read(content)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise LedgerDamaged(
                    f"the table contains batch {last.batch} of {self.task}, but {self.place.shown(path)} cannot be "
                    f"read ({error}), so the files that are in the table are not known. Restore this file, or ingest "
                    "into a new table"
                ) from None
            yield page
            first, last = False, page.previous

    def _paths(self) -> list[str]:
        """The paths of all pages, committed or not, sorted by their batches."""
        names = self.place.names(self.folder)
        return [f"{self.folder}/{name}" for name in names if named(name.removesuffix(".json"))]

    def has(self, batch: int) -> bool:
        """Whether any attempt has written a page of that batch, committed or not."""
        with store_errors(self.place):
            return any(path.startswith(f"{self.folder}/{batch:08d}-") for path in self._paths())

    def write(self, page: Page) -> None:
        """Write the batch's page durably; it becomes valid when the batch is committed."""
        with store_errors(self.place):
            self.place.write_whole(self.path(page.mark), json.dumps(asdict(page)).encode())


def _read(kept: bytes) -> Page:
    value = json.loads(kept)
    previous = value["previous"]
    return Page(
        mark=Mark(**value["mark"]),
        previous=None if previous is None else Mark(**previous),
        run_id=value["run_id"],
        rows=value["rows"],
        quarantined=value.get("quarantined", value.get("skipped", 0)),  # older pages call them skipped
        files=tuple((path, size) for path, size in value["files"]),
        disks=value.get("disks", {}),  # older pages have none of these
        dropped=value.get("dropped", 0),
        failed=value.get("failed", {}),
        parts=tuple(value.get("parts", ())),
        cursor=value.get("cursor"),
    )
