"""Lays out a table for a terminal. No cell but the last is wrapped, so that ids can be copied. Pure."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from rich.cells import cell_len

GAP: Final = 2
LAST_LEAST: Final = 24
"""The least width in which the last column is wrapped. With less, its cell is printed below the row."""
INDENT: Final = " " * 4


def lay_out(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
    """Yield the lines of a table. `width` is the terminal's; None: no limit, one line for each row.

    Only the last column may be long. If the other columns do not fit, each row becomes a list of headings and cells.

    >>> list(lay_out(("A", "B"), [("1", "x y")], None))
    ['A  B', '1  x y']
    >>> list(lay_out(("NODE", "SLOT"), [("node-1", "0")], 5))
    ['NODE  node-1', 'SLOT  0']
    """
    widths = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
    before = sum(widths[:-1]) + GAP * (len(widths) - 1)
    if width is None or before + widths[-1] <= width:
        yield from (_line(row, widths) for row in (headings, *rows))
    elif before + LAST_LEAST <= width:
        for row in (headings, *rows):
            first, *others = _folded(row[-1], width - before)
            yield _line((*row[:-1], first), widths)
            yield from (" " * before + line for line in others)
    elif before - GAP <= width:
        for row in (headings, *rows):
            yield _line(row[:-1], widths)
            if row is not headings:
                yield from (INDENT + line for line in _folded(row[-1], width - len(INDENT)) if line)
    else:
        named = max(map(cell_len, headings))
        for number, row in enumerate(rows):
            yield from [""] if number else []
            for heading, cell in zip(headings, row, strict=True):
                if cell:
                    yield _line((heading, cell), (named, 0))


def _folded(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 1), break_on_hyphens=False) or [""]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=False))
    return (" " * GAP).join(padded).rstrip()
