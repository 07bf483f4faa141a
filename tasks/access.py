"""Decides which paths and hosts tasks on a node may reach, by an immutable value made from the node's settings (pure).

Clients that register tasks choose sources and destinations, and the node decides which of them it opens. The node's own
files (its data folder, its secret and token, the folder of secrets) are never a source or a destination, whatever the
settings say. Paths here are absolute and resolved, because `tasks.file_guard` resolves them where files are opened.

Hosts are checked by name. If a host is allowed, the address it resolves to and the redirects it sends are trusted too.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from tasks.errors import Failed, Unretryable

Use = Literal["source", "destination"]

NEVER: Final = ("/proc", "/sys", "/dev")
"""The kernel's file systems. Among other things they show the environment and the open files of every process."""

_ORDINARY: Final = "/dev/shm"  # noqa: S108  an ordinary file system in memory, for all users

LOCAL: Final = frozenset({"", "file", "local"})
_SAME: Final = {"s3a": "s3", "gcs": "gs", "az": "abfs", "abfss": "abfs", "ssh": "sftp"}
_BUCKETS: Final = frozenset({"s3", "gs", "abfs"})
_PORTS: Final = {"sftp": 22, "ftp": 21, "http": 80, "https": 443}

_HOST: Final = r"(?:[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])"
_AUTHORITY: Final = re.compile(rf"(?:[A-Za-z0-9._%+-]+@)?(?P<host>{_HOST})(?::(?P<port>[0-9]{{1,5}}))?")
_ENTRY: Final = re.compile(rf"(?:\*\.)?{_HOST}(?::[0-9]{{1,5}})?")

_NONE: Final = frozenset[str]()
OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset({"auto_mkdir"}),
    "memory": _NONE,
    "s3": frozenset(
        "key secret token anon endpoint_url use_ssl requester_pays version_aware default_block_size "
        "default_fill_cache fixed_upload_size max_concurrency".split()
    ),
    "gs": frozenset("project token endpoint_url requester_pays timeout default_location".split()),
    "abfs": frozenset(
        "account_name account_key account_host sas_token tenant_id client_id client_secret anon "
        "max_concurrency blocksize".split()
    ),
    "sftp": frozenset("username password port host_key".split()),
    "ftp": frozenset("username password port timeout tls".split()),
    "http": _NONE,
    "https": _NONE,
}
"""The file systems that tasks may name, and the options that tasks may set for each.

They include no option that names a program, a file or another host: `key_filename` and `profile` name credentials of
the node's user, `connection_string` names a host, and the options of a caching or chained file system name another file
system.
"""


class AccessRefused(Unretryable, Failed):
    """The node does not allow a task to reach a path or host. The message names the setting that would allow it."""


@dataclass(frozen=True, slots=True)
class Access:
    """The paths and hosts that tasks on one node may reach. `Access()` allows none."""

    #: The node's id.
    node: str = ""
    #: Folders whose whole content may be read.
    source_roots: tuple[str, ...] = ()
    #: Folders whose whole content may be read and written.
    destination_roots: tuple[str, ...] = ()
    #: Hosts that may be read from: `host`, `host:port`, `*.domain`, `s3://bucket` or `*`.
    source_hosts: tuple[str, ...] = ()
    #: Hosts that may be written to, in the same forms.
    destination_hosts: tuple[str, ...] = ()
    #: The node's own files and folders, which no task may reach.
    own: tuple[str, ...] = ()
    #: The folder of pg_dump, psql and pg_restore; None: the PATH and the usual folders are searched.
    postgres_bin: str | None = None
    #: Whether tasks may run programs of their authors.
    allow_command: bool = False
    #: Folders of what this machine runs later, such as Rota's installation. No destination may be in one of them,
    #: unless `destination_roots` names a folder in it.
    programs: tuple[str, ...] = ()

    @classmethod
    def unpacked(cls, value: Mapping[str, Any]) -> "Access":
        """The inverse of `dataclasses.asdict`, for a `value` that has been through msgpack or JSON."""
        fields: dict[str, Any] = {name: tuple(of) if isinstance(of, list) else of for name, of in value.items()}
        return cls(**fields)

    def roots(self, use: Use) -> tuple[str, ...]:
        """Return the folders allowed for a source, or for a destination."""
        return self.source_roots if use == "source" else self.destination_roots

    @property
    def closed_programs(self) -> tuple[str, ...]:
        """Those of `programs` in which `destination_roots` names no folder."""
        return tuple(
            each for each in self.programs if not any(is_within(root, each) for root in self.destination_roots)
        )

    def hosts(self, use: Use) -> tuple[str, ...]:
        """Return the hosts and buckets allowed for a source, or for a destination."""
        return self.source_hosts if use == "source" else self.destination_hosts


NOTHING: Final = Access()
EVERYTHING: Final = Access("", ("/",), ("/",), ("*",), ("*",), allow_command=True)
"""Access to everything, for a process that runs with its caller's own rights: the command line, and tests."""


def is_within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or is in it. Both are absolute and normalized.

    >>> is_within("/srv/a", "/srv"), is_within("/srv", "/srv"), is_within("/srv2", "/srv"), is_within("/x", "/")
    (True, True, False, True)
    """
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def is_own(access: Access, path: str) -> bool:
    """Whether the resolved `path` belongs to the node itself or to the kernel."""
    return any(is_within(path, own) for own in access.own) or _is_kernels(path)


def _is_kernels(path: str) -> bool:
    return any(is_within(path, never) for never in NEVER) and not is_within(path, _ORDINARY)


def check_path(access: Access, use: Use, path: str, named: str = "") -> None:
    """Raise `AccessRefused` unless the resolved `path` may be a source or destination. `named`: the task's text.

    >>> check_path(Access("node-1", source_roots=("/srv",)), "source", "/etc/shadow")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tasks.access.AccessRefused: /etc/shadow: node-1 allows no such source: ROTA_SOURCE_ROOTS there names /srv. Add ...
    """
    shown = path if named in ("", path) else f"{named} (which is {path})"
    if is_own(access, path):
        whose = "the kernel's" if _is_kernels(path) else f"{_name(access)}'s own"
        raise AccessRefused(f"{shown} is {whose}, and is never a {use}: no setting allows it")
    roots = access.roots(use)
    if not any(is_within(path, root) for root in roots):
        raise AccessRefused(_refusal(access, use, shown, roots, "ROOTS", f"{path}, or a folder above it,"))
    for each in access.closed_programs if use == "destination" else ():
        if is_within(path, each):
            raise AccessRefused(
                f"{shown} is in {each}, from which {_name(access)} or its machine runs programs: name another "
                f"destination, or have the operator name a folder in {each} in ROTA_DESTINATION_ROOTS"
            )


def addresses(url: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the addresses of a remote file system: `host:port` (`host` if the port is not known), or `s3://bucket`.

    `options` are fsspec's, with secrets resolved. Raises `ValueError` if `url` and `options` name no address.

    >>> addresses("s3://backups/rota", {}), addresses("s3a://backups", {"endpoint_url": "http://10.0.0.9:9000"})
    (('s3://backups',), ('10.0.0.9:9000',))
    >>> addresses("sftp://user@Box/x", {}), addresses("abfs://box@acct.dfs.core.windows.net/x", {})
    (('box:22',), ('acct.dfs.core.windows.net',))
    """
    scheme, _, rest = url.partition("://")
    protocol = _SAME.get(scheme, scheme)
    if protocol == "memory":
        return ()
    if protocol not in _BUCKETS:
        return (_host_of(url, _PORTS.get(protocol), _port(options.get("port"))),)
    where = rest.partition("/")[0]
    if protocol == "abfs":
        where, _, account = where.partition("@")
        named = (account, options.get("account_host"))
        hosts = tuple(str(host).lower() for host in named if host)
        if not hosts and options.get("account_name"):
            return (f"{str(options['account_name']).lower()}.blob.core.windows.net",)
        if hosts:
            return hosts
    elif options.get("endpoint_url"):
        endpoint = str(options["endpoint_url"])
        if not endpoint.startswith(("http://", "https://")) or "@" in endpoint:
            raise ValueError("`endpoint_url` is http:// or https:// with a host, and names no user")
        return (_host_of(endpoint, _PORTS[endpoint.partition(":")[0]], None),)
    if not where:
        raise ValueError(f"{url} names no bucket")
    return (f"{protocol}://{where}",)


def check_address(access: Access, use: Use, address: str, named: str) -> None:
    """Raise `AccessRefused` unless a source or destination may be at `address` (one of `addresses`)."""
    if not any(_allows(entry, address) for entry in access.hosts(use)):
        shown = f"{named}, at {address}" if address not in named else named
        raise AccessRefused(_refusal(access, use, shown, access.hosts(use), "HOSTS", address))


def check_command(access: Access, named: str) -> None:
    """Raise `AccessRefused` unless a task may run the program `named`.

    >>> check_command(Access("node-1"), "pg_dumpall")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tasks.access.AccessRefused: pg_dumpall: node-1 runs no programs of tasks: set ROTA_ALLOW_COMMAND=1 there, ...
    """
    if not access.allow_command:
        raise AccessRefused(
            f"{named}: {_name(access)} runs no programs of tasks: set ROTA_ALLOW_COMMAND=1 there, or run the task on a "
            "node that allows it (`group`, `pin`)"
        )


def check_options(url: str, options: Mapping[str, Any]) -> None:
    """Raise `ValueError` for an option that a task may not set. Checks names only, except for Google's `token`."""
    protocol = url.partition("://")[0] if "://" in url else ""
    protocol = "" if protocol in LOCAL else _SAME.get(protocol, protocol)
    known = OPTIONS.get(protocol, _NONE)
    unknown = sorted(name for name in options if name not in known)
    if unknown:
        may = ", ".join(sorted(known)) or "none"
        raise ValueError(
            f"{', '.join(map(repr, unknown))} cannot be set by a task for {protocol or 'file'}:// (it may set: {may})"
        )
    token = options.get("token")
    if protocol == "gs" and token is not None and token not in ("anon", "cloud", "google_default"):
        raise ValueError("the `token` of gs:// must be 'anon', 'cloud' or 'google_default': other values name a file")


def check_protocol(url: str) -> str:
    """Return the protocol of `url` by its common name; '' for a local path. Raises `ValueError` if it is forbidden.

    >>> check_protocol("s3a://bucket/x"), check_protocol("/srv")
    ('s3', '')
    """
    if "::" in url:
        raise ValueError("'::' chains file systems: give the URL of the file system that has the files")
    protocol = url.partition("://")[0] if "://" in url else ""
    if protocol in LOCAL:
        return ""
    protocol = _SAME.get(protocol, protocol)
    if protocol not in OPTIONS:
        may = ", ".join(sorted(f"{name}://" for name in OPTIONS if name not in ("", "memory")))
        raise ValueError(
            f"{url.partition('://')[0]}:// is not a file system that a task may name: give a path, or {may}"
        )
    return protocol


def postgres_address(host: str, port: str) -> str:
    """Return a PostgreSQL server's address, as `check_address` takes it; `localhost` for a Unix socket.

    >>> postgres_address("DB.internal", "5432"), postgres_address("/run/postgresql", ""), postgres_address("::1", "")
    ('db.internal:5432', 'localhost', '[::1]:5432')
    """
    if not host or host.startswith(("/", "@")):
        return "localhost"
    shown = f"[{host.lower()}]" if ":" in host else host.lower()
    return f"{shown}:{port or 5432}"


def parse_hosts(text: str) -> tuple[str, ...]:
    """Return the entries of ROTA_SOURCE_HOSTS or ROTA_DESTINATION_HOSTS. Raises `ValueError`.

    >>> parse_hosts("db.internal, S3A://Backups/, *.corp:22")
    ('db.internal', 's3://Backups', '*.corp:22')
    """
    entries = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        scheme, separator, bucket = entry.partition("://")
        scheme = _SAME.get(scheme.lower(), scheme.lower())
        if separator:
            bucket = bucket.rstrip("/")
            if scheme not in _BUCKETS or not bucket or "/" in bucket:
                raise ValueError(
                    f"{entry!r} is not a bucket: write s3://BUCKET (or gs://, abfs://), or HOST for another server"
                )
            entries.append(f"{scheme}://{bucket}")
        elif entry == "*" or _ENTRY.fullmatch(entry):
            entries.append(entry.lower())
        else:
            raise ValueError(f"{entry!r} is not a host: write HOST, HOST:PORT, *.DOMAIN, s3://BUCKET or *")
    return tuple(entries)


def _allows(entry: str, address: str) -> bool:
    """Whether an entry of ROTA_*_HOSTS allows an address. An entry without a port allows every port.

    >>> _allows("*.internal", "db.internal:5433"), _allows("db", "db:1"), _allows("db:1", "db:2")
    (True, True, False)
    >>> _allows("s3://*", "s3://backups"), _allows("*.corp", "s3://x.corp")
    (True, False)
    """
    if entry in ("*", address):
        return True
    if "://" in entry or "://" in address:
        scheme, _, bucket = entry.partition("://")
        return bucket == "*" and address.startswith(f"{scheme}://")
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        host, port = address, ""
    wanted, _, wanted_port = entry.rpartition(":")
    if not wanted_port.isdigit():
        wanted, wanted_port = entry, port
    return wanted_port == port and (host == wanted or (wanted.startswith("*.") and host.endswith(wanted[1:])))


def _port(given: Any) -> str | None:
    """Return the option `port` as text, not reformatted: if its value comes from a secret, redaction must find it.

    Raises `ValueError`, whose message does not contain the value.
    """
    if given is None or re.fullmatch(r"[1-9][0-9]{0,4}", str(given)):
        return None if given is None else str(given)
    raise ValueError("`port` must be a number from 1 to 65535 without leading zeros")


def _host_of(url: str, standard: int | None, port: Any) -> str:
    """Return the `host:port` that a URL names. Raises `ValueError` if two libraries could read the URL differently."""
    authority = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        raise ValueError(f"{url} does not name a host in a way that every library reads the same")
    given = match["port"] or port or standard
    return match["host"].lower() + (f":{int(given)}" if given else "")


def _name(access: Access) -> str:
    return access.node or "this node"


def _refusal(access: Access, use: Use, what: str, allowed: tuple[str, ...], kind: str, add: str) -> str:
    setting = f"ROTA_{use.upper()}_{kind}"
    names = f"names {', '.join(allowed)}" if allowed else "is not set"
    return (
        f"{what}: {_name(access)} allows no such {use}: {setting} there {names}. Add {add} to it and restart the node, "
        "or run the task on a node that allows it (`group`, `pin`)"
    )


def why_not_as(user: str, allowed: Collection[str], member: str) -> str:
    """Say why `member` refuses to run attempts as `user`; "" if `allowed`, its ROTA_RUN_AS, has the user. Pure.

    >>> why_not_as("deploy", ("deploy", "postgres"), "node-1")
    ''
    >>> why_not_as("root", ("deploy",), "node-1")
    ... # doctest: +ELLIPSIS
    'run_as: root: node-1 runs no task as this user: ROTA_RUN_AS there names deploy; add root to it, or ...'
    """
    if user in allowed:
        return ""
    names = f"ROTA_RUN_AS there names {', '.join(allowed)}" if allowed else "ROTA_RUN_AS is not set there"
    return (
        f"run_as: {user}: {member} runs no task as this user: {names}; add {user} to it, or bind the task to members "
        "that allow the user (group)"
    )
