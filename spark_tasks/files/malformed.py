"""The rows that `malformed: skip` leaves out of a table: kept next to the batch's page, with file, line and text.

One JSON object in each line: `{"file": ..., "line": 17, "text": ...}`. Spark does not say at which line of a file a row
is, so the file is read again to find it; `line` is null if the line is not found. The line of a record of several lines
is its first.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from spark_tasks.files.listing import Source
from spark_tasks.files.reading import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def texts(rows: "DataFrame") -> dict[Path, list[str]]:
    """The raw text of each malformed row, by file."""
    from pyspark.sql import functions as f

    found: dict[Path, list[str]] = defaultdict(list)
    bad = rows.filter(f.col(CORRUPT).isNotNull())
    # Spark refuses to read only this column from CSV, so all others are read with it.
    for row in bad.withColumn(_FILE, f.input_file_name()).toLocalIterator():
        found[Path(unquote(urlsplit(row[_FILE]).path))].append(row[CORRUPT])
    return found


_FILE = "_rota_file"


def keep(out: IO[bytes], found: Mapping[Path, Sequence[str]], places: Mapping[Path, Source]) -> None:
    """Write the rows to `out`. `places` maps the paths that Spark reads to their sources."""
    for place, rows in sorted(found.items()):
        name = places[place].path if place in places else str(place)
        with place.open(encoding="utf-8", errors="replace", newline=None) as lines:
            for line, text in numbered(rows, lines):
                kept = {"file": name, "line": line, "text": text}
                out.write(json.dumps(kept, ensure_ascii=False).encode("utf-8", "replace") + b"\n")


def numbered(rows: Sequence[str], lines: Iterable[str]) -> Iterator[tuple[int | None, str]]:
    """Each row with its line number, from 1, in the order of the lines; rows that are not found come last.

    >>> list(numbered(["x,y,z", "x,y,z", "gone"], ["a,b", "x,y,z", "1,2", "x,y,z"]))
    [(2, 'x,y,z'), (4, 'x,y,z'), (None, 'gone')]
    """
    waiting: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        waiting[_first_line(row)].append(row)
    for number, line in enumerate(lines, 1):
        known = waiting.get(_first_line(line))
        if known:
            yield number, known.pop(0)
    for rest in waiting.values():
        for row in rest:
            yield None, row


def _first_line(text: str) -> str:
    return text.lstrip("\ufeff").partition("\n")[0].rstrip("\r")
