"""Tasks that run on each member, and tasks after them, in a history that has them; and the clients that start them.

They are drawn from a stream of their own, so that histories without them stay what they are.
"""

import random
from functools import partial
from typing import Any, Final

from node.state.occurrences import Start
from node.state.registry import DeleteTask, Pause, Put, PutTasks
from node.state.settings import ChangeSettings
from tasks.definition.spec import Spec
from tests.simulation.clients import Clients
from tests.simulation.cluster import Cluster
from tests.simulation.plan import Fault

SCHEDULED: Final = 2
"""How many of them have a schedule: `m0`... The next one, `m2`, comes after `m0`."""

POOLED_IN, POOLED_OF = 20, 17
"""In one of so many histories, some use a pool, and which."""

GROUPS: Final[tuple[dict[str, str], ...]] = ({}, {}, {"disk": "ssd"}, {"disk": "hdd"})


class OnEach:
    """The tasks `m0`... of a history, which run on each member, and `x0`..., one after each of them."""

    def __init__(self, cluster: Cluster, clients: Clients, seed: int) -> None:
        self._cluster, self._clients = cluster, clients
        self._rng = rng = random.Random(f"each {seed}")
        self._names = [f"m{number}" for number in range(SCHEDULED + 1)]
        self._fixed: dict[str, dict[str, Any]] = {
            name: {
                "overlap": rng.choice(("skip", "skip", "queue", "replace", "allow")),
                "catch_up": rng.choice(("skip", "latest", "latest", "all")),
                "deadlines": rng.choice(({}, {"finish_within_s": 6}, {"start_within_s": 3})),
            }
            for name in self._names
        }
        self._pooled = seed % POOLED_IN == POOLED_OF
        self._specs = [*map(self._spec, self._names), *map(self._next, self._names)]

    def _spec(self, name: str) -> Spec:
        """Overlap and catch-up of a task stay what they are."""
        pick = self._rng.choice
        last = name == self._names[-1]
        when: dict[str, Any] = {"after": "m0"} if last else {"schedule": {"every_s": pick((3, 4, 5))}}
        return Spec.model_validate(
            {
                "name": name,
                "kind": "command",
                "each": True,
                "group": pick(GROUPS),
                "params": {"brief": self._fixed[name]["overlap"] == "allow" or pick((True, True, False))},
                "retry": {"attempts": pick((1, 2)), "backoff_s": pick((0, 1))},
                "failover": {"grace_s": pick((0, 2)), "resume": pick(("checkpoint", "abandon")), "max": pick((1, 3))},
                "timeout_s": pick((None, 4.0)),
                "uses": pick(({}, {"disk": 1}, {"disk": 2})) if self._pooled else {},
                **when,
                **self._fixed[name],
            }
        )

    def _next(self, parent: str) -> Spec:
        on = self._rng.choice(("succeeded", "succeeded", "failed", "ended"))
        return Spec.model_validate(
            {
                "name": f"x{parent[1:]}",
                "kind": "command",
                "after": {"task": parent, "on": on},
                "params": {"brief": True},
                "overlap": "allow",
            }
        )

    def begin(self) -> None:
        """Register all of them, as soon as that can be done; before, the pool that some use."""
        if self._pooled:
            self._clients.insist(partial(ChangeSettings, settings={"pools": {"disk": 2}}), 20)
        self._clients.insist(self._all, 20)

    def _all(self, at_us: int) -> PutTasks:
        return PutTasks(at_us, tuple(Put(spec.pack()) for spec in self._specs))

    # -- what a plan names

    def start_on_each(self, fault: Fault) -> None:
        """A run by hand, on all members or on one; now and then with the tasks after it."""
        members = sorted(self._cluster.ledger.state.members)
        member = members[fault.who % len(members)] if members and fault.much < 0.4 else ""
        task, downstream = self._name(fault), fault.much > 0.7
        self._clients.ask(fault, partial(Start, task=task, member=member, downstream=downstream))

    def pause_each(self, fault: Fault) -> None:
        """Nothing of a task falls due."""
        self._clients.ask(fault, partial(Pause, task=self._scheduled(fault), on=True))

    def resume_each(self, fault: Fault) -> None:
        """Its schedule counts from now."""
        self._clients.ask(fault, partial(Pause, task=self._scheduled(fault), on=False))

    def change_each(self, fault: Fault) -> None:
        """A task runs on other members."""
        place = fault.other % len(self._names)
        self._specs[place] = changed = self._spec(self._names[place])
        self._clients.ask(fault, lambda at_us: PutTasks(at_us, (Put(changed.pack()),)))

    def delete_each(self, fault: Fault) -> None:
        """A task goes; the one after it stays."""
        self._clients.ask(fault, partial(DeleteTask, task=self._name(fault), with_children=True))

    def restore_each(self, fault: Fault) -> None:
        """All tasks are there."""
        self._clients.ask(fault, self._all)

    def _name(self, fault: Fault) -> str:
        return self._names[fault.other % len(self._names)]

    def _scheduled(self, fault: Fault) -> str:
        return self._names[fault.other % SCHEDULED]
