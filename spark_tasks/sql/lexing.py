"""Finds errors of an SQL text that need no parser of Spark: in quotes, comments and brackets. Pure.

So every member refuses the same texts at a `PUT`. A text that passes may still be wrong; Spark then reports the error
when the task runs, and at a preview.
"""

import re
from typing import Final

_PIECE: Final = re.compile(
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*|\*/|[()\[\];]|['"`]|[^'"`/\-*()\[\];]+|.""",
    re.DOTALL,
)
_RAW: Final = re.compile(r"""\b[rR]$""")
_ENDS: Final = {")": "(", "]": "["}


def unbalanced(sql: str) -> str | None:
    """Return a message about the first bracket, quote or comment that is not closed, or closes nothing; None if all are
    balanced.

    >>> unbalanced("n > 0 AND (t = ')' OR t LIKE '%(' /* ( */)"), unbalanced("(n > 0"), unbalanced("t = 'a")
    (None, "'(' at character 1 is not closed", "the quote ' at character 5 is not closed")
    """
    waiting: list[tuple[str, int]] = []
    at = 0
    while at < len(sql):
        match = _PIECE.match(sql, at)
        assert match is not None
        piece = match[0]
        if piece[0] in "'\"" and _RAW.search(sql, 0, at):
            return None  # a raw string, in which a backslash is a character: Spark's parser checks it
        if piece in ("'", '"', "`"):
            return f"the quote {piece} at character {at + 1} is not closed"
        if piece == "/*":
            end = sql.find("*/", at + 2)
            if end < 0:
                return f"the comment at character {at + 1} is not closed"
            if "/*" in sql[at + 2 : end]:
                return None  # a comment within a comment: Spark's parser checks it
            at = end + 2
            continue
        if piece in ("(", "["):
            waiting.append((piece, at))
        elif piece in _ENDS and (not waiting or waiting.pop()[0] != _ENDS[piece]):
            return f"{piece!r} at character {at + 1} closes nothing"
        at = match.end()
    return f"{waiting[-1][0]!r} at character {waiting[-1][1] + 1} is not closed" if waiting else None


def check_balanced(sql: str) -> str:
    """Return `sql` unchanged if it is balanced. Raises `ValueError` with the message of `unbalanced` if it is not."""
    if wrong := unbalanced(sql):
        raise ValueError(wrong)
    return sql
