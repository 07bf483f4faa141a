"""The URI with which a connection is opened, its password in it."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tasks.postgres.connection import PostgresConnection
from tasks.postgres.url import with_password

PATIENCE: Final[Mapping[str, str]] = {
    "connect_timeout": "15",
    "keepalives_idle": "60",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
"""How long libpq waits for a server, in seconds, unless a URL says otherwise: a server that is gone is noticed."""


def uri(connection: PostgresConnection, secret: Callable[[Any], str]) -> str:
    """The URI. `secret` gives the value of a reference. Raises what it raises."""
    password = None if connection.password is None else secret(connection.password)
    return with_password(connection.url, password, **PATIENCE)
