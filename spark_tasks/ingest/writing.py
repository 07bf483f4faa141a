"""Writes the rows of one batch, and counts them: each row is written, kept as malformed, or dropped."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_tasks.files import malformed
from spark_tasks.files.form import Form
from spark_tasks.files.layouts import Layout
from spark_tasks.files.listing import Source
from spark_tasks.files.reading import CORRUPT, load_files, marks
from spark_tasks.ingest.errors import CountsDiffer
from spark_tasks.ingest.expectations import Expectations, check_failed, dropped, failed, flagged, without_flags
from spark_tasks.ingest.params import IngestParams
from spark_tasks.storage.errors import store_errors
from spark_tasks.table.ledger import Mark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_tasks.table.delta import Table
    from spark_tasks.table.part import Part
    from spark_tasks.table.writing import Write


@dataclass(frozen=True)
class Counts:
    """The numbers of rows of a batch that were read, kept as malformed, and dropped.

    `failed` counts the rows that do not meet an expectation, by the expectation's name.
    """

    read: int
    quarantined: int = 0
    dropped: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)


class BatchWriter:
    """Writes batches with the columns `schema`."""

    def __init__(
        self, spark: "SparkSession", params: IngestParams, schema: "StructType", table: "Table", write_rows: "Write"
    ) -> None:
        self.spark = spark
        self.form: Form = params
        self.expected = params.expect
        self.schema = schema
        self.table = table
        self.write_rows = write_rows

    def write(
        self,
        places: Mapping[Path, Source],
        layouts: Sequence[Layout] | None,
        mark: Mark,
        taken: "Sequence[malformed.BadRow]" = (),
    ) -> "tuple[tuple[Part, ...], Counts]":
        """Write the rows as Parquet, and malformed rows into a file beside the batch's page.

        `taken` are malformed rows that were removed from the files before. Returns the Parquet files, and the counts.

        Raises `BadFile` for a file with a malformed row if malformed rows are not kept, and for a file with too many of
        them; also `ExpectationFailed`.
        """
        from pyspark.sql import Observation

        place, kept = self.table.place, self.table.ledger.malformed(mark)
        if self.form.malformed == "quarantine":
            with store_errors(place):
                place.remove(kept)  # an earlier try, with a file that was left out afterwards, may have written it
        rows, seen = load_files(self.spark, self.form, self.schema, places, layouts), Observation()
        marked = flagged(rows, self.expected)
        written = _kept(self.form, marked.observe(seen, *self._figures()), self.expected)
        parts = self.write_rows(written, mark)
        figures = {name: int(value) for name, value in seen.get.items()}
        quarantined = 0
        if figures["bad"] or taken:
            found: Iterable[malformed.BadRow] = taken
            if figures["bad"]:
                self._check_bad(rows, figures["bad"], places)
                found = chain(taken, malformed.bad_rows(rows, self.form, self.schema, places, layouts))
            with store_errors(place), place.writing(kept) as out:
                quarantined = malformed.write_bad_rows(out, found)
        broken = {name: figures[_FAILED + name] for name in self.expected}
        check_failed(broken, self.expected)
        return parts, Counts(figures["read"] + len(taken), quarantined, figures["dropped"], broken)

    def _figures(self) -> "list[Column]":
        from pyspark.sql import functions as f

        bad = _bad(self.form)
        figures = {"read": f.count(f.lit(1)), "bad": _number_of(bad)}
        figures["dropped"] = _number_of(~bad & dropped(self.expected))
        figures |= {_FAILED + name: _number_of(~bad & failed(name)) for name in self.expected}
        return [figure.alias(name) for name, figure in figures.items()]

    def _check_bad(self, rows: "DataFrame", bad: int, places: Mapping[Path, Source]) -> None:
        if self.form.malformed == "fail":
            found = malformed.first_bad(self.spark, self.form, self.schema, places)
            assert found is not None
            raise found
        malformed.check_few(rows, bad, places)


def kept_rows(params: IngestParams, rows: "DataFrame") -> "DataFrame":
    """Return those of the rows that would be written to the table."""
    return _kept(params, flagged(rows, params.expect), params.expect)


def _kept(form: Form, rows: "DataFrame", expected: Expectations) -> "DataFrame":
    """Return the rows that are written to the table, without the columns that hold flags."""
    if marks(form):
        rows = rows.filter(~_bad(form)).drop(CORRUPT)
    if any(each.on_fail == "drop" for each in expected.values()):
        rows = rows.filter(~dropped(expected))
    return without_flags(rows, expected)


def _bad(form: Form) -> "Column":
    from pyspark.sql import functions as f

    return f.col(CORRUPT).isNotNull() if marks(form) else f.lit(False)


def _number_of(condition: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.coalesce(f.sum(condition.cast("long")), f.lit(0))


_FAILED: Final = "failed_"


def check_counts(counts: Counts, written: int) -> None:
    """Raise `CountsDiffer` unless each row that was read was written, kept or dropped.

    >>> check_counts(Counts(read=10, quarantined=2), written=8)
    """
    if counts.read != written + counts.quarantined + counts.dropped:
        raise CountsDiffer(
            f"the batch has {counts.read} rows, of which {written} were written, {counts.quarantined} kept as "
            f"malformed and {counts.dropped} dropped: a file has changed while it was read, and nothing was committed"
        )
