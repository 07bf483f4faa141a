"""Work for a Spark cluster: files into a table on S3, and rows from PostgreSQL to PostgreSQL, attempt by attempt."""

import csv
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
from deltalake import DeltaTable

from examples.demo.postgres import Server
from node.execution import process_tree
from spark_tasks.storage.store import delta_options
from testkit.execution.one_attempt import start_attempt
from testkit.servers.object_store import ObjectStore

PASSWORD: Final = "cluster-password"
ROWS: Final = 160_000
FILES: Final = 8
COLUMNS: Final = ["n", "text", "amount", "part", "big"]
ENDS_S: Final = 400.0
"""An attempt on a cluster takes half a minute; on a busy machine, some minutes."""


class Attempt:
    """An attempt in processes of its own. `errors` is what it prints."""

    def __init__(self, process: "subprocess.Popen[bytes]", errors: Path, fence: Path) -> None:
        self.process = process
        self.errors = errors
        self.fence = fence

    @property
    def pid(self) -> int:
        return self.process.pid

    def overtaken(self) -> None:
        """From now on its checkpoints are refused."""
        self.fence.touch()

    def kill(self) -> None:
        """End all of its processes with SIGKILL, the driver's JVM among them."""
        process_tree.kill(self.pid, self.pid)
        self.process.wait()

    def ended(self) -> int:
        """Wait for its end; its exit status, which is 0 if it succeeded."""
        return self.process.wait(ENDS_S)

    def said(self) -> str:
        return self.errors.read_text(errors="replace")


class Work(Protocol):
    """A task with data."""

    def start(self, token: int, environ: Mapping[str, str]) -> Attempt:
        """Start an attempt at it."""

    def writes(self) -> bool:
        """Whether executors write, or have written, what no reader sees yet."""

    def differs(self) -> str:
        """What is in the target that should not be, or is not and should; empty if it is what it should be."""

    @property
    def attempts(self) -> list[Attempt]:
        """Those that were started."""


class IngestWork:
    """Files of `folder` into a table on S3 by that name. `more` are params.

    From the second half of the files on, `big` is greater than an INT.
    """

    def __init__(self, folder: Path, store: ObjectStore, name: str, **more: Any) -> None:
        self.folder = folder
        self.store = store
        self.name = name
        self.more = more
        self.attempts: list[Attempt] = []
        self.source = folder / "in"
        self.source.mkdir(parents=True)
        for number in range(FILES):
            with (self.source / f"{number}.csv").open("w", newline="") as file:
                out = csv.writer(file)
                out.writerow(COLUMNS)
                out.writerows(_row(n) for n in range(number * ROWS // FILES, (number + 1) * ROWS // FILES))

    def params(self) -> dict[str, Any]:
        return {
            "source": f"{self.source}/*.csv",
            "format": "csv",
            "columns": "n BIGINT, text STRING, amount DOUBLE, part INT, big BIGINT",
            "table": self.store.url(self.name),
            "options": self.store.references,
            "batch_files": FILES // 2,
            **self.more,
        }

    def start(self, token: int, environ: Mapping[str, str]) -> Attempt:
        kind = "spark_tasks.ingest.kind:Ingest"
        self.attempts.append(started(self.folder, kind, self.params(), self.store.secrets, token, environ))
        return self.attempts[-1]

    def writes(self) -> bool:
        return any(name.endswith(".parquet") for name in self.store.names(self.name))

    def differs(self) -> str:
        table = DeltaTable(self.store.url(self.name), storage_options=delta_options(self.store.options, "us-east-1"))
        found = table.to_pyarrow_table(columns=COLUMNS).sort_by("n")
        wanted = pa.table(
            dict(zip(COLUMNS, map(list, zip(*map(_row, range(ROWS)), strict=True)), strict=True)),
            schema=found.schema,
        )
        return (
            "" if found.equals(wanted) else f"{found.num_rows} rows, of which {len(set(found['n'].to_pylist()))} differ"
        )


def _row(n: int) -> tuple[int, str, float, int, int]:
    return n, f"row {n}", n / 4, n % 3, n if n < ROWS // 2 else n << 40


class EtlWork:
    """Rows of one table into another one of the same new database, in four batches."""

    def __init__(self, folder: Path, server: Server, name: str) -> None:
        self.folder = folder
        self.server = server
        self.name = name
        self.attempts: list[Attempt] = []
        folder.mkdir(parents=True, exist_ok=True)
        server.sql("postgres", f"CREATE DATABASE {name}")
        server.sql(
            name,
            "CREATE TABLE src (id int PRIMARY KEY, v text);"
            f"INSERT INTO src SELECT n, md5(n::text) FROM generate_series(1, {ROWS}) n",
        )

    def params(self) -> dict[str, Any]:
        end = {"type": "postgres", "url": self.server.url(self.name), "password": {"secret": "pg"}}
        return {
            "source": end | {"table": "src"},
            "incremental": {"cursor": "id", "lag_s": 0, "batch_rows": ROWS // 4},
            "transform": {"sql": "SELECT id, v, id % 7 AS day FROM source"},
            "sink": end | {"table": "dst", "mode": "append"},
        }

    def start(self, token: int, environ: Mapping[str, str]) -> Attempt:
        kind = "spark_tasks.etl.kind:Etl"
        self.attempts.append(started(self.folder, kind, self.params(), {"pg": PASSWORD}, token, environ))
        return self.attempts[-1]

    def writes(self) -> bool:
        return self.server.sql(self.name, "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'rota_stage%'") != "0"

    def differs(self) -> str:
        wanted, found = "SELECT id, v, id % 7 AS day FROM src", "SELECT id, v, day FROM dst"
        return self.server.sql(
            self.name,
            f"(({wanted}) EXCEPT ALL ({found})) UNION ALL (({found}) EXCEPT ALL ({wanted})) LIMIT 5",
        )


def started(
    folder: Path, kind: str, params: dict[str, Any], secrets: dict[str, str], token: int, environ: Mapping[str, str]
) -> Attempt:
    """Start the attempt with that token."""
    own = folder / f"attempt-{token}-{time.monotonic_ns()}"
    own.mkdir()
    given = {
        "kind": kind,
        "params": params,
        "task": "work",
        "run_id": "work~1",
        "token": token,
        "secrets": secrets,
        "scratch": str(own / "scratch"),
        "fence": str(own / "fence"),
    }
    with (own / "errors").open("wb") as errors:
        return Attempt(start_attempt(own / "given.json", given, environ, errors), own / "errors", own / "fence")
