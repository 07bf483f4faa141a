"""What clients ask of a cluster while it is in trouble. Each asks one member, and again when it does not know."""

from collections.abc import Callable
from functools import partial
from typing import Any

from node.raft.errors import RaftError
from node.state.attempts import Cancel
from node.state.channel import Channel
from node.state.entries import Entry
from node.state.occurrences import Start
from node.state.registry import DeleteTask, Pause, Put, PutTasks
from node.state.settings import ChangeSettings
from node.state.telling import PutChannel
from node.state.value import Result
from tasks.definition.spec import Spec
from tests.simulation.cluster import Cluster
from tests.simulation.plan import Fault
from tests.simulation.process import Process
from tests.simulation.receivers import ASKED_FOR, CHANNELS, DAILY, DAILY_CHANNEL
from tests.simulation.world import BEGUN_US

SCHEDULES: tuple[dict[str, Any] | None, ...] = (
    {"every_s": 3},
    {"every_s": 5},
    {"cron": "*/5 * * * * *"},
    {"every_s": 6.5},
    None,
    {"continuous": True},
    {"continuous": True},
)
DEADLINES: tuple[dict[str, float], ...] = (
    {"start_within_s": 2, "finish_within_s": 6},
    {"success_every_s": 12},
    {"start_within_s": 3, "finish_within_s": 8, "success_every_s": 20},
    {"finish_within_s": 5},
    {"start_within_s": 2, "finish_within_s": 5},
    {"start_within_s": 3},
    {"success_every_s": 15},
)
TASKS = len(SCHEDULES)
ASK_S = 2.0
TRIES = 3


class Clients:
    """The tasks of a history, and the clients that change them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._rng = cluster, cluster.world.rng
        self._turn = self._rng.randrange(4)
        self.specs = [self._spec(number) for number in range(TASKS)]
        self._keys = 0
        self.at_the_end: list[Callable[[], None]] = []
        """What is done, beside the pauses, so that all runs can come to their end."""

    def _spec(self, number: int, **changed: Any) -> Spec:
        """Overlap and catch-up of a task stay what they are, so that what became of its occurrences can be judged."""
        pick = self._rng.choice
        return Spec.model_validate(
            {
                "name": f"t{number}",
                "kind": "command",
                "schedule": SCHEDULES[number],
                "overlap": ("skip", "queue", "replace", "allow")[(number + self._turn) % 4],
                "catch_up": ("skip", "latest", "all")[number % 3],
                "retry": {"attempts": pick((1, 2, 3)), "backoff_s": pick((0, 1))},
                "failover": {
                    "grace_s": pick((0, 0, 0, 2)),
                    "resume": pick(("checkpoint", "checkpoint", "checkpoint", "restart", "abandon")),
                    "max": pick((2, 5)),
                },
                "timeout_s": pick((None, None, 4.0)),
                "pin": pick((None, None, None, "n1")),
                "deadlines": DEADLINES[number],
                **changed,
            }
        )

    def begin(self) -> None:
        """Register all of them, as soon as that can be done."""
        self.insist(lambda at_us: PutTasks(at_us, tuple(Put(spec.pack()) for spec in self.specs)), 20)

    def make_channels(self) -> None:
        """Have notices told."""
        self._put_channels(CHANNELS)

    def make_channels_asked_for(self) -> None:
        """Have told what is told only where it is asked for."""
        self._put_channels(ASKED_FOR)
        for name, at_s in DAILY.items():
            self.later(at_s, partial(self._make_daily, name))

    def _make_daily(self, name: str) -> None:
        """Make a channel as if that had been asked for an hour before the history began."""
        put = PutChannel(BEGUN_US - 3_600_000_000, name, DAILY_CHANNEL.pack())
        self.insist(lambda _at_us: put, 20)

    def _put_channels(self, channels: dict[str, Channel]) -> None:
        for name, channel in channels.items():
            self.insist(partial(PutChannel, name=name, packed=channel.pack()), 20)

    def pause_all(self) -> None:
        """Nothing falls due any more, but after what has begun."""
        for act in self.at_the_end:
            act()
        for task, row in sorted(self._cluster.ledger.state.tasks.items()):
            if row.spec.schedule is not None or not row.spec.after:
                self._pause(task)

    def _pause(self, task: str) -> None:
        self.insist(lambda at_us: Pause(at_us, task, on=True), 10)

    # -- what a plan names

    def start(self, fault: Fault) -> None:
        """A run by hand, asked for again under its key while it is not known whether it was taken."""
        self._keys += 1
        task, key = self._task(fault), f"key-{self._keys}" if fault.much < 0.5 else None
        self.ask(fault, lambda at_us: Start(at_us, task, key=key))

    def cancel(self, fault: Fault) -> None:
        """A run is to end."""
        runs = sorted(self._cluster.ledger.state.runs)
        if runs:
            run_id = runs[fault.other % len(runs)]
            self.ask(fault, lambda at_us: Cancel(at_us, run_id))

    def change(self, fault: Fault) -> None:
        """Another definition of a task."""
        number = fault.other % TASKS
        weight = 1 + int(3 * fault.much)
        spec = self._spec(number, weight=weight)
        if fault.much < 0.4 and SCHEDULES[number] is not None and "every_s" in (SCHEDULES[number] or {}):
            spec = self._spec(number, weight=weight, schedule={"every_s": 1 + round(4 * fault.much, 1)})
        elif fault.much > 0.8:
            spec = self._spec(number, weight=weight, deadlines={"finish_within_s": round(10 * fault.much)})
        self.ask(fault, lambda at_us: PutTasks(at_us, (Put(spec.pack()),)))

    def register(self, fault: Fault) -> None:
        """All tasks as they were at first: what has been deleted is there again."""
        specs = self.specs
        self.ask(fault, lambda at_us: PutTasks(at_us, tuple(Put(spec.pack()) for spec in specs)))

    def delete(self, fault: Fault) -> None:
        """A task goes."""
        task = self._task(fault)
        self.ask(fault, lambda at_us: DeleteTask(at_us, task))

    def pause_task(self, fault: Fault) -> None:
        """Nothing of a task falls due."""
        task = self._task(fault)
        self.ask(fault, lambda at_us: Pause(at_us, task, on=True))

    def resume_task(self, fault: Fault) -> None:
        """Its schedule counts from now."""
        task = self._task(fault)
        self.ask(fault, lambda at_us: Pause(at_us, task, on=False))

    def lease(self, fault: Fault) -> None:
        """Another length of leases, and another time for which a majority's echoes count."""
        lease_s = (1.0, 1.5, 2.0, 2.0, 3.0, 4.0)[fault.other % 6]
        window_s = (0.5, 1.0, 1.0, 3.0)[fault.who % 4]
        self.ask(fault, lambda at_us: ChangeSettings(at_us, {"lease_s": lease_s, "window_s": window_s}))

    # -- how they ask

    def _task(self, fault: Fault) -> str:
        return f"t{fault.other % TASKS}"

    def ask(self, fault: Fault, entry: Callable[[int], Entry]) -> None:
        """Ask one member once."""
        running = self._cluster.running
        if running:
            process = running[fault.who % len(running)]
            process.spawn(self._asking(process, entry))

    async def _asking(self, process: Process, entry: Callable[[int], Entry]) -> Result | None:
        at_us = process.now_us()
        try:
            return await process.propose(entry(at_us), ASK_S)
        except RaftError:
            self._cluster.counts["client errors"] += 1
            return None

    def later(self, wait_s: float, act: Callable[[], None]) -> None:
        """Do something after a while."""
        self._cluster.world.at(self._cluster.world.now_s + wait_s, act)

    def insist(self, entry: Callable[[int], Entry], tries: int) -> None:
        """Ask one member after another until one has done it."""
        cluster, done = self._cluster, [False]

        def again(left: int) -> None:
            if done[0] or not left:
                return
            running = cluster.running
            if running:
                process = running[left % len(running)]
                process.spawn(asking(process))
            cluster.world.at(cluster.world.now_s + ASK_S, lambda: again(left - 1))

        async def asking(process: Process) -> None:
            result = await self._asking(process, entry)
            if result is not None and (result.ok or result.code == "no-such-task"):
                done[0] = True

        cluster.world.at(cluster.world.now_s, lambda: again(tries))
