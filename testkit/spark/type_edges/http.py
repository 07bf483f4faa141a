"""Types of an HTTP API's columns, as the author declares them; a value is given as JSON."""

from typing import Final

from testkit.spark.type_edges import Edge, Refused, TypeEdges, everywhere

SOURCE: Final = "HTTP"

_NULL: Final = Edge("null", "null", None)

EDGES: Final = (
    TypeEdges(
        "string",
        "string",
        (
            Edge("empty", '""', ""),
            Edge("beyond 16 bits", '"\\ud834\\udd1e \\ufffd"', "𝄞 \ufffd"),
            Edge("a zero", '"a\\u0000b"', "a\0b", {"postgres": Refused("0x00")}),
            Edge("half a character", '"\\ud800"', None, everywhere("is no string")),
            Edge("a number", "1", "1", everywhere("is no string")),
            _NULL,
        ),
    ),
    TypeEdges("boolean", "boolean", (Edge("true", "true", "true"), Edge("1", "1", "1", everywhere("is no boolean")))),
    TypeEdges(
        "int",
        "int",
        (
            Edge("least", "-2147483648", "-2147483648"),
            Edge("greatest", "2147483647", "2147483647"),
            Edge("one more", "2147483648", "2147483648", everywhere("is no int")),
            Edge("a fraction of zero", "1.0", "1.0", everywhere("is no int")),
            _NULL,
        ),
    ),
    TypeEdges(
        "bigint",
        "bigint",
        (
            Edge("least", "-9223372036854775808", "-9223372036854775808"),
            Edge("greatest", "9223372036854775807", "9223372036854775807"),
            Edge("one more", "9223372036854775808", "9223372036854775808", everywhere("is no bigint")),
        ),
    ),
    TypeEdges(
        "double",
        "double",
        (
            Edge("greatest", "1.7976931348623157e308", "1.7976931348623157e+308"),
            Edge("denormal", "5e-324", "5e-324"),
            Edge("17 digits", "0.30000000000000004", "0.30000000000000004"),
            Edge("2^53 + 1", "9007199254740993", "9007199254740993", everywhere("is no double")),
            Edge("smaller than any", "1e-999", "1e-999", everywhere("is no double")),
            Edge("greater than any", "1e999", "1e999", everywhere("is no double")),
            _NULL,
        ),
    ),
    TypeEdges(
        "decimal(38,18)",
        "decimal(38,18)",
        (
            Edge("18 decimals", "0.123456789012345678", "0.123456789012345678"),
            Edge("as text", '"99999999999999999999.999999999999999999"', "99999999999999999999.999999999999999999"),
            Edge("19 decimals", "0.1234567890123456789", "0.1234567890123456789", everywhere("is no decimal(38,18)")),
            Edge("21 digits", "340282366920938463464", "340282366920938463464", everywhere("is no decimal(38,18)")),
            Edge("NaN", '"NaN"', "NaN", everywhere("is no decimal(38,18)")),
            _NULL,
        ),
    ),
    TypeEdges(
        "date",
        "date",
        (
            Edge("first of the year 1", '"0001-01-01"', "0001-01-01"),
            Edge("last of the year 9999", '"9999-12-31"', "9999-12-31"),
            Edge("infinity", '"infinity"', "infinity", everywhere("is no date")),
            _NULL,
        ),
    ),
    TypeEdges(
        "timestamp",
        "timestamp",
        (
            Edge("microseconds", '"2026-01-02T05:04:05.000006+02:00"', "2026-01-02 03:04:05.000006+00"),
            Edge("without a zone", '"2026-01-02T03:04:05"', "2026-01-02 03:04:05+00"),
            Edge("last of the year 9999", '"9999-12-31T23:59:59.999999Z"', "9999-12-31 23:59:59.999999+00"),
            Edge("nanoseconds", '"2026-01-02T03:04:05.0000001Z"', None, everywhere("is no timestamp")),
            Edge("before the year 1", '"0001-01-01T00:00:00+14:00"', None, everywhere("is no timestamp")),
            Edge("a clock", '"10:00"', "10:00", everywhere("is no timestamp")),
            _NULL,
        ),
    ),
    TypeEdges(
        "epoch_s",
        "timestamp",
        (
            Edge("a fraction", "1.000001", "1970-01-01 00:00:01.000001+00"),
            Edge("before 1970", "-1", "1969-12-31 23:59:59+00"),
            Edge("nanoseconds", "1.0000001", None, everywhere("is no epoch_s")),
            Edge("beyond the year 9999", "1e12", None, everywhere("is no epoch_s")),
        ),
    ),
    TypeEdges("epoch_ms", "timestamp", (Edge("a fraction", "0.001", "1970-01-01 00:00:00.000001+00"), _NULL)),
    TypeEdges(
        "json",
        "string",
        (
            Edge("many digits", '{"a": [340282366920938463464.125]}', '{"a":[340282366920938463464.125]}'),
            Edge("text", '"a"', '"a"'),
            _NULL,
        ),
    ),
)
