"""Many histories in processes of their own: two, since most machines that test have two cores to spare.

Strings hash alike in all of them, so that a seed is the same history everywhere.
"""

import gc
import json
import os
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, NoReturn

from tests.simulation.history import tell
from tests.simulation.mutants import MUTANTS, SHOWN_BY
from tests.simulation.plan import plan
from tests.simulation.shrink import report

WORKERS = 2
SEARCHED = 300
"""Seeds that are searched for one that shows a mutation, if the known one does not any more."""


@dataclass(frozen=True)
class Line:
    """What a worker says of one history, or of one mutation. `violation` None: nothing is wrong."""

    name: str
    violation: str | None
    counts: Counter[str]
    tried: int = 1


def told(job: str) -> Line:
    """Do one job: a seed, or the name of a mutation."""
    if job in MUTANTS:
        return _mutation(job)
    seed = int(job)
    try:
        history = tell(plan(seed))
    except Exception:
        return Line(job, f"seed {seed} cannot be told: {traceback.format_exc()}", Counter())
    violation = None if history.violation is None else report(plan(seed))
    return Line(job, violation, history.counts)


def _mutation(name: str) -> Line:
    for tried, seed in enumerate([SHOWN_BY[name], *range(SEARCHED)], 1):
        history = tell(plan(seed), MUTANTS[name])
        if history.violation is not None:
            return Line(name, f"seed {seed}: {history.violation}", history.counts, tried)
    return Line(name, None, Counter(), SEARCHED + 1)


def work() -> None:
    """A worker: does the jobs that it reads, one a line, each in a process that is forked for it.

    So nothing is left from one history to the next, and nothing need be collected: that took a quarter of the time.
    """
    os.nice(19)  # histories have clocks of their own: being slow harms none
    tell(plan(0).only(set()))  # what is kept from the first use of things is there for all of them
    gc.freeze()
    gc.disable()
    for job in sys.stdin:
        child = os.fork()
        if child == 0:
            _do(job.strip())
        if os.waitpid(child, 0)[1] != 0:
            raise RuntimeError(f"could not tell {job.strip()}: see above")


def _do(job: str) -> NoReturn:
    status = 1
    try:
        line = told(job)
        print(json.dumps([line.name, line.violation, line.counts, line.tried]), flush=True)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def share(jobs: Sequence[str], each: Callable[[Line], None] = lambda _line: None) -> list[Line]:
    """Have all jobs done; `each` is told of one after the other as they are done. Returns all lines in their order."""
    waiting: SimpleQueue[str | None] = SimpleQueue()
    for job in jobs:
        waiting.put(job)
    lines: list[Line] = []
    with ThreadPoolExecutor(WORKERS) as threads:
        for line in _merged(threads, waiting):
            lines.append(line)
            each(line)
    order = {job: place for place, job in enumerate(jobs)}
    return sorted(lines, key=lambda line: order[line.name])


def _merged(threads: ThreadPoolExecutor, waiting: "SimpleQueue[str | None]") -> Iterator[Line]:
    done: SimpleQueue[Line | None] = SimpleQueue()
    futures = [threads.submit(_feed, waiting, done) for _ in range(WORKERS)]
    for _ in range(WORKERS):
        while (line := done.get()) is not None:
            yield line
    for future in futures:
        future.result()


def _feed(waiting: "SimpleQueue[str | None]", done: "SimpleQueue[Line | None]") -> None:
    """One worker, fed with jobs until there are none left."""
    command = [sys.executable, "-m", "tests.simulation", "--worker"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as one:
            assert one.stdin is not None
            assert one.stdout is not None
            while not waiting.empty():
                one.stdin.write(f"{waiting.get()}\n")
                one.stdin.flush()
                answer = one.stdout.readline()
                if not answer:
                    raise RuntimeError("a worker of the simulation has died: see above")
                done.put(_line(json.loads(answer)))
            one.stdin.close()
    finally:
        done.put(None)


def _line(raw: list[Any]) -> Line:
    name, violation, counts, tried = raw
    return Line(name, violation, Counter(counts), tried)
