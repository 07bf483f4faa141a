"""A process that is nothing but a runner: `node_for_tests.py FOLDER LEASE_S [ARGV...]`.

It makes one attempt, of a kind that has a family or of a command, and renews its lease until it is stopped.
"""

import asyncio
import functools
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from node.execution import leftovers, runner
from node.execution.order import Order
from node.runtime.boottime import boottime_s


async def main(folder: Path, lease_s: float, argv: list[str]) -> None:
    # What does not end is told of soon.
    setattr(runner, "kill_attempt", functools.partial(leftovers.kill_attempt, wait_s=0.2))  # noqa: B010  no export of its
    attempts = runner.Runner(folder, lambda event: print(event, flush=True))
    await attempts.start()
    target = "testkit.execution.kinds_for_tests:Act"
    params: dict[str, Any] = {"what": "family"}
    if argv:
        target, params = "tasks.command.kind:Command", {"argv": argv}
    order = Order("task~1", "task", "kind", target, params, 1, 1, 0, None, None, boottime_s() + lease_s)

    def renew() -> None:
        while True:
            attempts.renew(boottime_s() + lease_s)
            time.sleep(lease_s / 8)

    attempts.launch(order)
    threading.Thread(target=renew, daemon=True).start()
    print(os.getpid(), attempts.nursery_pid, flush=True)
    await asyncio.Event().wait()


asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
