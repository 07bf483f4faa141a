"""A Delta table as the ledger of a task's batches: which attempt holds it, which batch is the last, one commit per
batch.

It extends `Table` for sinks: it has a holder even before the first batch, its commits can also remove files, and it
refuses every attempt but the holder.

**Before the table exists** there is no log that could name the holder, so the file `_rota/TASK/holder` names it, and
the last claim wins. An attempt at the first batch creates the table and then reads that file. A claim writes the file
and then looks for the table. So if two attempts try to make the first batch, either the older one finds the claim in
the file, or the newer one finds the table and claims it in the log.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from deltalake import DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from spark_tasks.contracts.sink import SinkOvertaken, SinkUnfit, Visible
from spark_tasks.storage.errors import StoreAway, store_errors
from spark_tasks.table.delta import Overtaken, Table, TableUnfit, app_id
from spark_tasks.table.ledger import Mark, Page, mark_named
from spark_tasks.table.part import Part

RUNS_KEPT: Final = 200
"""The number of newest batches in which `has_run` looks for a run."""

STAGED: Final = "staged"
"""The suffix of a folder, named MARK.staged, with the rows that a batch was made from."""

_LEFT: Final = (STAGED, "json.partial")
"""The suffixes of leftovers of a committed batch, beside its rows and its page in the ledger."""


@contextmanager
def as_sink() -> Iterator[None]:
    """Raise a table's errors as a sink's errors within the block."""
    try:
        yield
    except Overtaken as error:
        raise SinkOvertaken(str(error)) from None
    except TableUnfit as error:
        raise SinkUnfit(str(error)) from None


def visible(page: Page) -> Visible:
    """Return the batch of a page of the ledger, as the last visible batch of the sink."""
    return Visible(page.mark, page.run_id, page.cursor)


class BatchTable(Table):
    """The table at `place`, to which a sink of the task `task` commits. Its methods raise the errors of `Table`."""

    def opened(self, schema_json: str) -> DeltaTable:
        """Open the table at its present version. If it does not exist, create it with the columns `schema_json`."""
        self._check_conditions()
        return self._open() or self._create(schema_json)

    def last_page(self) -> Page | None:
        """Sync the log to the disk, and return the last batch's page in the ledger; None if there is no batch."""
        self.sync_log()
        return next(self.ledger.pages(self.last()), None)

    def has_run(self, run_id: str) -> bool:
        """Whether one of the newest batches is of that run."""
        pages = self.ledger.pages(self.last())
        return any(page.run_id == run_id for page, _ in zip(pages, range(RUNS_KEPT), strict=False))

    @property
    def _register(self) -> str:
        return f"{self.ledger.folder}/holder"

    def _registered(self) -> int | None:
        with store_errors(self.place):
            token = self.place.read(self._register)
        return None if token is None else int(token)

    def holder(self) -> int | None:
        """Return the token of the attempt that holds this task's part of the table, or will hold it once it exists."""
        table = self._open()
        return self._registered() if table is None else self._holder(table)

    def claim(self, token: int, instead_of: int | None) -> bool:
        """Claim the table as `Table.claim` does. Before the table exists, the last claim wins."""
        if self.version() is not None:
            return super().claim(token, instead_of)
        self._check_conditions()
        if self._registered() != instead_of:
            return False
        with store_errors(self.place):
            self.place.write_whole(self._register, str(token).encode())
        return self.version() is None

    def _holds_now(self, table: DeltaTable) -> int | None:
        holder = self._holder(table)
        return self._registered() if holder is None else holder

    def check(self, table: DeltaTable, mark: Mark) -> bool:
        """Whether the batch is in the table at the version of `table`. If not, it may be committed to that version.

        Raises `Overtaken` if another attempt has committed it or holds the table, and `TableUnfit` if an earlier batch
        is missing.
        """
        if self._is_in(table, mark):
            return True
        if (holder := self._holds_now(table)) != mark.token:
            raise Overtaken(f"the attempt with token {holder}, not {mark.token}, holds {self.shown}")
        self._check_follows(mark, self._last(table))
        return False

    def previous(self, table: DeltaTable) -> Mark | None:
        """Return the last batch in the table at the version of `table`."""
        return self._last(table)

    def apply(
        self,
        table: DeltaTable,
        mark: Mark,
        written: Sequence[Part],
        files: Sequence[AddAction | RemoveAction],
        about: Mapping[str, str],
        *,
        alone: bool,
    ) -> bool:
        """Sync the files `written`, and then commit the batch to the version of `table` that `check` has read.

        With `alone`, any commit in between, also one of another task, makes this commit fail; then False is returned,
        and the batch is not in the table. Without `alone`, commits of other tasks do not conflict with it. Raises
        `Overtaken`.
        """
        base = table.version()
        transactions = [
            Transaction(app_id(self.task), mark.batch),
            Transaction(f"{app_id(self.task)}/token", mark.token),
            self._holds(mark.token),
        ]
        said = {"rota.task": self.task, "rota.batch": str(mark.batch), "rota.token": str(mark.token)}
        try:
            self._sync_parts(mark, written)
            self._append(table, list(files), transactions, {**said, **about}, alone=alone)
        except (DeltaError, StoreAway, FileNotFoundError):
            # The commit was refused, or its outcome is unknown, or another holder has swept the files: the log tells
            # which.
            now = self._load()
            if not self.check(now, mark):
                if alone and now.version() > base:
                    return False
                raise
        self.sync_log()
        return True

    def sweep(self) -> list[str]:
        """Remove files that can never be committed, and return their paths."""
        with store_errors(self.place):
            found = [
                (f"{folder}/{name}", mark, name.partition(".")[2])
                for folder in (self.task, self.ledger.folder)
                for name in self.place.names(folder)
                if (mark := mark_named(name.partition(".")[0])) is not None
            ]
        # The log is read after the names were listed, so it has the claim of every attempt whose files are listed.
        table = self._open()
        last = None if table is None else self._last(table)
        holder = self._registered() if table is None else self._holds_now(table)
        kept = self._committed({mark for _, mark, _ in found}, last)
        gone = []
        for path, mark, kind in found:
            if last is None or mark.batch > last.batch:
                dead = mark.token != holder
            else:
                dead = mark not in kept or kind in _LEFT
            if dead:
                gone.append(path)
        with store_errors(self.place):
            for path in gone:
                self.place.inside(path).remove_folder()
        return sorted(gone)

    def _committed(self, marks: set[Mark], last: Mark | None) -> set[Mark]:
        """Return the marks that were committed. If a batch has several marks, the ledger tells which one was
        committed.
        """
        if last is None:
            return set()
        passed = [mark for mark in marks if mark.batch <= last.batch]
        counts: dict[int, int] = {}
        for mark in passed:
            counts[mark.batch] = counts.get(mark.batch, 0) + 1
        doubtful = [batch for batch, count in counts.items() if count > 1]
        kept = {mark for mark in passed if counts[mark.batch] == 1}
        if doubtful:
            for page in self.ledger.pages(last):
                if page.mark.batch < min(doubtful):
                    break
                kept.add(page.mark)
        return kept
