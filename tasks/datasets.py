"""The datasets that a run reads and writes, named as OpenLineage's naming specification says. Pure.

No name contains credentials: of a URL only the scheme, the host, the port and the path are used.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tasks.postgres.url import parse

_GLOB: Final = re.compile(r"[*?\[{]")
POSTGRES_PORT: Final = "5432"


class Dataset(NamedTuple):
    """A dataset: the namespace of its store, such as `s3://lake`, and its name there."""

    namespace: str
    name: str


class Datasets(NamedTuple):
    """The datasets of a run."""

    inputs: tuple[Dataset, ...] = ()
    outputs: tuple[Dataset, ...] = ()


NO_DATASETS: Final = Datasets()


def stored_at(url: str) -> Dataset:
    """Return the dataset at a path or an fsspec URL. Of a glob it is the folder that all its files are in.

    >>> stored_at("/data/flights/*.csv"), stored_at("s3://lake/tables/flights/")
    (Dataset(namespace='file', name='/data/flights'), Dataset(namespace='s3://lake', name='tables/flights'))
    >>> stored_at("https://user:secret@api.example:8443/v1/orders?key=secret")
    Dataset(namespace='https://api.example:8443', name='/v1/orders')
    """
    if (glob := _GLOB.search(url.partition("://")[2] or url)) is not None:
        at = glob.start() + (len(url.partition("://")[0]) + 3 if "://" in url else 0)
        # A `?` begins the query of a URL that is no file system's.
        if not (url.startswith(("http://", "https://")) and url[at] == "?"):
            url = url[:at].rpartition("/")[0]
    if "://" not in url or url.startswith(("file://", "local://")):
        return Dataset("file", (url.partition("://")[2] if "://" in url else url).rstrip("/") or "/")
    scheme, rest = url.split("://", 1)
    if scheme in ("http", "https", "sftp"):
        parts = urlsplit(url)
        if scheme == "sftp":
            return Dataset(f"file://{parts.hostname}", parts.path.rstrip("/") or "/")
        return Dataset(f"{scheme}://{parts.netloc.rpartition('@')[2]}", parts.path.rstrip("/") or "/")
    place, _, path = rest.partition("/")
    if ":" in place.rpartition("@")[0]:  # a user and a password; abfs:// has a container before the `@`
        place = place.rpartition("@")[2]
    scheme = "abfss" if scheme == "abfs" else scheme
    return Dataset(f"{scheme}://{place}", path.rstrip("/") or "/")


def postgres_tables(url: str, names: Iterable[str]) -> tuple[Dataset, ...]:
    """Return datasets of a PostgreSQL database: `names` are SCHEMA.TABLE; "": the database itself.

    Of several servers in the URL, which hold the same data, it is the first. `url` must be valid (`parse`).

    >>> [tuple(one) for one in postgres_tables("postgresql://etl@db/orders", ["public.items", ""])]
    [('postgres://db:5432', 'orders.public.items'), ('postgres://db:5432', 'orders')]
    """
    found = parse(url)
    host, port = found.servers[0]
    server = "localhost" if not host or host.startswith("/") else host
    namespace = f"postgres://{f'[{server}]' if ':' in server else server}:{port or POSTGRES_PORT}"
    return tuple(Dataset(namespace, f"{found.database}.{name}" if name else found.database) for name in names)
