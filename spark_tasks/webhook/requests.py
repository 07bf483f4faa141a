"""The bodies of a batch's requests: made once, kept beside the ledger, and sent from there, byte by byte the same."""

import io
import json
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Final, cast

from spark_tasks.contracts.fetched import python_values
from spark_tasks.contracts.json_values import json_encoder
from spark_tasks.contracts.sink import SinkUnfit

if TYPE_CHECKING:
    from spark_tasks.contracts.fetched import FetchedRows

BODY_BYTES: Final = 4 << 20
"""A request whose body has reached this size gets no further row."""


def bodies(fetched: "FetchedRows", rows_max: int) -> Iterator[tuple[int, bytes]]:
    """The requests' bodies, each a JSON array of objects, with the number of their rows. Raises `SinkUnfit`."""
    objects: list[bytes] = []
    size = 0
    for each in _objects(fetched):
        objects.append(each)
        size += len(each) + 1
        if len(objects) == rows_max or size >= BODY_BYTES:
            yield len(objects), b"[%b]" % b",".join(objects)
            objects, size = [], 0
    if objects:
        yield len(objects), b"[%b]" % b",".join(objects)


def _objects(fetched: "FetchedRows") -> Iterator[bytes]:
    schema = fetched.schema()
    encoders = [json_encoder(field.type) for field in schema]
    for batch in fetched.batches():
        columns = [python_values(column, field.name) for column, field in zip(batch.columns, schema, strict=True)]
        for row in zip(*columns, strict=True):
            values = (None if value is None else encode(value) for encode, value in zip(encoders, row, strict=True))
            named = dict(zip(schema.names, values, strict=True))
            yield json.dumps(named, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def write_bodies(out: IO[bytes], found: Iterator[tuple[int, bytes]]) -> tuple[int, int]:
    """Write bodies to a file, compressed, one a line; the number of rows and of requests."""
    import zstandard

    rows = requests = 0
    with zstandard.ZstdCompressor(write_checksum=True).stream_writer(out, closefd=False) as packed:
        for count, body in found:
            packed.write(body + b"\n")  # JSON itself has no line breaks
            rows += count
            requests += 1
    return rows, requests


def read_bodies(file: IO[bytes], requests: int, named: str) -> Iterator[bytes]:
    """The bodies in a file of `write_bodies`. Raises `SinkUnfit` if they are not as many as were written."""
    import zstandard

    found = 0
    try:
        with zstandard.ZstdDecompressor().stream_reader(file, closefd=False) as unpacked:
            for line in io.BufferedReader(cast("io.RawIOBase", unpacked), 1 << 20):
                found += 1
                yield line.removesuffix(b"\n")
    except zstandard.ZstdError as error:
        raise SinkUnfit(f"{named} is damaged ({error}): its batch cannot be delivered") from None
    if found != requests:
        raise SinkUnfit(f"{named} has {found} requests, and {requests} were written: its batch cannot be delivered")
