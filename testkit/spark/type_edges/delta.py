"""Types of a Delta table; a value is given as Arrow casts text, times as microseconds, nested values as JSON."""

from typing import Final

from testkit.spark.type_edges import Becomes, Edge, Refused, TypeEdges, written_as_text

SOURCE: Final = "Delta"

_NULL: Final = Edge("null", "NULL", None)
_ZERO: Final = {"sqlite": Becomes("0", "SQLite has one zero, which is equal to both")}
_NAN: Final = {"sqlite": Refused("NaN")}
_TOO_EARLY: Final = {"postgres": Refused("PostgreSQL cannot hold")} | written_as_text("out of range")
_BEFORE_POSTGRES: Final = {"postgres": Refused("cannot hold")} | written_as_text("-4713-11-23")
_NUMBER: Final = '{"a b":9223372036854775807}'


def _same(type_: str, *texts: str) -> TypeEdges:
    return TypeEdges(type_, type_, (*(Edge(text, text, text) for text in texts), _NULL))


EDGES: Final = (
    _same("boolean", "true", "false"),
    _same("tinyint", "-128", "127"),
    _same("smallint", "-32768", "32767"),
    _same("int", "-2147483648", "2147483647"),
    _same("bigint", "-9223372036854775808", "9223372036854775807"),
    _same("decimal(38,0)", "9" * 38, "-" + "9" * 38),
    _same("decimal(38,38)", "0." + "9" * 38),
    TypeEdges(
        "float",
        "float",
        (Edge("a tenth", "0.1", "0.1"), Edge("-0", "-0.0", "-0", _ZERO), Edge("NaN", "nan", "NaN", _NAN), _NULL),
    ),
    TypeEdges(
        "double",
        "double",
        (
            Edge("denormal", "5e-324", "5e-324"),
            Edge("-0", "-0.0", "-0", _ZERO),
            Edge("Infinity", "inf", "Infinity"),
            Edge("NaN", "nan", "NaN", _NAN),
            _NULL,
        ),
    ),
    TypeEdges(
        "string",
        "string",
        (
            Edge("empty", "", ""),
            Edge("beyond 16 bits", "𝄞 \ufffd", "𝄞 \ufffd"),
            Edge("a zero", "a\0b", "a\0b", {"postgres": Refused("0x00")}),
            _NULL,
        ),
    ),
    TypeEdges("binary", "binary", (Edge("empty", "", "\\x"), Edge("a zero", "\0a", "\\x0061"), _NULL)),
    TypeEdges(
        "date",
        "date",
        (
            Edge("1582-10-04", "-141438", "1582-10-04"),
            Edge("44 BC", "-735160", "0044-03-15 BC", written_as_text("-0043-03-15")),
            Edge("5874897", "2145042905", "5874897-12-31", written_as_text("out of range")),
            Edge(
                "a day before PostgreSQL's first",
                "-2440589",
                "4714-11-23 BC",
                _BEFORE_POSTGRES,
            ),
            _NULL,
        ),
    ),
    TypeEdges(
        "timestamp",
        "timestamp",
        (
            Edge("microseconds", "1", "1970-01-01 00:00:00.000001+00"),
            Edge("the last", "9223372036854775807", "294247-01-10 04:00:54.775807+00", written_as_text("out of range")),
            Edge("the first", "-9223372036854775808", "290309-12-21 19:59:05.224192+00 BC", _TOO_EARLY),
            _NULL,
        ),
    ),
    TypeEdges("timestamp_ntz", "timestamp_ntz", (Edge("microseconds", "-1", "1969-12-31 23:59:59.999999"), _NULL)),
    TypeEdges("array<bigint>", "array<bigint>", (Edge("a null", "[1, null]", "[1,null]"), Edge("empty", "[]", "[]"))),
    TypeEdges(
        "map<string,bigint>",
        "map<string,bigint>",
        (Edge("one", _NUMBER, _NUMBER),),
    ),
    TypeEdges(
        "struct<n:bigint,t:timestamp>",
        "struct<n:bigint,t:timestamp>",
        (Edge("microseconds", '{"n": -1, "t": 1}', '{"n":-1,"t":"1970-01-01T00:00:00.000001Z"}'),),
    ),
)
