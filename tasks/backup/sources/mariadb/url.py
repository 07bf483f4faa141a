"""The URL of a MariaDB server (pure): where it is, as whom to log in, and whether its certificate is checked."""

from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

PREFIXES: Final = ("mysql://", "mariadb://")
FORM: Final = "mysql://USER@HOST:PORT/ or mysql://USER@/?socket=/run/mysqld/mysqld.sock"
_PARAMETERS: Final = ("ca", "socket", "tls")


class MariadbUrl(NamedTuple):
    """The parts of the URL of a MariaDB server."""

    #: The name of the account.
    user: str
    #: The host; "" if the server is reached by its socket.
    host: str
    #: The TCP port.
    port: int
    #: The absolute path of the server's Unix socket; "" if it is reached over TCP.
    socket: str
    #: The name of a database; "" for the whole server.
    database: str
    #: `preferred`: TLS if the client and the server agree on it. `verified`: TLS with a certificate that is checked.
    tls: Literal["preferred", "verified"]
    #: The absolute path of a file of certificates that may sign the server's; "" for the system's.
    ca: str

    @property
    def address(self) -> str:
        """The server's address, as `tasks.access.check_address` takes it; `localhost` for a socket."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if host else "localhost"


def parse_mariadb(url: str) -> MariadbUrl:
    """Return the parts of `url`. Raises `ValueError`.

    >>> parse_mariadb("mysql://backup@db.internal:3307/orders?tls=verified")[:5]
    ('backup', 'db.internal', 3307, '', 'orders')
    >>> parse_mariadb("mysql://root@/?socket=/run/mysqld/mysqld.sock").address
    'localhost'
    """
    if not url.startswith(PREFIXES):
        raise ValueError(f"the URL of a MariaDB server begins with mysql:// ({FORM})")
    parts = urlsplit(url)
    if parts.password is not None:
        raise ValueError("the URL must not contain a password: give a reference to a secret as `password`")
    if not parts.username:
        raise ValueError(f"the URL names no user: write {FORM}")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(given.keys() - set(_PARAMETERS))
    if unknown or parts.fragment:
        raise ValueError(f"{', '.join(unknown) or '#'} cannot be set in the URL (these can: {', '.join(_PARAMETERS)})")
    socket, ca, tls = given.get("socket", ""), given.get("ca", ""), given.get("tls", "preferred")
    host = parts.hostname or ""
    if bool(host) == bool(socket):
        raise ValueError(f"the URL names either a host or a socket: {FORM}")
    for name, path in (("socket", socket), ("ca", ca)):
        if path and not (path.startswith("/") and path.isprintable()):
            raise ValueError(f"`{name}` is an absolute path without control characters, not {path!r}")
    if tls not in ("preferred", "verified"):
        raise ValueError(f"`tls` is preferred or verified, not {tls!r}")
    if ca and tls != "verified":
        raise ValueError("`ca` is of no use without tls=verified")
    return MariadbUrl(
        user=_text(parts.username),
        host=host,
        port=parts.port or 3306,
        socket=socket,
        database=_text(parts.path.removeprefix("/")),
        tls="verified" if tls == "verified" else "preferred",
        ca=ca,
    )


def _text(quoted: str) -> str:
    text = unquote(quoted, errors="strict")
    if any(ord(character) < 32 for character in text):
        raise ValueError("a name in the URL has a control character")
    return text
