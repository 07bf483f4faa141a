"""The Delta table beside a table that keeps the rows which did not fit: `<table>_quarantine`.

A batch's rows are written and synced into a file beside the batch's page, before the batch is committed to its table.
That commit decides that they count, and only then are they put into the quarantine, once: its log carries the batch as
an app transaction. After a crash in between, the next attempt puts them there, from the same file.
"""

import json
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from pyarrow import parquet

from spark_tasks.table.delta import Table, app_id
from spark_tasks.table.ledger import LedgerDamaged, Page, quarantine_folder
from tasks.fsync import sync, sync_names

_TYPES: Final = {
    "file": "string",
    "line": "long",
    "text": "string",
    "reason": "string",
    "batch": "long",
    "run": "string",
}
_COLUMNS: Final = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _TYPES.items()],
    }
)
_ARROW: Final = pa.schema([(name, pa.int64() if kind == "long" else pa.string()) for name, kind in _TYPES.items()])


class Quarantine(Table):
    """The quarantine of the table at `table`, and what the task `task` has put there."""

    def __init__(self, table: Path, task: str) -> None:
        super().__init__(quarantine_folder(table), task)
        self.of = table

    def put(self, page: Page, kept: Path) -> None:
        """Put the rows in the file `kept` into the quarantine, if they are not there yet, and remove the file.

        `page` is that of a committed batch; batches come in their order. Raises `LedgerDamaged` if rows are missing.
        """
        if not kept.exists():
            return  # they are there: the file is removed last
        app = f"{app_id(self.task)}/{DeltaTable(self.of).metadata().id}"  # a new table counts its batches anew
        handle = self._open() or self._create(page.mark, _COLUMNS)
        if (handle.transaction_version(app) or 0) < page.mark.batch:
            file = self._write(page, kept)
            try:
                self._append(handle, [self._add(file)], [Transaction(app, page.mark.batch)])
            except DeltaError:
                # The commit was refused, or its outcome is unknown: the log has the answer.
                if (DeltaTable(self.folder).transaction_version(app) or 0) < page.mark.batch:
                    raise
        self.sync_log()
        kept.unlink(missing_ok=True)

    def _write(self, page: Page, kept: Path) -> Path:
        rows = [
            {name: row.get(name) for name in ("file", "line", "text", "reason")}
            | {"batch": page.mark.batch, "run": page.run_id}
            for row in map(json.loads, kept.read_text(encoding="utf-8").split("\n")[:-1])
        ]
        if len(rows) != page.quarantined:
            raise LedgerDamaged(f"{kept} has {len(rows)} rows, and batch {page.mark.batch} left out {page.quarantined}")
        file = self.folder / self.task / f"{page.mark.name}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_suffix(".partial")
        parquet.write_table(pa.Table.from_pylist(rows, schema=_ARROW), aside)
        sync(aside)
        aside.rename(file)
        sync_names(file.parent, within=self.folder.parent)
        return file
