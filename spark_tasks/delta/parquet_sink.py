"""Plain Parquet files as a sink: a batch is committed to a ledger that readers do not see, and then published.

    part-TASK-00000007-42-00000.snappy.parquet    a file of batch 7, written by the attempt with token 42
    _rota/                                        a Delta table without rows: the ledger (`batch_table`)
    _rota/TASK/00000007-42/part-*.parquet         the files of a batch that is not published yet
    _rota/_rota/TASK/columns.json                 the columns that all batches have

The rows are written into `_rota`, which readers of Parquet skip, as they skip all names that begin with `_`. The
ledger's commit decides that the batch counts. Only then are its files moved into the folder, one after another, because
a folder cannot commit several files at once. If a crash has left files unmoved, `last` moves them first, so that the
last batch is complete before an attempt does anything else.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_tasks.contracts.sink import About, Committed, Staged, Visible
from spark_tasks.delta.batch_columns import check_columns, chosen
from spark_tasks.delta.batch_table import BatchTable, as_sink, visible
from spark_tasks.files.columns import loads_columns
from spark_tasks.storage.errors import store_errors
from spark_tasks.table.ledger import Mark, Page
from spark_tasks.table.writing import batch_writer
from tasks.places.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

LEDGER: Final = "_rota"
"""The folder of the ledger."""

_COLUMNS: Final = json.dumps(
    {"type": "struct", "fields": [{"name": "file", "type": "string", "nullable": True, "metadata": {}}]}
)
"""The ledger's only column: the ledger has no rows, but a Delta table must have a column."""


class ParquetSink:
    """Parquet files at `place`, to which the task `task` adds. `scratch` is a local folder for messages from executors.

    It implements `contracts.sink.Sink`. Its methods also raise `LedgerDamaged` and, for an object store, `NoBucket`,
    `NoPermission` and `StoreAway`.
    """

    def __init__(self, place: Place, task: str, scratch: Path) -> None:
        self.place = place
        self.task = task
        self.scratch = scratch
        self.table = BatchTable(place.inside(LEDGER), task)
        self._columns_file = f"{self.table.ledger.folder}/columns.json"

    def last(self) -> Visible | None:
        """Publish the files of the last batch that are not published yet, and return the batch."""
        page = self.table.last_page()
        if page is None:
            return None
        self._publish(page)
        return visible(page)

    def has_run(self, run_id: str) -> bool:
        """Whether one of the newest visible batches is of that run."""
        return self.table.has_run(run_id)

    def holder(self) -> int | None:
        """Return the token of the attempt that holds the folder for this task."""
        return self.table.holder()

    def claim(self, token: int, instead_of: int | None) -> bool:
        """Make the attempt with `token` the holder."""
        with as_sink():
            self.table.opened(_COLUMNS)
            return self.table.claim(token, instead_of)

    def write(self, rows: "DataFrame", mark: Mark) -> Staged:
        """Write the rows into a folder of this attempt, in `_rota`."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        with as_sink():
            standing = self._columns()
            columns = check_columns(standing, rows.schema, self._shown)
            if standing is None:
                with store_errors(self.place):
                    self.table.place.write_whole(self._columns_file, columns.json().encode())
            ready = chosen(rows, columns.fieldNames())
            parts = batch_writer(rows.sparkSession, self.table, self.scratch)(ready, mark)
        return Staged(sum(part.rows for part in parts), tuple(part for part in parts if part.rows))

    @property
    def _shown(self) -> str:
        return self.place.path if self.place.is_local else self.place.url

    def _columns(self) -> "StructType | None":
        """Return the columns that all batches have; None before the first is committed."""
        if self.table.last() is None:
            return None  # the file may be of a batch that another attempt did not commit
        with store_errors(self.place):
            noted = self.table.place.read(self._columns_file)
        return None if noted is None else loads_columns(noted.decode())

    def commit(self, mark: Mark, written: Staged, about: About) -> Committed:
        """Commit the batch to the ledger, and publish its files."""
        with as_sink():
            handle = self.table.opened(_COLUMNS)
            page = Page(
                mark=mark,
                previous=self.table.previous(handle),
                run_id=about.run_id,
                rows=written.rows,
                quarantined=0,
                files=(),
                parts=tuple(part.path for part in written.parts),
                cursor=about.cursor,
            )
            if not self.table.check(handle, mark):
                self.table.ledger.write(page)
                self.table.apply(handle, mark, written.parts, (), {"rota.run": about.run_id}, alone=False)
        self._publish(page)
        return Committed(written.rows, 0)

    def _publish(self, page: Page) -> None:
        """Move the files of a committed batch into the folder, unless they are there already."""
        staged = self.table.parquet_folder(page.mark)
        with store_errors(self.place):
            if self.table.place.names(staged):
                for number, part in enumerate(page.parts):
                    name = f"part-{self.task}-{page.mark.name}-{number:05d}.snappy.parquet"
                    self.place.move(f"{LEDGER}/{part}", name)
            self.table.place.inside(staged).remove_folder()

    def move(self, mark: Mark, about: About) -> None:
        """Commit a batch without files to the ledger, with the cursor of `about`."""
        self.commit(mark, Staged(0, ()), about)

    def sweep(self) -> list[str]:
        """Remove the files of overtaken attempts, and return their paths."""
        return [f"{LEDGER}/{name}" for name in self.table.sweep()]
