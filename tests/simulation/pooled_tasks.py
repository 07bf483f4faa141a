"""Tasks that use pools, in a history that has them, and the clients that change and start them.

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
from tests.simulation.plan import Fault

TASKS: Final = 6
CAPACITIES: Final = {"lock": 1, "disk": 2, "net": 3}
QUICK: Final = ({"pool": "net", "per_min": 90}, {"pool": "net", "per_min": 300})
RATES: Final = (*QUICK, {"pool": "lock", "per_min": 20}, {"pool": "lock", "per_min": 60})
"""Rates; the slow ones are of tasks of which no more than one run waits."""

RATES_IN, RATES_OF = 20, 19
"""In one of so many histories, some have a rate, and which: every second one with pools."""

OVERLAPS: Final = ("skip", "skip", "queue", "replace", "allow")


class PooledTasks:
    """The tasks `p0`... of a history, and its pools."""

    def __init__(self, clients: Clients, seed: int) -> None:
        self._clients = clients
        self._rng = rng = random.Random(f"pools {seed}")
        self._rates = random.Random(f"rates {seed}") if seed % RATES_IN == RATES_OF else None
        self._names = [f"p{number}" for number in range(TASKS)]
        self._fixed = {
            name: {"overlap": rng.choice(OVERLAPS), "catch_up": rng.choice(("skip", "latest", "all"))}
            for name in self._names
        }
        self._specs = {name: self._spec(name) for name in self._names}
        clients.at_the_end.append(self._make_pools)

    def _spec(self, name: str, **changed: Any) -> Spec:
        """Overlap and catch-up of a task stay what they are."""
        pick = self._rng.choice
        return Spec.model_validate(
            {
                "name": name,
                "kind": "command",
                "schedule": {"every_s": pick((1.5, 3, 5))},
                "params": {"brief": pick((True, True, False))},
                "retry": {"attempts": pick((1, 2)), "backoff_s": pick((0, 1, 4))},
                "failover": {"grace_s": pick((0, 0, 2)), "max": pick((1, 3))},
                "timeout_s": pick((None, 4.0)),
                "uses": pick(({"lock": 1}, {"lock": 1}, {"disk": 1}, {"disk": 2}, {"lock": 1, "net": 2}, {"net": 3})),
                "priority": pick((0, 50, 50, 100)),
                "rate": self._rate(name),
                **self._fixed[name],
                **changed,
            }
        )

    def _rate(self, name: str) -> dict[str, Any] | None:
        rates = RATES if self._fixed[name]["overlap"] == "skip" else QUICK
        return None if self._rates is None else self._rates.choice((None, None, *rates))

    def begin(self) -> None:
        """Make the pools, and register the tasks, as soon as that can be done."""
        specs = list(self._specs.values())
        self._make_pools()
        self._clients.insist(lambda at_us: PutTasks(at_us, tuple(Put(spec.pack()) for spec in specs)), 20)

    def _make_pools(self) -> None:
        self._clients.insist(partial(ChangeSettings, settings={"pools": CAPACITIES}), 20)

    # -- what a plan names

    def resize_pool(self, fault: Fault) -> None:
        """There is more of a pool, or less; or all pools are as they were."""
        name = sorted(CAPACITIES)[fault.other % len(CAPACITIES)]
        changes = {name: int(5 * fault.much)} if fault.much < 0.7 else CAPACITIES
        self._clients.ask(fault, partial(ChangeSettings, settings={"pools": changes}))

    def remove_pool(self, fault: Fault) -> None:
        """A pool goes, where nothing uses it."""
        name = sorted(CAPACITIES)[fault.other % len(CAPACITIES)]
        self._clients.ask(fault, partial(ChangeSettings, settings={"pools": {name: None}}))

    def start_pooled(self, fault: Fault) -> None:
        """A run by hand."""
        self._clients.ask(fault, partial(Start, task=self._name(fault)))

    def pause_pooled(self, fault: Fault) -> None:
        """Nothing of a task falls due."""
        self._clients.ask(fault, partial(Pause, task=self._name(fault), on=True))

    def resume_pooled(self, fault: Fault) -> None:
        """Its schedule counts from now."""
        self._clients.ask(fault, partial(Pause, task=self._name(fault), on=False))

    def change_pooled(self, fault: Fault) -> None:
        """A task uses something else."""
        name = self._name(fault)
        self._specs[name] = changed = self._spec(name)
        self._clients.ask(fault, lambda at_us: PutTasks(at_us, (Put(changed.pack()),)))

    def delete_pooled(self, fault: Fault) -> None:
        """A task goes."""
        self._clients.ask(fault, partial(DeleteTask, task=self._name(fault)))

    def restore_pooled(self, fault: Fault) -> None:
        """All pools and tasks are there."""
        puts = tuple(Put(spec.pack()) for spec in self._specs.values())
        self._clients.ask(fault, partial(ChangeSettings, settings={"pools": CAPACITIES}))
        self._clients.ask(fault, partial(PutTasks, puts=puts))

    def _name(self, fault: Fault) -> str:
        return self._names[fault.other % len(self._names)]
