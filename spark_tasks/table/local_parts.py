"""The Parquet files that Spark's own writer left in a local folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow import parquet

from spark_tasks.table.ledger import Mark
from spark_tasks.table.part import Part
from spark_tasks.table.statistics import statistics

if TYPE_CHECKING:
    from spark_tasks.table.delta import Table


def local_parts(table: "Table", mark: Mark) -> tuple[Part, ...]:
    """The Parquet files of that batch, with the statistics in their footers."""
    folder = Path(table.place.path)
    found = sorted((folder / table.parquet_folder(mark)).glob("part-*.parquet"))
    return tuple(_part(path, path.relative_to(folder).as_posix()) for path in found)


def _part(path: Path, name: str) -> Part:
    about, footer = path.stat(), parquet.read_metadata(path)
    return Part(name, about.st_size, about.st_mtime_ns // 1_000_000, footer.num_rows, statistics(footer))
