"""A Spark cluster whose machines lack the folders of the nodes: said in a sentence, and no row is lost."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

from deltalake import write_deltalake
from pyarrow import table

from examples.demo.postgres import Server
from testkit.faults import mounts
from testkit.servers.object_store import ObjectStore, object_store
from testkit.spark.cluster_work import started
from testkit.spark.databases import PASSWORD
from testkit.spark.spark_cluster import SparkCluster, spark_cluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.skipif(mounts.why_not() is not None, reason=str(mounts.why_not())),
]

ROWS = 1000


@dataclass
class Elsewhere:
    """A cluster of one worker, for which `data` is empty. `store` has the files of `data` below `in`, too."""

    cluster: SparkCluster
    data: Path
    store: ObjectStore
    server: Server


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Iterator[Elsewhere]:
    folder = tmp_path_factory.mktemp("elsewhere")
    data, empty = folder / "data", folder / "empty"
    (data / "in").mkdir(parents=True)
    empty.mkdir()
    (data / "in" / "0.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(ROWS)))
    write_deltalake(data / "table", table({"n": range(ROWS)}))
    server.sql("postgres", f"CREATE TABLE src AS SELECT n FROM generate_series(1, {ROWS}) n")
    with object_store() as store, spark_cluster(folder / "spark", workers=0) as cluster:
        cluster.add_worker(mounts.within(empty, data))
        yield Elsewhere(cluster, data, store, server)


def _end(elsewhere: Elsewhere, name: str) -> dict[str, Any]:
    url = elsewhere.server.url("postgres")
    return {"type": "postgres", "url": url, "password": {"secret": "pg"}, "table": name}


def _said(elsewhere: Elsewhere, kind: str, params: dict[str, Any], folder: Path) -> str:
    """What an attempt says that fails."""
    secrets = {"pg": PASSWORD} | elsewhere.store.secrets
    attempt = started(folder, kind, params, secrets, 1, elsewhere.cluster.environ)
    assert attempt.ended() != 0
    return attempt.said()


ETL = "spark_tasks.etl.kind:Etl"
MOUNT = "nodes and executors must mount the folders of sources and tables at the same paths"


def test_files_of_an_ingest_are_named(elsewhere: Elsewhere, tmp_path: Path) -> None:
    params = {
        "source": f"{elsewhere.data}/in/*.csv",
        "format": "csv",
        "columns": "n BIGINT",
        "table": elsewhere.store.url("ingested"),
        "options": elsewhere.store.references,
    }
    said = _said(elsewhere, "spark_tasks.ingest.kind:Ingest", params, tmp_path)
    assert f"does not see {elsewhere.data}/in/0.csv as this node does: {MOUNT}" in said, said[-3000:]
    assert not [name for name in elsewhere.store.names("ingested") if name.endswith(".parquet")]


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_files_of_a_source_are_named(elsewhere: Elsewhere, tmp_path: Path, kind: str) -> None:
    sources: dict[str, dict[str, Any]] = {
        "files": {"files": f"{elsewhere.data}/in/*.csv", "format": "csv", "columns": "n BIGINT"},
        "delta": {"table": f"{elsewhere.data}/table"},
    }
    params = {
        "source": sources[kind] | {"type": kind, "shared": True},
        "sink": _end(elsewhere, f"from_{kind}") | {"mode": "append"},
    }
    said = _said(elsewhere, ETL, params, tmp_path)
    assert f"does not see {elsewhere.data}/" in said, said[-3000:]
    assert MOUNT in said
    assert elsewhere.server.sql("postgres", f"SELECT to_regclass('from_{kind}') IS NULL") == "t"


@pytest.mark.parametrize("kind", ["delta", "delta merge", "parquet"])
def test_the_folder_of_a_sink_is_named_and_no_batch_is_committed(
    elsewhere: Elsewhere, tmp_path: Path, kind: str
) -> None:
    """Each executor would write to a disk of its own, and the batch would count without its rows."""
    at = elsewhere.data / kind.replace(" ", "-")
    sinks: dict[str, dict[str, Any]] = {
        "delta": {"type": "delta", "table": str(at), "mode": "append"},
        "delta merge": {"type": "delta", "table": str(at), "mode": "merge", "keys": ["n"]},
        "parquet": {"type": "parquet", "folder": str(at)},
    }
    params = {"source": _end(elsewhere, "src"), "sink": sinks[kind] | {"shared": True}}
    said = _said(elsewhere, ETL, params, tmp_path)
    assert f"does not see {at}/" in said, said[-3000:]
    assert MOUNT in said
    assert not list(at.rglob("part-*.parquet"))


def test_files_that_were_fetched_are_read_from_the_shared_folder_or_said_to_be_on_the_node(
    elsewhere: Elsewhere, tmp_path: Path
) -> None:
    """The scratch folder of an attempt is seen by no executor of another machine."""
    with elsewhere.store.files.open("lake/in/0.csv", "wb") as out:
        out.write((elsewhere.data / "in" / "0.csv").read_bytes())
    shared = tmp_path / "shared"
    shared.mkdir()
    environ = {"AWS_ENDPOINT_URL": elsewhere.store.endpoint, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    params = {
        "source": {"type": "files", "files": "s3://lake/in/*.csv", "format": "csv", "columns": "n BIGINT"},
        "sink": _end(elsewhere, "fetched") | {"mode": "append"},
    }
    (elsewhere.data / "scratch").mkdir()
    given = elsewhere.cluster.environ | environ
    hidden = started(elsewhere.data / "scratch", ETL, params, {"pg": PASSWORD}, 1, given)
    assert hidden.ended() != 0
    assert "was fetched there, so set ROTA_SPARK_SHARED" in hidden.said(), hidden.said()[-3000:]
    seen = started(tmp_path, ETL, params, {"pg": PASSWORD}, 2, given | {"RUN_SPARK_SHARED": str(shared)})
    assert seen.ended() == 0, seen.said()[-3000:]
    assert elsewhere.server.sql("postgres", "SELECT count(*) FROM fetched") == str(ROWS)
    assert not list(shared.rglob("*.csv"))
