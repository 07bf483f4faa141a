"""The ledger of a task in a table: which batches the task has put in, and what each brought, a page a batch."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from spark_tasks.durable import sync, sync_names
from tasks.identity import Facts


class LedgerDamaged(Exception):
    """A page that counts is not there, or cannot be read."""


@dataclass(frozen=True, order=True)
class Mark:
    """A batch that was committed, and the token of the attempt that did."""

    batch: int
    token: int

    @property
    def name(self) -> str:
        """What its folder and its page are called."""
        return f"{self.batch:08d}-{self.token}"


def named(name: str) -> Mark | None:
    """The mark of that name; None if it is no mark's.

    >>> named("00000007-42"), named("part-7")
    (Mark(batch=7, token=42), None)
    """
    batch, _, token = name.partition("-")
    return Mark(int(batch), int(token)) if batch.isdecimal() and token.isdecimal() else None


@dataclass(frozen=True)
class Page:
    """A page of the ledger. `files` are `(path, size in bytes)`; `disks` tells where local sources lie, by folder."""

    mark: Mark
    previous: Mark | None
    run_id: str
    rows: int
    skipped: int
    files: tuple[tuple[str, int], ...]
    disks: Mapping[str, Facts] = field(default_factory=dict)


class Ledger:
    """The pages of `task` in the table at `table`."""

    def __init__(self, table: Path, task: str) -> None:
        self.table = table
        self.task = task
        self.folder = table / "_rota" / task

    def path(self, mark: Mark) -> Path:
        """Where the page of that batch is, as the attempt with that token wrote it."""
        return self.folder / f"{mark.name}.json"

    def malformed(self, mark: Mark) -> Path:
        """Where the rows are that were left out of that batch."""
        return self.folder / f"{mark.name}.malformed.jsonl"

    def pages(self, last: Mark | None) -> Iterator[Page]:
        """The pages back from `last`, the newest first. Raises `LedgerDamaged`."""
        while last is not None:
            path = self.path(last)
            try:
                page = _read(path.read_bytes())
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise LedgerDamaged(
                    f"the table holds batch {last.batch} of {self.task}, but {path} cannot be read ({error}): "
                    "which files are in the table is not known. Restore it, or ingest into a new table"
                ) from None
            yield page
            last = page.previous

    def has(self, batch: int) -> bool:
        """Whether any attempt has written its page of that batch, committed or not."""
        return next(self.folder.glob(f"{batch:08d}-*.json"), None) is not None

    def write(self, page: Page) -> None:
        """Put the batch's page in, and on the disk; it counts once the batch is committed."""
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
        skipped=value["skipped"],
        files=tuple((path, size) for path, size in value["files"]),
        disks=value.get("disks", {}),  # pages of before have none
    )
