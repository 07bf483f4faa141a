"""The Parquet files that Spark's own writer left in a local folder."""

from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pyarrow import parquet

from spark_tasks.table.part import Part, PartsFolder
from spark_tasks.table.statistics import statistics

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def local_parts(table: PartsFolder, folder: str) -> tuple[Part, ...]:
    """The Parquet files in that folder of the table, with the statistics in their footers."""
    return parts_in(Path(table.place.path), folder)


def parts_in(root: Path, folder: str) -> tuple[Part, ...]:
    """As `local_parts`, for a folder in `root`."""
    return tuple(_part(path, path.relative_to(root)) for path in sorted((root / folder).rglob("part-*.parquet")))


def _part(path: Path, inner: Path) -> Part:
    about, footer = path.stat(), parquet.read_metadata(path)
    modified_ms = about.st_mtime_ns // 1_000_000
    values = partition_values(inner.parent)
    return Part(
        path=inner.as_posix(),
        size_bytes=about.st_size,
        modified_ms=modified_ms,
        rows=footer.num_rows,
        stats=statistics(footer),
        partition_values=values,
    )


def partition_values(folder: Path) -> dict[str, str | None]:
    """The values of the partition columns of the files in a folder, by the names that Spark gives to such folders.

    >>> partition_values(Path("TASK/00000001-1/year=2013/at=05%3A00/by=__HIVE_DEFAULT_PARTITION__"))
    {'year': '2013', 'at': '05:00', 'by': None}
    """
    pairs = (part.partition("=") for part in folder.parts if "=" in part)
    return {unquote(name): None if value == _NULL else unquote(value) for name, _, value in pairs}
