"""Finds text that would crash Spark or be silently misread: endless lines, wrong quotes, other encodings.

The files are read once before Spark reads them, at the speed of the disk cache, and line by line only where something
is wrong. A line that is wrong by itself is a malformed row: Spark then reads a copy of the file in which this line is
empty. An error that makes the lines around it uncertain fails the file.
"""

import codecs
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from spark_tasks.files.faults import BadFile, MalformedRows
from spark_tasks.files.form import Form
from spark_tasks.files.listing import Source
from spark_tasks.files.malformed import MALFORMED_MAX, BadRow
from spark_tasks.files.opening import LINE_MAX_BYTES, damages, opened
from spark_tasks.files.quoting import problem_in, well_quoted

_CHUNK_BYTES: Final = 2**20

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE_SURROGATE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""Matches every escape in JSON. Its group has the digits of an unpaired surrogate, which is no character."""


class WrongText(NamedTuple):
    """An error at a line, from 1. `alone`: only that line is wrong; else the file is unreliable from there on."""

    line: int
    why: str
    alone: bool = False


def check_text(form: Form, places: Mapping[Path, Source]) -> None:
    """Raise `BadFile` for a text file with any of the faults that `clean_text` names."""
    for place, source in places.items():
        for found in _findings(form, place):
            raise _bad(source, found)


def clean_text(form: Form, places: Mapping[Path, Source], folder: Path) -> tuple[dict[Path, Source], list[BadRow]]:
    """Return the files for Spark to read, and the rows that are malformed by their text alone.

    Raises `BadFile` for a text file that would crash Spark, or that Spark would silently read wrongly: a line is too
    long, a quoted field does not end, or bytes are not UTF-8. If malformed rows are not kept, it is also raised for the
    first malformed row; else files with malformed rows are copied into `folder` without them. A damaged compressed file
    passes: Spark's error for it says more.
    """
    if form.malformed == "fail":
        check_text(form, places)
        return dict(places), []
    clean: dict[Path, Source] = {}
    rows: list[BadRow] = []
    for number, (place, source) in enumerate(places.items()):
        wrong: dict[int, str] = {}
        for found in _findings(form, place):
            if not found.alone or (found.line == 1 and form.format == "csv" and form.header):
                raise _bad(source, found)
            wrong[found.line] = found.why
            if len(rows) + len(wrong) > MALFORMED_MAX:
                why = f"more than {MALFORMED_MAX} rows are malformed, as line {found.line}: {found.why}"
                raise BadFile(source.path, MalformedRows(f"{source.path}: {why}"))
        if not wrong:
            clean[place] = source
            continue
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / f"{number:06d}.{form.format}"
        rows += _copied(form, place, copy, wrong, source)
        clean[copy] = source
    return clean, rows


def _bad(source: Source, found: WrongText) -> BadFile:
    return BadFile(source.path, MalformedRows(f"{source.path}, line {found.line}: {found.why}"))


def _copied(form: Form, place: Path, copy: Path, wrong: Mapping[int, str], source: Source) -> Iterator[BadRow]:
    """Copy the file with the lines `wrong` left empty, so that the others keep their numbers. Yields these rows."""
    with opened(place) as file, copy.open("wb") as out:
        for line, text in enumerate(file, 1):
            if line in wrong:
                out.write(b"\n")
                shown = text.decode(form.encoding, errors="replace").rstrip("\r\n")
                yield BadRow(source.path, line, shown, wrong[line])
            else:
                out.write(text)


def _findings(form: Form, place: Path) -> Iterator[WrongText]:
    if not form.is_text:
        return
    try:
        with opened(place) as file:
            yield from _found(form, file)
    except damages():
        return


def _found(form: Form, file: BinaryIO) -> Iterator[WrongText]:
    quoted = form.format == "csv" and form.quotes
    in_lines = not form.multiline or form.format == "tbl"
    decoder = codecs.getincrementaldecoder("utf-8")() if form.encoding == "utf-8" else None
    line, rest, end_of_line = 1, b"", b""
    for chunk in _chunks(file):
        end_of_line = end_of_line or (b"\n" if b"\n" in chunk else b"\r" if b"\r" in chunk else b"")
        text = rest + chunk
        if in_lines or quoted:
            end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        else:  # do not cut between the halves of a pair of surrogates
            end = (text.rfind(b'"') + 1 if b"\\u" in text else 0) or len(text)
        if not in_lines and quoted and text.count(b'"', 0, end) % 2:
            end = 0  # it would be within a quoted field
        whole, rest = text[:end], text[end:]
        if decoder is not None and (at := _undecodable(decoder, chunk)) is not None:
            yield _not_text(form, line + at)
            return
        yield from _within(form, whole, line, end_of_line)
        line += whole.count(end_of_line) if end_of_line else 0
        if len(rest) > LINE_MAX_BYTES:
            what = f"longer than {LINE_MAX_BYTES} bytes, the most that is read"
            yield WrongText(line, f"it is {what}" if in_lines else f"a quoted field does not end, or is {what}")
            return
    yield from _within(form, rest, line, end_of_line)
    if decoder is not None and decoder.getstate()[0]:
        yield _not_text(form, line)


def _within(form: Form, text: bytes, line: int, end_of_line: bytes) -> Iterator[WrongText]:
    """Yield the errors in whole lines, or whole records. `line` is the number of the first line."""
    if form.format == "csv" and form.multiline:
        if b'"' in text and form.quotes and not _is_well_quoted(form, text):
            at, why, _ = problem_in(text, form.between.encode(form.encoding), _escape(form)) or (0, "", False)
            if why:
                yield WrongText(line + text.count(b"\n", 0, at), why)
        if b"\0" in text:
            yield WrongText(line + text.count(b"\n", 0, text.index(b"\0")), _NUL)
        return
    returns = end_of_line == b"\n" and form.format != "json" and b"\r" in text and _lone_return(text)
    quotes = form.format == "csv" and form.quotes and b'"' in text and not _is_well_quoted(form, text)
    lone = form.format == "json" and b"\\u" in text and _has_lone_surrogate(text)
    if not (returns or quotes or lone or (b"\0" in text and form.format != "json")):
        return
    for number, one in enumerate(text.split(end_of_line) if end_of_line else [text], line):
        if (found := _of_line(form, one.rstrip(b"\r"), number)) is not None:
            yield found


def _of_line(form: Form, text: bytes, line: int) -> WrongText | None:
    alone = not (form.multiline and form.format == "json")
    if form.format == "json":
        return WrongText(line, _SURROGATES, alone) if _has_lone_surrogate(text) else None
    if b"\0" in text:
        return WrongText(line, _NUL, True)
    if b"\r" in text:
        return WrongText(line, "it has a carriage return within it, while lines end in a line feed", True)
    if form.format == "csv" and form.quotes and b'"' in text:
        found = problem_in(text, form.between.encode(form.encoding), _escape(form))
        if found is not None:
            _, why, ends = found
            return WrongText(line, why if ends else f"{why} in its line: set `multiline: true`, or correct it", ends)
    return None


_NUL: Final = "it has a NUL, which is no character of a text"
_SURROGATES: Final = "it has half of a pair of surrogates, which is no character"


def _escape(form: Form) -> bytes | None:
    return None if form.escape is None else form.escape.encode()


def _is_well_quoted(form: Form, text: bytes) -> bool:
    return well_quoted(text, form.between.encode(form.encoding), _escape(form), breaks=form.multiline)


def _lone_return(text: bytes) -> bool:
    return b"\r" in text.replace(b"\r\n", b"").removesuffix(b"\r")


def _has_lone_surrogate(text: bytes) -> bool:
    return _SURROGATE.search(text) is not None and any(match[1] for match in _LONE_SURROGATE.finditer(text))


def _undecodable(decoder: codecs.IncrementalDecoder, chunk: bytes) -> int | None:
    """Return the number, from 0, of the first line of `chunk` with bytes that are not text; None if all bytes
    are text.
    """
    if chunk.isascii() and not decoder.getstate()[0]:
        return None
    try:
        decoder.decode(chunk)
    except UnicodeDecodeError as error:
        return error.object.count(b"\n", 0, error.start)
    return None


def _not_text(form: Form, line: int) -> WrongText:
    return WrongText(line, f"its bytes are not text in {form.encoding}: set `encoding`, or correct the file")


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk
