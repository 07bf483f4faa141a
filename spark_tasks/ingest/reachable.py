"""What the executors of a Spark cluster must see of a batch: its files, and the folder of the table."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spark_tasks.files.listing import Source
from spark_tasks.spark.seen import check_seen
from spark_tasks.table.ledger import Mark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_tasks.table.delta import Table


def check_reachable(spark: "SparkSession", table: "Table", mark: Mark, places: Mapping[Path, Source]) -> None:
    """Raise `seen.NotSeen` unless executors see the files at `places`, and where they are to write the batch `mark`.

    The folder of the batch is made for that: no other attempt has one of that name, so it is the same folder there.
    """
    paths = [*places]
    if table.place.is_local:
        folder = Path(table.place.path) / table.parquet_folder(mark)
        folder.mkdir(parents=True, exist_ok=True)
        paths.append(folder)
    check_seen(spark, paths, {place: source.path for place, source in places.items() if str(place) != source.path})
