"""Reads the rows of all files that a glob finds, or of those that were changed after the last batch.

New files are found by the time at which a file was last changed. A batch ends at the latest such time that is older
than `lag_s`, and has all files up to it. So a file is read once, as long as it is in its folder within `lag_s` of its
last change. A file that is put there later with an earlier time, as by a move or by `cp -p`, is not noticed: use
`ingest` for such files, which knows each file by its name.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.contracts.incremental import Incremental
from spark_tasks.contracts.source import Cursor, Plan, SourceReplaced, SourceUnfit
from spark_tasks.files import exact
from spark_tasks.files.columns import evolve, table_columns
from spark_tasks.files.faults import BadFile
from spark_tasks.files.listing import NoSourceFiles, Source, SourceChanged, batches, check_allowed, check_globs, listing
from spark_tasks.files.malformed import explained_row
from spark_tasks.files.params import FileRows
from spark_tasks.files.reading import CORRUPT, check_fields, layouts_of, load_files, marks
from spark_tasks.files.ready import complete, modified_s, staged_modified_s
from spark_tasks.files.staging import check_places_seen, check_unchanged, staged
from spark_tasks.files.text_checks import check_text
from tasks.access import Access
from tasks.file_guard import FileGuard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

WHOLE_FILES_MAX: Final = 10_000
"""The most files that are read as one batch: all of them are open at once."""


class FilesReader:
    """The rows of files, for the view `view`. `pins` opens local files; None if Spark's executors open them themselves.

    `now_s` returns the time in seconds since 1970. The class implements `RowSource`. Its methods raise `AccessRefused`,
    `NoSourceFiles`, `SourceReplaced` and `SourceUnfit`; `load` also the errors of `files.faults`.
    """

    def __init__(
        self,
        view: str,
        params: FileRows,
        access: Access,
        pins: FileGuard | None,
        scratch: Path,
        incremental: Incremental | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.view = view
        self.params = params
        self.access = access
        self.pins = pins
        self.scratch = scratch / view
        self.incremental = incremental
        self.now_s = now_s
        self._batch: Sequence[Source] = ()
        self._changed_s: Mapping[str, float] = {}
        self._staged = ExitStack()
        self._read: tuple[SparkSession, StructType, Mapping[Path, Source]] | None = None

    def plan(self, after: Cursor | None) -> Plan | None:
        """Plan the next batch (`RowSource`)."""
        check_globs([self.params.files], self.access)
        found, now_s = listing([self.params.files], self.access), self.now_s()
        if self.incremental is None:
            return self._whole(complete(found, self.params.ready, now_s))
        if after is not None and after.get("files") is not True:
            raise SourceReplaced(
                f"the sink's last batch was read by {after}, and the task now says `files`: change "
                "`incremental` back, or set a cursor of the new way by `rota etl reset`"
            )
        changed_s = modified_s(found, now_s)
        low = None if after is None else float(after["value"])
        batch, high, more = next_files(
            found, changed_s, low, now_s - self.incremental.lag_s, (self.params.batch_files, self.params.batch_bytes)
        )
        self._batch, self._changed_s = batch, changed_s
        if not batch:
            return None
        return Plan({"files": True, "value": high}, self._about() | {"above": low, "to": high}, more)

    def _whole(self, found: Sequence[Source]) -> Plan:
        if not found:
            raise NoSourceFiles(f"no complete file matches {self.params.files}")
        if len(found) > WHOLE_FILES_MAX:
            raise SourceUnfit(
                f"{len(found)} files match {self.params.files}, and {WHOLE_FILES_MAX} can be one batch: read "
                "what is new by `incremental: {files: true}`, or `ingest` them into a table"
            )
        self._batch = found
        return Plan(None, self._about())

    def _about(self) -> dict[str, Any]:
        return {"files": len(self._batch), "bytes": sum(one.size_bytes for one in self._batch)}

    def load(self, spark: "SparkSession", plan: Plan) -> "DataFrame":
        """Return the rows of the plan (`RowSource`)."""
        form = self.params
        check_allowed(self._batch, self.access)
        try:
            places = self._staged.enter_context(staged(self._batch, self.scratch, self.pins))
            check_unchanged(places)
            self._check_times(places)
            if self.pins is None:
                check_places_seen(spark, places)
            check_text(form, places)
            found = layouts_of(spark, form, places)
            schema = evolve(table_columns(spark, form, None, places, [], found), form, places, found)
            check_fields(spark, form, schema, places, found)
        except BadFile as bad:
            raise bad.why from None
        self._read = spark, schema, places
        rows = load_files(spark, form, schema, places, found)
        return _checked(rows) if marks(form) else rows

    def _check_times(self, places: Mapping[Path, Source]) -> None:
        """Raise `BadFile` for a file that was changed after the batch was planned, because its rows would be read again
        later.
        """
        if self.incremental is None:
            return
        for place, source in places.items():
            if staged_modified_s(place, source, self.now_s()) != self._changed_s[source.path]:
                raise BadFile(
                    source.path,
                    SourceChanged(f"{source.path} was changed after the batch was planned: the next attempt goes on"),
                )

    def explained(self, error: Exception) -> Exception | None:
        """Return the error that names the file which Spark could not read (`contracts.source.ExplainsErrors`)."""
        if self._read is None:
            return None
        spark, schema, places = self._read
        found = explained_row(spark, self.params, schema, error, places)
        return None if found is None else found.why

    def release(self) -> None:
        """Close the files (`RowSource`)."""
        self._read = None
        self._staged.close()


def _checked(rows: "DataFrame") -> "DataFrame":
    """Return the rows, and make the Spark job fail at a row that does not fit."""
    from pyspark.sql import functions as f

    unfit = f.raise_error(f.lit(exact.UNFIT)).cast("boolean")
    fits = f.when(f.col(CORRUPT).isNull(), f.lit(True)).otherwise(unfit)
    return rows.filter(fits).drop(CORRUPT)


def next_files(
    found: Sequence[Source],
    changed_s: Mapping[str, float],
    low_s: float | None,
    high_s: float,
    most: tuple[int, int],
) -> tuple[list[Source], float, bool]:
    """Choose the next batch of files that were changed after `low_s` and not after `high_s`. Pure.

    Returns the files, the time of the last change in the batch, and whether there are more files. `most` are the most
    files and bytes of a batch. Files with the same time are in one batch.

    >>> files = [Source(name, 1) for name in "abcd"]
    >>> batch, end, more = next_files(files, {"a": 1, "b": 5, "c": 5, "d": 9}, 1, 9, (1, 100))
    >>> [file.path for file in batch], end, more
    (['b', 'c'], 5, True)
    """
    new = [one for one in found if changed_s[one.path] <= high_s and (low_s is None or changed_s[one.path] > low_s)]
    new.sort(key=lambda one: (changed_s[one.path], one.path))
    if not new:
        return [], high_s, False
    end_s = changed_s[batches(new, *most)[0][-1].path]
    batch = [one for one in new if changed_s[one.path] <= end_s]
    return batch, end_s, len(batch) < len(new)
