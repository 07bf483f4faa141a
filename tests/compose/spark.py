"""The profile spark-cluster: both kinds on a master and two workers, while a worker is killed and the master is away.

The tables of an `ingest` are in the volume that nodes and workers share; an `etl` reads and writes the PostgreSQL
service.
"""

import json
from typing import Any, Final

from node.cli.local import wait_for
from node.client import Client, path
from tests.compose.engine import Compose, container, docker, inside, timed

ENV_FILE: Final = "spark-cluster.env"
SETTINGS: Final = {"ROTA_DESTINATION_HOSTS": "postgres", "SPARK_WORKER_CORES": "2", "SPARK_WORKER_MEMORY": "1g"}

FILES: Final = 4
ROWS: Final = 250
"""The rows of each file; the numbers from 0 on."""

_RUN_S: Final = 300
_PSQL: Final = "PGPASSWORD=$(cat /run/secrets/pg_password) psql --host 127.0.0.1 --username shop --dbname shop"
_COUNT: Final = """
import json, os
from deltalake import DeltaTable
table = DeltaTable("/srv/data/numbers").to_pyarrow_table()
print(json.dumps([table.num_rows, sum(table.column("number").to_pylist())]), flush=True)
os._exit(0)  # Arrow may end a process that finalizes Python with SIGABRT (github.com/apache/arrow/issues/45214)
"""


def scenario(compose: Compose) -> None:
    """One step after the other."""
    with timed("built"):
        compose("build")
    with timed("up, and all healthy"):
        compose("up", "--detach", "--wait")
    client = compose.client()
    client.call("POST", "/v1/tasks", body=[_ingest(), _etl()])
    _put_files(0)
    _sql("CREATE TABLE numbers AS SELECT n AS number, n % 7 AS week_day FROM generate_series(0, 9999) AS n")
    for task in ("numbers", "days"):
        with timed(f"{task} on the cluster"):
            _succeeds(client, task)
    assert _table() == _expected(1), _table()
    assert _days() == "7|10000", _days()
    names = {application["name"] for application in _applications()}
    assert len(names) == 2, f"not two applications of the master: {names}"

    _put_files(1)
    with timed("numbers, while a worker is killed"):
        run_id = _started(client, "numbers")
        wait_for("it has an executor", lambda: _executors_of(run_id) > 0, 120)
        docker("kill", container("spark-worker-1"))
        _ended_well(client, run_id)
    assert _table() == _expected(2), _table()

    compose("stop", "spark-master")
    _put_files(2)
    run_id = _started(client, "numbers")
    waits = wait_for("the run says that the master is away", lambda: _error(client, run_id), 120)
    print(f"  {waits}")
    assert waits.startswith("SparkAway: ") and "does not answer" in waits, waits
    with timed("the master is back, and the run succeeds"):
        compose("up", "--detach")
        _ended_well(client, run_id)
    assert _table() == _expected(3), _table()


def _ingest() -> dict[str, Any]:
    given = {"source": "/srv/data/in/*.csv", "format": "csv", "columns": "number BIGINT, text STRING"}
    return {"name": "numbers", "kind": "ingest", "params": given | {"table": "/srv/data/numbers", "shared": True}}


def _etl() -> dict[str, Any]:
    end = {"type": "postgres", "url": "postgresql://shop@postgres/shop", "password": {"secret": "pg_password"}}
    totals = "SELECT week_day, count(*) AS numbers FROM source GROUP BY week_day"
    return {
        "name": "days",
        "kind": "etl",
        "params": {
            "source": end | {"table": "numbers"},
            "transform": {"sql": totals},
            "sink": end | {"table": "days", "mode": "replace"},
        },
    }


def _put_files(batch: int) -> None:
    """Files in the shared volume, whole from the moment at which they have their names."""
    first = batch * FILES * ROWS
    script = f"""
import os
os.makedirs("/srv/data/in", exist_ok=True)
for file in range({FILES}):
    first = {first} + file * {ROWS}
    rows = "".join(f"{{n}},number {{n}}\\n" for n in range(first, first + {ROWS}))
    with open("/srv/data/in/.new", "w") as new:
        new.write("number,text\\n" + rows)
    os.rename("/srv/data/in/.new", f"/srv/data/in/{{first:06d}}.csv")
print("done")
"""
    said = inside("node-1", f"python3 - <<'END'\n{script}END")
    assert said == "done\n", said


def _expected(batches: int) -> list[int]:
    """The number of rows after so many batches of files, and the sum of their numbers."""
    rows = batches * FILES * ROWS
    return [rows, rows * (rows - 1) // 2]


def _table() -> list[int]:
    said = inside("node-2", f"python3 - <<'END'\n{_COUNT}END")
    try:
        found: list[int] = json.loads(said)
    except ValueError:
        raise AssertionError(f"the table cannot be read: {said}") from None
    return found


def _sql(statement: str) -> str:
    said = inside("postgres", f'{_PSQL} --no-align --tuples-only --quiet --command "{statement}"').strip()
    assert "ERROR" not in said and "FATAL" not in said, said
    return said


def _days() -> str:
    return _sql("SELECT count(*), sum(numbers) FROM days")


def _master() -> dict[str, Any]:
    script = "from urllib.request import urlopen; print(urlopen('http://127.0.0.1:8080/json/').read().decode())"
    found: dict[str, Any] = json.loads(inside("spark-master", f'python3 -c "{script}"'))
    return found


def _applications() -> list[dict[str, Any]]:
    master = _master()
    return [*master["activeapps"], *master["completedapps"]]


def _executors_of(run_id: str) -> int:
    """How many cores the master has given to an application of this run."""
    return sum(int(one["cores"]) for one in _master()["activeapps"] if run_id in one["name"])


def _started(client: Client, task: str) -> str:
    return str(client.call("POST", path("v1", "tasks", task, "runs")).json["run_id"])


def _ended_well(client: Client, run_id: str) -> None:
    def over() -> dict[str, Any] | None:
        run: dict[str, Any] = client.get(path("v1", "runs", run_id))
        return run if run["finished_at"] is not None else None

    run = wait_for(f"{run_id} ends", over, _RUN_S)
    assert run["state"] == "succeeded", run


def _succeeds(client: Client, task: str) -> None:
    _ended_well(client, _started(client, task))


def _error(client: Client, run_id: str) -> str | None:
    run = client.get(path("v1", "runs", run_id))
    return run["error"] or None
