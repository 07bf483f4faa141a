"""PostgreSQL's types as Spark's: each column's type, the expression that reads it, and the types that are refused.

A value that Spark's type cannot hold makes the query itself fail: for such a value, the statement casts a text with the
column and the value to a type that cannot hold the text, and PostgreSQL's error then quotes the text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.contracts.names import literal, name
from spark_tasks.contracts.source import SourceUnfit
from spark_tasks.postgres import carried
from spark_tasks.postgres.params import DecimalType, PostgresRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_AS_THEY_ARE: Final = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
"""Types that ADBC and Spark both have, and Spark's names for them. All others are read as text."""

_IN_JSON: Final = {"smallint": "short", "int": "integer", "bigint": "long"}
"""The names of Spark's types in the JSON of a schema, if they differ from their names in DDL."""

UNBOUNDED: Final = (38, 18)
"""The precision and scale that Spark's decimal gets for a `numeric` that declares none."""

DIGITS_MAX: Final = 38

INTEGERS: Final = frozenset({"int2", "int4", "int8"})
TIMES: Final = frozenset({"date", "timestamp", "timestamptz"})
FLOATS: Final = frozenset({"float4", "float8", "numeric"})

_HELD: Final = {
    "date": "{0} > '-infinity' AND {0} < 'infinity'",
    "timestamp": "{0} > '-infinity' AND {0} <= '294247-01-10 04:00:54.775807'",
    "timestamptz": "{0} > '-infinity' AND {0} <= '294247-01-10 04:00:54.775807Z'",
}
"""SQL conditions: Spark's type can hold the date or time, as 64-bit microseconds since 1970."""

_ENDS: Final = {
    "date": ("0001-01-01", "9999-12-31"),
    "timestamp": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    "timestamptz": ("0001-01-01 00:00:00Z", "9999-12-31 23:59:59.999999Z"),
}
"""The least and the greatest value of Spark's type, as Spark documents them."""

_REFUSED: Final = re.compile(r'"rota:(\d+):([^"]*)"')
"""The text in PostgreSQL's error for a value that Spark's type cannot hold: the number of its column, and the value."""


@dataclass(frozen=True)
class Column:
    """A column of a source."""

    #: The column's name.
    name: str
    #: Its PostgreSQL type.
    type: str
    #: Its Spark type, by the name that DDL has for it.
    spark: str
    #: The SQL expression that reads it.
    expression: str
    #: The metadata of Spark's field, which may have the PostgreSQL type (`carried`).
    metadata: Mapping[str, str] = field(default_factory=dict)
    #: The SQL expression for values that Spark's type cannot hold, as text; None: Spark's type holds all values.
    odd: str | None = None


@dataclass(frozen=True)
class SourceColumns:
    """All columns of the source, in their order. Errors call the source `shown`."""

    shown: str
    columns: tuple[Column, ...]

    @property
    def select(self) -> str:
        """The select list that reads the columns."""
        odd = [one for one in self.columns if one.odd is not None]
        whole = [f"{one.expression} AS {name(one.name)}" for one in self.columns]
        if odd:
            some = " OR ".join(f"({one.odd}) IS NOT NULL" for one in odd)
            names, values = ", ".join(literal(one.name) for one in odd), ", ".join(str(one.odd) for one in odd)
            object_ = f"json_object(ARRAY[{names}], ARRAY[{values}])"
            whole.append(f"CASE WHEN {some} THEN {object_}::text END AS {name(carried.ODD)}")
        return ", ".join(whole)

    def schema(self) -> "StructType":
        """Spark's columns, by the names that they have in the source."""
        from pyspark.sql.types import StructType

        fields = [(one.name, _IN_JSON.get(one.spark, one.spark), dict(one.metadata)) for one in self.columns]
        if any(one.odd for one in self.columns):
            fields.append((carried.ODD, "string", {}))
        # From JSON, because pyspark would need a JVM to parse types in DDL, and the processes that read copies have no
        # JVM.
        return StructType.fromJson(
            {"fields": [{"name": n, "type": t, "nullable": True, "metadata": about} for n, t, about in fields]}
        )

    def one(self, wanted: str) -> Column:
        """Return the column of that name. Raises `SourceUnfit`."""
        for column in self.columns:
            if column.name == wanted:
                return column
        names = ", ".join(one.name for one in self.columns)
        raise SourceUnfit(f"the source has no column {wanted}; it has {names}")

    def refused(self, said: str) -> SourceUnfit | None:
        """Return the error for a value that Spark's type cannot hold, from PostgreSQL's message; None for any other
        message.
        """
        found = _REFUSED.search(said)
        return None if found is None else self.unfit(self.columns[int(found[1])], found[2])

    def unfit(self, column: Column, value: str) -> SourceUnfit:
        """Return the error for a value that Spark's type cannot hold. It says where the value is, and what to do."""
        shown = value if len(value) <= 100 else f"{value[:50]}... ({len(value)} characters)"
        advice = f"leave the row out by a `query`, or read the column as text by one: {name(column.name)}::text"
        if column.type == "numeric" and value[-1:].isdigit():
            wider = f"decimal: {{{column.name}: {{precision: P, scale: S}}}}"
            advice = f"say `{wider}` at the source if {DIGITS_MAX} digits are enough for all values; else {advice}"
        elif column.type in TIMES and value.endswith("infinity"):
            advice = (
                "say `infinity: null` or `infinity: ends` at the source, which make it null, or the first or the last "
                "day that Spark knows"
            )
        return SourceUnfit(f"{self.shown}, column {column.name}: the value {shown} is no {column.spark}: {advice}")


def columns_of(
    params: PostgresRows, schema: "pa.Schema", types: Mapping[str, str], lc_monetary: str | None = None
) -> SourceColumns:
    """Return the columns of a query's result as ADBC describes it. Raises `SourceUnfit`.

    If the rows are written to a PostgreSQL table without a transform, `types` has the columns' types as `format_type`
    writes them; else it is empty.
    """
    shown = params.table or "the query"
    described = [(each.name, each.metadata or {}) for each in schema]
    if not described:
        raise SourceUnfit(f"{shown} has no columns: there is nothing to read")
    if wrong := params.decimal.keys() - {each for each, _ in described}:
        raise SourceUnfit(f"`decimal` names {', '.join(sorted(wrong))}, and {shown} has no such column")
    made = []
    for number, (each, said) in enumerate(described):
        kind = said.get(b"POSTGRESQL:type", b"").decode()
        wanted = params.decimal.get(each)
        if wanted is not None and kind != "numeric":
            raise SourceUnfit(f"`decimal` names the column {each}, which is of type {kind}, and not numeric")
        if each in types:
            made.append(_carried(number, each, kind, types[each], params, lc_monetary))
        else:
            made.append(_read(number, each, kind, int(said.get(b"POSTGRESQL:typmod", b"-1")), params))
    return SourceColumns(shown, tuple(made))


def _carried(number: int, named: str, kind: str, type_: str, params: PostgresRows, lc_monetary: str | None) -> Column:
    """Describe a column that is written to a PostgreSQL table without a transform."""
    about = carried.metadata(type_, lc_monetary if type_ == "money" else None)
    value = name(named)
    if named in params.decimal:
        return _decimal(number, named, kind, params.decimal[named])
    if kind in TIMES and params.infinity == "refuse":
        held = _HELD[kind].format(value)
        read = f"CASE WHEN {held} THEN {value} END"
        return Column(
            name=named,
            type=kind,
            spark=_AS_THEY_ARE[kind],
            expression=read,
            metadata=about,
            odd=f"CASE WHEN NOT ({held}) THEN {value}::text END",
        )
    if kind in TIMES:
        return Column(named, kind, _AS_THEY_ARE[kind], _time(number, value, kind, params.infinity), about)
    if kind in _AS_THEY_ARE:
        return Column(named, kind, _AS_THEY_ARE[kind], value, about)
    # A cast to text would strip the blanks of a `bpchar`.
    return Column(named, kind, "string", value if kind == "bpchar" else f"{value}::text", about)


def _read(number: int, named: str, kind: str, typmod: int, params: PostgresRows) -> Column:
    """Describe a column that is converted to one of Spark's types."""
    value = name(named)
    if kind in TIMES:
        return Column(named, kind, _AS_THEY_ARE[kind], _time(number, value, kind, params.infinity))
    if kind in _AS_THEY_ARE:
        return Column(named, kind, _AS_THEY_ARE[kind], value)
    if kind != "numeric":
        return Column(named, kind, "string", f"{value}::text")
    if named in params.decimal:
        return _decimal(number, named, kind, params.decimal[named])
    if typmod < 4:
        precision, scale = UNBOUNDED
        return _decimal(number, named, kind, DecimalType(precision=precision, scale=scale))
    return Column(named, kind, spark_numeric(typmod), f"{value}::text")


def _time(number: int, value: str, kind: str, infinity: str | None) -> str:
    held = _HELD[kind].format(value)
    refuse = f"('rota:{number}:' || {value}::text)::{kind}"
    if infinity == "refuse":
        return f"CASE WHEN {held} THEN {value} ELSE {refuse} END"
    if infinity is None:
        return f"CASE WHEN {held} THEN {value} WHEN isfinite({value}) THEN {refuse} END"
    low, high = _ENDS[kind]
    ends = f"WHEN {value} = 'infinity' THEN '{high}'::{kind} WHEN {value} = '-infinity' THEN '{low}'::{kind}"
    return f"CASE WHEN {held} THEN {value} {ends} ELSE {refuse} END"


def _decimal(number: int, named: str, kind: str, wanted: DecimalType) -> Column:
    """Describe a `numeric` column that is read as a decimal. A value that the decimal cannot hold exactly is
    refused.
    """
    value, scale = name(named), wanted.scale
    small = f"abs({value}) < 1e{wanted.precision - scale}"  # false for NaN, which is greater than all numbers
    read = (
        f"CASE WHEN scale({value}) <= {scale} AND {small} THEN {value}::text "
        f"WHEN {small} AND round({value}, {scale}) = {value} THEN round({value}, {scale})::text "
        f"ELSE ('rota:{number}:' || {value}::text)::numeric::text END"
    )
    return Column(named, kind, f"decimal({wanted.precision},{scale})", read)


def spark_numeric(typmod: int) -> str:
    """Return Spark's type for a `numeric` with that type modifier; `string` if no decimal of Spark holds all its
    values.

    >>> spark_numeric(655366), spark_numeric((50 << 16 | 3) + 4), spark_numeric((3 << 16 | 5) + 4)
    ('decimal(10,2)', 'string', 'string')
    """
    precision, scale = (typmod - 4) >> 16, (typmod - 4) & 0x7FF
    return f"decimal({precision},{scale})" if scale <= precision <= DIGITS_MAX else "string"


def first_uncastable(values: "pa.Array", kind: "pa.DataType") -> Any:
    """Return the first of the values that cannot be cast to `kind`, after a cast of all of them has failed."""
    import pyarrow as pa

    for value in values:
        try:
            value.cast(kind)
        except pa.ArrowInvalid:
            return value.as_py()
    raise AssertionError(f"a cast to {kind} failed, and each of the values can be cast")
