"""Why a row does not fit the columns, in a few words: Spark marks such a row and does not say. Pure.

A row is parsed here once more, by Python's own readers, beside the values that Spark could make of it.
"""

import csv
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from spark_tasks.files.form import Form

SHOWN_CHARS: Final = 100
"""The most characters of a value that a reason shows."""

OTHER: Final = "it does not fit the columns"


def reason(form: Form, types: Mapping[str, str], text: str, values: Mapping[str, Any]) -> str:
    """Why the row `text` does not fit the columns, which have these types by their names, in their order.

    `values` are what Spark made of the row: None where it has no value, or one that does not fit.

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
        fields = _csv_fields(text, form.between)
    if fields is None:
        return OTHER
    if len(fields) != len(types):
        return f"{len(fields)} fields where there are {len(types)} columns"
    given = {name: field for name, field in zip(types, fields, strict=True) if field not in ("", form.null_value)}
    return _misfit(types, given, values)


def _csv_fields(text: str, between: str) -> list[str] | None:
    if len(between) > 1:
        return None if '"' in text else text.split(between)
    try:
        rows = list(csv.reader([text.lstrip("\ufeff")], delimiter=between, strict=True))
    except csv.Error:
        return None
    return rows[0] if len(rows) == 1 else None


def _json_reason(types: Mapping[str, str], text: str, values: Mapping[str, Any]) -> str:
    try:
        given = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(given, dict):
        return "not a JSON object"
    return _misfit(types, {name: value for name, value in given.items() if value is not None}, values)


def _misfit(types: Mapping[str, str], given: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    for name, kind in types.items():
        if name in given and values.get(name) is None:
            return f"column {name}: {_shown(given[name])} is not {kind}"
    return OTHER


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
