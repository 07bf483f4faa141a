"""What a column of PostgreSQL brings along on its way into a PostgreSQL table, if nothing touches it in between.

Spark has no type for most of PostgreSQL's. Such a column travels as text, which PostgreSQL writes and reads back, and
has its type in the metadata of its field. Dates and times travel as Spark's own, which is quicker; those that Spark
cannot hold (`infinity`, years after 294247) are in one more column, as JSON by the names of their columns.
"""

from typing import Any, Final

ODD: Final = "_rota_odd"
"""The name of the column with the dates and times that Spark cannot hold."""

_TYPE: Final = "rota.postgres.type"
_LC_MONETARY: Final = "rota.postgres.lc_monetary"


def metadata(type_: str, lc_monetary: str | None = None) -> dict[str, str]:
    """The metadata of a field of that type, as `format_type` writes it; `lc_monetary` is that of `money` as text."""
    return {_TYPE: type_} | ({} if lc_monetary is None else {_LC_MONETARY: lc_monetary})


def type_of(field: Any) -> str | None:
    """The type that a field of Spark's brings along; None if it is Spark's own."""
    found = field.metadata.get(_TYPE)
    return None if found is None else str(found)


def lc_monetary_of(field: Any) -> str | None:
    """The `lc_monetary` with which the amounts of a field are text."""
    found = field.metadata.get(_LC_MONETARY)
    return None if found is None else str(found)
