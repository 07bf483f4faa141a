"""Tasks whose params depend on the occurrence, in a history that has them, and the clients that change and start them.

They are drawn from a stream of their own, so that histories without them stay what they are.
"""

import random
from functools import partial
from typing import Any, Final

from node.state.occurrences import Start
from node.state.registry import DeleteTask, Pause, Put, PutTasks
from tasks.definition.spec import Spec
from tests.simulation.clients import Clients
from tests.simulation.cluster import Cluster
from tests.simulation.fills import NOMINAL, WINDOW
from tests.simulation.plan import Fault

SCHEDULES: Final[tuple[dict[str, Any], ...]] = (
    {"cron": "*/3 * * * * *"},
    {"cron": "*/7 * * * * *"},
    {"every_s": 2.5},
    {"every_s": 4},
)
OVERLAPS: Final = ("skip", "queue", "queue", "replace", "allow", "allow")


class TemplatedTasks:
    """The tasks `q0` and `q1`, which have a schedule, and those after them, of a history."""

    def __init__(self, cluster: Cluster, clients: Clients, seed: int) -> None:
        self._cluster, self._clients = cluster, clients
        self._rng = rng = random.Random(f"templates {seed}")
        after: dict[str, list[str]] = {"q0": [], "q1": [], "q2": ["q0"], "q3": ["q0", "q1"], "q4": ["q2"]}
        shared = rng.choice(SCHEDULES[:2])  # the tasks after both roots need times that these share
        self._after, self._names = after, list(after)
        self._fixed = {
            name: {
                "schedule": None if after[name] else shared,
                "after": [
                    {"task": parent, "on": rng.choice(("succeeded", "succeeded", "ended"))} for parent in after[name]
                ],
                "overlap": rng.choice(OVERLAPS),
                "catch_up": rng.choice(("skip", "latest", "all")),
            }
            for name in self._names
        }
        if rng.random() < 0.5:  # a task that nothing comes after, at any interval
            self._names.append("q5")
            self._after["q5"] = []
            self._fixed["q5"] = {**self._fixed["q0"], "schedule": rng.choice(SCHEDULES)}
        self._specs = {name: self._spec(name) for name in self._names}

    def _spec(self, name: str) -> Spec:
        """Overlap, catch-up and schedule of a task stay what they are."""
        rng = self._rng
        params: dict[str, Any] = {"brief": True, "leaves": rng.random() < 0.85, "drawn": rng.randrange(1000)}
        if rng.random() < 0.9:
            params["at"] = NOMINAL
        if rng.random() < 0.6:
            params["window"] = WINDOW
        for parent in self._after[name]:
            if rng.random() < 0.7:
                params[f"of_{parent}"] = f"{{{{ after.{parent}.token }}}}"
        return Spec.model_validate(
            {
                "name": name,
                "kind": "command",
                "template": True,
                "params": params,
                "retry": {"attempts": rng.choice((1, 2, 3)), "backoff_s": rng.choice((0, 1))},
                "failover": {"grace_s": rng.choice((0, 0, 2)), "max": 3},
                **self._fixed[name],
            }
        )

    def begin(self) -> None:
        """Register all of them, as soon as that can be done."""
        puts = tuple(Put(spec.pack()) for spec in self._specs.values())
        self._clients.insist(lambda at_us: PutTasks(at_us, puts), 20)

    # -- what a plan names

    def start_templated(self, fault: Fault) -> None:
        """A run by hand, mostly with what comes after it; now and then at the very time of an occurrence."""
        state, name = self._cluster.ledger.state, self._name(fault)
        row = state.tasks.get(name)
        at_us = row.through_us + 1_000_000 * fault.who % 9_000_000 if row is not None and fault.much < 0.5 else None
        at_us = at_us // 1_000_000 * 1_000_000 if at_us is not None else None
        downstream = fault.other % 3 != 0
        self._clients.ask(fault, partial(Start, task=name, fire_at_us=at_us, downstream=downstream))

    def pause_templated(self, fault: Fault) -> None:
        """Nothing of a task falls due, and what waits for its parents ends."""
        self._clients.ask(fault, partial(Pause, task=self._name(fault), on=True))

    def resume_templated(self, fault: Fault) -> None:
        """Its occurrences count from now."""
        self._clients.ask(fault, partial(Pause, task=self._name(fault), on=False))

    def change_templated(self, fault: Fault) -> None:
        """A task has other params."""
        name = self._name(fault)
        self._specs[name] = changed = self._spec(name)
        self._clients.ask(fault, lambda at_us: PutTasks(at_us, (Put(changed.pack()),)))

    def delete_templated(self, fault: Fault) -> None:
        """A task goes; those after it may stay."""
        self._clients.ask(fault, partial(DeleteTask, task=self._name(fault), with_children=True))

    def restore_templated(self, fault: Fault) -> None:
        """All tasks are there."""
        puts = tuple(Put(spec.pack()) for spec in self._specs.values())
        self._clients.ask(fault, partial(PutTasks, puts=puts))

    def _name(self, fault: Fault) -> str:
        return self._names[fault.other % len(self._names)]
