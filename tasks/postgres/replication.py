"""A connection to a PostgreSQL server for the replication protocol, and the errors of servers.

Uses psycopg2, which is the driver of Python that speaks this protocol; it comes with the extra `wal` of this package.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tasks.errors import Away, Failed, Unretryable
from tasks.postgres.url import with_password

if TYPE_CHECKING:
    from psycopg2.extensions import connection, cursor

PATIENCE: Final = {
    "connect_timeout": "10",
    "tcp_user_timeout": "30000",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
}
"""Parameters by which a host that vanished is noticed within half a minute. The kernel takes a quarter of an hour."""

LOGIN_REFUSED: Final = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "pg_hba.conf rejects",
    "is not permitted to log in",
    "permission denied to start WAL sender",
    "must be superuser or replication role to start walsender",
)
"""Messages of a server that refuses a login. Errors of connecting have no code; in other languages they are `Away`."""


class PostgresAway(Away):
    """The server does not answer, or has ended the connection."""


class PostgresRefused(Unretryable):
    """The server refuses the login or the replication."""


class PostgresError(Failed):
    """The server returned an error. `code` is its SQLSTATE."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class NoDriver(Failed):
    """psycopg2 is not installed on this machine."""


class ServerIdentity(NamedTuple):
    """What a server reports of itself."""

    #: The identifier of the database system: a standby has the one of its primary.
    system: str
    #: The timeline on which the server is.
    timeline: int
    #: Such as "17.5".
    version: str
    #: The major version.
    major: int
    #: Whether it keeps the summaries of its log that incremental backups need.
    summarizes: bool


@contextmanager
def errors_named(url: str) -> Iterator[None]:
    """Turn psycopg2's errors into `PostgresAway`, `PostgresRefused` and `PostgresError`."""
    try:
        import psycopg2
    except ImportError as error:
        raise NoDriver(f"{error}: install the extra `wal` of this package on the member (rota[wal])") from None
    try:
        yield
    except psycopg2.Error as error:
        said = " ".join(str(error).split()) or type(error).__name__
        code = error.pgcode or ""
        if code[:2] == "28" or code == "42501" or (not code and any(refusal in said for refusal in LOGIN_REFUSED)):
            raise PostgresRefused(f"{url}: {said}") from None
        # 57P01 to 57P03: the server is shut down, or starts.
        if not code or code[:2] == "08" or code[:4] == "57P0":
            raise PostgresAway(f"{url}: {said}") from None
        raise PostgresError(f"{url}: {said}", code) from None


@contextmanager
def replicating(url: str, password: str | None, name: str) -> "Iterator[connection]":
    """Open a connection for the replication protocol during the block. `name` is its application name."""
    with errors_named(url):
        import psycopg2
        import psycopg2.extras

        target = with_password(url, password, **PATIENCE)
        factory = psycopg2.extras.PhysicalReplicationConnection
        with closing(psycopg2.connect(target, application_name=name, connection_factory=factory)) as opened:
            yield opened


@contextmanager
def asking(url: str, password: str | None, name: str) -> "Iterator[cursor]":
    """Open a connection for queries to the URL's database during the block."""
    with errors_named(url):
        import psycopg2

        with closing(psycopg2.connect(with_password(url, password, **PATIENCE), application_name=name)) as opened:
            opened.autocommit = True
            with opened.cursor() as cursor:
                yield cursor


def identified(opened: "connection") -> ServerIdentity:
    """Ask the server on a replication connection for its identity. Raises `PostgresError`."""
    with opened.cursor() as cursor:

        def answer(command: str) -> Any:
            cursor.execute(command)
            return cursor.fetchone()

        system, timeline, *_ = answer("IDENTIFY_SYSTEM")
        major = int(answer("SHOW server_version_num")[0]) // 10_000
        return ServerIdentity(
            system=checked_system(system),
            timeline=int(timeline),
            version=answer("SHOW server_version")[0].partition(" ")[0],
            major=major,
            summarizes=major >= 17 and answer("SHOW summarize_wal")[0] == "on",
        )


def checked_system(told: Any) -> str:
    """Return the identifier that a server tells of its system. It becomes a folder's name. Raises `PostgresError`.

    >>> checked_system("7432")
    '7432'
    """
    system = str(told)
    if not (system.isascii() and system.isdecimal() and len(system) <= 20):
        raise PostgresError(f"the server tells {system[:100]!r} as the identifier of its system, which is no number")
    return system
