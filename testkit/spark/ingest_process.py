"""One attempt at an ingest in a process of its own, which kills itself with SIGKILL at a given step.

    python -m testkit.spark.ingest_process FOLDER '{"params": {...}, "token": 1, "kill_at": "intent 2", ...}'

`kill_at` is a step and the number of its batch: `planned` (nothing of it was read), `written` (Parquet files are there,
no page), `intent` (the page too), `done` (committed, not yet reported).
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from spark_tasks.ingest.kind import Ingest
from spark_tasks.ingest.params import IngestParams
from spark_tasks.table.ledger import Ledger, Page
from testkit.fake_context import FakeContext


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, told: str) -> None:
    given: dict[str, Any] = json.loads(told)
    step, _, batch = given["kill_at"].partition(" ")
    context = FakeContext(
        IngestParams(**given["params"]),
        Path(folder) / "scratch-of-the-lost",
        task=given["task"],
        run_id=given["run_id"],
        token=given["token"],
        secrets=given["secrets"],
    )

    def before_checkpoint(value: Any) -> None:
        planned = value["plan"]["batch"] if value["plan"] is not None and value["intent"] is None else None
        at = {"planned": planned, "intent": value["intent"], "done": value["batch"] if value["plan"] is None else None}
        if at.get(step) == int(batch):
            _die()

    write = Ledger.write

    def before_page(self: Ledger, page: Page) -> None:
        if step == "written" and page.mark.batch == int(batch):
            _die()
        write(self, page)

    context.before_checkpoint = before_checkpoint
    Ledger.write = before_page  # type: ignore[method-assign]  # the step has no name of its own
    Ingest().run(context)


if __name__ == "__main__":
    main(*sys.argv[1:])
