"""What it costs that the kernel keeps attempts to what they need (`node.execution.domain`), beside the same without.

    python -m bench.confining [--starts 60] [--rows 2000000] [--turns 3] [--only starts ingest]

`starts`: from the launch of a command, for which a process waits, to its beginning and to its end. `ingest`: CSV files
into a Delta table in a folder, a Spark session's start and all. Attempts of a runner, without a cluster: checkpoints
are answered at once. The ways take turns, the one and then the other first; a ratio is of medians.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from bench.beginning import options_of
from bench.pipelines.rows import COLUMNS, put_csv
from node.execution.attempt_events import AttemptEnded, AttemptStarted, CheckpointAsked, Event
from node.execution.order import AttemptLimits, Order
from node.execution.runner import Runner
from node.runtime.boottime import boottime_s
from spark_tasks.ingest.kind import Ingest
from tasks import landlock
from tasks.access import Access
from tasks.needs import UNCONFINED, Needs

FILES: Final = 72
LEASE_S: Final = 3600.0
SPARE_S: Final = 0.35
"""A process that waits for its attempt is there by then."""


class Attempts:
    """Attempts of a runner in the folder `folder`, one after another."""

    def __init__(self, folder: Path) -> None:
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._access = Access("node-1", (str(folder),), (str(folder),), own=(str(folder / "node"), "/run/secrets"))
        limits = AttemptLimits(landlock=landlock.abi())
        self.runner = Runner(folder / "node", self._events.put_nowait, limits, access=self._access)
        self._number = 0

    async def took_s(self, target: str, params: dict[str, Any], needs: Needs) -> tuple[float, float]:
        """How long an attempt takes until it begins, and until it has ended. It must succeed."""
        self._number += 1
        run_id, deadline_s = f"r~{self._number}", boottime_s() + LEASE_S
        order = Order(
            run_id,
            "r",
            "k",
            target,
            params,
            1,
            self._number,
            0,
            None,
            None,
            deadline_s,
            access=self._access,
            needs=needs,
        )
        launched_s = time.perf_counter()
        self.runner.launch(order)
        began_s = 0.0
        while True:
            match await self._events.get():
                case AttemptStarted():
                    began_s = time.perf_counter() - launched_s
                case CheckpointAsked() as asked:
                    self.runner.checkpoint_done(asked.run_id, asked.token, asked.sequence, "ok")
                case AttemptEnded() as ended:
                    assert ended.end == "succeeded", ended
                    return began_s, time.perf_counter() - launched_s


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parts: dict[str, Callable[[Attempts, Path, Any], Awaitable[None]]] = {"starts": _starts, "ingest": _ingest}
    parser = options_of(__doc__)
    parser.add_argument("--starts", type=int, default=60)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    options = parser.parse_args(arguments)
    print(f"Landlock's ABI is {landlock.abi()} (0: there is none)")
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_measured(parts[name], Path(folder), options))


async def _measured(part: Callable[[Attempts, Path, Any], Awaitable[None]], folder: Path, options: Any) -> None:
    attempts = Attempts(folder)
    await attempts.runner.start()
    try:
        await part(attempts, folder, options)
    finally:
        await attempts.runner.close()


async def _starts(attempts: Attempts, folder: Path, options: Any) -> None:
    ways = {"unconfined": UNCONFINED, "confined": Needs(everything=True)}
    took: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for turn in range(options.starts):
        for way in sorted(ways, reverse=bool(turn % 2)):
            attempts.runner.expect()
            await asyncio.sleep(SPARE_S)
            took[way].append(await attempts.took_s("tasks.command.kind:Command", {"argv": ["date"]}, ways[way]))
    for place, what in enumerate(("begun", "ended")):
        figures = {way: statistics.median(one[place] for one in times) * 1e3 for way, times in took.items()}
        shown = "  ".join(f"{way} p50 {value:5.1f} ms" for way, value in figures.items())
        print(f"a command, launched to {what:6} {shown}", flush=True)


async def _ingest(attempts: Attempts, folder: Path, options: Any) -> None:
    put_csv(folder / "in", options.rows, FILES)
    took: dict[str, list[float]] = {"unconfined": [], "confined": []}
    for turn in range(-1, options.turns):  # the first warms the disk's cache
        for way in sorted(took, reverse=bool(turn % 2)):
            table = f"{folder}/{way}-{turn}"
            params = {"source": f"{folder}/in/*.csv", "format": "csv", "table": table, "columns": COLUMNS}
            needs = UNCONFINED if way == "unconfined" else Ingest.needs(Ingest.Params.model_validate(params), "r")
            _, ended_s = await attempts.took_s("spark_tasks.ingest.kind:Ingest", params, needs)
            if turn >= 0:
                took[way].append(ended_s)
    for way, times in took.items():
        print(f"an ingest of {options.rows:,} rows  {way:11} {statistics.median(times):6.1f} s  {sorted(times)}")
    ratio = statistics.median(took["confined"]) / statistics.median(took["unconfined"])
    print(f"confined beside unconfined: {ratio:.3f}", flush=True)


if __name__ == "__main__":
    main()
