"""The datasets of a backup, by the names of OpenLineage: what it reads, and the folders that it writes to (pure)."""

from collections.abc import Iterator

from tasks.backup.params import BackupParams, place_url
from tasks.backup.sources.folder import FolderSource
from tasks.backup.sources.mariadb.source import MariadbSource
from tasks.backup.sources.mariadb.url import parse_mariadb
from tasks.backup.sources.postgres import PostgresSource
from tasks.backup.sources.sqlite import SqliteSource
from tasks.datasets import Dataset, Datasets, postgres_tables, stored_at
from tasks.postgres.url import url_of_database


def datasets_of_backup(params: BackupParams, task: str) -> Datasets:
    """Return the datasets of a backup of `task`. A whole server, and a program's output, have no dataset's name."""
    urls = (params.destination, *(copy.destination for copy in params.copies))
    return Datasets(tuple(_inputs(params)), tuple(stored_at(place_url(url, task)) for url in urls))


def _inputs(params: BackupParams) -> Iterator[Dataset]:
    match params.source:
        case PostgresSource(databases=None) as source:
            yield from postgres_tables(source.url, [""])
        case PostgresSource(databases=list() as names) as source:
            for name in names:
                yield from postgres_tables(url_of_database(source.url, name), [""])
        case MariadbSource(databases=tuple() as names) as source:
            yield from (Dataset(f"mysql://{_address(source.url)}", name) for name in names)
        case SqliteSource() | FolderSource() as source:
            yield stored_at(source.path)


def _address(url: str) -> str:
    found = parse_mariadb(url)
    return found.address if found.host else f"localhost:{found.port}"
