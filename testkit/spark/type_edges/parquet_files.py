"""Types of Parquet files, as Arrow calls them; a value is given as JSON, times as numbers of their unit."""

from typing import Final

from testkit.spark.type_edges import Edge, TypeEdges, everywhere

SOURCE: Final = "Parquet files"

_NULL: Final = Edge("null", "null", None)


def _none(type_: str, given: str) -> TypeEdges:
    """A type that no table has."""
    return TypeEdges(type_, "none", (Edge("any value", given, None, everywhere("is of the type")),))


EDGES: Final = (
    TypeEdges("uint8", "smallint", (Edge("greatest", "255", "255"), _NULL)),
    TypeEdges("uint16", "int", (Edge("greatest", "65535", "65535"),)),
    TypeEdges("uint32", "bigint", (Edge("greatest", "4294967295", "4294967295"),)),
    TypeEdges("uint64", "decimal(20,0)", (Edge("greatest", "18446744073709551615", "18446744073709551615"),)),
    TypeEdges("float", "float", (Edge("a tenth", "0.1", "0.1"),)),
    TypeEdges("date32", "date", (Edge("1582-10-04", "-141438", "1582-10-04"),)),
    TypeEdges("timestamp[us]", "timestamp", (Edge("microseconds", "-1", "1969-12-31 23:59:59.999999+00"), _NULL)),
    TypeEdges(
        "timestamp[ns]",
        "timestamp",
        (
            Edge("whole microseconds", "-1000", "1969-12-31 23:59:59.999999+00"),
            Edge("the last", "9223372036854775000", "2262-04-11 23:47:16.854775+00"),
            Edge("the first", "-9223372036854775000", "1677-09-21 00:12:43.145225+00"),
            Edge("a nanosecond", "1", None, everywhere("has a timestamp of 1 ns")),
            _NULL,
        ),
    ),
    TypeEdges(
        "list<timestamp[ns]>",
        "array<timestamp>",
        (
            Edge("a null", "[1000, null]", '["1970-01-01T00:00:00.000001Z",null]'),
            Edge("a nanosecond", "[1]", None, everywhere("has a timestamp of 1 ns")),
        ),
    ),
    _none("time64[us]", "1"),
    _none("duration[ns]", "1"),
    _none("decimal256(50, 3)", "1"),
    _none("halffloat", "1.5"),
)
