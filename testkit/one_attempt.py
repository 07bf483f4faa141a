"""`python -m testkit.one_attempt FILE`: one attempt of a kind in a process of its own, which may kill itself midway.

FILE is JSON: `kind` (module:class), `params`, `task`, `run_id`, `token`, `secrets`, `scratch`, and `die_at`: when the
attempt logs a message with that text, the process gets SIGKILL.
"""

import importlib
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from testkit.fake_context import FakeContext


class _Death(logging.Handler):
    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def emit(self, record: logging.LogRecord) -> None:
        if self.at in record.getMessage():
            os.kill(os.getpid(), signal.SIGKILL)


def main(file: Path) -> None:
    """Run the attempt, and print its result as JSON."""
    given: dict[str, Any] = json.loads(file.read_text())
    module, _, name = given["kind"].partition(":")
    kind = getattr(importlib.import_module(module), name)
    log = logging.getLogger("attempt")
    log.setLevel(logging.INFO)
    if given.get("die_at"):
        log.addHandler(_Death(given["die_at"]))
    context: FakeContext[Any] = FakeContext(
        kind.Params.model_validate(given["params"]),
        Path(given["scratch"]),
        task=given["task"],
        run_id=given["run_id"],
        token=given["token"],
        secrets=given["secrets"],
    )
    print(json.dumps(kind().run(context)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
