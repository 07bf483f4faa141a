"""Rows for the measurements of pipelines. The same number of a row gives the same row."""

from pathlib import Path
from typing import Any, Final

COLUMNS: Final = (
    "id BIGINT, at TIMESTAMP, carrier STRING, tailnum STRING, origin STRING, dest STRING, distance INT, delay DOUBLE, "
    "note STRING"
)

_CARRIERS: Final = ["UA", "AA", "B6", "DL", "EV", "MQ", "US", "WN", "VX", "FL", "AS", "9E", "F9", "HA", "YV", "OO"]
_PORTS: Final = ["EWR", "JFK", "LGA", "ORD", "ATL", "LAX", "BOS", "MCO", "CLT", "SFO", "FLL", "MIA", "DCA"]
_NOTES: Final = [
    "",
    "on time",
    '"late, by the weather"',
    "turned back",
    "full",
    "",
    "half empty",
    "",
    "new crew",
    "late",
]
"""One of ten has a comma, and is therefore quoted."""


def put_csv(folder: Path, rows: int, files: int) -> int:
    """Write the rows 0 to `rows` as CSV files with headers, of nearly the same size each; their bytes."""
    folder.mkdir(parents=True)
    header = ",".join(column.split()[0] for column in COLUMNS.split(", ")).encode() + b"\n"
    for number in range(files):
        first, end = rows * number // files, rows * (number + 1) // files
        (folder / f"{number:04d}.csv").write_bytes(header + _lines(first, end))
    return sum(file.stat().st_size for file in folder.iterdir())


def _lines(first: int, end: int) -> bytes:
    """The lines of the rows from `first` on and before `end`."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    n = np.arange(first, end, dtype=np.int64)
    delays = compute.cast(pa.array((n * 37 % 10_000) / 8 - 100), pa.string())
    fields = [
        compute.cast(pa.array(n), pa.string()),
        compute.cast(pa.array(n + 1_767_225_600, pa.timestamp("s")), pa.string()),
        _of(_CARRIERS, n * 7 // 3),
        compute.binary_join_element_wise("N", compute.cast(pa.array(10_000 + n * 31 % 5_000), pa.string()), ""),
        _of(_PORTS[:3], n),
        _of(_PORTS, n * 5 // 4),
        compute.cast(pa.array(80 + n * 17 % 4_900), pa.string()),
        compute.if_else(pa.array(n % 50 == 0), "", delays),
        _of(_NOTES, n * 3),
    ]
    lines = compute.binary_join_element_wise(compute.binary_join_element_wise(*fields, ","), "\n", "")
    _, offsets, text = lines.buffers()
    assert offsets is not None and text is not None and lines.offset == 0
    return bytes(text)


def _of(values: list[str], numbers: Any) -> Any:
    """A value for each of the numbers."""
    import pyarrow as pa

    return pa.array(values).take(pa.array(numbers % len(values)))


CREATE_ORDERS: Final = """
CREATE TABLE orders (id bigint PRIMARY KEY, at timestamptz NOT NULL, customer int NOT NULL, region text NOT NULL,
  amount double precision NOT NULL, note text);
INSERT INTO orders SELECT n, timestamptz '2026-01-01Z' + n * interval '1 s', n::bigint * 7919 % 50000,
  (ARRAY['north', 'east', 'south', 'west'])[1 + n % 4], (n * 37 % 100000) / 100.0, 'order ' || n
  FROM generate_series(0, {rows} - 1) n;
ANALYZE orders;
"""
"""The table that an etl reads: about 90 bytes a row."""

TOTALS: Final = """
SELECT customer, region, count(*) AS orders, sum(amount) AS amount, max(at) AS last_at FROM source
GROUP BY customer, region
"""
"""What is made of it: 50,000 rows of as many orders, or more."""
