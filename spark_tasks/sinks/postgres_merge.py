"""The statements that put staged rows into a PostgreSQL table, and what is wrong with rows that it refuses."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_tasks.postgres.quoting import literal, name
from spark_tasks.postgres.session import QueryFailed, QueryUnfit, Session
from spark_tasks.sinks.params import PostgresTable
from spark_tasks.sinks.port import SinkUnfit
from spark_tasks.sinks.postgres_staging import PART, postgres_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_NO_CAST = ("22", "42846")
"""SQLSTATE data exceptions, and cannot_coerce: one type has no cast to the other."""

_TWICE = "21000"
"""SQLSTATE cardinality_violation: an upsert meets a key twice in one batch."""


def target_columns(session: Session, table: str) -> dict[str, str]:
    """The columns of a table and their types without lengths; empty if there is no such table.

    Without lengths, so that text that is too long is refused when it is inserted, and not cut by a cast.
    """
    return dict(
        session.rows(
            "SELECT attname, format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = "
            f"to_regclass({literal(table)}) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
        )
    )


@dataclass(frozen=True)
class Merge:
    """A batch in the staging table `stage`, whose rows go to `table` (both quoted). `parts` are those that count."""

    params: PostgresTable
    schema: "StructType"
    table: str
    stage: str
    parts: tuple[int, ...]

    @property
    def columns(self) -> list[str]:
        """The columns that are written: all but the tombstone."""
        return [column for column in self.schema.fieldNames() if column != self.params.tombstone]

    @property
    def counted(self) -> str:
        """A test for the rows that count."""
        return f"{name(PART)} IN ({', '.join(map(str, self.parts))})" if self.parts else "false"

    def dead(self) -> str:
        """A test for the rows that are deleted."""
        if self.params.tombstone is None:
            return "false"
        column = name(self.params.tombstone)
        boolean = self.schema[self.params.tombstone].dataType.typeName() == "boolean"
        return f"coalesce({column}, false)" if boolean else f"{column} IS NOT NULL"

    def create(self) -> str:
        """Make the target table from the batch's columns."""
        columns = [
            f"{name(field.name)} {postgres_type(field.dataType)}"
            for field in self.schema.fields
            if field.name != self.params.tombstone
        ]
        if self.params.keys:
            columns.append(f"PRIMARY KEY ({', '.join(map(name, self.params.keys))})")
        return f"CREATE TABLE {self.table} ({', '.join(columns)})"

    def check(self, target: dict[str, str]) -> None:
        """Raise `SinkUnfit` if the target table lacks a column."""
        if missing := [column for column in self.columns if column not in target]:
            raise SinkUnfit(f"{self.table} has no column {', '.join(missing)}; it has {', '.join(target)}")

    def delete(self, target: dict[str, str]) -> str:
        """Delete all rows of the target, or those whose tombstones are in the batch."""
        if self.params.mode == "replace":
            return f"DELETE FROM {self.table}"
        same = " AND ".join(f"target.{name(key)} = stage.{name(key)}::{target[key]}" for key in self.params.keys)
        return (
            f"DELETE FROM {self.table} AS target USING {self.stage} AS stage WHERE {same} AND {self.counted} "
            f"AND {self.dead()}"
        )

    def put(self, target: dict[str, str]) -> str:
        """Insert the rows, or update those whose keys are there."""
        columns = ", ".join(map(name, self.columns))
        values = ", ".join(f"{name(column)}::{target[column]}" for column in self.columns)
        into = f"INSERT INTO {self.table} ({columns}) SELECT {values} FROM {self.stage} WHERE {self.counted}"
        if self.params.mode != "upsert":
            return into
        keys = ", ".join(map(name, self.params.keys))
        rest = [name(column) for column in self.columns if column not in self.params.keys]
        sets = ", ".join(f"{column} = excluded.{column}" for column in rest)
        act = f"UPDATE SET {sets}" if rest else "NOTHING"
        return f"{into} AND NOT {self.dead()} ON CONFLICT ({keys}) DO {act}"

    def without_keys(self) -> str:
        """A query for the number of rows whose keys are not complete."""
        nulls = " OR ".join(f"{name(key)} IS NULL" for key in self.params.keys)
        return f"SELECT count(*) FROM {self.stage} WHERE {self.counted} AND ({nulls})"

    def twice(self) -> str:
        """A query for a key that the batch has more than once."""
        keys = ", ".join(map(name, self.params.keys))
        return (
            f"SELECT concat_ws(', ', {keys}), count(*) FROM {self.stage} WHERE {self.counted} "
            f"GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"
        )


def explain_rows(error: QueryFailed, session: Session, merge: Merge, target: dict[str, str]) -> Exception:
    """The error of a batch that the target refused, with the key or the column that is to blame if it is known."""
    if error.sqlstate == _TWICE and merge.params.keys and (found := session.rows(merge.twice())):
        key, count = found[0]
        return SinkUnfit(f"{merge.table}: one batch has {count} rows with the keys {key}; make them one in `transform`")
    if error.sqlstate == "42P10":
        keys = ", ".join(merge.params.keys)
        return SinkUnfit(f"{merge.table} has no unique index on ({keys}), which an upsert needs: create one")
    if not isinstance(error, QueryUnfit):
        return error
    column = _uncastable(session, merge, target) if error.sqlstate.startswith(_NO_CAST) else None
    where = "" if column is None else f", column {column}, which is {target[column]}"
    return type(error)(f"{merge.table}{where}: {error}", error.sqlstate)


def _uncastable(session: Session, merge: Merge, target: dict[str, str]) -> str | None:
    """The first column with a value that the target's type does not take: PostgreSQL does not name it."""
    for column in merge.columns:
        cast = f"{name(column)}::{target[column]}"
        try:
            session.rows(f"SELECT count({cast}) FROM {merge.stage} WHERE {merge.counted} AND NOT {merge.dead()}")
        except QueryUnfit:
            session.rollback()
            return column
    return None
