"""The first rows of a DataFrame as JSON, small enough for a run's result, and Spark's plan in short."""

import io
import json
import math
import re
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_BYTES_MAX: Final = 48 * 1024
"""The most bytes of a sample's rows as JSON. A run's result may have 64 KiB."""

CELL_CHARS_MAX: Final = 200
PLAN_CHARS_MAX: Final = 4000
_LINE_CHARS_MAX: Final = 160

RESULT: Final = {
    "columns": "the names and Spark types of the columns; PostgreSQL's own where rows go from there to there untouched",
    "rows": "the first rows, each a list of values; long texts are cut",
    "more": "whether there are more rows than are shown",
    "plan": "how Spark makes the rows",
}
"""The fields of a sample, for the reference."""


class PreviewArgs(BaseModel):
    """How many rows to show."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int = Field(default=20, ge=1, le=1000, description="How many rows to show at most")


def sample(rows: "DataFrame", most: int) -> dict[str, Any]:
    """Return a sample of the rows with the fields of `RESULT`, and at most `most` rows. Raises Spark's errors."""
    found = [[cell_value(value) for value in row] for row in rows.limit(most + 1).collect()]
    kept = fitting(found[:most])
    return {
        "columns": [{"name": field.name, "type": field.dataType.simpleString()} for field in rows.schema.fields],
        "rows": kept,
        "more": len(found) > len(kept),
        "plan": _plan(rows),
    }


def nothing() -> dict[str, Any]:
    """Return the sample of a source without rows."""
    return {"columns": [], "rows": [], "more": False, "plan": ""}


def fitting(rows: list[list[Any]], most_bytes: int = ROWS_BYTES_MAX) -> list[list[Any]]:
    """Return as many of these rows, from the first, as have at most `most_bytes` as JSON together.

    >>> fitting([["a" * 10], ["b" * 10]], 20)
    [['aaaaaaaaaa']]
    """
    size = 0
    for number, row in enumerate(rows):
        size += len(json.dumps(row, ensure_ascii=False).encode()) + 2
        if size > most_bytes:
            return rows[:number]
    return rows


def cell_value(value: Any) -> Any:
    r"""Convert a value of a row to a value that JSON can hold; a long text is cut.

    >>> cell_value(2.5), cell_value(2**70), cell_value(b"\xff0"), cell_value(float("nan")), len(cell_value("x" * 999))
    (2.5, '1180591620717411303424', '0xff30', 'nan', 200)
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = f"0x{value.hex()}" if isinstance(value, bytes | bytearray) else str(value)
    return text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…"


def _plan(rows: "DataFrame") -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        rows.explain()
    return short_plan(printed.getvalue())


def short_plan(said: str) -> str:
    r"""Shorten the plan that `explain` prints: remove its heading and the ids of columns, and cut its long lines.

    >>> short_plan("== Physical Plan ==\n*(1) Project [id#0L AS n#2L]\n+- *(1) Range (0, 9, step=1, splits=2)\n\n")
    '*(1) Project [id AS n]\n+- *(1) Range (0, 9, step=1, splits=2)'
    """
    lines = (re.sub(r"#\d+L?", "", line).rstrip() for line in said.splitlines())
    cut = [line if len(line) <= _LINE_CHARS_MAX else line[: _LINE_CHARS_MAX - 1] + "…" for line in lines]
    return "\n".join(line for line in cut if line and not line.startswith("=="))[:PLAN_CHARS_MAX]
