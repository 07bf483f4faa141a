"""The ledger of a task in a table: one page for each batch that the task has committed, with its files and rows."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tasks.fsync import sync, sync_names
from tasks.source_identity import Facts


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


def quarantine_folder(table: Path) -> Path:
    """The folder of the quarantine of a table.

    >>> quarantine_folder(Path("/data/flights"))
    PosixPath('/data/flights_quarantine')
    """
    return table.with_name(f"{table.name}_quarantine")


@dataclass(frozen=True)
class Page:
    """A page of the ledger. `files` are `(path, size in bytes)`; `disks` are the identity facts of local folders.

    `failed` has the number of rows of which an expectation is not true, by its name.
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


class Ledger:
    """The pages of `task` in the table at `table`."""

    def __init__(self, table: Path, task: str) -> None:
        self.table = table
        self.task = task
        self.folder = table / "_rota" / task

    def path(self, mark: Mark) -> Path:
        """The path of the page of that batch, as the attempt with that token writes it."""
        return self.folder / f"{mark.name}.json"

    def malformed(self, mark: Mark) -> Path:
        """The path of the file that keeps the malformed rows of that batch until they are in the quarantine."""
        return self.folder / f"{mark.name}.malformed.jsonl"

    def pages(self, last: Mark | None) -> Iterator[Page]:
        """The pages from `last` backwards. Raises `LedgerDamaged`."""
        while last is not None:
            path = self.path(last)
            try:
                page = _read(path.read_bytes())
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise LedgerDamaged(
                    f"the table contains batch {last.batch} of {self.task}, but {path} cannot be read ({error}), so "
                    "the files that are in the table are not known. Restore this file, or ingest into a new table"
                ) from None
            yield page
            last = page.previous

    def has(self, batch: int) -> bool:
        """Whether any attempt has written a page of that batch, committed or not."""
        return next(self.folder.glob(f"{batch:08d}-*.json"), None) is not None

    def write(self, page: Page) -> None:
        """Write and sync the batch's page, which becomes valid when the batch is committed."""
        path = self.path(page.mark)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_suffix(".partial")
        aside.write_text(json.dumps(asdict(page)), encoding="utf-8")
        sync(aside)
        aside.rename(path)
        sync_names(path.parent, within=self.table.parent)


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
        disks=value.get("disks", {}),  # older pages have none of these three
        dropped=value.get("dropped", 0),
        failed=value.get("failed", {}),
    )
