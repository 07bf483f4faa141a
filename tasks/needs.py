"""The needs of an attempt: the paths that its params name, programs, and whether it uses the network. Pure.

A kind computes them from checked params (`tasks.kind.Kind.needs`). The node makes the kernel refuse everything else to
the attempt (`node.execution.domain`), so that a fault in a kind, in Spark or in a program gives no further access.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from tasks.access import LOCAL, Access, check_protocol
from tasks.reach import Reach

Use = Literal["read", "write", "run"]

CredentialGroup = Literal["postgres_password", "postgres_certificate", "s3", "gs", "abfs", "sftp"]
"""The credential files of the node's user that libraries find by themselves if a task's params name no secret, such as
libpq's password file and the profiles of object stores' clients."""


class Tool(NamedTuple):
    """A path on this machine that a kind uses with any params: a program to `run`, or a path to `read` or `write`."""

    path: str
    use: Use


Tools = Callable[[Mapping[str, str], Access], Iterable[Tool]]
"""Finds the tools on this machine, from a worker's variables and what tasks may reach. Called before the worker is
confined, and before the kind sees the params."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The needs of one attempt. The default is the scratch folder and the network."""

    #: The paths and hosts that the params name. The kernel does not check hosts: they are checked by name.
    reaches: tuple[Reach, ...] = ()
    #: Functions that find tools on this machine (`Tools`), each as `module:function`.
    tools: tuple[str, ...] = ()
    #: Whether the attempt uses the network, loopback included. Without it the kernel refuses all sockets but AF_UNIX.
    network: bool = True
    #: The credential files of the node's user for logging in to hosts, if the params name no secret.
    own_credentials: tuple[CredentialGroup, ...] = ()
    #: Whether the attempt runs a program of the task's author. If so, it has all access of the node's user, except to
    #: the node's own files.
    everything: bool = False
    #: The only folders, beside programs and libraries, that `everything` allows; empty: all folders.
    roots: tuple[str, ...] = ()
    #: Whether the attempt starts a server that refuses to run as root, such as PostgreSQL's. An attempt of root keeps
    #: the rights to run it as `nobody`.
    server_user: bool = False
    #: Whether the attempt gives files to other users, such as the owners of what it restores: root keeps the right to.
    gives_files: bool = False
    #: False: the kernel does not confine the attempt. Only a member's setting can turn this off, never a task.
    confined: bool = True

    @classmethod
    def unpacked(cls, value: Mapping[str, Any]) -> "Needs":
        """The inverse of `dataclasses.asdict`, for a `value` that has been through msgpack."""
        lists = {name: tuple(each) for name, each in value.items() if isinstance(each, list)}
        reaches = tuple(Reach._make(map(_tupled, reach)) for reach in lists["reaches"])
        return cls(**{**value, **lists, "reaches": reaches})


UNCONFINED = Needs(everything=True, confined=False)
"""The needs of an attempt that is not confined: in tests, and for commands on members with ROTA_COMMAND_CONFINED=0."""


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class _Files(NamedTuple):
    """Where one group's credential files are: variables that name them, and paths in the user's home."""

    variables: tuple[str, ...]
    home: tuple[str, ...]


_FILES: Final[Mapping[CredentialGroup, _Files]] = {
    "postgres_password": _Files(("PGPASSFILE",), (".pgpass",)),
    # libpq uses these files for every server if they exist, and fails if one exists that it cannot read.
    "postgres_certificate": _Files(
        ("PGSSLCERT", "PGSSLKEY", "PGSSLROOTCERT", "PGSSLCRL", "PGSERVICEFILE", "KRB5CCNAME"),
        (".postgresql", ".pg_service.conf"),
    ),
    "s3": _Files(("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE"), (".aws",)),
    "gs": _Files(("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG"), (".config/gcloud",)),
    "abfs": _Files(("AZURE_CONFIG_DIR", "AZURE_FEDERATED_TOKEN_FILE"), (".azure",)),
    "sftp": _Files((), (".ssh",)),
}


def credential_groups(url: str, options: Mapping[str, Any]) -> tuple[CredentialGroup, ...]:
    """Return the groups of credential files for the file system at an fsspec URL; empty if the options have a secret or
    `anon`.

    >>> credential_groups("s3://b/x", {})
    ('s3',)
    >>> credential_groups("s3://b/x", {"key": {"secret": "k"}, "secret": {"secret": "s"}})
    ()
    >>> credential_groups("/srv", {}), credential_groups("https://x/y", {})
    ((), ())
    """
    protocol = check_protocol(url)
    if protocol in LOCAL or options.get("anon") or options.get("token") == "anon":
        return ()
    if any(value is not None and not isinstance(value, str | int) for value in options.values()):
        return ()
    match protocol:
        case "s3" | "gs" | "abfs" | "sftp" as group:
            return (group,)
    return ()


def credential_files(groups: Iterable[CredentialGroup], environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths of the groups' files and folders that exist, for a process with the variables `environ`."""
    home = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111  paths are strings here
    for group in groups:
        variables, below = _FILES[group]
        named = (environ.get(name, "").removeprefix("FILE:") for name in variables)
        for path in (*named, *(f"{home}/{name}" for name in below)):
            if path.startswith("/") and os.path.exists(path):  # noqa: PTH110  paths are strings here
                yield path
