"""The PostgreSQL type that a column keeps from a PostgreSQL source to a PostgreSQL sink, if there is no transform.

Spark has no counterpart for most of PostgreSQL's types. A column of such a type is carried as text, which PostgreSQL
writes and reads back, and the metadata of its field has its type. Dates and times are carried as Spark's own types,
which is quicker. Values that Spark cannot hold (`infinity`, years after 294247) are in one more column, as JSON by
column name.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ODD: Final = "_rota_odd"
"""The name of the column with the dates and times that Spark cannot hold."""

_TYPE: Final = "rota.postgres.type"
_LC_MONETARY: Final = "rota.postgres.lc_monetary"


def metadata(type_: str, lc_monetary: str | None = None) -> dict[str, str]:
    """Return the metadata of a field of that type, as `format_type` writes it; `lc_monetary` is the locale
    for `money`.
    """
    return {_TYPE: type_} | ({} if lc_monetary is None else {_LC_MONETARY: lc_monetary})


def type_of(field: Any) -> str | None:
    """Return the PostgreSQL type in the metadata of a field of Spark; None if the metadata has no type."""
    found = field.metadata.get(_TYPE)
    return None if found is None else str(found)


def lc_monetary_of(field: Any) -> str | None:
    """Return the `lc_monetary` with which a field's amounts of `money` are written as text; None for another type."""
    found = field.metadata.get(_LC_MONETARY)
    return None if found is None else str(found)


def as_people_see_them(rows: "DataFrame") -> "DataFrame":
    """Return the rows with all dates and times in their own columns, as text if Spark cannot hold some.
    Metadata stays.
    """
    from pyspark.sql import functions as f

    fields = rows.schema.fields
    if not fields or fields[-1].name != ODD:
        return rows
    plain = rows.toDF(*[f"c{number}" for number in range(len(fields))])
    odd = f.from_json(f.col(f"c{len(fields) - 1}"), "map<string,string>")

    def seen(number: int, field: Any) -> Any:
        value = f.col(f"c{number}")
        if field.dataType.typeName() in ("date", "timestamp", "timestamp_ntz"):
            value = f.coalesce(odd.getItem(field.name), value.cast("string"))
        return value.alias(field.name, metadata=field.metadata)

    return plain.select(*[seen(number, field) for number, field in enumerate(fields[:-1])])
