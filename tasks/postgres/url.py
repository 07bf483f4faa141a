"""The URL of a PostgreSQL database, parsed as libpq parses it (conninfo_uri_parse_options), and the allowed parameters.

Some of libpq's parameters name local files or other servers. Tasks may not set those.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

PREFIXES: Final = ("postgresql://", "postgres://")
_REFUSAL: Final = "the URL must not contain a password: give a reference to a secret as `password`"
_SECRETS: Final = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})
_USER: Final = re.compile(r"[^@/]*(?=@)")
_SERVER: Final = re.compile(r"(?:\[([^\]]*)\]|([^:/?,]*))(?::([^/?,]*))?")

ALLOWED: Final = frozenset(
    "application_name channel_binding client_encoding connect_timeout dbname fallback_application_name gssencmode host "
    "hostaddr keepalives keepalives_count keepalives_idle keepalives_interval krbsrvname load_balance_hosts options "
    "port require_auth requiressl ssl ssl_max_protocol_version ssl_min_protocol_version sslcompression sslmode "
    "sslnegotiation sslrootcert sslsni target_session_attrs tcp_user_timeout user".split()
)
"""The parameters of libpq that a task may set. `sslrootcert` names a file, which is checked like a source."""

_FILES: Final = frozenset("passfile sslcert sslkey sslcrl sslcrldir sslkeylogfile service servicefile".split())


@dataclass(frozen=True)
class PostgresUrl:
    """The parts of a PostgreSQL URL. `servers` are pairs `(host, port)`, including those in `hostaddr`.

    `root_certificate` is the URL's `sslrootcert`. `database` is the user's name if the URL names no database, and "" if
    it names no user either.
    """

    servers: tuple[tuple[str, str], ...]
    root_certificate: str | None
    database: str


def parse(url: str) -> PostgresUrl:
    """Return the parts of `url`. Raises `ValueError` if it is invalid or sets a parameter that a task may not set.

    >>> parse("postgresql://a@db:5433,[::1]/orders?hostaddr=10.0.0.7").servers
    (('db', '5433'), ('::1', ''), ('10.0.0.7', '5433'))
    >>> parse("postgresql://%2Frun%2Fpostgresql/orders").servers
    (('/run/postgresql', ''),)
    """
    prefix = next((prefix for prefix in PREFIXES if url.startswith(prefix)), None)
    if prefix is None:
        raise ValueError("a PostgreSQL URL begins with postgresql://")
    rest = url.removeprefix(prefix)
    # libpq takes `#` and `?` before the `@` as part of the user's name, and knows no fragments.
    user = _USER.match(rest)
    if user is not None:
        if ":" in user[0]:
            raise ValueError(f"{_REFUSAL}; write a ':' in the user's name as %3A")
        rest = rest[user.end() + 1 :]
    hosts, ports, rest = _servers(rest)
    path, _, query = rest.partition("?")
    parameters = _parameters(query)
    for name in (unquote(path.removeprefix("/")), parameters.get("dbname", "")):
        if "=" in name or "://" in name:
            raise ValueError(
                f"{name!r} is not a database's name: some of PostgreSQL's programs would read it as another URL"
            )
    hosts = _listed(parameters["host"]) if "host" in parameters else hosts
    ports = _listed(parameters["port"]) if "port" in parameters else ports
    numbered = _beside(hosts, ports)
    addressed = _beside(_listed(parameters.get("hostaddr", "")), ports)
    # Without a host libpq uses its default, a socket of this machine.
    servers = (*numbered, *(pair for pair in addressed if pair[0])) if hosts or not addressed else tuple(addressed)
    root = parameters.get("sslrootcert")
    owner = parameters.get("user") or ("" if user is None else unquote(user[0]))
    database = parameters.get("dbname") or unquote(path.removeprefix("/")) or owner
    return PostgresUrl(servers or (("", ""),), None if root in (None, "", "system") else root, database)


def url_of_database(url: str, name: str) -> str:
    """Return the URL of another database of the server that a URL names, with all other parameters.

    >>> url_of_database("postgresql://a@db:5433/orders?sslmode=require&dbname=x", "größe/1")
    'postgresql://a@db:5433/gr%C3%B6%C3%9Fe%2F1?sslmode=require'
    >>> url_of_database("postgresql://db", "orders")
    'postgresql://db/orders'
    """
    prefix = next(prefix for prefix in PREFIXES if url.startswith(prefix))
    rest = url.removeprefix(prefix)
    user = _USER.match(rest)
    start = len(prefix) + (0 if user is None else user.end())
    place, _, query = url[start:].partition("?")
    kept = [each for each in query.split("&") if each and unquote(each.partition("=")[0]) != "dbname"]
    return f"{url[:start]}{place.partition('/')[0]}/{quote(name, safe='')}" + ("?" + "&".join(kept) if kept else "")


def _servers(rest: str) -> tuple[list[str], list[str], str]:
    """Return the hosts and ports in `host:port,host:port` at the beginning of `rest`, and the text after them."""
    hosts, ports, at = [], [], 0
    while match := _SERVER.match(rest, at):
        hosts.append(match[1] if match[1] is not None else match[2])
        ports.append(match[3] or "")
        at = match.end()
        if not rest[at:].startswith(","):
            break
        at += 1
    if rest[at:] and rest[at] not in "/?":
        raise ValueError(f"{rest[at:]!r} in the URL follows a host, and is neither a port nor a database")
    # libpq decodes the whole list before it splits it, so a %2C in a host separates two hosts.
    joined = unquote(",".join(hosts))
    return _listed(joined), _listed(unquote(",".join(ports))), rest[at:]


def _listed(text: str) -> list[str]:
    return text.split(",") if text else []


def _beside(hosts: list[str], ports: list[str]) -> list[tuple[str, str]]:
    """Return each host with its own port, or with the one port that is given for all."""
    if len(ports) != len(hosts):
        ports = (ports[:1] or [""]) * len(hosts)
    return list(zip(hosts, ports, strict=True))


def _parameters(query: str) -> dict[str, str]:
    """Return the parameters after the `?`. Raises `ValueError`."""
    found: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        name = unquote(name)
        if name in _SECRETS:
            raise ValueError(_REFUSAL)
        if name in _FILES:
            raise ValueError(
                f"{name!r} names a file on the node, and tasks may not set it: set libpq's own variable in the node's "
                "environment instead (PGSSLCERT, PGSSLKEY, PGPASSFILE, PGSERVICEFILE)"
            )
        if name not in ALLOWED:
            raise ValueError(f"{name!r} cannot be set in a task's URL (these can: {', '.join(sorted(ALLOWED))})")
        found[name] = unquote(value)
    return found


def with_password(url: str, password: str | None, **defaults: str) -> str:
    """Return `url` with the password in it, for a library that needs it there. Never put it on a command line.

    `defaults` are parameters that are added unless `url` sets them itself.

    >>> with_password("postgresql://a@db/orders?sslmode=require", "p&w", sslmode="prefer", connect_timeout="15")
    'postgresql://a@db/orders?sslmode=require&connect_timeout=15&password=p%26w'
    """
    rest = url.partition("://")[2]
    user = _USER.match(rest)
    query = (rest if user is None else rest[user.end() :]).partition("?")[2]
    own = {part.partition("=")[0] for part in query.split("&")}
    more = {name: value for name, value in defaults.items() if name not in own}
    more |= {} if password is None else {"password": password}
    added = "&".join(f"{name}={quote(value, safe='')}" for name, value in more.items())
    return f"{url}{'&' if query else '?'}{added}" if added else url
