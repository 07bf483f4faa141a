"""The header of a CSV file."""

import csv
from collections import Counter
from pathlib import Path

from spark_tasks.files.faults import BadFile, SchemaDrift
from spark_tasks.files.form import Form
from spark_tasks.files.listing import Source
from spark_tasks.files.opening import damages, opened_text


def header_of(form: Form, place: Path, source: Source) -> tuple[str, ...]:
    """The names in the first line of a CSV file; none for an empty or a damaged one, of which Spark says more.

    Raises `BadFile` for a name that is there twice.
    """
    try:
        with opened_text(place, form.encoding) as lines:
            first = next((line for line in lines if line.strip()), "").lstrip("\ufeff").rstrip("\n")
    except damages():
        return ()
    if not first:
        return ()
    names = next(csv.reader([first], delimiter=form.between)) if len(form.between) == 1 else first.split(form.between)
    if twice := [name for name, times in Counter(name.lower() for name in names).items() if times > 1]:
        raise BadFile(source.path, SchemaDrift(f"{source.path}: the header names {', '.join(twice)} twice"))
    return tuple(names)
