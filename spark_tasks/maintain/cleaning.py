"""Cleans a table's log and ledgers: writes a checkpoint, removes expired entries, and merges thousands of pages."""

import json
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_tasks.maintain.table import MaintainedTable
from spark_tasks.storage.errors import store_errors
from spark_tasks.table.delta import LOG, Table
from spark_tasks.table.ledger import Ledger, Mark, PageFile

NEWEST: Final = 10
"""The number of newest pages that stay in files of their own."""

WORTHWHILE: Final = 100
"""The number of older page files from which merging them is worthwhile."""


def clean_log(table: MaintainedTable) -> int:
    """Write a checkpoint, and remove the log's entries that have expired. Returns the number of removed files.

    The app transactions that the checkpoint contains stay in the log for ever.
    """
    with store_errors(table.place):
        before = set(table.place.names(LOG))
        last = table.place.read(f"{LOG}/_last_checkpoint")
    handle = table.handle()
    if last is None or json.loads(last)["version"] < handle.version():
        with store_errors(table.place):
            handle.create_checkpoint()
        table.sync_log()  # before the entries that the checkpoint replaces are removed
    with store_errors(table.place):
        table.handle().cleanup_metadata()
        return len(before - set(table.place.names(LOG)))


@dataclass(frozen=True)
class PageWork:
    """The work that a ledger needs."""

    #: The page of this mark is merged with all older pages; None: no pages are merged.
    merge: Mark | None
    #: The marks of the pages whose files are removed, because an earlier merge has copied the pages into another file.
    remove: tuple[Mark, ...]


def page_work(files: Sequence[PageFile], there: Collection[Mark], now_s: float, keep_s: float) -> PageWork:
    """Return the work that a ledger with these files needs. They are newest first; `there` are all marks with a file
    (pure).

    An attempt that began before a merge may still be reading the merged files one by one. So they are removed only
    `keep_s` after the merge, and the next merge waits for that.
    """
    merged = files[-1] if files and files[-1].merged_s is not None else None
    if merged is not None and merged.merged_s is not None and now_s < merged.merged_s + keep_s:
        return PageWork(None, ())
    remove = () if merged is None else tuple(page.mark for page in merged.earlier if page.mark in there)
    older = files[NEWEST:] if merged is None else files[NEWEST:-1]
    return PageWork(older[0].page.mark if len(older) >= WORTHWHILE else None, remove)


def clean_ledgers(table: MaintainedTable, now_s: float, keep_s: float, *, dry_run: bool) -> int:
    """Merge the pages of all tasks' ledgers in the table. Returns the number of removed files of merged pages.

    No page is lost: it stays in the file into which it was merged. Raises `LedgerDamaged`.
    """
    removed = 0
    with store_errors(table.place):
        tasks = table.place.inside("_rota").folders()
    for task in tasks:
        last = Table(table.place, task).last()
        ledger = Ledger(table.place, task)
        files = list(ledger.files(last))
        work = page_work(files, frozenset(ledger.marks()), now_s, keep_s)
        removed += len(work.remove)
        if dry_run:
            continue
        with store_errors(table.place):
            for mark in work.remove:
                table.place.remove(ledger.path(mark))
        if work.merge is not None:
            pages = list(ledger.pages(work.merge))
            ledger.merge(pages, now_s, uuid.uuid4().hex)
        _remove_unfinished(ledger, now_s - keep_s)
    return removed


def _remove_unfinished(ledger: Ledger, before_s: float) -> None:
    """Remove partial files, older than `before_s`, of attempts that were killed. An object store has no
    partial files.
    """
    if not ledger.place.is_local:
        return
    for path in (Path(ledger.place.path) / ledger.folder).glob("*.partial"):
        if path.stat().st_mtime < before_s:
            path.unlink(missing_ok=True)
