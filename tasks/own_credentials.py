"""The files by which hosts are reached with the node user's own means: where a task's params name no secret.

Libraries find them by themselves: libpq its password file, the clients of object stores their profiles.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from tasks.access import LOCAL, check_protocol

Group = Literal["postgres_password", "postgres_certificate", "s3", "gs", "abfs", "sftp"]


class _Files(NamedTuple):
    """Variables that name files, and paths in the user's home."""

    variables: tuple[str, ...]
    home: tuple[str, ...]


_FILES: Final[Mapping[Group, _Files]] = {
    "postgres_password": _Files(("PGPASSFILE",), (".pgpass",)),
    # libpq takes what is there for every server: a file that is there and cannot be read is an error to it.
    "postgres_certificate": _Files(
        ("PGSSLCERT", "PGSSLKEY", "PGSSLROOTCERT", "PGSSLCRL", "PGSERVICEFILE", "KRB5CCNAME"),
        (".postgresql", ".pg_service.conf"),
    ),
    "s3": _Files(("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE"), (".aws",)),
    "gs": _Files(("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG"), (".config/gcloud",)),
    "abfs": _Files(("AZURE_CONFIG_DIR", "AZURE_FEDERATED_TOKEN_FILE"), (".azure",)),
    "sftp": _Files((), (".ssh",)),
}


def group_of(url: str, options: Mapping[str, Any]) -> tuple[Group, ...]:
    """Which files the file system at an fsspec URL is reached by; none if the options have a secret, or say `anon`.

    >>> group_of("s3://b/x", {}), group_of("s3://b/x", {"key": {"secret": "k"}, "secret": {"secret": "s"}})
    (('s3',), ())
    >>> group_of("/srv", {}), group_of("https://x/y", {})
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


def there(groups: Iterable[Group], environ: Mapping[str, str]) -> Iterator[str]:
    """The paths of those files and folders that are there, for whoever has these variables."""
    home = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111  paths are strings here
    for group in groups:
        variables, below = _FILES[group]
        named = (environ.get(name, "").removeprefix("FILE:") for name in variables)
        for path in (*named, *(f"{home}/{name}" for name in below)):
            if path.startswith("/") and os.path.exists(path):  # noqa: PTH110  the same
                yield path
