"""Datasets are named as OpenLineage's naming specification says, and never with credentials."""

from typing import Any

import pytest

from spark_tasks.etl.kind import Etl
from spark_tasks.ingest.kind import Ingest
from tasks.backup.kind import Backup
from tasks.datasets import NO_DATASETS, Dataset, Datasets, postgres_tables, stored_at
from tasks.installed_kinds import InstalledKinds, KindEntry

POSTGRES = "postgresql://etl@db.internal:5433/shop"


@pytest.mark.parametrize(
    ("url", "namespace", "name"),
    [
        ("/srv/in/*.csv", "file", "/srv/in"),
        ("/srv/in/2026-??/x.csv", "file", "/srv/in"),
        ("file:///srv/tables/orders/", "file", "/srv/tables/orders"),
        ("/", "file", "/"),
        ("s3://lake/tables/orders", "s3://lake", "tables/orders"),
        ("s3://lake/in/{a,b}/*.json", "s3://lake", "in"),
        ("s3://lake", "s3://lake", "/"),
        ("s3://key:secret@lake/in", "s3://lake", "in"),
        ("gs://lake/in/*.avro", "gs://lake", "in"),
        ("abfs://box@account.dfs.core.windows.net/in", "abfss://box@account.dfs.core.windows.net", "in"),
        ("sftp://user:secret@host:2222/backups", "file://host", "/backups"),
        ("https://user:secret@api.example/v1?token=secret#x", "https://api.example", "/v1"),
    ],
)
def test_paths_and_urls(url: str, namespace: str, name: str) -> None:
    assert stored_at(url) == Dataset(namespace, name)


@pytest.mark.parametrize(
    ("url", "namespace"),
    [
        (POSTGRES, "postgres://db.internal:5433"),
        ("postgresql://a@one:5433,two:5434/shop", "postgres://one:5433"),
        ("postgresql://%2Frun%2Fpostgresql/shop", "postgres://localhost:5432"),
        ("postgresql:///shop", "postgres://localhost:5432"),
        ("postgresql://a@[::1]/shop", "postgres://[::1]:5432"),
    ],
)
def test_servers(url: str, namespace: str) -> None:
    assert postgres_tables(url, ["public.t"]) == (Dataset(namespace, "shop.public.t"),)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"type": "folder", "path": "/srv/data"}, [("file", "/srv/data")]),
        ({"type": "sqlite", "path": "/srv/app.db"}, [("file", "/srv/app.db")]),
        ({"type": "postgres", "url": POSTGRES}, [("postgres://db.internal:5433", "shop")]),
        (
            {"type": "postgres", "url": POSTGRES, "databases": ["a", "b"]},
            [("postgres://db.internal:5433", "a"), ("postgres://db.internal:5433", "b")],
        ),
        ({"type": "postgres", "url": POSTGRES, "databases": "all"}, []),
        (
            {"type": "mariadb", "url": "mysql://backup@db.internal:3307/", "databases": ["shop"]},
            [("mysql://db.internal:3307", "shop")],
        ),
        ({"type": "stream", "argv": ["dump", "--password=secret"], "name": "dump"}, []),
    ],
)
def test_backups(source: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    params = {
        "source": source,
        "destination": "s3://backups/rota",
        "options": {"key": {"secret": "k"}, "secret": {"secret": "s"}},
        "copies": [{"destination": "/mnt/copies"}],
    }
    found = Backup.datasets(Backup.Params.model_validate(params), "nightly")
    assert list(map(tuple, found.inputs)) == expected
    assert found.outputs == (Dataset("s3://backups", "rota/nightly"), Dataset("file", "/mnt/copies/nightly"))


def test_ingests() -> None:
    params = {"source": ["/in/*.csv", "s3://lake/in/*.csv"], "format": "csv", "table": "s3://lake/orders"}
    params |= {"columns": "a INT"}
    assert Ingest.datasets(Ingest.Params.model_validate(params), "t") == Datasets(
        (Dataset("file", "/in"), Dataset("s3://lake", "in")), (Dataset("s3://lake", "orders"),)
    )


def test_etls() -> None:
    params: dict[str, Any] = {
        "source": {"type": "postgres", "url": POSTGRES, "table": "sales.orders"},
        "lookups": {
            "asked": {"type": "postgres", "url": POSTGRES, "query": "SELECT 1"},
            "kept": {"type": "sqlite", "path": "/srv/app.db", "table": "t"},
            "lines": {"type": "delta", "table": "s3://lake/lines"},
        },
        "sink": {"type": "postgres", "url": "postgresql://w@warehouse/dwh", "table": "orders", "mode": "append"},
    }
    found = Etl.datasets(Etl.Params.model_validate(params), "t")
    assert list(map(tuple, found.inputs)) == [
        ("postgres://db.internal:5433", "shop.sales.orders"),
        ("file", "/srv/app.db"),
        ("s3://lake", "lines"),
    ]
    assert found.outputs == (Dataset("postgres://warehouse:5432", "dwh.public.orders"),)


class Clumsy:
    """A kind whose `datasets` fails."""

    Params = Backup.Params

    @staticmethod
    def datasets(params: Any, task: str) -> Datasets:
        raise RuntimeError("a bug")

    def run(self, ctx: Any) -> None:
        return None


def test_a_kind_that_cannot_say_has_none() -> None:
    kinds = InstalledKinds(
        {
            "backup": KindEntry("backup", "tasks.backup.kind:Backup"),
            "clumsy": KindEntry("clumsy", "tests.unit.tasks.test_datasets:Clumsy"),
            "prune": KindEntry("prune", "tasks.prune.kind:BackupPrune"),
            "gone": KindEntry("gone", "tasks.gone:Gone"),
        }
    )
    valid = {"source": {"type": "folder", "path": "/srv"}, "destination": "/mnt"}
    assert kinds.datasets("backup", valid, "t") == Datasets((Dataset("file", "/srv"),), (Dataset("file", "/mnt/t"),))
    for kind in ("clumsy", "prune", "gone", "unknown"):
        assert kinds.datasets(kind, valid, "t") == NO_DATASETS
    assert kinds.datasets("backup", {"source": "?"}, "t") == NO_DATASETS
