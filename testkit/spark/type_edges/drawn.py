"""Values of PostgreSQL's types, drawn at random, as SQL literals: all of them, and those that a sink can hold."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from testkit.spark.type_edges import Edge, TypeEdges
from testkit.spark.type_edges.pushing import Pushing

_DAY_US: Final = 86_400_000_000
_YEAR_1_US: Final = -62_135_596_800_000_000
_YEAR_10000_US: Final = 253_402_300_800_000_000

Literals = st.SearchStrategy[str]


class Draws(NamedTuple):
    """How values of a type are drawn.

    spark: the type in Spark
    any: all values that PostgreSQL has
    held: those that Spark's type holds
    written: those that a sink holds which the driver writes as text
    """

    spark: str
    any: Literals
    held: Literals
    written: Literals


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _same(spark: str, values: Literals) -> Draws:
    return Draws(spark, values, values, values)


def _whole(bits: int) -> Literals:
    ends = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return st.one_of(st.integers(*ends), st.sampled_from(ends)).map(lambda value: f"'{value}'")


def _digits(before: int, behind: int) -> Literals:
    whole = st.one_of(st.integers(0, 10**before - 1), st.sampled_from([0, 10**before - 1]))
    return st.builds(
        lambda sign, left, right: f"'{sign}{left}.{right}0'",
        st.sampled_from(["", "-"]),
        whole,
        st.text("0123456789", max_size=behind - 1),
    )


def _floats(spark: str, width: Literal[32, 64]) -> Draws:
    every = st.floats(width=width)
    some = st.floats(width=width, allow_nan=False).filter(bool)  # SQLite has no NaN, and one zero
    return Draws(spark, every.map(_float), every.map(_float), some.map(_float))


def _float(value: float) -> str:
    return f"'{value!r}'"


def _times(low_us: int, high_us: int, kind: str, zone: str) -> Literals:
    """Times from 1970: as an interval of days and one of microseconds, which no float rounds."""
    return st.integers(low_us, high_us).map(
        lambda at: (
            f"({kind} 'epoch{zone}' + make_interval(days => {at // _DAY_US}) + "
            f"make_interval(secs => {at % _DAY_US // 1_000_000}) + "
            f"'{at % 1_000_000} microseconds'::interval)"
        )
    )


_INFINITY: Final = st.sampled_from(["'infinity'", "'-infinity'"])
_TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30).map(_quoted)
_NUMERICS: Final = st.one_of(
    _digits(20, 18), _digits(120, 90), st.sampled_from(["'NaN'", "'Infinity'", "'-Infinity'", "1e-300", "-1e300"])
)


def _moments(kind: str, zone: str, spark: str) -> Draws:
    low, high = -210_863_520_000_000_000, 2**63 - 1
    held = _times(low, high - _DAY_US, kind, zone)
    written = _times(_YEAR_1_US, _YEAR_10000_US - 1, kind, zone)
    return Draws(spark, st.one_of(held, _INFINITY, _times(high, 9_224_318_015_999_999_999, kind, zone)), held, written)


_DAYS: Final = st.integers(-2_440_588, 2_145_042_905).map(lambda day: f"(date '1970-01-01' + {day})")
_DAYS_WRITTEN: Final = st.integers(-719_162, 2_932_896).map(lambda day: f"(date '1970-01-01' + {day})")
_INTEGERS: Final = st.integers(-(2**31), 2**31 - 1)

DRAWS: Final[Mapping[str, Draws]] = {
    "boolean": _same("boolean", st.sampled_from(["true", "false"])),
    "smallint": _same("smallint", _whole(16)),
    "integer": _same("int", _whole(32)),
    "bigint": _same("bigint", _whole(64)),
    "numeric": Draws("decimal(38,18)", _NUMERICS, _digits(20, 18), _digits(20, 18)),
    "numeric(10,2)": _same("decimal(10,2)", _digits(8, 2)),
    "numeric(50,10)": _same("string", _digits(40, 10)),
    "real": _floats("float", 32),
    "double precision": _floats("double", 64),
    "text": _same("string", _TEXTS),
    "bytea": _same("binary", st.binary(max_size=30).map(lambda value: f"'\\x{value.hex()}'")),
    "date": Draws("date", st.one_of(_DAYS, _INFINITY), _DAYS, _DAYS_WRITTEN),
    "timestamp": _moments("timestamp", "", "timestamp_ntz"),
    "timestamptz": _moments("timestamptz", "", "timestamp"),
    "time": _same("string", st.times().map(lambda at: f"'{at}'")),
    "interval": _same(
        "string",
        st.builds(
            lambda months, days, us: f"'{months} months {days} days {us} microseconds'",
            *(st.integers(-(2**31) + 1, 2**31 - 1),) * 2,
            st.integers(-(2**53), 2**53),
        ),
    ),
    "uuid": _same("string", st.uuids().map(lambda value: f"'{value}'")),
    "integer[]": _same(
        "string",
        st.lists(st.none() | _INTEGERS).map(lambda values: f"ARRAY[{', '.join(map(_or_null, values))}]::int[]"),
    ),
    "text[]": _same("string", st.lists(_TEXTS, max_size=5).map(lambda values: f"ARRAY[{', '.join(values)}]::text[]")),
    "int4range": _same(
        "string",
        st.tuples(_INTEGERS, _INTEGERS).map(lambda ends: f"int4range({min(ends)}, {max(ends)})"),
    ),
}
"""How values of each type are drawn."""


def _or_null(value: int | None) -> str:
    return "NULL" if value is None else str(value)


def columns_of_all() -> dict[str, TypeEdges]:
    """A column for each type."""
    return {f"c{number}": TypeEdges(type_, draws.spark, ()) for number, (type_, draws) in enumerate(DRAWS.items())}


def rows(count: int, sink: str, number: int) -> list[dict[str, Edge]]:
    """Rows of drawn values that arrive in the sink, or nulls. The same `number` gives the same rows."""
    held = "any" if sink == "postgres" else "written" if sink in ("sqlite", "webhook") else "held"
    each = {
        f"c{number}": st.one_of(*[getattr(draws, held)] * 4, st.none()) for number, draws in enumerate(DRAWS.values())
    }
    drawn: list[dict[str, Edge]] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.fixed_dictionaries(each))
    def draw(values: dict[str, str | None]) -> None:
        drawn.append({name: Edge("drawn", value or "NULL", None) for name, value in values.items()})

    draw()
    return drawn


def differing(pushing: Pushing, sink: str, count: int, number: int) -> list[str]:
    """Take `count` drawn rows to the sink; the values that are others there than in the source's table."""
    columns, name = columns_of_all(), f"drawn{number}"
    drawn = rows(count, sink, number)
    pushing.run(sink, name, columns, drawn)
    there, here = pushing.sinks.cells(sink, name, columns), pushing.sinks.of_table(f"src_{name}", columns)
    assert len(here) == len(drawn) * len(columns)
    return [
        f"row {row} of {number}, {columns[column].type}: {value!r} became {there.get((row, column))!r}"
        for (row, column), value in here.items()
        if there.get((row, column), "nothing") != value
    ]
