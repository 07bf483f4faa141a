"""Writes the staged rows of a batch to a table of an SQLite file."""

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_tasks.contracts.names import name
from spark_tasks.contracts.sink import Committed, SinkUnfit
from spark_tasks.sqlite.params import SqliteTable
from spark_tasks.sqlite.values import check_keeps, declared

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class SqliteMerge:
    """A batch with the columns `schema`, which are named c0, c1, ... in `staged.rows`."""

    params: SqliteTable
    schema: "pa.Schema"

    @property
    def _table(self) -> str:
        return f"main.{name(self.params.table)}"

    def _staged(self, column: str) -> str:
        return f"c{self.schema.get_field_index(column)}"

    @property
    def _written(self) -> list[str]:
        return [column for column in self.schema.names if column != self.params.tombstone]

    def _dead(self) -> str:
        """Return an SQL condition: the row is a tombstone."""
        if self.params.tombstone is None:
            return "false"
        column = self._staged(self.params.tombstone)
        boolean = str(self.schema.field(self.params.tombstone).type) == "bool"
        return f"coalesce({column}, 0)" if boolean else f"{column} IS NOT NULL"

    def apply(self, database: sqlite3.Connection) -> Committed:
        """Write the rows to the table, and create the table if it does not exist. Raises `SinkUnfit`, and SQLite's
        errors.
        """
        self._check_kind(database)
        there = self._columns(database)
        if not there:
            database.execute(self._create())
            there = self._columns(database)
        for column in self._written:
            if column.lower() not in there:
                raise SinkUnfit(
                    f"{self.params.path}: the table {self.params.table} has no column {column}; it has "
                    f"{', '.join(there)}"
                )
            check_keeps(self.schema.field(column).type, column, there[column.lower()])
        deleted = 0
        if self.params.keys:
            self._check_keys(database)
            deleted = self._delete_dead(database)
        elif self.params.replaces:
            database.execute(f"DELETE FROM {self._table}")
        return Committed(database.execute(self._put()).rowcount, deleted)

    def _check_kind(self, database: sqlite3.Connection) -> None:
        query = "SELECT type FROM main.sqlite_schema WHERE lower(name) = lower(?) AND type IN ('table', 'view')"
        found = database.execute(query, (self.params.table,)).fetchone()
        if found is not None and found[0] != "table":
            raise SinkUnfit(f"{self.params.path}: {self.params.table} is a {found[0]}, and not a table")

    def _columns(self, database: sqlite3.Connection) -> dict[str, str]:
        """Return the declared types of the table's columns, by lower-case name, without generated columns; empty if no
        table exists.
        """
        rows = database.execute(
            "SELECT name, type FROM pragma_table_xinfo(?, 'main') WHERE hidden = 0", (self.params.table,)
        )
        return {column.lower(): declaration for column, declaration in rows}

    def _create(self) -> str:
        columns = [f"{name(column)} {declared(self.schema.field(column).type)}" for column in self._written]
        if self.params.keys:
            columns.append(f"PRIMARY KEY ({', '.join(map(name, self.params.keys))})")
        return f"CREATE TABLE {self._table} ({', '.join(columns)})"

    def _check_keys(self, database: sqlite3.Connection) -> None:
        keys = [self._staged(key) for key in self.params.keys]
        nulls = " OR ".join(f"{key} IS NULL" for key in keys)
        if nameless := database.execute(f"SELECT count(*) FROM staged.rows WHERE {nulls}").fetchone()[0]:
            raise SinkUnfit(f"{self.params.table}: {nameless} rows of a batch have a null in their keys")
        collations = self._collations(database)
        grouped = ", ".join(f"{key} COLLATE {name(by)}" for key, by in zip(keys, collations, strict=True))
        found = database.execute(
            f"SELECT {', '.join(keys)}, count(*) FROM staged.rows GROUP BY {grouped} HAVING count(*) > 1 LIMIT 1"
        ).fetchone()
        if found is not None:
            *values, count = found
            raise SinkUnfit(
                f"{self.params.table}: one batch has {count} rows with the keys {', '.join(map(str, values))}; make "
                "them one in `transform`"
            )

    def _collations(self, database: sqlite3.Connection) -> list[str]:
        """Return the collation of each key in a unique index on the keys. Raises `SinkUnfit` if there is no
        such index.
        """
        keys = [key.lower() for key in self.params.keys]
        query = "SELECT name FROM pragma_index_list(?, 'main') WHERE \"unique\" AND NOT partial"
        for (index,) in database.execute(query, (self.params.table,)).fetchall():
            query = "SELECT name, coll FROM pragma_index_xinfo(?, 'main') WHERE key"
            parts = [((column or "").lower(), by) for column, by in database.execute(query, (index,))]
            if sorted(column for column, _ in parts) == sorted(keys):
                return [dict(parts)[key] for key in keys]
        query = "SELECT lower(name) FROM pragma_table_info(?, 'main') WHERE pk"
        if [column for (column,) in database.execute(query, (self.params.table,))] == keys:
            return ["BINARY"]  # the key is the rowid, which has no index
        raise SinkUnfit(
            f"{self.params.table} has no unique index on ({', '.join(self.params.keys)}), which an upsert needs: "
            "create one"
        )

    def _delete_dead(self, database: sqlite3.Connection) -> int:
        if self.params.tombstone is None:
            return 0
        keys = ", ".join(map(name, self.params.keys))
        dead = f"SELECT {', '.join(map(self._staged, self.params.keys))} FROM staged.rows WHERE {self._dead()}"
        return database.execute(f"DELETE FROM {self._table} WHERE ({keys}) IN ({dead})").rowcount

    def _put(self) -> str:
        """Return the statement that inserts the rows, or updates the rows whose keys exist."""
        columns = ", ".join(map(name, self._written))
        values = ", ".join(map(self._staged, self._written))
        into = f"INSERT INTO {self._table} ({columns}) SELECT {values} FROM staged.rows WHERE NOT {self._dead()}"
        if not self.params.keys:
            return into
        rest = [name(column) for column in self._written if column not in self.params.keys]
        act = "UPDATE SET " + ", ".join(f"{column} = excluded.{column}" for column in rest) if rest else "NOTHING"
        return f"{into} ON CONFLICT ({', '.join(map(name, self.params.keys))}) DO {act}"
