"""Types of JSON files' columns, as the author declares them; a value is given as JSON."""

from typing import Final

from testkit.spark.type_edges import Edge, TypeEdges, everywhere
from testkit.spark.type_edges.csv_files import NUMBERS

SOURCE: Final = "JSON files"

_NULL: Final = Edge("null", "null", None)


def _no(kind: str, *texts: str) -> tuple[Edge, ...]:
    return tuple(Edge(text, text, text, everywhere(f"is not {kind}")) for text in texts)


_NUMBERS: Final = tuple(
    TypeEdges(of.type, of.spark, tuple(_NULL if edge.given == "" else edge for edge in of.edges)) for of in NUMBERS
)

EDGES: Final = (
    TypeEdges(
        "STRING",
        "string",
        (
            Edge("empty", '""', ""),
            Edge("beyond 16 bits", '"\\ud834\\udd1e \\ufffd"', "𝄞 \ufffd"),
            Edge("a number", "12345678901234567890.10", "12345678901234567890.10"),
            Edge("an object", '{"b": 1.10}', '{"b": 1.10}'),
            _NULL,
        ),
    ),
    TypeEdges("INT", "int", (Edge("least", "-2147483648", "-2147483648"), *_no("int", "1.0", '"7"', "2147483648"))),
    *_NUMBERS,
    TypeEdges(
        "TIMESTAMP",
        "timestamp",
        (
            Edge("an offset", '"2026-01-02T03:04:05.000006+02:00"', "2026-01-02 01:04:05.000006+00"),
            *_no("timestamp", '"10:00"', "1577836800", "1577836800000"),
            _NULL,
        ),
    ),
    TypeEdges("DATE", "date", (Edge("a day", '"2020-01-05"', "2020-01-05"), *_no("date", '"2020"', '"20200105"'))),
    TypeEdges(
        "MAP<STRING, DECIMAL(3, 2)>",
        "map<string,decimal(3,2)>",
        (Edge("greater than it", '{"a":1.005}', None, everywhere("is not map<string,decimal(3,2)>")), _NULL),
    ),
    TypeEdges(
        "MAP<STRING, BIGINT>",
        "map<string,bigint>",
        (Edge("one", '{"a b":9223372036854775807}', '{"a b":9223372036854775807}'), _NULL),
    ),
    TypeEdges(
        "ARRAY<TIMESTAMP>",
        "array<timestamp>",
        (
            Edge("a null", '["1969-12-31T23:59:59.999999Z",null]', '["1969-12-31T23:59:59.999999Z",null]'),
            *_no("array<timestamp>", '["2020"]'),
        ),
    ),
)
