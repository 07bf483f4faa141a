"""Finds what Spark would not survive, or would read wrongly in silence: endless lines, open quotes, other encodings.

The files are read once before Spark reads them, at the speed of the disk cache, and line by line only where there are
quotes.
"""

import codecs
import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from spark_tasks.files.faults import BadFile, MalformedRows
from spark_tasks.files.form import Form
from spark_tasks.files.listing import Source
from spark_tasks.files.opening import damages, opened, opened_text

LINE_MAX_BYTES: Final = 4 * 2**20
"""The longest line that is read. A driver with 512 MiB of memory does not survive one of 32 MiB."""

_CHUNK_BYTES: Final = 2**20


def check_text(form: Form, places: Mapping[Path, Source]) -> None:
    """Raise `BadFile` for a text file that Spark would not survive, or would read wrongly without a word.

    That is one with a line that is too long, with a quoted field that does not end, or with bytes that are not text in
    UTF-8: Spark replaces those. A damaged compressed file passes: Spark's error for it says more.
    """
    if not form.is_text:
        return
    for place, source in places.items():
        try:
            with opened(place) as file:
                said = _problem(form, file)
            if said is None and form.format == "csv" and form.multiline:
                said = _unbalanced(form, place)
        except damages():
            continue
        if said is not None:
            raise BadFile(source.path, MalformedRows(f"{source.path}{said}"))


def _problem(form: Form, file: BinaryIO) -> str | None:
    quotes = form.format == "csv" and not form.multiline
    in_lines = form.format != "json" or not form.multiline
    decoder = codecs.getincrementaldecoder("utf-8")() if form.encoding == "utf-8" else None
    between, line, rest = form.between.encode(form.encoding), 1, b""
    for chunk in _chunks(file):
        text = rest + chunk
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 if in_lines else len(text)
        whole, rest = text[:end], text[end:]
        if quotes and b'"' in whole and (at := _open_line(whole, between)) is not None:
            return f", line {line + at}: a quoted field does not end in its line: set `multiline: true`, or correct it"
        if decoder is not None and (at := _undecodable(decoder, chunk)) is not None:
            return _not_text(form, line + at)
        line += whole.count(b"\n")
        if len(rest) > LINE_MAX_BYTES:
            return f", line {line}: it is longer than {LINE_MAX_BYTES} bytes, the most that is read"
    if quotes and ends_open(rest, between):
        return f", line {line}: a quoted field does not end: correct it"
    return _not_text(form, line) if decoder is not None and decoder.getstate()[0] else None


def _undecodable(decoder: codecs.IncrementalDecoder, chunk: bytes) -> int | None:
    """The number, from 0, of the first line of `chunk` with bytes that are not text."""
    if chunk.isascii() and not decoder.getstate()[0]:
        return None
    try:
        decoder.decode(chunk)
    except UnicodeDecodeError as error:
        return error.object.count(b"\n", 0, error.start)
    return None


def _not_text(form: Form, line: int) -> str:
    return f", line {line}: its bytes are not text in {form.encoding}: set `encoding`, or correct the file"


_BESIDE: Final = bytes(set(range(256)) - set(b'"\n'))
"""All bytes but quotes and line feeds."""


def _open_line(text: bytes, between: bytes) -> int | None:
    """The number, from 0, of the first line of `text` that ends in a quoted field."""
    # Lines with an odd number of quotes are rare. Whether there is any is found without a look at each line: of each
    # line its quotes are left, and of these, two by two, the one that is odd.
    if b'"' not in text.translate(None, _BESIDE).replace(b'""', b""):
        return None
    for number, line in enumerate(text.split(b"\n")):
        if line.count(b'"') % 2 and ends_open(line.rstrip(b"\r"), between):
            return number
    return None


def ends_open(line: bytes, between: bytes) -> bool:
    """Whether a quoted field of a CSV line does not end in it. A quote within a field without quotes is a character.

    >>> ends_open(b'1,"a', b","), ends_open(b'1,5" pipe', b","), ends_open(b'"a ""b"" c",d', b",")
    (True, False, False)
    """
    at = 0
    while at <= len(line):
        if line[at : at + 1] == b'"':
            at = _closing(line, at + 1)
            if at < 0:
                return True
        after = line.find(between, at)
        if after < 0:
            return False
        at = after + len(between)
    return False


def _closing(line: bytes, at: int) -> int:
    """The position behind the quote that closes a field whose text begins at `at`; -1 if there is none."""
    while (found := line.find(b'"', at)) >= 0:
        if line[found + 1 : found + 2] != b'"':
            return found + 1
        at = found + 2
    return -1


def _unbalanced(form: Form, place: Path) -> str | None:
    """What is wrong with the quotes of a file whose fields may contain line breaks."""
    with opened(place) as file:
        odd = sum(chunk.count(b'"') for chunk in _chunks(file)) % 2
    if not odd or len(form.between) > 1:
        return None
    csv.field_size_limit(LINE_MAX_BYTES)
    with opened_text(place, form.encoding) as lines:
        rows = csv.reader(lines, delimiter=form.between, strict=True)
        begins = 1
        try:
            for _ in rows:
                begins = rows.line_num + 1
        except csv.Error as error:
            if "unexpected end" in str(error) or "field larger" in str(error):
                return f", line {begins}: a quoted field does not end: all rows behind it would be part of it"
    return None


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk
