"""A subscription: an ETL that asks for what is new in one Spark session, and is handed over with its cursor."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

from node.cli.local import wait_for
from spark_tasks.etl.errors import EtlStopped
from spark_tasks.etl.kind import Etl
from spark_tasks.etl.params import EtlParams
from testkit.cluster import Cluster
from testkit.fake_context import FakeContext
from testkit.servers.api_server import api_server, as_json
from testkit.servers.webhook_receiver import SECRET, webhook_receiver
from testkit.spark.databases import PASSWORD, EtlDatabase

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.soak]

POLL_S = 0.2
BATCH_S = 240.0
"""How long a batch may take: a second; minutes with the start of Spark on a machine with much else to do."""


def subscription(database: EtlDatabase) -> dict[str, Any]:
    database.sql("CREATE TABLE src (id int PRIMARY KEY, v text)")
    return {
        "source": database.end(table="src"),
        "incremental": {"cursor": "id", "lag_s": 0},
        "poll_s": POLL_S,
        "sink": database.end(table="dst", mode="append"),
    }


def insert(database: EtlDatabase, first: int, last: int) -> None:
    database.sql(f"INSERT INTO src SELECT n, 'v' || n FROM generate_series({first}, {last}) n")


def wait_until_equal(database: EtlDatabase) -> None:
    def equal() -> bool:
        there = database.sql("SELECT to_regclass('dst')")
        return bool(there) and database.differ("SELECT * FROM src", "SELECT * FROM dst") == ""

    wait_for("all rows are in the sink, once", equal, BATCH_S, 0.1)


@contextmanager
def running(context: FakeContext[EtlParams]) -> Iterator[None]:
    """The attempt runs beside the block, and is asked to stop at its end; it must run until then."""
    ended: list[Exception] = []

    def attempt() -> None:
        try:
            Etl().run(context)
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    try:
        yield
    finally:
        context.cancelled = True
        thread.join(BATCH_S)
    assert [type(error) for error in ended] == [EtlStopped], ended


def test_rows_that_come_later_are_taken_in_the_same_session_until_it_is_asked_to_stop(database: EtlDatabase) -> None:
    params = subscription(database)
    with running(database.attempt(params)):
        for first in (1, 11, 21):
            began_s = time.monotonic()
            insert(database, first, first + 9)
            wait_until_equal(database)
            print(f"10 rows were visible {time.monotonic() - began_s:.2f} s after they were committed")
    assert database.sql("SELECT count(*) FROM rota_batches WHERE task = 'sales'") == "3"
    insert(database, 31, 35)
    later = database.attempt({name: value for name, value in params.items() if name != "poll_s"}, token=2, run=2)
    assert Etl().run(later)["rows"] == 5
    wait_until_equal(database)


def test_records_of_an_api_go_on_to_a_webhook_while_it_runs(database: EtlDatabase, tmp_path: Path) -> None:
    """Each record is asked for, posted and taken once, in one session; the next attempt goes on from the ledger."""
    records = [{"id": number} for number in range(1, 11)]
    with api_server(lambda request: as_json(records)) as url, webhook_receiver() as receiver:
        params = {
            "source": {"type": "http", "url": url, "columns": {"id": "bigint"}},
            "incremental": {"cursor": "id", "lag_s": 0},
            "poll_s": POLL_S,
            "sink": {"type": "webhook", "url": receiver.url, "secret": {"secret": "signs"}}
            | {"ledger": str(tmp_path / "hooks"), "shared": True},
        }
        database.secrets["signs"] = SECRET

        def wait_until_taken() -> None:
            wait_for("all records are taken", lambda: len(receiver.rows()) >= len(records), BATCH_S, 0.1)

        with running(database.attempt(params)):
            wait_until_taken()
            for _ in range(3):
                began_s = time.monotonic()
                records += [{"id": len(records) + number} for number in range(1, 11)]
                wait_until_taken()
                print(f"10 records were taken {time.monotonic() - began_s:.2f} s after the API had them")
        records += [{"id": len(records) + number} for number in range(1, 6)]
        with running(database.attempt(params, token=2, run=2)):
            wait_until_taken()
        assert [row["id"] for row in receiver.rows()] == [record["id"] for record in records]
        assert (receiver.wrong, receiver.arrivals) == ([], len(receiver.taken))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes that may run one Spark session each."""
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster", env={"ROTA_SPARK_MASTER": "local[1]"}) as made:
        made.start()
        made.wait_until_whole()
        yield made
        made.check()


def test_a_subscription_goes_on_from_its_cursor_when_it_is_handed_over_and_when_its_node_dies(
    cluster: Cluster, database: EtlDatabase
) -> None:
    (cluster.secrets_dir / "pg").write_text(PASSWORD)
    cluster.register("sales", "etl", params=subscription(database), schedule={"continuous": True})
    insert(database, 1, 10)
    wait_until_equal(database)
    first = cluster.owner_of("sales")
    assert cluster.ask("POST", f"/v1/members/{first}/drain").status == 200
    insert(database, 11, 20)
    wait_until_equal(database)
    second = cluster.owner_of("sales")
    assert second != first
    wait_for("the new owner holds it", lambda: _holder(cluster) == second, BATCH_S)
    assert cluster.ask("POST", f"/v1/members/{first}/undrain").status == 200
    holder = wait_for("somebody holds it", lambda: _holder(cluster), BATCH_S)
    cluster.kill(holder)
    insert(database, 21, 30)
    wait_until_equal(database)
    cluster.restart(holder)
    cluster.wait_until_whole()
    assert not [run for run in cluster.all("/v1/runs", task="sales") if run["state"] == "failed"]
    cluster.ask("DELETE", "/v1/tasks/sales")


def _holder(cluster: Cluster) -> str | None:
    """The node that has an attempt of the subscription."""
    held = [run["node"] for run in cluster.all("/v1/runs", task="sales") if run["state"] in ("claimed", "running")]
    return held[0] if held else None
