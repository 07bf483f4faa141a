"""The edges of the types of each source, as plain data: what goes in, and what each sink then has, or who refuses it.

One module for each source has `SOURCE`, its name for people, and `EDGES`, a `TypeEdges` for each of its types. Two
things are made of them: tests push each edge through each sink (`test_type_edges.py`, by `pushing`), and the page
docs/reference/types.md says the same (`testkit/reference/types.py`). To add a source: write its module, name it in
`SOURCES`, and teach `pushing.py` to put its values where an `etl` reads them.

    TypeEdges("numeric(10,2)", "decimal(10,2)", (
        Edge("largest", "99999999.99", "99999999.99"),          # arrives equal in each sink
        Edge("NaN", "'NaN'", "NaN", but=through_spark("NaN")),  # only where no Spark type is on its way
    ))

`given` is how the source is given the value: an SQL literal, a field of a CSV file, a value of JSON. `text` is the
value in one form that does not depend on the sink, which is PostgreSQL's: `1.5` for a decimal of whatever scale,
`0044-03-15 BC`, `2026-01-02 03:04:05.000006+00`, `NaN`, `Infinity`, `true`, `\\x00ff`; None is null.

`but` says for a sink what is not so there: `Refused` with what the error must say, beside the table and the column, or
`Becomes` with another value and the reason why it is no other one. No third thing may happen: a sink that is not named
has a value that is equal to `text`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

SINKS: Final = {
    "postgres": "PostgreSQL, no transform",
    "postgres-sql": "PostgreSQL, by a transform",
    "delta": "Delta",
    "parquet": "Parquet",
    "sqlite": "SQLite",
    "webhook": "webhook",
}
"""The sinks, and how people call them. Into `postgres` rows of PostgreSQL go untouched."""

SOURCES: Final = ("postgres", "sqlite", "http", "delta", "csv_files", "json_files", "parquet_files")
"""The modules of this package, in the order in which the page has them."""


class Refused(NamedTuple):
    """The run fails, and does not come again. Its message has `said` in it."""

    said: str


class Becomes(NamedTuple):
    """The sink has `text`, which is the same value there: `why`."""

    text: str | None
    why: str


Fate = Refused | Becomes


@dataclass(frozen=True)
class Edge:
    """A value at the edge of a type.

    edge: in words, unique among those of its type
    given: how the source is given it
    text: the value, in PostgreSQL's form; None: null
    but: by sink, what happens instead of its arriving equal
    """

    edge: str
    given: str
    text: str | None
    but: Mapping[str, Fate] = field(default_factory=dict)


@dataclass(frozen=True)
class TypeEdges:
    """A type of a source.

    type: as the source calls it
    spark: the type that it has in Spark, and so in a Delta table and in Parquet files
    edges: its values
    params: params of the source for this type; `{column}` in a key stands for the column's name
    """

    type: str
    spark: str
    edges: tuple[Edge, ...]
    params: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def through_spark(said: str) -> dict[str, Fate]:
    """Refused wherever the value has to be one of Spark's types on its way."""
    return {sink: Refused(said) for sink in SINKS if sink != "postgres"}


def everywhere(said: str) -> dict[str, Fate]:
    """Refused in each sink."""
    return {sink: Refused(said) for sink in SINKS}


def written_as_text(said: str) -> dict[str, Fate]:
    """Refused where the driver writes text: its dates and times have years from 1 to 9999."""
    return {"sqlite": Refused(said), "webhook": Refused(said)}
