"""Quotes in CSV: whether each field is quoted as in RFC 4180, or the same with an escape character. Pure."""

from typing import Final

OPEN: Final = "a quoted field does not end"
BEHIND: Final = "a field goes on behind its quotes: set `escape` if quotes in it are escaped, or correct it"
WITHIN: Final = (
    "a quote is in a field that is not in quotes: put the field in quotes and double the quote, or set `quotes: false` "
    "if quotes are characters like others"
)


def well_quoted(text: bytes, between: bytes, escape: bytes | None, *, breaks: bool) -> bool:
    """Whether all quotes in `text` (whole lines) are correct. `breaks`: quoted fields may contain line breaks.

    The text is split at its quotes: the pieces are outside of quoted fields and inside them, in turn. A piece outside
    must begin and end with a delimiter or a line end; an empty piece is the gap between the halves of a doubled quote.
    Most pieces of a file are equal, so each distinct piece is checked once.

    >>> [well_quoted(text, b",", None, breaks=False) for text in (b'1,"a ""b"" c",2', b'5" x,"a"', b'"a"b,1')]
    [True, False, False]
    """
    if escape is not None:
        text = text.replace(escape * 2, b"\0\0").replace(escape + b'"', b"\0\0")
    pieces = text.split(b'"')
    if len(pieces) % 2 == 0:
        return False
    if len(pieces) == 1:
        return escape is None or b"\0" not in text
    ends = (between, b"\n", b"\r")
    outside = set(pieces[2:-1:2])
    if escape is None:
        outside.discard(b"")
    if pieces[0] and not pieces[0].endswith(ends):
        return False
    if pieces[-1] and not pieces[-1].startswith(ends):
        return False
    if not all(piece.startswith(ends) and piece.endswith(ends) for piece in outside):
        return False
    if escape is not None and any(b"\0" in piece for piece in (*outside, pieces[0], pieces[-1])):
        return False
    within = b"" if breaks else b"".join(pieces[1::2])
    return b"\n" not in within and b"\r" not in within


def problem_in(text: bytes, between: bytes, escape: bytes | None) -> tuple[int, str, bool] | None:
    """Find the first wrong quote in some lines. Returns its position, the error, and whether its record ends; None if
    all are right.

    >>> problem_in(b'1,"a', b",", None), problem_in(b'"a ""b"" c",', b",", None)
    ((2, 'a quoted field does not end', False), None)
    >>> problem_in(b'"a"b,1', b",", None)[0], problem_in(b'1,5" x', b",", None)[0]
    (3, 2)
    """
    at = 0
    while at < len(text):
        if text[at : at + 1] == b'"':
            end = _closing(text, at + 1, escape)
            if end < 0:
                return at, OPEN, False
            if end < len(text) and not text.startswith((between, b"\n", b"\r"), end):
                return end, BEHIND, True
        else:
            end = min(_find(text, mark, at) for mark in (between, b"\n", b"\r"))
            if b'"' in text[at:end]:
                return at, WITHIN, True
        at = end + (len(between) if text.startswith(between, end) else 1)
    return None


def _find(text: bytes, mark: bytes, at: int) -> int:
    found = text.find(mark, at)
    return found if found >= 0 else len(text)


def _closing(text: bytes, at: int, escape: bytes | None) -> int:
    """Return the position after the quote that closes a field whose text begins at `at`; -1 if no quote closes it."""
    if escape is not None:
        while at < len(text):
            if text[at : at + 1] == escape:
                at += 2
            elif text[at : at + 1] == b'"':
                return at + 1
            else:
                at += 1
        return -1
    while (found := text.find(b'"', at)) >= 0:
        if text[found + 1 : found + 2] != b'"':
            return found + 1
        at = found + 2
    return -1
