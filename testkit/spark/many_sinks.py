"""A kind for tests: ETLs and ingests of one attempt, each in a thread of its own and all in one Spark session.

A session takes seconds to start. So a node that is killed is a fault for each sink, at another step of each.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from unittest.mock import patch

from pydantic import BaseModel, ConfigDict

from spark_tasks.etl.kind import Etl
from spark_tasks.etl.params import EtlParams
from spark_tasks.ingest.kind import Ingest
from spark_tasks.ingest.params import IngestParams
from spark_tasks.spark.session import AT_ONCE, ENVIRONMENT
from tasks.kind import Context
from tasks.needs import Needs
from tasks.reach import Reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = TypeVar("P", bound=BaseModel)


class ManySinks:
    """Does the works, and notes in a file what each of them says in its log. They share a task's name, not a sink."""

    class Params(BaseModel):
        model_config = ConfigDict(extra="forbid")

        etls: dict[str, EtlParams] = {}
        ingests: dict[str, IngestParams] = {}
        notes: str

    requires = Etl.requires
    environment = ENVIRONMENT
    at_once = AT_ONCE

    @staticmethod
    def needs(params: Params, task: str) -> Needs:
        """What all the works need, and the folder of the notes."""
        each = [Etl.needs(one, task) for one in params.etls.values()]
        each += [Ingest.needs(one, task) for one in params.ingests.values()]
        noted = Reach("notes", "destination", params.notes, str(Path(params.notes).parent))
        return Needs(
            reaches=(noted, *chain.from_iterable(one.reaches for one in each)),
            tools=Etl.prepare_tools,
            own_credentials=tuple(sorted(set(chain.from_iterable(one.own_credentials for one in each)))),
        )

    def run(self, ctx: Context[Params]) -> dict[str, Any]:
        """Do the works; the error of one is raised once all have ended."""
        from spark_tasks.spark.session import session_of

        checkpoint = Checkpoint(ctx)
        checkpoint.note("begun")
        with session_of(ctx) as spark, sharing(spark), ThreadPoolExecutor(32) as pool:
            etl, ingest = Etl(), Ingest()
            works = [pool.submit(_done, etl.run, Share(checkpoint, *work)) for work in ctx.params.etls.items()]
            works += [pool.submit(_done, ingest.run, Share(checkpoint, *work)) for work in ctx.params.ingests.items()]
        for work in works:
            work.result()
        checkpoint.note("over")
        return {}


def _done(run: Callable[[Any], Any], share: "Share[Any]") -> None:
    run(share)
    share.all.note("over", share.name)


@contextmanager
def sharing(spark: "SparkSession") -> Iterator[None]:
    """While the block lasts, a kind that starts a session gets one of `spark`, with views of its own.

    And nobody compares which files are open before and after: other works open theirs meanwhile.
    """

    @contextmanager
    def session(*_: Any) -> "Iterator[SparkSession]":
        own = spark.newSession()
        # Spark looks for a data source in the session of the thread, wherever it was registered.
        own._get_j_spark_session_class(own._jvm).setActiveSession(own._jsparkSession)
        yield own

    with ExitStack() as patches:
        for name in ("etl.kind.session_of", "ingest.attempt.session_of"):
            patches.enter_context(patch(f"spark_tasks.{name}", session))
        for name in ("sqlite.source", "sqlite.file"):
            patches.enter_context(patch(f"spark_tasks.{name}.regular_files_open", dict))
        yield


class Checkpoint:
    """The checkpoint of an attempt, which holds one for each of its works, by their names; and the file of notes."""

    def __init__(self, ctx: Context[ManySinks.Params]) -> None:
        self.ctx = ctx
        self.values: dict[str, Any] = dict(ctx.checkpoint or {})
        self.lock = threading.Lock()

    def save(self, name: str, value: Any) -> None:
        with self.lock:
            self.values[name] = value
            self.ctx.save_checkpoint(self.values)

    def note(self, what: str, name: str = "") -> None:
        note = {"token": self.ctx.token, "name": name, "what": what, "at_s": time.time()}
        with Path(self.ctx.params.notes).open("a") as file:
            file.write(json.dumps(note) + "\n")


class Share(Generic[P]):
    """The context of one of the works."""

    def __init__(self, checkpoint: Checkpoint, name: str, params: P) -> None:
        ctx = checkpoint.ctx
        self.all = checkpoint
        self.name = name
        self.params = params
        self.task, self.node, self.run_id = ctx.task, ctx.node, ctx.run_id
        self.attempt, self.token, self.fire_at = ctx.attempt, ctx.token, ctx.fire_at
        self.scratch = ctx.scratch / name
        self.access = ctx.access
        self.log = ctx.log.getChild(name)
        self.log.addHandler(_Notes(checkpoint, name))

    @property
    def checkpoint(self) -> Any:
        return self.all.values.get(self.name)

    @property
    def cancelled(self) -> bool:
        return self.all.ctx.cancelled

    def save_checkpoint(self, value: Any) -> None:
        self.all.save(self.name, value)

    def progress(self, done: float, total: float | None = None, unit: str = "") -> None:
        return

    def secret(self, reference: Any) -> str:
        return self.all.ctx.secret(reference)


class _Notes(logging.Handler):
    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        super().__init__()
        self.checkpoint = checkpoint
        self.of = name

    def emit(self, record: logging.LogRecord) -> None:
        self.checkpoint.note(record.getMessage(), self.of)


def notes(file: Path) -> list[Mapping[str, Any]]:
    """The notes so far; the last line may be half."""
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]
