"""Opens a text file as Spark would, decompressed by its suffix, so that this process can read a part of it, such as its
header.
"""

import csv
import gzip
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import BinaryIO, Final, cast

from spark_tasks.files.faults import BadFile, SchemaDrift
from spark_tasks.files.form import Form
from spark_tasks.files.listing import Source

ZSTD: Final = (".zst",)
GZIP: Final = (".gz",)

LINE_MAX_BYTES: Final = 4 * 2**20
"""The longest line that is read. A driver with 512 MiB of memory runs out of memory at a line of 32 MiB."""


@contextmanager
def opened(place: Path) -> Iterator[BinaryIO]:
    """Open the file to read its bytes, decompressed. Reading a damaged file raises one of `damages()`."""
    with ExitStack() as closing:
        file: BinaryIO = closing.enter_context(place.open("rb"))
        if place.suffix in GZIP:
            file = cast("BinaryIO", closing.enter_context(gzip.open(file)))
        elif place.suffix in ZSTD:
            import zstandard

            unpacked = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            file = cast("BinaryIO", BufferedReader(cast("RawIOBase", closing.enter_context(unpacked))))
        yield file


@contextmanager
def opened_text(place: Path, encoding: str) -> Iterator[TextIOWrapper]:
    """Open the file to read its lines, with any line ends. Bytes that are not text in `encoding` are replaced."""
    with opened(place) as file, TextIOWrapper(file, encoding=encoding, errors="replace", newline=None) as text:
        yield text


def damages() -> tuple[type[Exception], ...]:
    """Return the exceptions that reading a damaged file raises."""
    import zlib

    from zstandard import ZstdError

    return OSError, EOFError, ValueError, zlib.error, ZstdError


def header_of(form: Form, place: Path, source: Source) -> tuple[str, ...]:
    """Return the names in the first line of a CSV file: none for an empty file, or for a damaged file, which Spark
    reports.

    Raises `BadFile` for a duplicate name.
    """
    try:
        with opened_text(place, form.encoding) as lines:
            first = next((line for line in lines if line.strip()), "").lstrip("\ufeff").rstrip("\n")
    except damages():
        return ()
    if not first:
        return ()
    names = next(csv.reader([first], delimiter=form.between)) if len(form.between) == 1 else first.split(form.between)
    if twice := [name for name, times in Counter(name.lower() for name in names).items() if times > 1]:
        raise BadFile(source.path, SchemaDrift(f"{source.path}: the header names {', '.join(twice)} twice"))
    return tuple(names)
