"""One trial: a cluster at work under clients, round after round of faults, and what was found wrong."""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from bench.chaos import asking
from bench.chaos.caretaker import Caretaker
from bench.chaos.checker import attempts, endings, excuses, occurrences, promises, work
from bench.chaos.checker.verdict import Verdict, nothing_judged
from bench.chaos.clients import Clients
from bench.chaos.cluster import HarmedCluster
from bench.chaos.deck import Deck, Planned
from bench.chaos.disk_watch import DiskWatch
from bench.chaos.faults.fault import DidNotStop, ask
from bench.chaos.observer import Observer, now_s
from bench.chaos.records import Records
from bench.chaos.recovery import Struck
from bench.chaos.tasks import ENDS, LONG, NEEDED, tasks
from node.cli.local import NotInTime, wait_for
from node.client import Client, path
from testkit.agreement import tokens

WHOLE_S: Final = 120.0
"""The cluster is whole so long after its mending at the latest, on a machine that is busy with other things too."""

CALM_EVERY: Final = 5
CALM_S: Final = 20.0
"""Every so many rounds nothing is done for so long: whatever goes wrong then has no fault to be excused by."""


class Trial:
    """One cluster, its tasks and clients, and what was found wrong so far."""

    def __init__(self, cluster: HarmedCluster, deck: Deck, seed: int) -> None:
        self.cluster = cluster
        self.deck = deck
        self.folder = cluster.folder / "records"
        self.folder.mkdir()
        self.records = Records()
        self.specs = tasks(self.folder)
        self.clients = Clients(cluster.clients(), self.folder, random.Random(seed + 1))
        self.observer = Observer(cluster)
        self.caretaker = Caretaker(cluster)
        self.disk_watch = DiskWatch(self.folder.parent)
        self.clock = occurrences.Clock(asking.now(), now_s())
        self.begun_s = self.ready_s = self.over_s = now_s()
        self.struck: list[Struck] = []
        self.found: list[str] = []
        self.runs: dict[str, Any] = {}
        self.verdict = Verdict()
        self.excuses = excuses.Excuses()
        self._pause = random.Random(seed + 2)
        self._lines: dict[tuple[str, str], int] = {}
        """By kind of fault and victim: how long its log was when that first struck it."""

    def begin(self) -> None:
        """Start the nodes, register the tasks, let the clients go. Raises `NotInTime`."""
        self.cluster.start()
        self.cluster.wait_until_ready(deadline_s=WHOLE_S)
        self.observer.start()
        self.caretaker.start()
        self.disk_watch.start()
        for name, spec in self.specs.items():
            self.cluster.client.call("PUT", path("v1", "tasks", name), body=spec)
        self.clients.start()

        def all_at_work() -> bool:
            return {run["node"] for run in self.cluster.client.items("/v1/runs", state="running")} >= set(names)

        names = self.cluster.names
        wait_for("every node works", all_at_work, WHOLE_S)
        self.ready_s = now_s()

    def round(self, number: int) -> bool:
        """The faults of a round, until the cluster is whole again. False if it does not become so."""
        leader = wait_for("a leader", lambda: self.cluster.client.get("/v1/cluster")["leader"], WHOLE_S)
        planned = self.deck.deal(number - 1, self.cluster.names, leader)
        struck = self._strike(number, planned)
        mended_s = now_s()
        try:
            self._wait_until_whole()
        except NotInTime as error:
            self._say(struck, f"NOT WHOLE AGAIN: {error}")
            self.found.append(f"round {number} ({' + '.join(one.said for one in struck)}): {error}")
            return False
        whole_s = now_s()
        for one in struck:
            one.whole_s = whole_s
        time.sleep(CALM_S if number % CALM_EVERY == 0 else self._pause.uniform(0.5, 3.0))
        self.records.read(self.folder)
        wrong = [line for line in self._overlaps() if line not in self.found]
        self.found += wrong
        self._say(
            struck,
            f"{mended_s - struck[0].struck_s:.1f} s of it, whole again after {whole_s - mended_s:.1f} s"
            + (f", {len(wrong)} VIOLATIONS" if wrong else ""),
        )
        return True

    def _say(self, struck: Sequence[Struck], text: str) -> None:
        minutes, seconds = divmod(int(now_s() - self.begun_s), 60)
        print(
            f"{minutes:3}:{seconds:02} {struck[0].round:4}  {' + '.join(one.said for one in struck)}: {text}",
            flush=True,
        )

    def _strike(self, number: int, planned: Sequence[Planned]) -> list[Struck]:
        """Do all of it, in the order of its times."""
        begun_s = now_s()
        struck = [Struck(number, each.fault.kind, each.fault.said, each.fault.victims, begun_s) for each in planned]
        self.struck += struck
        acts: list[tuple[float, Callable[[], None]]] = []
        for each, one in zip(planned, struck, strict=True):
            acts.append((each.after_s, lambda each=each, one=one: self._begin(each, one)))  # type: ignore[misc]
            acts.append((each.after_s + each.fault.hold_s, lambda each=each, one=one: self._end(each, one)))  # type: ignore[misc]
        for at_s, act in sorted(acts, key=lambda one: one[0]):
            time.sleep(max(0.0, begun_s + at_s - now_s()))
            act()
        return struck

    def _begin(self, each: Planned, one: Struck) -> None:
        one.struck_s = now_s()
        for victim in each.fault.victims:
            self._lines.setdefault((one.kind, victim), asking.lines(self.cluster, victim))
        self._try(each, one, each.fault.strike)

    def _end(self, each: Planned, one: Struck) -> None:
        self._try(each, one, each.fault.mend)
        one.mended_s = now_s()

    def _try(self, each: Planned, one: Struck, act: Callable[[HarmedCluster], None]) -> None:
        try:
            act(self.cluster)
        except (DidNotStop, NotInTime) as error:
            self.found.append(f"round {one.round} ({each.fault.said}): {error}")

    def _wait_until_whole(self) -> None:
        end = time.monotonic() + WHOLE_S
        for name in self.cluster.names:
            client = self.cluster.client_of(name, 5)

            def up(client: Client = client) -> bool:
                if any(self.cluster.exit_code(one) is not None for one in self.cluster.names):
                    return False  # it has ended by itself, and is about to be started again
                members = client.get("/v1/members")["items"]
                return bool(client.call("GET", "/readyz")) and all(one["status"] == "up" for one in members)

            wait_for(f"{name} is ready and sees all up", up, max(1.0, end - time.monotonic()), pause_s=0.05)

    def _overlaps(self) -> list[str]:
        alone = [name for name, spec in self.specs.items() if spec.get("overlap", "skip") != "allow"]
        anew = [name for name, spec in self.specs.items() if spec.get("failover", {}).get("resume") == "restart"]
        return work.overlaps(self.records, alone, anew)

    def end(self) -> None:
        """Let everything come to its end, and look at what is left of it."""
        self.clients.stop()
        client = self.cluster.client
        for name in self.specs:
            ask(self.cluster, "POST", path("v1", "tasks", name, "pause"))
        paused, self.over_s = asking.now(), now_s()
        wait_for("the long runs are cancelled", self._cancel_long, WHOLE_S)
        self.found += asking.settled(self.cluster)
        runs = {run["run_id"]: client.get(path("v1", "runs", run["run_id"])) for run in client.items("/v1/runs")}
        self.runs = runs
        self.records.read(self.folder)
        claimed = {run: {attempt["token"] for attempt in told["attempts"]} for run, told in runs.items()}
        self.found += [line for line in self._overlaps() if line not in self.found]
        self.found += work.against(self.records, runs, claimed)
        self.found += tokens(runs.values())
        there = {task["name"]: task for task in client.items("/v1/tasks")}
        length_s = self.over_s - self.ready_s
        self.found += promises.promises(self.clients.promises, there, runs)
        self.found += promises.nothing_promised(self.clients.promises, length_s)
        self.verdict = self._judge(there, runs.values(), paused)
        self.found += self.verdict.found
        scheduled = {name: spec["schedule"] for name, spec in self.specs.items() if "schedule" in spec}
        steady = [name for name, schedule in scheduled.items() if "continuous" in schedule]
        self.found += nothing_judged(self.verdict, scheduled.keys() - steady, steady, length_s)
        self.found += endings.never(runs.values(), NEEDED, length_s)

    def _judge(self, there: Mapping[str, Any], runs: Collection[Mapping[str, Any]], paused: datetime) -> Verdict:
        """Whether all was done that was due, when it was. `there`: the tasks by name."""
        sights = {name: list(seen) for name, seen in self.observer.sights.items()}
        worked, end_s = self.records.by_run, now_s()
        troubled = [(self.begun_s, self.ready_s), *excuses.troubles(self.struck, end_s)]
        self.excuses = spans = excuses.Excuses(
            excuses.joined(
                [
                    *excuses.excused(sights, troubled, self.begun_s, end_s),
                    *excuses.hung_disks(self.struck),
                    *excuses.stalled(self.disk_watch.stalls),
                ]
            ),
            excuses.full(self.records.attempts.values(), self.cluster.places),
            excuses.slow(self.struck),
            excuses.full_disks(self.struck),
        )
        verdict = endings.endings(runs, ENDS, LONG, self.clock, spans)
        for name in self.specs:
            task = there.get(name)
            if task is None:
                verdict.found.append(f"{name} was registered, and is not there")
                continue
            verdict += attempts.in_time(task, runs, worked, self.clock, spans)
            if task["schedule"] is None:
                continue
            verdict += occurrences.occurrences(task, runs, paused, self.clock, spans)
            if "continuous" in task["schedule"]:
                begin_s = self.clock.told(task, "registered_at")
                verdict += attempts.continuous(name, self.records.attempts.values(), begin_s, self.over_s, spans)
        return verdict

    def _cancel_long(self) -> bool:
        client = self.cluster.client
        for name in LONG:
            for run in list(client.items(path("v1", "tasks", name, "runs"))):
                if run["finished_at"] is None:
                    client.call("DELETE", path("v1", "runs", run["run_id"]))
        return True

    def close(self) -> None:
        """Stop the clients and the nodes, and look for what they left."""
        self.clients.stop()
        self.observer.stop()
        self.caretaker.stop()
        self.disk_watch.stop()
        self.cluster.stop()
        self.found += asking.unasked(self.caretaker.ended, self.struck)
        self.found += self.clients.found + self.observer.found + self.caretaker.found + self.disk_watch.found
        self.records.read(self.folder)
        self.found += self.records.torn
        self.found += asking.leftovers(self.cluster.folder)
        self.expected, unexplained = asking.logs(self.cluster, self._lines, stalled=bool(self.disk_watch.stalls))
        self.found += unexplained
        self.cluster.close()
