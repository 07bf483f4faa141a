"""Whether and how a table's columns change for files with other columns, by the task's rule."""

import re
from typing import TYPE_CHECKING, Final

from spark_tasks.files.faults import BadFile, SchemaDrift
from spark_tasks.files.form import Form
from spark_tasks.files.layouts import RESCUED, as_columns, fits
from spark_tasks.files.listing import Source

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_BAD_NAME: Final = re.compile(r"[ ,;{}()\n\t=]")


def check_name(name: str) -> str | None:
    """Return the error for a column's name that a Delta table cannot have; None if the table can have the name.

    >>> check_name("n"), check_name("n m")
    (None, "a Delta table cannot have a column named 'n m': rename it in the files")
    """
    if _BAD_NAME.search(name) or not name:
        return f"a Delta table cannot have a column named {name!r}: rename it in the files"
    return None


def evolved(standing: "StructType", found: "StructType", form: Form, source: Source) -> "StructType":
    """Return the columns that a table with the columns `standing` has after a file with the columns `found` is added.

    Raises `BadFile` for a column that the task's rule does not allow. A column that the file lacks is null in its rows.
    """
    from pyspark.sql.types import StructField, StructType

    ours = {field.name: field.dataType for field in standing.fields}
    spelled = {name.lower(): name for name in ours}
    wrong: list[str] = []
    for field in as_columns(found).fields:
        name, theirs = field.name, field.dataType
        if name in ours:
            if name == RESCUED:
                continue
            ours[name], refused = _one(name, ours[name], theirs, form)
        elif name.lower() in spelled:
            refused = f"has the column {name}, which the table has as {spelled[name.lower()]}"
        elif form.schema_evolution != "fail":
            refused = f"has the column {name!r}, a name that Delta does not take" if check_name(name) else None
            ours[name] = theirs
            spelled[name.lower()] = name
        else:
            refused = None if form.rescue else f"has the column {name}, which the table does not have"
        wrong += [] if refused is None else [refused]
    if wrong:
        raise BadFile(source.path, SchemaDrift(f"{source.path} " + "; it ".join(wrong)))
    return StructType([StructField(name, kind) for name, kind in ours.items()])


def _one(name: str, ours: "DataType", theirs: "DataType", form: Form) -> "tuple[DataType, str | None]":
    """Return the new type of a column that table and file both have, and the reason if the types cannot be united."""
    if fits(theirs, ours):
        return ours, None
    if form.schema_evolution == "widen" and fits(ours, theirs):
        return theirs, None
    if form.is_text:
        return ours, None  # a value that does not fit makes its row malformed
    return ours, f"has the column {name} as {theirs.simpleString()}, which is {ours.simpleString()} in the table"


def widened(standing: "StructType", schema: "StructType") -> list[str]:
    """Return the columns that have another type in `schema` than in `standing`."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    before = {field.name: field.dataType.simpleString() for field in standing.fields}
    return [name for name, kind in before.items() if types.get(name, kind) != kind]
