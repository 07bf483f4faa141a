"""PostgreSQL's types as Spark's: which columns come as they are, and which as text."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.postgres.quoting import name

if TYPE_CHECKING:
    import pyarrow as pa

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

_UNBOUNDED: Final = "decimal(38,18)"
"""For a `numeric` without precision. What has more decimals is rounded."""

INTEGERS: Final = frozenset({"int2", "int4", "int8"})
TIMES: Final = frozenset({"date", "timestamp", "timestamptz"})


@dataclass(frozen=True)
class Column:
    """A column of a source: its PostgreSQL type, Spark's type, and the expression that reads it."""

    name: str
    type: str
    spark: str

    @property
    def expression(self) -> str:
        """The column in a SELECT."""
        if self.type in _AS_THEY_ARE:
            return name(self.name)
        value = f"round({name(self.name)}, 18)" if self.spark == _UNBOUNDED else name(self.name)
        return f"{value}::text AS {name(self.name)}"


def columns_of(schema: "pa.Schema") -> list[Column]:
    """The columns of a query's result as ADBC describes it."""
    return [_column(field.name, field.metadata or {}) for field in schema]


def _column(named: str, said: dict[bytes, Any]) -> Column:
    kind = said.get(b"POSTGRESQL:type", b"").decode()
    if kind == "numeric":
        return Column(named, kind, _decimal(int(said.get(b"POSTGRESQL:typmod", b"-1"))))
    return Column(named, kind, _AS_THEY_ARE.get(kind, "string"))


def _decimal(typmod: int) -> str:
    """Spark's type for a `numeric` with that type modifier; `string` if Spark has no decimal that is wide enough.

    >>> _decimal(655366), _decimal(-1), _decimal((50 << 16 | 3) + 4)
    ('decimal(10,2)', 'decimal(38,18)', 'string')
    """
    if typmod < 4:
        return _UNBOUNDED
    precision, scale = (typmod - 4) >> 16, (typmod - 4) & 0x7FF
    return f"decimal({precision},{scale})" if scale <= precision <= 38 else "string"
