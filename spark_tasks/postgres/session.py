"""A session on a PostgreSQL server by ADBC, with one transaction at a time. Each error is one sentence.

Also snapshots, which the driver holds open so that all readers of a batch see the database at one moment.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tasks.kind import Away, Failed, Unretryable
from tasks.postgres.connection import PostgresConnection
from tasks.postgres.url import with_password

TEXT_FORMS: Final = """SELECT set_config('datestyle', 'ISO', true), set_config('intervalstyle', 'postgres', true),
set_config('extra_float_digits', '1', true), set_config('xmloption', 'content', true)"""
"""A statement that sets the text formats of pg_dump until the transaction ends, whatever a role or a database has set.
With these formats, values that are written as text lose nothing, and are the same when they are read back.
"""

_UNFIT: Final = ("0A", "22", "23", "42", "44", "21", "3F", "54")
"""The classes of SQLSTATE for errors in data or statements, not in the server: another attempt would encounter them
again.
"""

_AWAY: Final = ("08", "53300", "57P")
"""The SQLSTATEs of lost connections, and of servers that shut down or accept no more connections."""

_IO: Final = 10
"""ADBC's status of an error on a connection. libpq gives no SQLSTATE for such an error."""

_NO_ROW: Final = "Error occurred writing COPY data:"
"""The message of ADBC, with the status `_IO`, for a value that it cannot write. It has no text of libpq."""

_NO_STREAM: Final = "nanoarrow call failed"
"""The message of ADBC, with the status `_IO`, if it could not get the rows to write from their producer."""

_COPIED: Final = re.compile(r"^COPY .+, line \d+, column (.+)$", re.MULTILINE)
"""The part of PostgreSQL's error that names the column of a value that it refused while rows were copied."""

_REFUSED: Final = re.compile(r"\bFATAL: (.+)")
"""The error of a server that refuses a connection. libpq gives no SQLSTATE for it."""

_FOR_NOW: Final = re.compile(
    r"starting up|shutting down|recovery|not (?:yet )?accepting connections|too many|connection slots|terminating"
)
"""The refusals that are temporary: the server will accept connections again."""

_SAID: Final = re.compile(
    r"ERROR: (.+?)(?: DETAIL: (.+?))?(?: (?:HINT|CONTEXT|LINE \d+|QUERY): .*)?\s*\.? SQLSTATE: \w+$"
)


class ServerAway(Away):
    """A PostgreSQL server cannot be reached, accepts no connections now, or closed one."""


class ServerRefused(Failed):
    """A PostgreSQL server refused the connection because of the user, the password or the database. Another attempt
    resolves them again.
    """


class QueryFailed(Failed):
    """A PostgreSQL server could not carry out a statement now. `sqlstate` is its code."""

    def __init__(self, message: str, sqlstate: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class QueryUnfit(Unretryable, QueryFailed):
    """A PostgreSQL server refused a statement or a row, and would refuse it again."""


class Session:
    """A session with a transaction that begins at the first statement, and again after `commit` and `rollback`.

    All methods raise `ServerAway`, `ServerRefused`, `QueryFailed` and `QueryUnfit`.
    """

    def __init__(self, uri: str) -> None:
        from adbc_driver_postgresql import dbapi

        with translated_errors():
            self.connection = dbapi.connect(uri)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query, and return its rows."""
        with translated_errors(), self.connection.cursor() as cursor:
            cursor.execute(sql, tuple(values) or None)
            return list(cursor.fetchall())

    def run(self, *statements: str) -> int:
        """Execute statements without values. Returns how many rows the last one wrote, -1 if that is not known."""
        count = -1
        for sql in statements:
            with translated_errors(), self.connection.cursor() as cursor:
                cursor.execute(sql)
                count = int(cursor.rowcount)
        return count

    def commit(self) -> None:
        """Commit the transaction."""
        with translated_errors():
            self.connection.commit()

    def rollback(self) -> None:
        """Roll the transaction back."""
        with translated_errors():
            self.connection.rollback()

    def cancel(self) -> None:
        """Cancel the statement for which another thread waits. It raises `QueryFailed` in that thread."""
        with translated_errors():
            self.connection.adbc_cancel()

    def close(self) -> None:
        """End the session. A transaction that is not committed is rolled back."""
        with translated_errors():
            self.connection.close()


@contextmanager
def session(uri: str) -> Iterator[Session]:
    """Open a session for the block. A transaction that is not committed at its end is rolled back."""
    opened = Session(uri)
    try:
        yield opened
    finally:
        opened.close()


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise `ServerAway`, `ServerRefused`, `QueryFailed` or `QueryUnfit` instead of ADBC's errors within the block."""
    from adbc_driver_manager import Error

    try:
        yield
    except Error as error:
        raise _better(error) from None


def _better(error: Any) -> Exception:
    sqlstate = error.sqlstate or ""
    # The driver gives the names as bytes, although the driver manager promises text.
    facts = {bytes(key).decode() if isinstance(key, bytes) else key: _text(value) for key, value in error.details or ()}
    said = " ".join(str(error).split())
    message, detail = facts.get("PG_DIAG_MESSAGE_PRIMARY"), facts.get("PG_DIAG_MESSAGE_DETAIL")
    if message is None and (found := _SAID.search(said)):  # errors of statements without values have no details
        message, detail = found.groups()
    if message is None:
        message = said.partition("[libpq] ")[2] or said
    message += f": {detail}" if detail else ""
    if copied := _COPIED.search(facts.get("PG_DIAG_CONTEXT", "")):
        message = f"column {copied[1]}: {message}"
    if sqlstate.startswith("28") or (not sqlstate and _refused_for_good(message)):
        return ServerRefused(message)
    if not sqlstate and _NO_STREAM in said:
        return QueryFailed(message)
    if not sqlstate and (error.status_code != _IO or message.endswith(_NO_ROW)):
        return QueryUnfit(f"the driver cannot carry a value or a type of the statement: {message}")
    if not sqlstate or sqlstate.startswith(_AWAY):
        return ServerAway(message)
    return (QueryUnfit if sqlstate.startswith(_UNFIT) else QueryFailed)(f"{message} ({sqlstate})", sqlstate)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _refused_for_good(message: str) -> bool:
    """Whether a server answered, and refused a connection for a reason that does not pass by itself.

    >>> _refused_for_good('connection to server at "db" failed: FATAL: password authentication failed for user "etl"')
    True
    >>> _refused_for_good('connection to server at "db" failed: FATAL: the database system is starting up')
    False
    >>> _refused_for_good('connection to server at "db", port 5432 failed: Connection refused')
    False
    """
    refusal = _REFUSED.search(message)
    return refusal is not None and _FOR_NOW.search(refusal[1]) is None


class Snapshot:
    """A read-only transaction that is held open; others import it by its `name` with `SET TRANSACTION SNAPSHOT`."""

    def __init__(self, uri: str) -> None:
        self.session = Session(uri)
        try:
            self.session.run(
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
                # The transaction is idle while others read, and the server must not end it because of that.
                "SET LOCAL idle_in_transaction_session_timeout = 0",
                # Cursors are stored as text, which must have the same meaning in a later session.
                TEXT_FORMS,
            )
            self.name = str(self.session.rows("SELECT pg_export_snapshot()")[0][0])
        except BaseException:
            self.session.close()
            raise


class BatchSnapshots:
    """The snapshots of one batch: one for each database, even if several sources read it."""

    def __init__(self) -> None:
        self._held: dict[str, Snapshot] = {}

    def of(self, uri: str) -> Snapshot:
        """Return the snapshot of the database at `uri` (with its password), taken at the first call."""
        if uri not in self._held:
            self._held[uri] = Snapshot(uri)
        return self._held[uri]

    def release(self) -> None:
        """End the snapshots. The next call of `of` takes new ones."""
        held, self._held = self._held, {}
        for snapshot in held.values():
            snapshot.session.close()


PATIENCE: Final[Mapping[str, str]] = {
    "connect_timeout": "15",
    "keepalives_idle": "60",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
"""How long libpq waits for a server, in seconds, unless a URL sets other values. So a lost server is noticed."""


def uri(connection: PostgresConnection, secret: Callable[[Any], str]) -> str:
    """Return the connection's URI with its password. `secret` returns the value of a reference; its errors
    are raised.
    """
    password = None if connection.password is None else secret(connection.password)
    return with_password(connection.url, password, **PATIENCE)
