"""A database with attempts at one ETL task in it, for tests on real Spark."""

import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo.postgres import Server
from spark_tasks.etl.attempt import EtlFigures
from spark_tasks.etl.params import EtlParams
from spark_tasks.postgres.session import session
from tasks.postgres.url import with_password
from testkit.execution.one_attempt import start_attempt
from testkit.fake_context import FakeContext
from testkit.spark.etl_sinks import run_attempt

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

PASSWORD = "p w:%&'"


class EtlDatabase:
    """A database of one test, with attempts at one task in it."""

    def __init__(self, server: Server, database: str, folder: Path) -> None:
        self.server = server
        self.database = database
        self.folder = folder
        self.attempts = 0
        self.secrets = {"pg": PASSWORD}

    @property
    def uri(self) -> str:
        return with_password(self.server.url(self.database), PASSWORD)

    def sql(self, text: str) -> str:
        return self.server.sql(self.database, text)

    def end(self, **more: Any) -> dict[str, Any]:
        """A source, or a sink, in this database."""
        return {
            "type": "postgres",
            "url": self.server.url(self.database),
            "password": {"secret": "pg"},
        } | more

    def attempt(self, params: dict[str, Any], token: int = 1, run: int = 1) -> FakeContext[EtlParams]:
        self.attempts += 1
        return FakeContext(
            EtlParams.model_validate(params),
            self.folder / f"scratch-{self.attempts}",
            task="sales",
            run_id=f"sales~{run}",
            token=token,
            secrets=self.secrets,
        )

    def killed(self, params: dict[str, Any], die_at: str, token: int) -> None:
        """An attempt in a process of its own, which gets SIGKILL when it logs `die_at`."""
        attempt = self.started(params, token, die_at)
        assert attempt.wait(timeout=240) == -signal.SIGKILL

    def started(self, params: dict[str, Any], token: int, die_at: str = "") -> "subprocess.Popen[bytes]":
        """An attempt in a process of its own."""
        self.attempts += 1
        file = self.folder / f"attempt-{self.attempts}.json"
        given: dict[str, Any] = {
            "kind": "spark_tasks.etl.kind:Etl",
            "params": params,
            "task": "sales",
            "run_id": "sales~1",
        }
        given |= {"token": token, "secrets": {"pg": PASSWORD}, "die_at": die_at}
        return start_attempt(file, given | {"scratch": str(self.folder / f"scratch-{self.attempts}")}, {})

    def differ(self, left: str, right: str) -> str:
        """The rows that only one of two queries has, duplicates counted; empty if they are equal."""
        return self.sql(
            f"(SELECT '<', * FROM ({left}) l EXCEPT ALL SELECT '<', * FROM ({right}) r) UNION ALL "
            f"(SELECT '>', * FROM ({right}) r EXCEPT ALL SELECT '>', * FROM ({left}) l) LIMIT 5"
        )

    def versions(self, table: str) -> list[tuple[int, int]]:
        """The columns `id` and `version` of a table."""
        lines = self.sql(f"SELECT id, version FROM {table}").splitlines()
        return [(int(key), int(version)) for key, _, version in (line.partition("|") for line in lines)]

    def staged(self) -> str:
        return self.sql("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'rota_stage%'")

    def run(self, spark: "SparkSession", params: dict[str, Any], token: int = 1, run: int = 1) -> EtlFigures:
        """Run an attempt in that session."""
        return run_attempt(spark, self.attempt(params, token, run))

    def put(self, table: str, rows: "pa.Table") -> None:
        """Put the rows into a table in place of what it has."""
        with session(self.uri) as opened:
            with opened.connection.cursor() as cursor:
                cursor.adbc_ingest(table, rows, mode="replace")
            opened.commit()

    def rows(self, query: str) -> "pa.Table":
        """The rows of a query."""
        with session(self.uri) as opened, opened.connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()
