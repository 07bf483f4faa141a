"""Writes the rows of one batch, and counts them: what is read is written, or is kept as malformed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from spark_tasks.files import malformed
from spark_tasks.files.form import Form
from spark_tasks.files.listing import Source
from spark_tasks.files.reading import CORRUPT, frame, marks
from spark_tasks.files.text_checks import check_encoding
from spark_tasks.ingest.errors import CountsDiffer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Counts:
    """The rows of a batch that were read, and those of them that were kept as malformed."""

    read: int
    quarantined: int = 0


class BatchWriter:
    """Writes batches with the columns `schema`."""

    def __init__(
        self, spark: "SparkSession", form: Form, schema: "StructType", partition_by: Sequence[str] = ()
    ) -> None:
        self.spark = spark
        self.form = form
        self.schema = schema
        self.partition_by = partition_by

    def write(self, places: Mapping[Path, Source], folder: Path, kept: Path, within: Path) -> Counts:
        """Write the rows as Parquet into `folder`, and malformed ones into the file `kept`; their numbers.

        Raises `BadFile` for a file with a malformed row if these are not kept, or with too many of them, and for one
        with bytes that are not text.
        """
        from pyspark.sql import Observation

        kept.unlink(missing_ok=True)  # of a try with a file that was then left out
        rows, seen = frame(self.spark, self.form, self.schema, places), Observation()
        good = rows.observe(seen, *self._figures())
        if marks(self.form):
            good = _good(good)
        good.write.mode("overwrite").partitionBy(*self.partition_by).parquet(str(folder))
        figures = {name: int(value) for name, value in seen.get.items()}
        if figures["replaced"]:
            check_encoding(self.form, places)
        quarantined = self._keep(rows, figures["bad"], places, kept, within) if figures["bad"] else 0
        return Counts(figures["read"], quarantined)

    def _figures(self) -> "list[Column]":
        from pyspark.sql import functions as f

        bad = f.col(CORRUPT).isNotNull() if marks(self.form) else f.lit(False)
        figures = {"read": f.count(f.lit(1)), "bad": _number_of(bad), "replaced": _number_of(self._replaced())}
        return [figure.alias(name) for name, figure in figures.items()]

    def _replaced(self) -> "Column":
        """Whether a row has the character that Spark puts in the place of bytes that it cannot decode."""
        from pyspark.sql import functions as f

        texts = [field.name for field in self.schema.fields if field.dataType.typeName() == "string"]
        if not self.form.is_text or self.form.encoding != "utf-8":
            return f.lit(False)
        found = (f.coalesce(f.contains(f.col(f"`{name}`"), f.lit("\ufffd")), f.lit(False)) for name in texts)
        return reduce(lambda one, other: one | other, found, f.lit(False))

    def _keep(self, rows: "DataFrame", bad: int, places: Mapping[Path, Source], kept: Path, within: Path) -> int:
        if self.form.malformed == "fail":
            found = malformed.first_bad(self.spark, self.form, self.schema, places)
            assert found is not None
            raise found
        malformed.check_few(rows, bad, places)
        return malformed.keep(kept, malformed.bad_rows(rows, self.form, self.schema, places), within)


def _number_of(condition: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.coalesce(f.sum(condition.cast("long")), f.lit(0))


def _good(rows: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    return rows.filter(f.col(CORRUPT).isNull()).drop(CORRUPT)


def check_counts(counts: Counts, written: int) -> None:
    """Raise `CountsDiffer` unless each row that was read was written or kept.

    >>> check_counts(Counts(read=10, quarantined=2), written=8)
    """
    if counts.read != written + counts.quarantined:
        raise CountsDiffer(
            f"the batch has {counts.read} rows, of which {written} were written and {counts.quarantined} kept as "
            "malformed: a file has changed while it was read, and nothing of the batch was committed"
        )
