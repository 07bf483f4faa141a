"""Spark's kinds and backups as another user, on a real node as root."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from testkit.reachable import ReachableCluster, open_folder, why_not

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

NOBODY = 65534
MINUTES = 240
"""Two sessions of Spark on a busy machine, in seconds."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ReachableCluster]:
    """One node, and a folder `mine` of another user's with an SQLite file and a CSV file in it."""
    with open_folder() as folder:
        mine = folder / "mine"
        mine.mkdir()
        (mine / "rows.csv").write_text("id,name\n1,x\n2,y\n")
        with closing(sqlite3.connect(mine / "app.db")) as connection:
            connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)")
            connection.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
            connection.commit()
        for each in (mine, *mine.iterdir()):
            os.chown(each, NOBODY, NOBODY)
            each.chmod(0o700 if each.is_dir() else 0o600)
        env = {"ROTA_RUN_AS": "nobody", "ROTA_SPARK_MASTER": "local[1]"}
        with ReachableCluster(folder, 1, env) as made:
            made.start()
            made.wait_until_whole()
            yield made


def done(cluster: ReachableCluster, name: str, kind: str, params: dict[str, Any]) -> Any:
    """The run of a task as nobody, which succeeds."""
    here = {"node": "node-1"}
    cluster.register(name, kind, params=params, run_as="nobody", group=here, retry={"attempts": 1})
    return cluster.wait_for_run(cluster.run(name), "succeeded", deadline_s=MINUTES)


def owners(folder: Path) -> set[int]:
    return {each.stat().st_uid for each in (folder, *folder.rglob("*"))}


@pytest.mark.more
def test_an_ingest_writes_a_table_of_its_user(cluster: ReachableCluster) -> None:
    mine = cluster.folder / "mine"
    params = {
        "source": f"{mine}/*.csv",
        "format": "csv",
        "columns": "id INT, name STRING",
        "table": f"{mine}/made/table",
    }
    assert done(cluster, "ingest", "ingest", params)["result"]["rows"] == 2
    assert owners(mine / "made") == {NOBODY}
    assert DeltaTable(mine / "made/table").version() == 1
    assert not list((cluster.folder / "node-1/scratch").glob("prepared.*")), "a session of the node's user"


@pytest.mark.more
def test_an_etl_reads_and_writes_files_of_its_user(cluster: ReachableCluster) -> None:
    mine = cluster.folder / "mine"
    params = {
        "source": {"type": "sqlite", "path": f"{mine}/app.db", "table": "t"},
        "sink": {"type": "sqlite", "path": f"{mine}/sink.db", "table": "t", "mode": "append"},
    }
    assert done(cluster, "etl", "etl", params)["result"]["rows"] == 2
    assert owners(mine / "sink.db") == {NOBODY}
    with closing(sqlite3.connect(mine / "sink.db")) as connection:
        assert connection.execute("SELECT id, name FROM t ORDER BY id").fetchall() == [(1, "a"), (2, "b")]


def test_a_backup_of_a_users_database_belongs_to_the_user(cluster: ReachableCluster) -> None:
    mine = cluster.folder / "mine"
    params = {
        "source": {"type": "sqlite", "path": f"{mine}/app.db"},
        "destination": f"file://{mine}/backups",
        "keep": 1,
    }
    for round_ in (1, 2):
        assert done(cluster, "backup", "backup", params)["result"]["removed"] == round_ - 1
    assert owners(mine / "backups") == {NOBODY}
