"""`python -m testkit.execution.one_attempt FILE`: one attempt of a kind in a process, which may kill itself midway.

FILE is JSON: `kind` (module:class), `params`, `task`, `run_id`, `token`, `secrets`, `scratch`, `die_at` and `pause_at`:
when the attempt logs a message with that text, the process gets SIGKILL, or SIGSTOP; and `fence`: once a file of
that name exists, another attempt has taken the run over.
"""

import importlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from node.execution import process_tree
from tasks.errors import Fenced
from testkit.fake_context import FakeContext

_ROOT = Path(__file__).parents[2]

SAYS_S: Final = 240.0
"""How long an attempt may take to say the next thing: half a minute with the start of Spark on a busy machine."""


def start_attempt(
    file: Path, given: Mapping[str, Any], environ: Mapping[str, str], errors: IO[bytes] | None = None
) -> "subprocess.Popen[bytes]":
    """Start an attempt, in a process group of its own; `given` is what FILE says, and `errors` takes what it prints."""
    file.write_text(json.dumps(dict(given)))
    command = [sys.executable, "-m", "testkit.execution.one_attempt", str(file)]
    return subprocess.Popen(command, cwd=_ROOT, env={**os.environ, **environ}, stderr=errors, start_new_session=True)


def kill_at_any_moment(attempt: "subprocess.Popen[bytes]", draw: random.Random) -> str:
    """Kill all processes of an attempt at a drawn moment; what it was doing (`step_after`).

    An attempt at an ETL logs three messages for a batch. The moment is after up to eight of them, and a drawn part of a
    second; one in nine is while Spark starts. An attempt that ends before is let go.
    """
    assert isinstance(attempt.args, list)
    log = Path(str(attempt.args[-1])).with_suffix(".log")

    def said() -> list[str]:
        return log.read_text().splitlines() if log.exists() else []

    wanted = draw.randint(0, 8)
    deadline_s = time.monotonic() + SAYS_S
    while attempt.poll() is None and len(said()) < wanted:
        assert time.monotonic() < deadline_s, said()
        time.sleep(0.005)
    time.sleep(draw.uniform(0, 0.7) if wanted else draw.uniform(0, 6))
    kill_whole(attempt)
    return step_after(said())


def step_after(said: Sequence[str]) -> str:
    """What an attempt at an ETL does next that has logged this."""
    last = said[-1] if said else ""
    words = {"is planned": "writes", "are staged": "commits", "is committed": "goes on", "over": "over"}
    return next((step for text, step in words.items() if text in last), "starts")


def kill_whole(attempt: "subprocess.Popen[bytes]") -> None:
    """Kill an attempt with its JVM and the Python processes of that, which lead groups of their own."""
    for pid in (attempt.pid, *process_tree.freeze(attempt.pid, attempt.pid)):
        process_tree.send(pid, signal.SIGKILL)
    process_tree.send_group(attempt.pid, signal.SIGKILL)
    attempt.wait()


class _Signal(logging.Handler):
    """Sends this process a signal when it logs a message with the text `at`."""

    def __init__(self, at: str, number: signal.Signals) -> None:
        super().__init__()
        self.at = at
        self.number = number

    def emit(self, record: logging.LogRecord) -> None:
        if self.at in record.getMessage():
            os.kill(os.getpid(), self.number)


def main(file: Path) -> None:
    """Run the attempt, and print its result as JSON."""
    given: dict[str, Any] = json.loads(file.read_text())
    module, _, class_name = given["kind"].partition(":")
    kind = getattr(importlib.import_module(module), class_name)
    log = logging.getLogger("attempt")
    log.setLevel(logging.INFO)
    log.addHandler(logging.FileHandler(file.with_suffix(".log")))
    for name, number in (("die_at", signal.SIGKILL), ("pause_at", signal.SIGSTOP)):
        if given.get(name):
            log.addHandler(_Signal(given[name], number))
    fence = given.get("fence")

    def fenced(value: Any) -> None:
        if fence and Path(fence).exists():
            raise Fenced("another attempt has taken the run over")

    context: FakeContext[Any] = FakeContext(
        kind.Params.model_validate(given["params"]),
        Path(given["scratch"]),
        task=given["task"],
        run_id=given["run_id"],
        token=given["token"],
        secrets=given["secrets"],
        before_checkpoint=fenced,
    )
    print(json.dumps(kind().run(context)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
