"""Tasks that are run for past times, in a history that has backfills, and the clients that ask for these.

They are drawn from a stream of their own, so that histories without them stay what they are.
"""

import random
from functools import partial
from typing import Any, Final

from node.state.backfills import ChangeBackfill, StartBackfill
from node.state.entries import Entry
from node.state.occurrences import Start
from node.state.registry import DeleteTask, Put, PutTasks
from node.state.settings import ChangeSettings
from tasks.definition.spec import Spec
from tests.simulation.backfills import past_times
from tests.simulation.clients import Clients
from tests.simulation.cluster import Cluster
from tests.simulation.plan import Fault

ROOTS: Final = {"f0": {"every_s": 4}, "f3": {"cron": "*/5 * * * * *"}}
BELOW: Final = ("f1", "f2")
OVERLAPS: Final = ("skip", "queue", "replace", "allow", "allow")
CAPACITY: Final = {"half": 4}
US: Final = 1_000_000


class BackfilledTasks:
    """The tasks `f0` to `f3` of a history: f0 has f1 and f2 after it, and f3 stands alone."""

    def __init__(self, cluster: Cluster, clients: Clients, seed: int) -> None:
        self._cluster, self._clients = cluster, clients
        self._rng = rng = random.Random(f"backfills {seed}")
        names = (*ROOTS, *BELOW)
        self._fixed = {
            name: {"overlap": rng.choice(OVERLAPS), "catch_up": rng.choice(("skip", "latest", "all"))} for name in names
        }
        self._pooled = rng.random() < 0.5
        self._specs = {name: self._spec(name) for name in names}
        clients.at_the_end += [self._make_pool, self._let_all_end]

    def _spec(self, name: str, **changed: Any) -> Spec:
        """Overlap and catch-up of a task stay what they are."""
        pick = self._rng.choice
        after = {"f1": ["f0"], "f2": [{"task": "f1", "on": pick(("succeeded", "ended", "failed"))}, "f0"]}
        return Spec.model_validate(
            {
                "name": name,
                "kind": "command",
                "schedule": ROOTS.get(name),
                "after": after.get(name, []),
                "params": {"brief": True},
                "retry": {"attempts": pick((1, 1, 2)), "backoff_s": pick((0, 1))},
                "failover": {"max": pick((1, 3))},
                "timeout_s": pick((None, 2.0)),
                "uses": {"half": 1} if self._pooled else {},
                "deadlines": pick(({}, {"start_within_s": 3, "finish_within_s": 8, "success_every_s": 20})),
                **self._fixed[name],
                **changed,
            }
        )

    def begin(self) -> None:
        """Register all of them, as soon as that can be done."""
        puts = tuple(Put(spec.pack()) for spec in self._specs.values())
        if self._pooled:
            self._make_pool()
        self._clients.insist(partial(PutTasks, puts=puts), 20)

    def _make_pool(self) -> None:
        if self._pooled:
            self._clients.insist(partial(ChangeSettings, settings={"pools": CAPACITY}), 20)

    def _let_all_end(self) -> None:
        for number, row in sorted(self._cluster.ledger.state.backfills.items()):
            if row.open:
                self._clients.insist(partial(ChangeBackfill, number=number, change="resumed"), 5)

    # -- what a plan names

    def start_backfill(self, fault: Fault) -> None:
        """A root, and mostly those after it, for some past times."""
        task = sorted(ROOTS)[fault.other % len(ROOTS)]
        self._clients.ask(fault, lambda at_us: self._start(fault, task, at_us))

    def _start(self, fault: Fault, task: str, at_us: int) -> Entry:
        row = self._cluster.ledger.state.tasks.get(task)
        to_us = at_us - fault.who % 100 * 10 * US
        from_us = to_us - round(40 * fault.much) * US - 1
        times = [] if row is None else past_times(row, from_us, to_us)
        return StartBackfill(
            at_us=at_us,
            task=task,
            from_us=from_us,
            to_us=to_us,
            total=len(times),
            parallel=1 + fault.who % 4,
            newest_first=fault.other % 3 == 0,
            downstream=fault.other % 5 > 0,
        )

    def pause_backfill(self, fault: Fault) -> None:
        """No more of its occurrences begin."""
        self._change(fault, "paused")

    def resume_backfill(self, fault: Fault) -> None:
        """More of them begin."""
        self._change(fault, "resumed")

    def cancel_backfill(self, fault: Fault) -> None:
        """It ends, with its runs."""
        self._change(fault, "cancelled")

    def _change(self, fault: Fault, change: Any) -> None:
        opened = sorted(number for number, row in self._cluster.ledger.state.backfills.items() if row.open)
        if opened:
            number = opened[fault.other % len(opened)]
            self._clients.ask(fault, partial(ChangeBackfill, number=number, change=change))

    def start_backfilled(self, fault: Fault) -> None:
        """A run by hand."""
        self._clients.ask(fault, partial(Start, task=self._name(fault), downstream=fault.much < 0.3))

    def change_backfilled(self, fault: Fault) -> None:
        """A task is something else, or comes after nothing any more."""
        name = self._name(fault)
        alone = {"after": [], "schedule": {"every_s": 3}} if name in BELOW and fault.much < 0.5 else {}
        changed = self._spec(name, **alone)
        self._clients.ask(fault, lambda at_us: PutTasks(at_us, (Put(changed.pack()),)))

    def delete_backfilled(self, fault: Fault) -> None:
        """A task goes."""
        self._clients.ask(fault, partial(DeleteTask, task=self._name(fault), with_children=True))

    def restore_backfilled(self, fault: Fault) -> None:
        """All tasks are there."""
        puts = tuple(Put(spec.pack()) for spec in self._specs.values())
        self._clients.ask(fault, partial(PutTasks, puts=puts))

    def _name(self, fault: Fault) -> str:
        names = sorted(self._specs)
        return names[fault.other % len(names)]
