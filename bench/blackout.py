"""kill -9 of all nodes at once, again and again, under writes: what was acknowledged is there, and all come up.

    python -m bench.blackout [--rounds 50] [--nodes 3] [--seed N]

A client for each node registers and changes tasks through it over HTTP, one after another and without a pause, each
with a number that only grows. After each blackout every node must become ready, and every node must tell, of every
task, the number that was last acknowledged, or a later one that was asked for. The exit code is 1 if one did not.
"""

import random
import secrets
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from bench.beginning import options_of
from node.cli.local import LocalCluster, NotInTime, wait_for
from node.client import ApiProblem, Client, Unreachable, path

READY_S = 60.0
TASKS_MAX = 200
"""Of each writer."""


@dataclass
class Promise:
    """What a task's number must be: at least what was acknowledged, at most what was asked for."""

    acknowledged: int = 0
    asked: int = 0


@dataclass
class Writer:
    """Writes through one node. `promises` by task; `written` counts the acknowledged writes."""

    node: str
    client: Client
    rng: random.Random
    promises: dict[str, Promise] = field(default_factory=dict)
    written: int = 0
    refused: str = ""

    def write(self) -> None:
        """One write, new task or changed one."""
        name = f"{self.node}.{self.rng.randrange(TASKS_MAX)}"
        promise = self.promises.setdefault(name, Promise())
        promise.asked += 1
        spec = {"kind": "command", "params": {"argv": ["echo", str(promise.asked)]}}
        try:
            self.client.call("PUT", path("v1", "tasks", name), body=spec)
        except Unreachable:
            time.sleep(0.02)  # it is dead, or not there yet
        except ApiProblem as problem:
            if problem.status not in (503, 504):
                self.refused = f"{name}: {problem}"
            time.sleep(0.02)
        else:
            promise.acknowledged = promise.asked
            self.written += 1


class Blackout:
    """A cluster, its writers, and what was found wrong. `ready_s`: how long it took after each blackout."""

    def __init__(self, folder: Path, nodes: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = LocalCluster(folder, nodes)
        names = self.cluster.names
        self.writers = [
            Writer(name, self.cluster.client_of(name, 5), random.Random(f"{seed} {name}")) for name in names
        ]
        self.found: list[str] = []
        self.ready_s: list[float] = []

    @property
    def written(self) -> int:
        """How many writes were acknowledged."""
        return sum(writer.written for writer in self.writers)

    def begin(self) -> None:
        """Start the nodes."""
        self.cluster.start()
        self.cluster.wait_until_ready(deadline_s=READY_S)

    def round(self) -> bool:
        """Write, kill all, start all, look. Whether all was well."""
        self._write_until_killed()
        begun = time.monotonic()
        self.cluster.start()
        try:
            self.cluster.wait_until_ready(deadline_s=READY_S)
        except NotInTime as error:
            self.found.append(str(error))
            return False
        self.ready_s.append(time.monotonic() - begun)
        wrong = [line for name in self.cluster.names for line in self._missing(name)]
        wrong += [writer.refused for writer in self.writers if writer.refused]
        self.found += wrong
        return not wrong

    def _write_until_killed(self) -> None:
        over = threading.Event()

        def write_on(writer: Writer) -> None:
            while not over.is_set():
                writer.write()

        threads = [threading.Thread(target=write_on, args=(writer,), daemon=True) for writer in self.writers]
        before = {writer.node: writer.written for writer in self.writers}
        for thread in threads:
            thread.start()
        try:
            wait_for(
                "every node acknowledges writes",
                lambda: all(writer.written > before[writer.node] + 3 for writer in self.writers),
                READY_S,
            )
            time.sleep(self.rng.uniform(0.0, 1.0))
        finally:
            names = list(self.cluster.names)
            self.rng.shuffle(names)
            self.cluster.kill_at_once(*names)
            over.set()
            for thread in threads:
                thread.join()

    def _missing(self, name: str) -> list[str]:
        told = {
            task["name"]: int(task["params"]["argv"][1])
            for task in self.cluster.client_of(name).items("/v1/tasks", consistent="true")
        }
        found = []
        for writer in self.writers:
            for task, promise in writer.promises.items():
                number = told.get(task, 0)
                if not promise.acknowledged <= number <= promise.asked:
                    found.append(f"{name} tells {number} of {task}: acknowledged {promise.acknowledged}")
        return found


def main(arguments: list[str] | None = None) -> int:
    """Run it; the exit code."""
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="rota-blackout-"))
    print(f"blackout: {options.rounds} rounds, --seed {seed}, in {folder}", flush=True)
    blackout = Blackout(folder, options.nodes, seed)
    with blackout.cluster:
        blackout.begin()
        for number in range(1, options.rounds + 1):
            well = blackout.round()
            ready = f"all ready after {blackout.ready_s[-1]:.1f} s" if blackout.ready_s else "not ready"
            print(f"{number:4}  {blackout.written} writes acknowledged so far; {ready}", flush=True)
            if not well:
                break
    for line in blackout.found:
        print(f"LOST {line}", flush=True)
    times = sorted(blackout.ready_s) or [0.0]
    print(
        f"blackout: {blackout.written} acknowledged writes, {len(blackout.found)} lost, in {len(blackout.ready_s)} "
        f"blackouts; ready again after {times[len(times) // 2]:.1f} s (median), {times[-1]:.1f} s (worst); seed {seed}"
    )
    if blackout.found:
        print(f"what the nodes said and kept is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
