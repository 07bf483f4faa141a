"""Types of SQLite, as columns are declared; a value is given as an expression of SQLite's."""

from typing import Final

from testkit.spark.type_edges import Edge, Refused, TypeEdges, everywhere

SOURCE: Final = "SQLite"

_NULL: Final = Edge("null", "NULL", None)
_NO_ZERO_BYTE: Final = {"postgres": Refused("0x00")}

EDGES: Final = (
    TypeEdges(
        "INTEGER",
        "bigint",
        (
            Edge("least", "-9223372036854775807 - 1", "-9223372036854775808"),
            Edge("greatest", "9223372036854775807", "9223372036854775807"),
            Edge("text", "'7 apples'", "7 apples", everywhere("is no int64")),
            Edge("a fraction", "1.5", "1.5", everywhere("is no int64")),
            _NULL,
        ),
    ),
    TypeEdges(
        "REAL",
        "double",
        (
            Edge("greatest", "1.7976931348623157e308", "1.7976931348623157e+308"),
            Edge("denormal", "5e-324", "5e-324"),
            Edge("17 digits", "0.1 + 0.2", "0.30000000000000004"),
            Edge("Infinity", "9e999", "Infinity"),
            Edge("-Infinity", "-9e999", "-Infinity"),
            Edge("text", "'x'", "x", everywhere("is no double")),
            _NULL,
        ),
    ),
    TypeEdges(
        "DECIMAL(10,2)",
        "string",
        (
            Edge("two decimals", "1.25", "1.25"),
            Edge("17 digits", "0.1 + 0.2", "0.30000000000000004"),
            Edge("greatest integer", "9223372036854775807", "9223372036854775807"),
            Edge("an exponent", "1e20", "1.0e+20"),
            _NULL,
        ),
    ),
    TypeEdges("BOOLEAN", "string", (Edge("true", "true", "1"), Edge("false", "false", "0"), _NULL)),
    TypeEdges("DATETIME", "string", (Edge("text", "'2026-01-02 03:04:05'", "2026-01-02 03:04:05"), _NULL)),
    TypeEdges(
        "TEXT",
        "string",
        (
            Edge("empty", "''", ""),
            Edge("beyond 16 bits", "'𝄞 ' || char(65533)", "𝄞 \ufffd"),
            Edge("a zero byte", "'a' || char(0) || 'b'", "a\0b", _NO_ZERO_BYTE),
            Edge("not UTF-8", "CAST(x'ff' AS TEXT)", None, everywhere("not UTF-8")),
            Edge("binary", "x'6162'", None, everywhere("is no string")),
            _NULL,
        ),
    ),
    TypeEdges(
        "BLOB",
        "binary",
        (
            Edge("empty", "x''", "\\x"),
            Edge("a zero", "x'00ff'", "\\x00ff"),
            Edge("text", "'ab'", None, everywhere("is no binary")),
            _NULL,
        ),
    ),
)
