"""Attempts at an ETL task into a sink in a folder or a bucket, and crashes between any two of their steps."""

import random
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_tasks.contracts.source import Cursor, Plan, RowSource
from spark_tasks.etl import parts
from spark_tasks.etl.attempt import EtlAttempt, EtlFigures
from spark_tasks.etl.params import EtlParams
from spark_tasks.etl.transform import SOURCE
from spark_tasks.spark.session import spark_session
from tasks.kind import Fenced
from testkit.execution.one_attempt import kill_at_any_moment, start_attempt
from testkit.fake_context import FakeContext
from testkit.servers.object_store import ObjectStore, object_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASK = "sales"

RowTuple = tuple[Any, ...]


class Crashed(BaseException):
    """The worker is gone: nothing of the kind's own may catch this."""


class GivenBatches:
    """Batches of rows that a test gives (`contracts.source.RowSource`). The cursor is how many have been read."""

    def __init__(self, ddl: str, batches: Sequence[Sequence[RowTuple]]) -> None:
        self.ddl = ddl
        self.batches = batches

    def plan(self, after: Cursor | None) -> Plan | None:
        number = 0 if after is None else after["read"]
        if number == len(self.batches):
            return None
        return Plan({"read": number + 1}, {"batch": number}, more=True)

    def load(self, spark: "SparkSession", plan: Plan) -> "DataFrame":
        return spark.createDataFrame(list(self.batches[plan.about["batch"]]), self.ddl).repartition(2)

    def release(self) -> None:
        return


class WholeBatch(GivenBatches):
    """The newest of the given batches, read whole."""

    def plan(self, after: Cursor | None) -> Plan | None:
        return Plan(None, {"batch": len(self.batches) - 1})


class SinkHouse:
    """A folder of one test, with a sink in it or in a bucket."""

    def __init__(self, folder: Path, store: ObjectStore | None) -> None:
        self.folder = folder
        self.store = store
        self.attempts = 0

    def at(self, name: str) -> str:
        """The path or the URL of the sink of that name."""
        return str(self.folder / name) if self.store is None else self.store.url(name)

    def names(self, name: str) -> set[str]:
        """The paths of all files in the sink of that name, relative to it."""
        if self.store is not None:
            return set(self.store.names(name))
        root = self.folder / name
        return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}

    def sink(self, **params: Any) -> dict[str, Any]:
        return params | ({} if self.store is None else {"options": self.store.references})

    def secrets(self) -> dict[str, str]:
        return {} if self.store is None else dict(self.store.secrets)

    def attempt(self, sink: dict[str, Any], token: int = 1, run: int = 1, **params: Any) -> FakeContext[EtlParams]:
        """A context for the next attempt. Its source is an SQLite file that is not there, unless `params` say else."""
        self.attempts += 1
        given: dict[str, Any] = {"source": {"type": "sqlite", "path": "/none.db", "table": "src"}, "sink": sink}
        return FakeContext(
            EtlParams.model_validate(given | {"incremental": {"cursor": "read", "lag_s": 0}} | params),
            self.folder / f"scratch-{self.attempts}",
            task=TASK,
            run_id=f"{TASK}~{run}",
            token=token,
            secrets=self.secrets(),
        )

    def started(self, sink: dict[str, Any], token: int, **params: Any) -> "subprocess.Popen[bytes]":
        """An attempt in a process of its own."""
        context = self.attempt(sink, token, **params)
        file = self.folder / f"attempt-{self.attempts}.json"
        given = {
            "kind": "spark_tasks.etl.kind:Etl",
            "params": context.params.model_dump(mode="json"),
            "task": TASK,
            "run_id": context.run_id,
            "token": token,
            "secrets": self.secrets(),
            "scratch": str(context.scratch),
        }
        return start_attempt(file, given, {})


@pytest.fixture(scope="module")
def sink_session(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A session for the tests of a file."""
    with spark_session("sinks", tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(params=["folder", "bucket"])
def sink_anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkHouse]:
    """A sink in a folder, and again one in a bucket."""
    if request.param == "folder":
        yield SinkHouse(tmp_path, None)
        return
    with object_store() as store:
        yield SinkHouse(tmp_path, store)


@pytest.fixture
def sink_in_folder(tmp_path: Path) -> SinkHouse:
    """A sink in a folder."""
    return SinkHouse(tmp_path, None)


def run_attempt(spark: "SparkSession", context: FakeContext[EtlParams], source: RowSource | None = None) -> EtlFigures:
    """Run an attempt in that session, with another source than its params say if one is given."""
    sources = parts.sources_of(context) if source is None else {SOURCE: source}

    @contextmanager
    def started() -> "Iterator[SparkSession]":
        yield spark

    attempt = EtlAttempt(context, sources.pop(SOURCE), sources, parts.sink_of(context))
    attempt.run(started)
    return attempt.figures


Step = tuple[Any, str, str]
"""A method of a class or a function of a module, and whether something happens `before` or `after` its call."""


@contextmanager
def at_step(step: Step, then: Callable[[], None], call: int = 1) -> Iterator[None]:
    """While the block lasts, do `then` at that call of the step, once."""
    owner, method, when = step
    real, calls = getattr(owner, method), 0

    def stepped(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        mine = calls == call
        if mine and when == "before":
            then()
        result = real(*args, **more)
        if mine and when == "after":
            then()
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, method, stepped)
        yield


def crash() -> None:
    raise Crashed


def crashes(
    spark: "SparkSession", context: FakeContext[EtlParams], source: RowSource | None, step: Step, call: int = 1
) -> bool:
    """Run an attempt that crashes at that step; False if it came to its end without it."""
    try:
        with at_step(step, crash, call):
            run_attempt(spark, context, source)
    except Crashed:
        return True
    return False


def fence(value: Any) -> None:
    """What a checkpoint of an attempt does that was overtaken."""
    raise Fenced("another attempt has the run")


def kill_attempts(
    house: SinkHouse, sink: dict[str, Any], rows: int, kills: int, draw: random.Random
) -> FakeContext[EtlParams]:
    """Kill that many attempts at drawn moments, which read rows of an SQLite file; the context of one that may finish.

    Row n, from 1, is (n, n % 3000, vN), and 2000 of them are a batch.
    """
    path = house.folder / "app.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE src (n INTEGER PRIMARY KEY, id INTEGER, v TEXT)")
        database.executemany("INSERT INTO src VALUES (?, ?, ?)", ((n, n % 3000, f"v{n}") for n in range(1, rows + 1)))
    params: dict[str, Any] = {
        "source": {"type": "sqlite", "path": str(path), "table": "src"},
        "incremental": {"cursor": "n", "lag_s": 0, "batch_rows": 2000},
    }
    lost = Counter(kill_at_any_moment(house.started(sink, token, **params), draw) for token in range(1, kills + 1))
    print(f"{kills} attempts were killed, by what they were doing: {dict(lost)}")
    return house.attempt(sink, kills + 1, **params)
