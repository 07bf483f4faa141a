"""The pages of docs/ do what they say: their commands are run, in order, and print what stands there."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from examples.demo.postgres import Server, postgres_server
from node.cli.ports import free_ports
from tasks.backup.sources.mariadb.server import option_file
from tasks.backup.sources.mariadb.url import parse_mariadb
from testkit.cluster import Cluster
from testkit.reachable import ReachableCluster, open_folder, why_not
from testkit.servers.collector import collector
from testkit.servers.mail_server import mail_server
from testkit.servers.mariadb_server import ROOT_PASSWORD, mariadb_server, why_no_mariadb
from testkit.servers.object_store import BUCKET, object_store
from testkit.servers.outside_watcher import outside_watcher
from testkit.servers.postgres_servers import recovered
from testkit.servers.webhook_receiver import webhook_receiver
from testkit.spark.spark_cluster import EXECUTOR_MEMORY, spark_cluster
from tests.integration.howto.conftest import ROOT, TOKEN, reader_of

pytestmark = pytest.mark.integration

Reader = Callable[..., None]
FOLLOWED = {
    "act-when-a-node-is-stolen.md",
    "add-a-node.md",
    "backup-a-folder.md",
    "backup-a-mariadb-server.md",
    "be-told.md",
    "backup-postgresql-to-s3.md",
    "etl-between-postgresql-databases.md",
    "find-out-why-a-task-does-not-run.md",
    "ingest-dirty-csv.md",
    "ingest-to-s3.md",
    "install-with-systemd.md",
    "keep-tasks-in-git.md",
    "leave-out-holidays.md",
    "let-only-so-many-run-at-once.md",
    "limit-what-a-task-may-use.md",
    "maintain-a-table.md",
    "prove-that-backups-restore.md",
    "read-the-metrics.md",
    "recover.md",
    "remove-a-node.md",
    "restore-a-server-to-a-moment.md",
    "restore-without-rota.md",
    "rotate-a-secret.md",
    "run-on-a-spark-cluster.md",
    "run-on-each-member.md",
    "send-traces-and-lineage.md",
    "set-deadlines.md",
    "run-a-task-as-another-user.md",
    "run-a-task-for-past-times.md",
    "run-a-script-that-resumes.md",
    "run-a-task-for-a-days-data.md",
    "run-tasks-after-others.md",
    "see-what-a-failure-would-do.md",
    "upgrade.md",
    "use-the-page.md",
    "write-a-kind.md",
}


def test_each_page_is_followed_below() -> None:
    assert {page.name for page in (ROOT / "docs/how-to").glob("*.md")} == FOLLOWED
    text = Path(__file__).read_text()
    assert [name for name in FOLLOWED if text.count(f"how-to/{name}") == 0] == []


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("how-to/act-when-a-node-is-stolen.md", marks=pytest.mark.more),
        "how-to/backup-a-folder.md",
        pytest.param("how-to/find-out-why-a-task-does-not-run.md", marks=pytest.mark.more),
        pytest.param("how-to/keep-tasks-in-git.md", marks=pytest.mark.more),
        pytest.param("how-to/leave-out-holidays.md", marks=pytest.mark.more),
        pytest.param("how-to/let-only-so-many-run-at-once.md", marks=pytest.mark.more),
        "how-to/limit-what-a-task-may-use.md",
        pytest.param("how-to/prove-that-backups-restore.md", marks=pytest.mark.more),
        "how-to/run-a-script-that-resumes.md",
        pytest.param("how-to/run-on-each-member.md", marks=pytest.mark.more),
        pytest.param("how-to/run-a-task-for-a-days-data.md", marks=pytest.mark.more),
        pytest.param("how-to/run-a-task-for-past-times.md", marks=pytest.mark.more),
        "how-to/run-tasks-after-others.md",
        pytest.param("how-to/set-deadlines.md", marks=pytest.mark.more),
        pytest.param("how-to/see-what-a-failure-would-do.md", marks=pytest.mark.more),
        "how-to/write-a-kind.md",
    ],
)
def test_pages_without_values_of_the_reader_s(reader: Reader, page: str) -> None:
    reader(page)


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_a_task_runs_as_another_user(tmp_path: Path) -> None:
    with open_folder() as folder, ReachableCluster(folder, 1, {"ROTA_RUN_AS": "nobody"}, open_to_all=False) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        with reader_of(cluster, tmp_path) as read:
            read("how-to/run-a-task-as-another-user.md", MEMBER="node-1", USER_THERE="nobody")


def test_the_metrics_are_read(reader: Reader, cluster: Cluster) -> None:
    reader("how-to/read-the-metrics.md", URL=cluster.url("node-1"), TOKEN_FILE=str(cluster.token_file))


def test_the_page_asks_for_a_token(reader: Reader, cluster: Cluster) -> None:
    reader("how-to/use-the-page.md", URL=cluster.url("node-1"))


def test_the_settings_of_a_service_are_made(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    reader("how-to/install-with-systemd.md", ETC=str(tmp_path / "etc"))


@pytest.mark.more
def test_a_node_is_added_and_removed(reader: Reader, cluster: Cluster) -> None:
    raft_port, http_port = free_ports(2)
    reader(
        "how-to/add-a-node.md",
        "how-to/remove-a-node.md",
        MEMBER=cluster.url("node-1"),
        AT=f"127.0.0.1:{raft_port}:{http_port}",
        SECRET_FILE=str(cluster.folder / "secret"),
        TOKEN_FILE=str(cluster.token_file),
    )


@pytest.fixture
def server() -> Iterator[Server]:
    with postgres_server("whisper") as running:
        running.sql("postgres", "CREATE DATABASE orders; CREATE DATABASE restored; CREATE DATABASE by_hand;")
        running.sql("orders", "CREATE TABLE line AS SELECT n AS id FROM generate_series(1, 1000) n")
        yield running


@pytest.fixture
def endpoint() -> Iterator[str]:
    moto = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    s3fs = pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
    threaded = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    threaded.start()
    host, port = threaded.get_host_and_port()
    s3fs.S3FileSystem(key="somebody", secret="hush", endpoint_url=f"http://{host}:{port}").mkdir("my-backups")
    yield f"http://{host}:{port}"
    threaded.stop()


@pytest.mark.more
def test_failures_are_told(reader: Reader, cluster: Cluster) -> None:
    with webhook_receiver() as hook, outside_watcher() as watch, mail_server() as mail:
        reader(
            "how-to/be-told.md",
            HOOK_URL=hook.url,
            MAIL_URL=f"{mail.url}&from=rota@x.example&to=ops@x.example",
            WATCH_URL=watch.url,
            SECRETS=str(cluster.secrets_dir),
        )
        # The run for the digest may fail too late to be told on a channel that the page then deletes.
        assert [notice["event"] for notice in hook.notices()][:2] == ["test", "run_failed"]
        assert {notice["event"] for notice in hook.notices()} == {"test", "run_failed"}
        assert len(mail.mails) == 1


@pytest.mark.more
def test_postgresql_is_backed_up_to_s3(reader: Reader, cluster: Cluster, server: Server, endpoint: str) -> None:
    for name, value in (("pg_password", server.password), ("s3_key", "somebody"), ("s3_secret", "hush-hush")):
        (cluster.secrets_dir / name).write_text(value)
    reader(
        "how-to/backup-postgresql-to-s3.md",
        DATABASE_URL=server.url("orders"),
        RESTORE_URL=server.url("restored"),
        S3_ENDPOINT=endpoint,
        BUCKET="my-backups",
        SECRETS=str(cluster.secrets_dir),
    )
    assert server.sql("restored", "SELECT count(*) FROM line") == "1000"


@pytest.mark.more
@pytest.mark.skipif(bool(why_no_mariadb()), reason=why_no_mariadb())
def test_a_mariadb_server_is_backed_up(reader: Reader, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    for name, value in (("maria_backup", "whisper-it"), ("maria_root", ROOT_PASSWORD)):
        (cluster.secrets_dir / name).write_text(value)
    with mariadb_server() as server, mariadb_server() as other:
        server.sql("CREATE DATABASE shop; CREATE TABLE shop.line (id int); INSERT INTO shop.line VALUES (1), (2)")
        options = tmp_path / "root.cnf"
        options.write_text(option_file(parse_mariadb(server.url()), ROOT_PASSWORD))
        reader(
            "how-to/backup-a-mariadb-server.md",
            MARIADB=f"mariadb --defaults-file={options}",
            SERVER_URL=server.url(user="backup"),
            RESTORE_URL=other.url(),
            CHECK_URL=other.url("shop_checked"),
            DESTINATION=str(tmp_path / "backups"),
            SECRETS=str(cluster.secrets_dir),
        )
        for database in ("shop", "shop_checked"):
            assert other.sql(f"SELECT SUM(id) FROM {database}.line") == "3"


@pytest.mark.more
def test_a_server_is_restored_to_a_moment(reader: Reader, cluster: Cluster, server: Server, tmp_path: Path) -> None:
    pytest.importorskip("psycopg2", reason="the extra `wal` is not installed")
    server.sql("postgres", "ALTER SYSTEM SET max_slot_wal_keep_size = '1GB'")
    server.sql("postgres", "SELECT pg_reload_conf()")
    (cluster.secrets_dir / "archiver").write_text(server.password)

    def restore(data: Path) -> None:
        reader(
            "how-to/restore-a-server-to-a-moment.md",
            DATABASE_URL=server.url("postgres"),
            DESTINATION=str(tmp_path / "backups"),
            DATA=str(data),
            SECRETS=str(cluster.secrets_dir),
        )

    with recovered(server, restore) as again:
        assert again.sql("orders", "SELECT count(*) FROM line") == "1000"


@pytest.mark.more
@pytest.mark.skipif(
    not all(map(shutil.which, ("age", "zstd", "jq"))),
    reason="age, zstd or jq is not installed (apt-get install age zstd jq)",
)
def test_encrypted_backups_are_restored_by_hand(
    cluster: Cluster, server: Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join((str(server.programs), os.environ["PATH"])))
    reader: Reader = request.getfixturevalue("reader")
    (cluster.secrets_dir / "pg_password").write_text(server.password)
    reader(
        "how-to/restore-without-rota.md",
        DATABASE_URL=server.url("orders"),
        RESTORE_URL=server.url("by_hand"),
        SECRETS=str(cluster.secrets_dir),
    )
    assert server.sql("by_hand", "SELECT count(*) FROM line") == "1000"


@pytest.mark.more
@pytest.mark.spark
def test_dirty_files_are_ingested(reader: Reader) -> None:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    reader("how-to/ingest-dirty-csv.md")


@pytest.mark.more
@pytest.mark.spark
def test_files_are_ingested_into_a_table_on_s3(reader: Reader, cluster: Cluster) -> None:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    with object_store() as store:
        for name, value in store.secrets.items():
            (cluster.secrets_dir / f"s3_{name}").write_text(value)
        reader("how-to/ingest-to-s3.md", S3_ENDPOINT=store.endpoint, BUCKET=BUCKET, SECRETS=str(cluster.secrets_dir))
        assert any(name.endswith(".snappy.parquet") for name in store.names("sales"))


@pytest.mark.more
def test_a_table_is_maintained(reader: Reader, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="the extra `spark` is not installed")
    pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
    for number in range(20):
        rows = {"origin": ["EWR", "JFK"] * 50, "at": list(range(100 * number, 100 * number + 100))}
        deltalake.write_deltalake(tmp_path / "flights", pa.table(rows), mode="append")
    reader("how-to/maintain-a-table.md", TABLE=str(tmp_path / "flights"))
    assert deltalake.DeltaTable(tmp_path / "flights").to_pyarrow_table().num_rows == 2000


@pytest.fixture
def shop() -> Iterator[Server]:
    with postgres_server("whisper") as running:
        running.sql("postgres", "CREATE DATABASE shop; CREATE DATABASE warehouse;")
        running.sql(
            "shop",
            "CREATE TABLE customers (id int PRIMARY KEY, country text);"
            "CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10,2), created_at timestamptz,"
            "  updated_at timestamptz, deleted boolean);"
            "INSERT INTO customers VALUES (1, 'FR'), (2, 'DE');"
            "INSERT INTO orders SELECT n, 1 + n % 2, n * 1.5, '2026-01-05', now() - interval '1 minute', n = 4"
            "  FROM generate_series(1, 4) n",
        )
        yield running


@pytest.mark.more
@pytest.mark.spark
def test_rows_go_from_one_database_into_another(reader: Reader, cluster: Cluster, shop: Server) -> None:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    (cluster.secrets_dir / "etl_password").write_text(shop.password)
    reader(
        "how-to/etl-between-postgresql-databases.md",
        SOURCE_URL=shop.url("shop"),
        SINK_URL=shop.url("warehouse"),
        SECRETS=str(cluster.secrets_dir),
    )
    assert (
        shop.sql("warehouse", "SELECT * FROM order_totals ORDER BY 1") == "DE|2026-01-05|2|6.00\nFR|2026-01-05|1|3.00"
    )
    assert shop.sql("warehouse", "SELECT string_agg(id::text, ',' ORDER BY id) FROM orders_copy") == "1,2,3"


@pytest.mark.soak
@pytest.mark.spark
def test_a_spark_cluster_does_the_work(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    for name in ("nodes", "reader"):
        (tmp_path / name).mkdir()
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    with spark_cluster(tmp_path / "spark") as spark:
        env = {"ROTA_TOKEN_FILE": str(token_file), "ROTA_SPARK_MASTER": spark.master.url}
        with Cluster(tmp_path / "nodes", env=env | {"ROTA_SPARK_EXECUTOR_MEMORY": EXECUTOR_MEMORY}) as nodes:
            nodes.start()
            nodes.wait_until_whole()
            with reader_of(nodes, tmp_path / "reader") as read:
                read("how-to/run-on-a-spark-cluster.md")
        assert "Registered app sales-spark " in spark.master.log()


@pytest.mark.more
def test_a_run_is_traced(tmp_path: Path) -> None:
    for name in ("nodes", "reader"):
        (tmp_path / name).mkdir()
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    with collector() as found:
        env = {"ROTA_TRACES": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": found.url}
        env |= {"ROTA_LINEAGE": "1", "OPENLINEAGE_URL": found.url, "ROTA_TOKEN_FILE": str(token_file)}
        with Cluster(tmp_path / "nodes", nodes=1, env=env) as nodes:
            nodes.start()
            nodes.wait_until_whole()
            with reader_of(nodes, tmp_path / "reader") as read:
                read("how-to/send-traces-and-lineage.md", METRICS_URL=f"{nodes.url('node-1')}/metrics")
        assert [event["eventType"] for event in found.events] == ["START", "COMPLETE"]


def test_the_cluster_is_saved_and_a_folder_looked_at(reader: Reader, cluster: Cluster) -> None:
    reader("how-to/recover.md", DATA=str(cluster.folder / "node-3"))


@pytest.mark.more
def test_all_are_stopped_and_started_for_an_upgrade(reader: Reader) -> None:
    reader("how-to/upgrade.md")


@pytest.mark.more
def test_secrets_are_rotated(reader: Reader, cluster: Cluster) -> None:
    reader(
        "how-to/rotate-a-secret.md",
        SECRETS=str(cluster.secrets_dir),
        TOKEN_FILE=str(cluster.token_file),
        SECRET_FILE=str(cluster.folder / "secret"),
    )


@pytest.mark.more
@pytest.mark.spark
def test_the_tutorial(reader: Reader) -> None:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    reader("tutorial.md")
