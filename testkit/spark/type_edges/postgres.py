"""Types of PostgreSQL."""

from typing import Final

from testkit.spark.type_edges import Becomes, Edge, Refused, TypeEdges, through_spark, written_as_text

SOURCE: Final = "PostgreSQL"

SETUP: Final = """
CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'ÄÖ');
CREATE DOMAIN share AS numeric(5,4) CHECK (VALUE BETWEEN 0 AND 1);
CREATE TYPE pair AS (a int, b text);
"""
"""The types that the database and its copies have of their own."""

_NULL: Final = Edge("null", "NULL", None)
_TOO_LONG: Final = "is no decimal(38,18)"


def _same(type_: str, *texts: str, spark: str = "string") -> TypeEdges:
    """A type of which these texts are values, and whose values are text in Spark."""
    edges = (Edge(text or "empty", "'" + text.replace("'", "''") + "'", text) for text in texts)
    return TypeEdges(type_, spark, (*edges, _NULL))


def _times(type_: str, spark: str, zone: str) -> TypeEdges:
    def edge(what: str, at: str) -> Edge:
        return Edge(what, f"'{at}{zone}'", at + zone)

    bc = f"4713-01-01 00:00:00{zone} BC"
    return TypeEdges(
        type_,
        spark,
        (
            edge("plain", "2026-01-02 03:04:05.000006"),
            edge("first of the year 1", "0001-01-01 00:00:00"),
            edge("last of the year 9999", "9999-12-31 23:59:59.999999"),
            edge("before Gregory", "1582-10-04 12:00:00"),
            edge("before 1970", "1969-12-31 23:59:59.999999"),
            Edge("4713 BC", f"'{bc}'", bc, written_as_text("-4712-01-01")),
            Edge(
                "the year 12026",
                f"'12026-01-01 00:00:00{zone}'",
                f"12026-01-01 00:00:00{zone}",
                written_as_text("12026"),
            ),
            Edge(
                "the last that Spark holds",
                f"'294247-01-10 04:00:54.775807{zone}'",
                f"294247-01-10 04:00:54.775807{zone}",
                written_as_text("out of range"),
            ),
            Edge(
                "the last",
                f"'294276-12-31 23:59:59.999999{zone}'",
                f"294276-12-31 23:59:59.999999{zone}",
                through_spark(f"is no {spark}"),
            ),
            Edge("infinity", "'infinity'", "infinity", through_spark("infinity: null")),
            Edge("-infinity", "'-infinity'", "-infinity", through_spark("infinity: null")),
            _NULL,
        ),
    )


_ZERO: Final = {"sqlite": Becomes("0", "SQLite has one zero, which is equal to both")}
_NAN: Final = {"sqlite": Refused("NaN")}

EDGES: Final = (
    TypeEdges("boolean", "boolean", (Edge("true", "true", "true"), Edge("false", "false", "false"), _NULL)),
    TypeEdges("smallint", "smallint", (Edge("least", "-32768", "-32768"), Edge("greatest", "32767", "32767"), _NULL)),
    TypeEdges(
        "integer", "int", (Edge("least", "-2147483648", "-2147483648"), Edge("greatest", "2147483647", "2147483647"))
    ),
    TypeEdges(
        "bigint",
        "bigint",
        (
            Edge("least", "'-9223372036854775808'", "-9223372036854775808"),
            Edge("greatest", "9223372036854775807", "9223372036854775807"),
            Edge("2^53 + 1", "9007199254740993", "9007199254740993"),
            _NULL,
        ),
    ),
    TypeEdges(
        "numeric",
        "decimal(38,18)",
        (
            Edge("zero", "0", "0"),
            Edge("18 decimals", "0.123456789012345678", "0.123456789012345678"),
            Edge(
                "20 digits before the point",
                "'99999999999999999999.999999999999999999'",
                "99999999999999999999.999999999999999999",
            ),
            Edge(
                "least of 20 digits",
                "'-99999999999999999999.999999999999999999'",
                "-99999999999999999999.999999999999999999",
            ),
            Edge("zeros behind 18 decimals", "1.5000000000000000000000000", "1.5"),
            Edge("21 digits", "340282366920938463464", "340282366920938463464", through_spark(_TOO_LONG)),
            Edge("19 decimals", "0.1234567890123456789", "0.1234567890123456789", through_spark(_TOO_LONG)),
            Edge("200 digits", "1" * 100 + "." + "7" * 100, "1" * 100 + "." + "7" * 100, through_spark(_TOO_LONG)),
            Edge("NaN", "'NaN'", "NaN", through_spark("NaN")),
            Edge("Infinity", "'Infinity'", "Infinity", through_spark("Infinity")),
            Edge("-Infinity", "'-Infinity'", "-Infinity", through_spark("Infinity")),
            _NULL,
        ),
    ),
    TypeEdges(
        "numeric, decimal(38,2) said",
        "decimal(38,2)",
        (
            Edge(
                "36 digits before the point",
                "'999999999999999999999999999999999999.99'",
                "999999999999999999999999999999999999.99",
            ),
            Edge(
                "3 decimals",
                "0.125",
                "0.125",
                {**through_spark("is no decimal(38,2)"), "postgres": Refused("is no decimal(38,2)")},
            ),
            _NULL,
        ),
        {"decimal": {"{column}": {"precision": 38, "scale": 2}}},
    ),
    TypeEdges(
        "numeric(10,2)",
        "decimal(10,2)",
        (
            Edge("greatest", "99999999.99", "99999999.99"),
            Edge("least", "-99999999.99", "-99999999.99"),
            Edge("NaN", "'NaN'", "NaN", through_spark("NaN")),
            _NULL,
        ),
    ),
    TypeEdges(
        "numeric(38,38)",
        "decimal(38,38)",
        (Edge("greatest", "0." + "9" * 38, "0." + "9" * 38), Edge("least unit", "1e-38", "0." + "0" * 37 + "1")),
    ),
    TypeEdges(
        "numeric(50,10)",
        "string",
        (Edge("greatest", "9" * 40 + "." + "9" * 10, "9" * 40 + "." + "9" * 10), Edge("NaN", "'NaN'", "NaN"), _NULL),
    ),
    TypeEdges(
        "numeric(3,5)", "string", (Edge("greatest", "0.00999", "0.00999"), Edge("least", "-0.00999", "-0.00999"))
    ),
    TypeEdges("numeric(5,-2)", "string", (Edge("greatest", "9999900", "9999900"), Edge("least unit", "100", "100"))),
    TypeEdges(
        "real",
        "float",
        (
            Edge("greatest", "3.4028235e+38", "3.4028235e+38"),
            Edge("denormal", "1e-45", "1e-45"),
            Edge("a tenth", "0.1", "0.1"),
            Edge("-0", "'-0'", "-0", _ZERO),
            Edge("Infinity", "'Infinity'", "Infinity"),
            Edge("-Infinity", "'-Infinity'", "-Infinity"),
            Edge("NaN", "'NaN'", "NaN", _NAN),
            _NULL,
        ),
    ),
    TypeEdges(
        "double precision",
        "double",
        (
            Edge("greatest", "1.7976931348623157e+308", "1.7976931348623157e+308"),
            Edge("denormal", "5e-324", "5e-324"),
            Edge("a third of 17 digits", "0.30000000000000004", "0.30000000000000004"),
            Edge("-0", "'-0'", "-0", _ZERO),
            Edge("Infinity", "'Infinity'", "Infinity"),
            Edge("-Infinity", "'-Infinity'", "-Infinity"),
            Edge("NaN", "'NaN'", "NaN", _NAN),
            _NULL,
        ),
    ),
    _same("money", "$92,233,720,368,547,758.07", "-$92,233,720,368,547,758.08", "$0.00"),
    _same("text", "", " ", "a\nb\t'\"\\", "\ufffd \uffff", "𝄞 ÄÖ", "NULL", "\\N"),
    _same("varchar(5)", "", "abc  ", "𝄞𝄞𝄞𝄞𝄞"),
    TypeEdges(
        "char(5)",
        "string",
        (
            Edge("full", "'abcde'", "abcde"),
            Edge(
                "shorter",
                "'ab'",
                "ab   ",
                {
                    sink: Becomes("ab", "without the blanks that pad it, as PostgreSQL's own cast to text")
                    for sink in ("postgres-sql", "delta", "parquet", "sqlite", "webhook")
                },
            ),
            _NULL,
        ),
    ),
    TypeEdges(
        "bytea",
        "binary",
        (Edge("empty", "''", "\\x"), Edge("a zero", "'\\x00ff'", "\\x00ff"), _NULL),
    ),
    TypeEdges(
        "date",
        "date",
        (
            Edge("first of the year 1", "'0001-01-01'", "0001-01-01"),
            Edge("last of the year 9999", "'9999-12-31'", "9999-12-31"),
            Edge("before Gregory", "'1582-10-04'", "1582-10-04"),
            Edge("44 BC", "'0044-03-15 BC'", "0044-03-15 BC", written_as_text("-0043-03-15")),
            Edge("the first", "'4714-11-24 BC'", "4714-11-24 BC", written_as_text("-4713-11-24")),
            Edge("the last", "'5874897-12-31'", "5874897-12-31", written_as_text("out of range")),
            Edge("infinity", "'infinity'", "infinity", through_spark("infinity: null")),
            Edge("-infinity", "'-infinity'", "-infinity", through_spark("infinity: null")),
            _NULL,
        ),
    ),
    _times("timestamp", "timestamp_ntz", ""),
    _times("timestamptz", "timestamp", "+00"),
    _same("time", "00:00:00", "24:00:00", "23:59:59.999999"),
    _same("timetz", "00:00:00+15:59", "24:00:00-15:59"),
    _same("interval", "178000000 years", "-178000000 years", "-1 years -2 mons +3 days -04:05:06.000007", "00:00:00"),
    _same("bit(3)", "000", "101"),
    _same("varbit", "", "1" * 70),
    _same("json", '{"a": 1.00000000000000000000000000000000001, "a": 2}', "null", '"\\u0000"', " [ ] "),
    _same("jsonb", '{"a": 1.00000000000000000000000000000000001}', "null", "[1, [null, {}]]"),
    _same("xml", '<a b="1">&amp;</a>', "a <b/>"),
    _same("uuid", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    _same("int4range", "empty", "(,)", "[1,10)"),
    _same("numrange", "[0.1000,340282366920938463464]", "empty"),
    _same("tstzrange", '["2026-01-01 00:00:00+00",infinity)', "(,)"),
    _same("int4multirange", "{}", "{[1,3),[5,)}"),
    _same("integer[]", "{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[2:3]={1,2}"),
    _same("text[]", '{"",NULL,"NULL","a,b","\\"{}"}', "{}"),
    _same("double precision[]", "{NaN,Infinity,-0,5e-324,0.30000000000000004}"),
    _same("timestamptz[]", '{infinity,"0044-03-15 00:00:00+00 BC"}'),
    _same("mood", "sad", "it's ok", "ÄÖ"),
    TypeEdges("share", "decimal(5,4)", (Edge("least", "0", "0"), Edge("greatest", "1", "1"), _NULL)),
    _same("pair", '(,"")', '(-1,"a ""b"", c")'),
    _same("inet", "0.0.0.0/0", "::ffff:1.2.3.4/128"),
    _same("cidr", "10.0.0.0/8"),
    _same("macaddr", "ff:ff:ff:ff:ff:ff"),
    _same("oid", "4294967295"),
    _same("point", "(1e+300,-0)"),
    _same("polygon", "((0,0),(1,1),(2,0))"),
    _same("tsvector", "'a':1A 'it''s':2"),
    _same("pg_lsn", "FFFFFFFF/FFFFFFFF"),
    _same("name", "a" * 63),
    _same('"char"', "x", ""),
)
