"""Duties of several members against one log, over seeded histories of crashes, lapses, drains and changes.

DESIGN.md, sections 6 and 8. A failure prints its seed; replay it with
`pytest tests/simulation/test_duty.py -k "history and SEED"`.
"""

import random
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from node.duty.step import HandOver
from node.state.entries import (
    Cancel,
    Checkpoint,
    Claim,
    DeleteTask,
    Drain,
    Enqueue,
    Entry,
    Finish,
    PassOver,
    Pause,
    Put,
    PutTasks,
    Start,
)
from node.state.value import Ended, Result, Run, State, TaskRow
from tasks.policy import KEPT
from tasks.run import HELD
from tasks.schedule import occurrences
from tasks.spec import Spec
from tests.simulation.cluster import MS, Cluster, Node, Owners, S

SCHEDULES: tuple[dict[str, Any] | None, ...] = (
    {"every_s": 1},
    {"every_s": 2.5},
    {"every_s": 7},
    {"cron": "*/5 * * * * *"},
    {"cron": "* * * * *", "timezone": "Europe/Paris"},
    None,
)


class Checks:
    """What must hold of every entry that is applied, and at the end."""

    def __init__(self) -> None:
        self.fates: Counter[str] = Counter()
        self.recorded: Counter[tuple[int, str]] = Counter()
        self.settled: dict[int, set[int]] = {}
        self.finals: dict[str, str] = {}
        self.checkpoints: dict[str, bytes] = {}
        self.resumed = 0

    def entry(self, before: State, entry: Entry, result: Result, after: State, ended: tuple[Ended, ...]) -> None:
        if result.ok and isinstance(entry, Claim | Enqueue | PassOver):
            self._occurrences(before, entry, after)
        if result.ok and isinstance(entry, Claim):
            self._claim(before, entry, after)
        if isinstance(entry, Checkpoint | Finish) and not result.ok:
            run = before.runs.get(entry.run_id)
            assert run is None or run.token != entry.token or run.state not in HELD, (entry, result)
        if isinstance(entry, Checkpoint) and result.ok:
            self.checkpoints[entry.run_id] = entry.data
        for one in ended:
            assert one.run.run_id not in self.finals, f"{one.run.run_id} ended twice"
            self.finals[one.run.run_id] = one.state
            self.fates[one.state] += 1
            row = before.tasks.get(one.run.task)
            if one.state in ("skipped", "missed") and row is not None:
                self.recorded[row.order, one.state] += 1

    def _occurrences(self, before: State, entry: Claim | Enqueue | PassOver, after: State) -> None:
        """Each due occurrence is settled once, in order, and none is left out."""
        row = before.tasks[entry.task]
        times: tuple[int, ...]
        if isinstance(entry, Claim):
            times = () if entry.run_id is not None else (entry.fire_at_us,)
        else:
            times = tuple(one for one in entry.fire_at_us if one > row.through_us)
        expected = islice(occurrences(row.spec.schedule, row.since_us, row.through_us), len(times))
        assert times == tuple(expected), f"an occurrence of {entry.task} was left out: {entry}"
        known = self.settled.setdefault(row.order, set())
        assert not known & set(times), f"an occurrence of {entry.task} was settled twice: {entry}"
        known.update(times)
        if times:
            assert after.tasks[entry.task].through_us >= times[-1]
        waiting = sum(after.runs[one].state == "waiting" for one in after.runs_of.get(entry.task, ()))
        assert waiting <= KEPT

    def _claim(self, before: State, entry: Claim, after: State) -> None:
        row = before.tasks[entry.task]
        active = [before.runs[one] for one in before.runs_of.get(entry.task, ())]
        if row.spec.overlap != "allow":
            held = [one for one in after.runs_of[entry.task] if after.runs[one].state in HELD]
            assert len(held) == 1, f"{entry.task} runs beside itself: {held}"
            run = before.runs.get(entry.run_id or "")
            if run is not None and run.state == "waiting":
                assert active[0] is run, f"{run.run_id} was claimed before {active[0].run_id}"
        else:
            assert entry.run_id is None or before.runs[entry.run_id].state not in HELD

    def launch(self, cluster: Cluster, node: Node, run: Run) -> None:
        """What is launched is the run's present attempt, nobody else works on it, and it goes on where it was."""
        now = cluster.state.runs.get(run.run_id)
        assert node.lease is not None
        assert now is not None
        assert now.state in HELD, "an attempt that was lost is launched"
        assert (now.node, now.token) == (node.id, run.token), "an attempt that was taken over is launched"
        for other in cluster.nodes.values():
            work = other.work.get(run.run_id)
            assert work is None or work.ended or other.lease is None, f"{run.run_id} is at work twice"
        if run.spec.failover.resume == "checkpoint":
            assert run.checkpoint == self.checkpoints.get(run.run_id)
        self.resumed += run.orphanings > 0 and run.checkpoint is not None

    def hand_over(self, cluster: Cluster, node: Node, order: HandOver) -> None:
        """As the member sees it: two at a time, and no failover waits."""
        state = node.duty._state
        owners = Owners(tuple(sorted(one.id for one in state.members.values() if one.status == "up")))
        lost = [run for run in state.runs.values() if run.state == "orphaned" and owners.owner(run.task) is not None]
        assert not [run for run in lost if run.due_us <= cluster.now_us], "handed over while a failover waits"
        under_way = {one for one in node.handing_over if one[0] in node.work and node.work[one[0]].token == one[1]}
        assert len(under_way | {(order.run_id, order.token)}) <= 2


class History:
    """One seeded history."""

    def __init__(self, seed: int, members: str, *, lag_us: int = 30 * MS) -> None:
        self.rng = random.Random(seed)
        self.checks = Checks()
        self.cluster = Cluster(self.rng, members, self.checks.entry, lag_us=lag_us)
        self.cluster.launched = lambda node, run: self.checks.launch(self.cluster, node, run)
        self.cluster.handed = lambda node, order: self.checks.hand_over(self.cluster, node, order)
        self.specs = [self._spec(number) for number in range(16)]
        self.specs += [self._spec(number, name=f"continuous-{number}", continuous=True) for number in range(6)]
        self.specs.append(self._spec(0, name="nobody-may"))

    def _spec(self, number: int, name: str | None = None, *, continuous: bool = False) -> Spec:
        pick = self.rng.choice
        return Spec.model_validate(
            {
                "name": name or f"task-{number}",
                "kind": "command",
                "schedule": {"continuous": True} if continuous else SCHEDULES[number % len(SCHEDULES)],
                "overlap": ("skip", "queue", "replace", "allow")[number % 4],
                "catch_up": ("skip", "latest", "all")[number % 3],
                "retry": {"attempts": pick((1, 2, 3)), "backoff_s": pick((0, 1, 5))},
                "failover": {
                    "grace_s": pick((0, 0, 3)),
                    "resume": pick(("checkpoint", "checkpoint", "restart", "abandon")),
                    "max": pick((2, 5)),
                },
            }
        )

    def put(self, *specs: Spec) -> None:
        puts = tuple(Put(spec.pack()) for spec in specs)
        assert self.cluster.apply(PutTasks(self.cluster.now_us, puts)).ok

    def begin(self) -> None:
        for node in self.cluster.nodes.values():
            self.cluster.start(node)
        self.put(*self.specs)

    def trouble(self, seconds: int) -> None:
        """Let clients and faults do as they please for so long."""
        end_us = self.cluster.now_us + seconds * S
        while self.cluster.now_us < end_us:
            self.cluster.run_until(self.cluster.now_us + self.rng.randint(50 * MS, 1500 * MS))
            self.rng.choice((self._client, self._client, self._fault))()

    def _client(self) -> None:
        cluster, rng, now_us = self.cluster, self.rng, self.cluster.now_us
        task = rng.choice(self.specs).name
        runs = sorted(cluster.state.runs)
        actions: list[Callable[[], Any]] = [
            lambda: cluster.apply(Start(now_us, task)),
            lambda: cluster.apply(Start(now_us, task)),
            lambda: cluster.apply(Pause(now_us, task, on=True)),
            lambda: cluster.apply(Pause(now_us, task, on=False)),
            lambda: cluster.apply(Pause(now_us, task, on=False)),
            lambda: cluster.apply(DeleteTask(now_us, task)),
            lambda: self.put(*self.specs),
            lambda: self.put(self._spec(rng.randrange(16))),
            lambda: runs and cluster.apply(Cancel(now_us, rng.choice(runs))),
        ]
        rng.choice(actions)()

    def _fault(self) -> None:
        cluster, rng = self.cluster, self.rng
        node = rng.choice(list(cluster.nodes.values()))
        if not node.alive:
            cluster.start(node)
            return
        drained = cluster.state.members[node.id].drained
        actions: list[Callable[[], Any]] = [
            lambda: cluster.kill(node),
            lambda: cluster.lapse(node),
            lambda: cluster.lapse(node),
            lambda: cluster.apply(Drain(cluster.now_us, node.id, on=not drained)),
        ]
        rng.choice(actions)()

    def outage(self, seconds: int) -> None:
        """All members are down for so long: what falls due is for catch-up to settle."""
        for node in self.cluster.nodes.values():
            if node.alive:
                self.cluster.kill(node)
        self.cluster.run_until(self.cluster.now_us + seconds * S)

    def calm(self, seconds: int) -> None:
        """Everybody comes back, but for one that dies now; nobody asks for anything."""
        cluster = self.cluster
        cluster.calm = True
        for node in cluster.nodes.values():
            if not node.alive:
                cluster.start(node)
            if cluster.state.members[node.id].drained:
                cluster.apply(Drain(cluster.now_us, node.id, on=False))
        cluster.run_until(cluster.now_us + 5 * S)
        cluster.kill(self.rng.choice(list(cluster.nodes.values())))
        cluster.run_until(cluster.now_us + seconds * S)

    def nothing_is_stuck(self) -> None:
        cluster = self.cluster
        state, now_us = cluster.state, cluster.now_us
        for run in state.runs.values():
            if run.task.startswith("nobody"):
                continue
            assert run.state != "orphaned" or run.due_us > now_us - S, f"nobody takes up {run}"
            if run.state in HELD:
                assert run.node is not None
                work = cluster.nodes[run.node].work.get(run.run_id)
                assert (work is not None and work.token == run.token) or run.attempts[-1].claimed_at_us > now_us - S
        for node in cluster.nodes.values():
            assert not node.waiting or len(node.work) > node.places / 2, f"{node.waiting} wait for places that are free"
        for name, row in state.tasks.items():
            if not any(name in node.waiting for node in cluster.nodes.values()):
                self._is_served(state, name, row, now_us)
            assert row.skipped == self.checks.recorded[row.order, "skipped"], name
            assert row.missed == self.checks.recorded[row.order, "missed"], name

    def _is_served(self, state: State, name: str, row: TaskRow, now_us: int) -> None:
        """Nothing of a task that could be dealt with is left lying."""
        active = [state.runs[one] for one in state.runs_of.get(name, ())]
        if name.startswith("nobody"):
            return
        lately = row.last is not None and row.last.finished_at_us > now_us - S
        if not lately and not any(run.state in HELD for run in active):
            assert not active or active[0].due_us > now_us - S, f"nobody claims {active[0]}"
        if row.paused or not row.spec.enabled or (active and row.spec.overlap in ("replace", "queue")):
            return
        due_us = next(occurrences(row.spec.schedule, row.since_us, row.through_us), None)
        if row.spec.continuous:
            assert due_us is None or active or (row.last is not None and row.last.finished_at_us > now_us - 6 * S)
            return
        assert due_us is None or due_us > now_us - S, f"nobody deals with {name} of {(now_us - due_us) / S} s ago"

    def queues_run_dry(self) -> None:
        """With no new work, all that waits is run, in the end."""
        cluster = self.cluster
        for name in sorted(cluster.state.tasks):
            cluster.apply(Pause(cluster.now_us, name, on=True))
        cluster.run_until(cluster.now_us + 400 * S)
        left = [run for run in cluster.state.runs.values() if not run.task.startswith("nobody")]
        left = [run for run in left if not (run.spec.continuous and run.state in HELD)]
        assert not left, left


@pytest.mark.parametrize(("seed", "members"), [(seed, ("abc", "abcde", "abcd")[seed % 3]) for seed in range(6)])
def test_history(seed: int, members: str) -> None:
    print(f"seed {seed}, members {members}")
    history = History(seed, members)
    history.begin()
    history.trouble(60)
    history.outage(150)
    history.trouble(40)
    history.calm(30)
    history.nothing_is_stuck()
    history.queues_run_dry()
    fates = history.checks.fates
    assert all(fates[state] for state in ("succeeded", "failed", "cancelled", "skipped", "missed")), fates
