"""The quarantine: a Delta table `<table>_quarantine` beside a table, which keeps the rows that did not fit.

A batch's malformed rows are first written durably into a file beside the batch's page in the ledger. Once the batch is
committed to its table, the rows are put into the quarantine exactly once, because the quarantine's log carries the
batch's number as an app transaction. After a crash in between, the next attempt puts them there, from the same file.
"""

import io
import json
import time
from typing import Final

import pyarrow as pa
from deltalake import Transaction
from deltalake.exceptions import DeltaError
from pyarrow import parquet

from spark_tasks.storage.errors import StoreAway, store_errors
from spark_tasks.table.delta import Table, add_action, app_id
from spark_tasks.table.ledger import LedgerDamaged, Page
from spark_tasks.table.part import Part
from spark_tasks.table.statistics import statistics
from tasks.places.place import Place

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
    """The quarantine table at `place`, for malformed rows of the table `of`."""

    def __init__(self, place: Place, of: Table) -> None:
        super().__init__(place, of.task)
        self.of = of

    def put(self, page: Page) -> None:
        """Put the malformed rows of a batch into the quarantine, unless they are there already.

        `page` must be of a committed batch, and batches must come in order. Raises `LedgerDamaged` if rows are missing,
        and `TableUnfit`.
        """
        kept = self.of.ledger.malformed(page.mark)
        with store_errors(self.place):
            content = self.of.place.read(kept)
        if content is None:
            return  # already in the quarantine: the file is removed last
        self._check_conditions()
        app = f"{app_id(self.task)}/{self.of.table_id()}"  # a new table counts its batches from 1 again
        handle = self._open() or self._create(_COLUMNS)
        if (handle.transaction_version(app) or 0) < page.mark.batch:
            part = self._write(page, content)
            try:
                self._append(handle, [add_action(part)], [Transaction(app, page.mark.batch)])
            except (DeltaError, StoreAway):
                # The commit was refused, or its outcome is unknown: the log has the answer.
                if (self._load().transaction_version(app) or 0) < page.mark.batch:
                    raise
        self.sync_log()
        with store_errors(self.place):
            self.of.place.remove(kept)

    def _write(self, page: Page, content: bytes) -> Part:
        rows = [
            {name: row.get(name) for name in ("file", "line", "text", "reason")}
            | {"batch": page.mark.batch, "run": page.run_id}
            for row in map(json.loads, content.decode().split("\n")[:-1])
        ]
        if len(rows) != page.quarantined:
            kept = self.of.place.shown(self.of.ledger.malformed(page.mark))
            raise LedgerDamaged(f"{kept} has {len(rows)} rows, and batch {page.mark.batch} left out {page.quarantined}")
        out = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(rows, schema=_ARROW), out)
        path, file = f"{self.task}/{page.mark.name}.parquet", out.getvalue()
        with store_errors(self.place):
            self.place.write_whole(path, file)
        stats = statistics(parquet.read_metadata(io.BytesIO(file)))
        return Part(path, len(file), time.time_ns() // 1_000_000, len(rows), stats)
