"""The statements that write staged rows to a PostgreSQL table, and the errors for rows that the table refuses."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from spark_tasks.contracts.names import literal, name
from spark_tasks.contracts.sink import SinkUnfit
from spark_tasks.postgres import carried
from spark_tasks.postgres.params import PostgresTable
from spark_tasks.postgres.session import QueryFailed, QueryUnfit, Session
from spark_tasks.postgres.staging import PART, postgres_type

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Target = Mapping[str, "TargetColumn"]
"""The columns of the target table by their names."""

_NO_CAST = ("22", "42846")
"""The SQLSTATEs of data exceptions, and of cannot_coerce: one type has no cast to the other."""

_TWICE = "21000"
"""SQLSTATE cardinality_violation: an upsert encounters a key twice in one batch."""


_LOSSLESS: Final = frozenset(
    {
        ("smallint", "integer"),
        ("smallint", "bigint"),
        ("integer", "bigint"),
        ("real", "double precision"),
        *((small, wide) for small in ("smallint", "integer", "bigint") for wide in ("numeric", "text")),
        ("boolean", "text"),
        ("text", "character varying"),
    }
)
"""Pairs of types: each value of the first type is also a value of the second."""


class TargetColumn(NamedTuple):
    """A column of the target table: its type without a length or precision, and its type as declared.

    Values are cast to the type without a length, so that a text that is too long is refused when it is inserted,
    instead of being truncated by a cast.
    """

    type: str
    declared: str


def target_columns(session: Session, table: str) -> dict[str, TargetColumn]:
    """Return the columns of a table; empty if there is no such table."""
    found = session.rows(
        "SELECT attname, format_type(atttypid, -1), format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid "
        f"= to_regclass({literal(table)}) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
    )
    return {column: TargetColumn(type_, declared) for column, type_, declared in found}


def known_types(session: Session, types: Collection[str]) -> set[str]:
    """Return the types among `types` that a column can have in this database."""
    if not types:
        return set()
    asked = ", ".join(f"({literal(one)})" for one in sorted(types))
    found = session.rows(
        f"SELECT t FROM (VALUES {asked}) AS asked(t) JOIN pg_type ON pg_type.oid = to_regtype(t) WHERE typtype <> 'p'"
    )
    return {str(one) for (one,) in found}


@dataclass(frozen=True)
class Merge:
    """A batch in a staging table, whose rows are written to the target table."""

    #: The params of the sink.
    params: PostgresTable
    #: The columns of the staged rows.
    schema: "StructType"
    #: The target table, quoted.
    table: str
    #: The staging table, quoted.
    stage: str
    #: The numbers of the writers whose rows count (see `staging`).
    parts: tuple[int, ...]

    @property
    def columns(self) -> list[str]:
        """The columns that are written: all but the tombstone."""
        return [each for each in self.schema.fieldNames() if each not in (self.params.tombstone, carried.ODD)]

    @property
    def carried(self) -> dict[str, str]:
        """The PostgreSQL types that columns have kept (`carried`), by the names of the columns."""
        found = {each: carried.type_of(self.schema[each]) for each in self.columns}
        return {each: type_ for each, type_ in found.items() if type_ is not None}

    @property
    def lc_monetary(self) -> str | None:
        """The `lc_monetary` of amounts that are staged as text; None if no column has amounts."""
        return next((found for each in self.columns if (found := carried.lc_monetary_of(self.schema[each]))), None)

    @property
    def counted(self) -> str:
        """An SQL condition: the row's writer is one that counts."""
        return f"{name(PART)} IN ({', '.join(map(str, self.parts))})" if self.parts else "false"

    def staged_type(self, column: str) -> str | None:
        """Return the type of a column in the staging table."""
        return postgres_type(self.schema[column].dataType)

    def staged(self, column: str, of: str = "") -> str:
        """Return the SQL expression for a column's value in the staging table; `of` is the table's alias, such as
        `stage.`.
        """
        value = of + name(column)
        if carried.ODD not in self.schema.fieldNames() or column not in self.carried:
            return value
        if self.schema[column].dataType.typeName() not in ("date", "timestamp", "timestamp_ntz"):
            return value
        return f"coalesce(({of}{name(carried.ODD)}::json ->> {literal(column)})::{self.staged_type(column)}, {value})"

    def value(self, column: str, target: Target, of: str = "") -> str:
        """Return the SQL expression for the value of a column, cast to the type of the target's column."""
        return f"{self.staged(column, of)}::{target[column].type}"

    def dead(self) -> str:
        """Return an SQL condition: the row deletes a row of the target."""
        if self.params.tombstone is None:
            return "false"
        column = self.staged(self.params.tombstone)
        boolean = self.schema[self.params.tombstone].dataType.typeName() == "boolean"
        return f"coalesce({column}, false)" if boolean else f"{column} IS NOT NULL"

    @property
    def alive(self) -> str:
        """An SQL condition: the row is written to the target."""
        return f"{self.counted} AND NOT {self.dead()}"

    def create(self, known: Collection[str]) -> str:
        """Return the statement that creates the target table with the batch's columns; carried types in `known` are
        kept.
        """
        brought = {each: type_ for each, type_ in self.carried.items() if type_ in known}
        columns = [f"{name(each)} {brought.get(each) or self.staged_type(each)}" for each in self.columns]
        if self.params.keys:
            columns.append(f"PRIMARY KEY ({', '.join(map(name, self.params.keys))})")
        return f"CREATE TABLE {self.table} ({', '.join(columns)})"

    def check(self, target: Target) -> None:
        """Raise `SinkUnfit` if the target table lacks a column."""
        if missing := [column for column in self.columns if column not in target]:
            raise SinkUnfit(f"{self.table} has no column {', '.join(missing)}; it has {', '.join(target)}")

    def delete(self, target: Target) -> str:
        """Return the statement that deletes all rows of the target, or those whose tombstones are in the batch."""
        if self.params.mode == "replace":
            return f"DELETE FROM {self.table}"
        same = " AND ".join(f"target.{name(key)} = {self.value(key, target, 'stage.')}" for key in self.params.keys)
        return (
            f"DELETE FROM {self.table} AS target USING {self.stage} AS stage WHERE {same} AND {self.counted} "
            f"AND {self.dead()}"
        )

    def put(self, target: Target) -> str:
        """Return the statement that inserts the rows, or updates the rows of the target that have their keys."""
        columns = ", ".join(map(name, self.columns))
        values = ", ".join(self.value(column, target) for column in self.columns)
        into = f"INSERT INTO {self.table} ({columns}) SELECT {values} FROM {self.stage} WHERE {self.counted}"
        if self.params.mode != "upsert":
            return into
        keys = ", ".join(map(name, self.params.keys))
        rest = [name(column) for column in self.columns if column not in self.params.keys]
        sets = ", ".join(f"{column} = excluded.{column}" for column in rest)
        act = f"UPDATE SET {sets}" if rest else "NOTHING"
        return f"{into} AND NOT {self.dead()} ON CONFLICT ({keys}) DO {act}"

    def without_keys(self) -> str:
        """Return a query for the number of rows whose keys are not complete."""
        nulls = " OR ".join(f"{self.staged(key)} IS NULL" for key in self.params.keys)
        return f"SELECT count(*) FROM {self.stage} WHERE {self.counted} AND ({nulls})"

    def twice(self, target: Target) -> str:
        """Return a query for a key that the batch has more than once, by the target's own comparison."""
        keys = ", ".join(self.value(key, target) for key in self.params.keys)
        return (
            f"SELECT concat_ws(', ', {keys}), count(*) FROM {self.stage} WHERE {self.counted} "
            f"GROUP BY {keys} HAVING count(*) > 1 LIMIT 1"
        )

    def changed(self, column: str, target: Target) -> str | None:
        """Return a query for a value that the target's column would change, with the changed value; None if no value
        can change.

        A column of text is compared as its type without a length, others as the type in which they are staged.
        """
        declared, type_ = target[column].declared, target[column].type
        ours = self.staged_type(column)
        if self.carried.get(column) == declared or ours == declared or (ours, declared) in _LOSSLESS:
            return None
        value = self.staged(column)
        if ours == "text":
            if declared == type_:
                return None
            before, after = f"{value}::{type_}", f"{value}::{type_}::{declared}"
        else:
            if declared == type_ == "numeric" and str(ours).startswith("numeric"):
                return None
            before, after = value, f"{value}::{declared}::{ours}"
        return (
            f"SELECT left({value}::text, 100), left(({value}::{type_}::{declared})::text, 100) FROM {self.stage} "
            f"WHERE {self.alive} AND {before} IS DISTINCT FROM {after} LIMIT 1"
        )


def check_kept(session: Session, merge: Merge, target: Target) -> None:
    """Raise `SinkUnfit` if the target's column changes a value, for example by rounding it."""
    for column in merge.columns:
        query = merge.changed(column, target)
        if query is None:
            continue
        where = f"{merge.table}, column {column}, which is {target[column].declared}"
        try:
            found = session.rows(query)
        except QueryUnfit as error:
            raise SinkUnfit(
                f"{where}: whether it keeps values of {merge.staged_type(column)} cannot be told ({error}): cast the "
                "column in `transform`, or declare it otherwise"
            ) from None
        if found:
            before, after = found[0]
            raise SinkUnfit(
                f"{where}: the value {before} would become {after}: cast or round it in `transform`, or declare the "
                "column so that it fits"
            )


def explain_rows(error: QueryFailed, session: Session, merge: Merge, target: Target) -> Exception:
    """Return the error of a batch that the target refused, with the key or the column that caused it if that
    is known.
    """
    if error.sqlstate == _TWICE and merge.params.keys and (found := session.rows(merge.twice(target))):
        key, count = found[0]
        return SinkUnfit(f"{merge.table}: one batch has {count} rows with the keys {key}; make them one in `transform`")
    if error.sqlstate == "42P10":
        keys = ", ".join(merge.params.keys)
        return SinkUnfit(f"{merge.table} has no unique index on ({keys}), which an upsert needs: create one")
    if not isinstance(error, QueryUnfit):
        return error
    where = _refused(session, merge, target) if error.sqlstate.startswith(_NO_CAST) else ""
    return type(error)(f"{merge.table}{where}: {error}", error.sqlstate)


def _refused(session: Session, merge: Merge, target: Target) -> str:
    """Return the first column with a value that the target's type refuses, and the value, because PostgreSQL names
    neither.
    """
    for column in merge.columns:
        value, declared = merge.staged(column), target[column].declared
        where = f", column {column}, which is {declared}"
        try:
            # PostgreSQL has this function from version 16 on.
            valid = f"pg_input_is_valid({value}::text, {literal(declared)})"
            found = session.rows(
                f"SELECT left({value}::text, 100) FROM {merge.stage} WHERE {merge.alive} AND NOT {valid} LIMIT 1"
            )
            if found:
                return f"{where}, value {found[0][0]}"
        except QueryFailed:
            session.rollback()
        try:
            session.rows(f"SELECT count({merge.value(column, target)}) FROM {merge.stage} WHERE {merge.alive}")
        except QueryUnfit:
            session.rollback()
            return where
    return ""
