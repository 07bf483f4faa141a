"""Repeated faults against a real cluster at work, and what must hold all the same (DESIGN.md, section 6).

    python -m bench.soak [--rounds 20] [--seed N] [--keep]

Each round does something to the nodes (kill -9, SIGSTOP, an orderly restart; one or two at once, the leader among
them, or all), and waits until the cluster is whole again. Meanwhile tasks of every overlap and catch-up policy run
on schedules, long runs save checkpoints, and clients register, change, delete and start tasks. At the end, and
from outside: no two attempts of a run worked at once, every occurrence is there once, tokens only grew, what was
acknowledged is there, all members tell the same, no log line is unexplained, and no process is left. The exit code
is 1 if anything was violated. The seed repeats the faults, not their interleaving with everything else.
"""

import argparse
import random
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.soaking import checks, journal
from bench.soaking.clients import Clients
from bench.soaking.faults import DidNotStop, draw
from bench.soaking.tasks import tasks
from bench.soaking.work import install
from node.cli.local import LocalCluster, NotInTime, wait_for
from node.client import path

WHOLE_S = 60.0
"""The cluster is whole so long after a fault at the latest."""


class Soak:
    """One cluster, its tasks and clients, and what was found wrong so far."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.journal = folder / "journal"
        self.cluster = LocalCluster(folder, 3, env={"PYTHONPATH": install(folder / "kinds")})
        self.specs = tasks(self.journal)
        self.clients = Clients(self.cluster.client, self.journal, random.Random(seed + 1))
        self.found: list[str] = []
        self.slowest_s = 0.0

    def begin(self) -> None:
        """Start the nodes, register the tasks, let the clients go."""
        self.cluster.start()
        self.cluster.wait_until_ready()
        for name, spec in self.specs.items():
            self.cluster.client.call("PUT", path("v1", "tasks", name), body=spec)
        self.clients.start()

        def all_at_work() -> bool:
            return {run["node"] for run in self.cluster.client.items("/v1/runs", state="running")} >= set(names)

        names = self.cluster.names
        wait_for("every node works", all_at_work, WHOLE_S)

    def round(self, number: int) -> bool:
        """One fault, until the cluster is whole again. False if it does not become so."""
        leader = wait_for("a leader", lambda: self.cluster.client.get("/v1/cluster")["leader"])
        said, fault = draw(self.rng, self.cluster.names, leader)
        begun = time.monotonic()
        try:
            fault(self.cluster)
        except (DidNotStop, NotInTime) as error:
            self.found.append(f"round {number} ({said}): {error}")
        mended = time.monotonic()
        try:
            self._wait_until_whole()
        except NotInTime as error:
            self.found.append(f"round {number} ({said}): {error}")
            print(f"{number:4}  {said}: NOT WHOLE AGAIN: {error}", flush=True)
            return False
        whole_s = time.monotonic() - mended
        self.slowest_s = max(self.slowest_s, whole_s)
        time.sleep(self.rng.uniform(0.5, 3.0))
        wrong = self._seen(journal.read(self.journal))
        self.found += wrong
        print(
            f"{number:4}  {said}: {mended - begun:.1f} s of it, whole again after {whole_s:.1f} s"
            + (f", {len(wrong)} VIOLATIONS" if wrong else ""),
            flush=True,
        )
        return not wrong

    def _wait_until_whole(self) -> None:
        end = time.monotonic() + WHOLE_S
        for name in self.cluster.names:
            if (code := self.cluster.exit_code(name)) is not None:
                raise NotInTime(f"{name} has ended by itself, with {code}")
            client = self.cluster.client_of(name, 5)

            def up(client: Any = client) -> bool:
                members = client.get("/v1/members")["items"]
                return bool(client.call("GET", "/readyz")) and all(one["status"] == "up" for one in members)

            wait_for(f"{name} is ready and sees all up", up, max(1.0, end - time.monotonic()), pause_s=0.05)

    def _seen(self, seen: journal.Journal) -> list[str]:
        alone = [name for name, spec in self.specs.items() if spec.get("overlap", "skip") != "allow"]
        anew = [name for name, spec in self.specs.items() if spec.get("failover", {}).get("resume") == "restart"]
        return journal.faults(seen, alone, anew)

    def end(self) -> dict[str, Any]:
        """Let everything come to its end, and look at what is left of it. The runs, by id."""
        self.clients.stop()
        client = self.cluster.client
        for name in self.specs:
            client.call("POST", path("v1", "tasks", name, "pause"))
        paused = checks.now()
        for run in list(client.items("/v1/runs")):
            if run["finished_at"] is None and run["task"].startswith("long"):
                client.call("DELETE", path("v1", "runs", run["run_id"]))
        self.found += checks.settled(self.cluster)
        runs = {run["run_id"]: client.get(path("v1", "runs", run["run_id"])) for run in client.items("/v1/runs")}
        seen = journal.read(self.journal)
        claimed = {run: {attempt["token"] for attempt in told["attempts"]} for run, told in runs.items()}
        self.found += self._seen(seen)
        self.found += journal.against(seen, runs, claimed)
        self.found += checks.tokens(runs.values())
        self.found += checks.promises(self.cluster, self.clients.promises, runs)
        for task in client.items("/v1/tasks"):
            if task["schedule"] is not None:
                self.found += checks.occurrences(task, runs.values(), paused)
        return runs

    def close(self) -> None:
        """Stop the clients and the nodes, and look for what they left."""
        self.clients.stop()
        self.cluster.stop()
        self.found += checks.leftovers(self.cluster.folder)

    def summary(self, runs: dict[str, Any]) -> None:
        """Print what happened."""
        seen = journal.read(self.journal)
        told = self.clients.promises
        states: dict[str, int] = {}
        for run in runs.values():
            states[run["state"]] = states.get(run["state"], 0) + 1
        lost = sum(attempt["state"] == "orphaned" for run in runs.values() for attempt in run["attempts"])
        print(f"runs: {len(runs)} ({', '.join(f'{count} {state}' for state, count in sorted(states.items()))})")
        print(f"attempts at work: {len(seen.attempts)}, in {seen.lines:,} lines; lost and taken over: {lost}")
        print(
            f"promised: {len(told.there)} tasks, {len(told.gone)} deletions, counter {told.counted} of {told.tried}, "
            f"{len(told.runs)} runs by hand; unknown: {len(told.perhaps)} tasks"
        )
        print(f"whole again after a fault: {self.slowest_s:.1f} s at the most")
        expected, unexplained = checks.logs(self.cluster)
        for pattern, count in expected.most_common():
            print(f"log, as expected: {count} x {pattern}")
        self.found += [f"unexplained: {line}" for line in unexplained]


def main(arguments: list[str] | None = None) -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None, help="draws the faults; printed")
    parser.add_argument("--keep", action="store_true", help="keep the folder, also if all was well")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="rota-soak-"))
    print(f"soak: {options.rounds} rounds, --seed {seed}, in {folder}", flush=True)
    soak = Soak(folder, seed)
    runs: dict[str, Any] = {}
    try:
        soak.begin()
        if all(soak.round(number) for number in range(1, options.rounds + 1)):
            runs = soak.end()
    finally:
        soak.close()
    soak.summary(runs)
    for line in soak.found:
        print(f"VIOLATION {line}", flush=True)
    print(f"soak: {len(soak.found)} violations in {options.rounds} rounds, seed {seed}", flush=True)
    if soak.found or options.keep:
        print(f"what the nodes said and kept is in {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return 1 if soak.found else 0


if __name__ == "__main__":
    sys.exit(main())
