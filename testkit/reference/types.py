"""docs/reference/types.md: what becomes of the values of each source in each sink, from the edges that tests push."""

from collections.abc import Iterator
from importlib import import_module
from typing import Final

from testkit.reference.markdown import MADE_BY, code, table
from testkit.spark.type_edges import SINKS, SOURCES, Becomes, Edge, Refused, TypeEdges

PATH: Final = "docs/reference/types.md"

_CHARS_MAX: Final = 40

_INTRODUCTION: Final = f"""\
# Types, and their edges

{MADE_BY}
What becomes of a value on its way from a source of an [`etl`](kinds.md#etl) to its sink. A test pushes each value of
this page through each sink (`pytest -m "more or soak" tests/integration/spark/test_type_edges.py`); `make
test-more` runs the commonest pairs.

| mark | meaning |
|---|---|
| = | the value arrives, equal to what left |
| refused | the run fails and is not tried again; the error names table, column and value, and says what to do |
| a number | it arrives in another form: see below the table |

Nothing is rounded, cut, wrapped or made null without a word. The second column is the type in Spark, and so in a Delta
table and in Parquet files. What SQLite and a webhook have for it: [Sinks](../explanation/sinks.md#an-sqlite-file). Rows
of PostgreSQL that go into a PostgreSQL table without a `transform` pass Spark as they are, with their types.
"""


def render() -> str:
    """The page."""
    return "\n".join([_INTRODUCTION, *(_source(name) for name in SOURCES)])


def _source(name: str) -> str:
    module = import_module(f"testkit.spark.type_edges.{name}")
    notes: list[str] = []
    sinks = [sink for sink in SINKS if sink != "postgres-sql" or name == "postgres"]
    names = [SINKS[sink] if name == "postgres" else SINKS[sink].partition(",")[0] for sink in sinks]
    rows = [row for of in module.EDGES for row in _rows(of, sinks, notes)]
    listed = "".join(f"{number}. {note}\n" for number, note in enumerate(notes, 1))
    return f"## {module.SOURCE}\n\n{table(('type', 'in Spark', 'value', *names), rows)}" + (
        f"\n{listed}" if notes else ""
    )


def _rows(of: TypeEdges, sinks: list[str], notes: list[str]) -> Iterator[list[str]]:
    for number, edge in enumerate(of.edges):
        first = [f"`{of.type}`", f"`{of.spark}`"] if number == 0 else ["", ""]
        yield [*first, _value(edge), *(_mark(edge, sink, notes) for sink in sinks)]


def _value(edge: Edge) -> str:
    """The value, in words as well where these are others."""
    if edge.text is None or edge.text == edge.edge:
        return code(edge.edge) if edge.text is not None else edge.edge
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in edge.text)
    short = text if len(text) <= _CHARS_MAX else text[: _CHARS_MAX - 1] + "…"
    shown = f"`` {short} ``" if "`" in short else code(short)
    return f"{edge.edge}: {shown}" if shown else edge.edge


def _mark(edge: Edge, sink: str, notes: list[str]) -> str:
    match edge.but.get(sink):
        case Refused():
            return "refused"
        case Becomes(_, why):
            if why not in notes:
                notes.append(why)
            return str(notes.index(why) + 1)
    return "="
