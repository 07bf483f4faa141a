"""Why a row does not fit the columns, in a few words: Spark marks such a row, but gives no reason. Pure.

Each row is parsed again by Python's own readers, and compared with the values that Spark could read.
"""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_tasks.files.form import Form

SHOWN_CHARS: Final = 100
"""The most characters of a value that a reason shows."""

OTHER: Final = "it does not fit the columns"


def reason(form: Form, types: Mapping[str, str], text: str, values: Mapping[str, Any]) -> str:
    """Return why the row `text` does not fit the columns. `types` has the columns' types by their names, in their
    order.

    `values` are the values that Spark has read: None for a missing value, and for one that does not fit.

    >>> form = Form(format="csv")
    >>> reason(form, {"n": "int", "t": "string"}, "x,y", {"n": None, "t": "y"})
    "column n: 'x' is not int"
    >>> reason(form, {"n": "int", "t": "string"}, "1,y,z", {"n": 1, "t": "y"})
    '3 fields where there are 2 columns'
    """
    if form.format == "json":
        return _json_reason(types, text, values)
    if form.format == "tbl":
        if not text.endswith(form.between):
            return f"it does not end with {form.between!r}"
        fields: Sequence[str] | None = text[: -len(form.between)].split(form.between)
    else:
        fields = _csv_fields(form, text)
    if fields is None:
        return OTHER
    if len(fields) != len(types):
        return f"{len(fields)} fields where there are {len(types)} columns"
    given = {name: field for name, field in zip(types, fields, strict=True) if field not in ("", form.null_value)}
    return misfit(types, given, values)


def _csv_fields(form: Form, text: str) -> list[str] | None:
    if len(form.between) > 1:
        return None if '"' in text else text.split(form.between)
    try:
        lines = text.lstrip("\ufeff").splitlines(keepends=True)
        rows = list(csv.reader(lines, delimiter=form.between, strict=True, **form.quoting))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _json_reason(types: Mapping[str, str], text: str, values: Mapping[str, Any]) -> str:
    try:
        given = json.loads(text, parse_float=str)  # as it is written: 1.10 is not 1.1
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(given, dict):
        return "not a JSON object"
    return misfit(types, given, values)


def misfit(types: Mapping[str, str], given: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Name the first value of `given` that Spark could not convert to its column's type: it is None in `values`."""
    for name, kind in types.items():
        if given.get(name) is not None and values.get(name) is None:
            return f"column {name}: {_shown(given[name])} is not {kind}{_hint(kind, given[name])}"
    return OTHER


def _hint(kind: str, value: Any) -> str:
    """Return a hint for a value that nearly fits its column's type; empty if there is no hint."""
    if kind.startswith("decimal") and isinstance(value, str) and _NUMBER.fullmatch(value):
        return ": it has more digits than that"
    if kind.startswith("timestamp") and _EPOCH.fullmatch(str(value)):
        return ": a number does not say its unit, write ISO 8601 or declare it BIGINT"
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return _TIMES[kind]
    if kind in ("float", "double") and isinstance(value, str) and _NUMBER.fullmatch(value):
        return f": no {kind} is near enough to it"
    return ""


_NUMBER: Final = re.compile(r"\s*[+-]?[0-9.]+([eE][+-]?[0-9]+)?\s*")
_EPOCH: Final = re.compile(r"[0-9]{5,}")
_TIMES: Final = {
    "date": ", written as 2026-01-31",
    "timestamp": ", written as 2026-01-31T09:00:00, with at most 6 digits of a second, and Z or +02:00 behind it",
    "timestamp_ntz": ", written as 2026-01-31T09:00:00, with at most 6 digits of a second and no zone",
}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
