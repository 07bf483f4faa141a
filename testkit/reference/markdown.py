"""Pieces of Markdown that the pages are made of."""

from collections.abc import Iterable, Sequence
from typing import Final

MADE_BY: Final = "<!-- Written from the code by `make reference`; changes here are overwritten. -->\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. A `|` in a cell is escaped, also inside of code.

    >>> print(table(("A", "B"), [("x|y", "z")]), end="")
    | A | B |
    |---|---|
    | x\\|y | z |
    """
    lines = [headings, ["---"] * len(headings), *rows]
    text = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines]
    text[1] = "|" + "---|" * len(headings)
    return "\n".join(text) + "\n"


def code(text: str) -> str:
    """Inline code; nothing for an empty text."""
    return f"`{text}`" if text else ""
