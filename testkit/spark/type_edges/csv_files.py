"""Types of CSV files' columns, as the author declares them; a value is given as the field is written."""

from typing import Final

from testkit.spark.type_edges import Becomes, Edge, Refused, TypeEdges, everywhere

SOURCE: Final = "CSV"

_NULL: Final = Edge("null", "", None)
_ZERO: Final = {"sqlite": Becomes("0", "SQLite has one zero, which is equal to both")}
_NAN: Final = {"sqlite": Refused("NaN")}


def _no(kind: str, *texts: str) -> tuple[Edge, ...]:
    """Texts that are no value of the type: Spark would take each of them for another value."""
    return tuple(Edge(text, text, text, everywhere(f"is not {kind}")) for text in texts)


NUMBERS: Final = (
    TypeEdges(
        "DECIMAL(3, 2)",
        "decimal(3,2)",
        (
            Edge("zeros behind it", "1.2000", "1.2"),
            Edge("with an exponent", "12e-1", "1.2"),
            *_no("decimal(3,2)", "1.005", "1e-9", "10"),
            _NULL,
        ),
    ),
    TypeEdges("DECIMAL(38, 0)", "decimal(38,0)", (Edge("38 digits", "9" * 38, "9" * 38), *_no("decimal(38,0)", "0.5"))),
    TypeEdges(
        "DOUBLE",
        "double",
        (
            Edge("denormal", "5e-324", "5e-324"),
            Edge("17 digits", "0.30000000000000004", "0.30000000000000004"),
            Edge("-0", "-0.0", "-0", _ZERO),
            *_no("double", "9007199254740993", "1e999", "1e-999"),
            _NULL,
        ),
    ),
    TypeEdges("FLOAT", "float", (Edge("a tenth", "0.1", "0.1"), *_no("float", "16777217", "1e39"))),
)

EDGES: Final = (
    TypeEdges(
        "STRING",
        "string",
        (
            Edge("blanks around it", "  a ", "  a "),
            Edge("in quotes", '"a ""b"", c"', 'a "b", c'),
            Edge("beyond 16 bits", "𝄞 \ufffd", "𝄞 \ufffd"),
            Edge("digits", "007", "007"),
            _NULL,
        ),
    ),
    TypeEdges("BOOLEAN", "boolean", (Edge("TRUE", "TRUE", "true"), *_no("boolean", "1", "yes"))),
    TypeEdges(
        "INT",
        "int",
        (
            Edge("least", "-2147483648", "-2147483648"),
            Edge("zeros before it", "007", "7"),
            *_no("int", "2147483648", "1.0", "1e3", "0x10"),
            _NULL,
        ),
    ),
    TypeEdges("BIGINT", "bigint", (Edge("greatest", "9223372036854775807", "9223372036854775807"),)),
    *NUMBERS,
    TypeEdges(
        "DOUBLE, as text",
        "double",
        (Edge("Infinity", "-inf", "-Infinity"), Edge("NaN", "NaN", "NaN", _NAN), *_no("double", "1d", "0x1p3")),
    ),
    TypeEdges(
        "DATE",
        "date",
        (
            Edge("first of the year 1", "0001-01-01", "0001-01-01"),
            Edge("with midnight", "2020-01-05T00:00:00", "2020-01-05"),
            *_no("date", "2020", "2020-02", "2020-01-05T10:00:00", "now"),
            _NULL,
        ),
    ),
    TypeEdges(
        "TIMESTAMP",
        "timestamp",
        (
            Edge("an offset", "2026-01-02T03:04:05.000006+02:00", "2026-01-02 01:04:05.000006+00"),
            Edge("zeros behind 6 digits", "2026-01-02 03:04:05.000006000Z", "2026-01-02 03:04:05.000006+00"),
            Edge("a day", "9999-12-31", "9999-12-31 00:00:00+00"),
            *_no("timestamp", "10:00", "2020", "2026-01-02T03:04:05.1234567", "2026-01-02T03:04:05 EST"),
            _NULL,
        ),
    ),
    TypeEdges(
        "TIMESTAMP_NTZ",
        "timestamp_ntz",
        (
            Edge("microseconds", "2026-01-02T03:04:05.000006", "2026-01-02 03:04:05.000006"),
            *_no("timestamp_ntz", "2026-01-02T03:04:05Z", "10:00"),
        ),
    ),
    TypeEdges("BINARY", "binary", (Edge("a text", "ab", "\\x6162"),)),
)
