"""`python -m testkit.one_attempt FILE`: one attempt of a kind in a process of its own, which may kill itself midway.

FILE is JSON: `kind` (module:class), `params`, `task`, `run_id`, `token`, `secrets`, `scratch`, `die_at` and `pause_at`:
when the attempt logs a message with that text, the process gets SIGKILL, or SIGSTOP; and `fence`: once a file of
that name exists, another attempt has taken the run over.
"""

import importlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from tasks.errors import Fenced
from testkit.fake_context import FakeContext

_ROOT = Path(__file__).parents[1]


def start_attempt(
    file: Path, given: Mapping[str, Any], environ: Mapping[str, str], errors: IO[bytes] | None = None
) -> "subprocess.Popen[bytes]":
    """Start an attempt, in a process group of its own; `given` is what FILE says, and `errors` takes what it prints."""
    file.write_text(json.dumps(dict(given)))
    command = [sys.executable, "-m", "testkit.one_attempt", str(file)]
    return subprocess.Popen(command, cwd=_ROOT, env={**os.environ, **environ}, stderr=errors, start_new_session=True)


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
