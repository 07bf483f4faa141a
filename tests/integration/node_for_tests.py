"""A process that is nothing but a runner: `node_for_tests.py FOLDER LEASE_S`. Renews its lease until it is stopped."""

import asyncio
import os
import sys
import threading
import time
from pathlib import Path

from node.execution.linux import boottime_s
from node.execution.order import Order
from node.execution.runner import Runner


async def main(folder: Path, lease_s: float) -> None:
    runner = Runner(folder, lambda event: print(event, flush=True))
    await runner.start()
    order = Order(
        "task~1", "task", "act", "tests.integration.kinds_for_tests:Act", {"what": "family"}, 1, 1, 0, None, None,
        boottime_s() + lease_s,
    )  # fmt: skip

    def renew() -> None:
        while True:
            runner.renew(boottime_s() + lease_s)
            time.sleep(lease_s / 8)

    runner.launch(order)
    threading.Thread(target=renew, daemon=True).start()
    print(os.getpid(), runner.nursery_pid, flush=True)
    await asyncio.Event().wait()


asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
