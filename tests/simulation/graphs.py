"""Tasks that come after others, in a history that has them, and the clients that change and start them.

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
from tests.simulation.plan import Fault

CRONS: Final = ("*/4 * * * * *", "*/5 * * * * *", "*/6 * * * * *")
OVERLAPS: Final = ("allow", "allow", "skip", "queue", "replace")
PARENTS_MAX: Final = 3
AT_TIMES_IN, AT_TIMES_OF = 25, (11, 16)
"""Of so many histories, in which tasks that come after others have schedules, too."""
OWN_SCHEDULES: Final[list[dict[str, Any]]] = [
    {"every_s": 3},
    {"every_s": 7},
    *({"cron": f"{seconds} * * * * *"} for seconds in ("*/3", "*/7", "*/10", "*/15")),
]
OWN_DEADLINES: Final[tuple[dict[str, float], ...]] = (
    {},
    {"finish_within_s": 4},
    {"start_within_s": 2, "finish_within_s": 8},
)
WAITS_S: Final = (1, 2, 86_400)

_Parents = list[dict[str, str]]


class Graphs:
    """The graph of a history: roots `g0`... with one cron line, and tasks after them."""

    def __init__(self, cluster: Cluster, clients: Clients, seed: int) -> None:
        self._cluster, self._clients = cluster, clients
        self._rng = rng = random.Random(f"graph {seed}")
        roots, shape = rng.choice((1, 1, 2, 2, 3)), rng.choice(("chain", "fan", "diamond", "drawn", "drawn"))
        self._roots = [f"g{number}" for number in range(roots)]
        self._names = [f"g{number}" for number in range(roots + rng.randint(2, 5))]
        cron = rng.choice(CRONS)
        self._schedule: dict[str, Any] = {"every_s": 4} if roots == 1 and rng.random() < 0.3 else {"cron": cron}
        self._times = self._own_times(seed) if seed % AT_TIMES_IN in AT_TIMES_OF else {}
        self._fixed = {name: {"overlap": rng.choice(OVERLAPS), "catch_up": self._catch_up()} for name in self._names}
        self._specs = {name: self._spec(name, self._shaped(shape, name)) for name in self._names}

    def _own_times(self, seed: int) -> dict[str, dict[str, Any]]:
        """Which of the others have schedules, too: some the roots' one, all of them any, or the last one any.

        So what has none descends from roots that share their times.
        """
        rng, others = random.Random(f"times {seed}"), self._names[len(self._roots) :]
        style = rng.choice(("shared", "all", "all", "last"))
        if style == "shared":
            self._schedule = {"cron": rng.choice(CRONS)}
            names, schedules = [name for name in others if rng.random() < 0.5], [self._schedule]
        else:
            names, schedules = others if style == "all" else others[-1:], OWN_SCHEDULES
        late = random.Random(f"late {seed}")
        return {
            name: {
                "schedule": rng.choice(schedules),
                "wait_s": rng.choice(WAITS_S),
                "deadlines": late.choice(OWN_DEADLINES),
            }
            for name in names
        }

    def _catch_up(self) -> str:
        return self._rng.choice(("skip", "latest", "all"))

    def _shaped(self, shape: str, name: str) -> _Parents:
        """The parents of a task in a chain, in a fan (out, and in again), in a diamond, or drawn."""
        place, rng = self._names.index(name), self._rng
        if name in self._roots:
            return []
        before, middle = self._names[:place], self._names[len(self._roots) : -1]
        if shape == "chain":
            parents = self._roots if name == middle[0] else before[-1:]
        elif shape == "fan":
            parents = middle if name == self._names[-1] else [rng.choice(self._roots)]
        elif shape == "diamond":
            parents = self._roots[:1] + middle if name == self._names[-1] else self._roots
        else:
            parents = rng.sample(before, rng.randint(1, min(PARENTS_MAX, len(before))))
        return [{"task": task, "on": self._on()} for task in parents]

    def _on(self) -> str:
        [on] = self._rng.choices(("succeeded", "failed", "ended"), (6, 2, 2))
        return on

    def _spec(self, name: str, after: _Parents, **changed: Any) -> Spec:
        """Overlap and catch-up of a task stay what they are."""
        pick = self._rng.choice
        return Spec.model_validate(
            {
                "name": name,
                "kind": "command",
                "schedule": None if after else self._schedule,
                "after": after,
                "params": {"brief": True},
                "retry": {"attempts": pick((1, 1, 2, 3)), "backoff_s": pick((0, 1))},
                "failover": {"resume": pick(("checkpoint", "restart", "abandon")), "max": pick((1, 3))},
                "timeout_s": pick((None, None, 2.0)),
                **self._fixed[name],
                **self._times.get(name, {}),
                **changed,
            }
        )

    def begin(self) -> None:
        """Register all of them, as soon as that can be done."""
        specs = list(self._specs.values())
        self._clients.insist(lambda at_us: PutTasks(at_us, tuple(Put(spec.pack()) for spec in specs)), 20)

    # -- what a plan names

    def pause_in_graph(self, fault: Fault) -> None:
        """Nothing of a task falls due, and what waits for its parents ends."""
        self._clients.ask(fault, partial(Pause, task=self._name(fault), on=True))

    def resume_in_graph(self, fault: Fault) -> None:
        """Its occurrences count from now."""
        self._clients.ask(fault, partial(Pause, task=self._name(fault), on=False))

    def change_in_graph(self, fault: Fault) -> None:
        """Other parents, or others to wait for; or it is disabled, or enabled again; or only its policies change."""
        name = self._name(fault)
        spec = self._specs[name]
        parents = [{"task": one.task, "on": one.on} for one in spec.after]
        enabled = spec.enabled
        if fault.much < 0.5 and name not in self._roots:
            parents = self._shaped("drawn", name)
        elif fault.much < 0.8:
            enabled = not enabled
        self._specs[name] = changed = self._spec(name, parents, enabled=enabled)
        self._clients.ask(fault, lambda at_us: PutTasks(at_us, (Put(changed.pack()),)))

    def delete_in_graph(self, fault: Fault) -> None:
        """A task goes; if others come after it, only where these may stay."""
        with_children = fault.much < 0.7
        self._clients.ask(fault, partial(DeleteTask, task=self._name(fault), with_children=with_children))

    def restore_graph(self, fault: Fault) -> None:
        """All tasks are there, and enabled."""
        self._specs = {
            name: spec if spec.enabled else spec.model_copy(update={"enabled": True})
            for name, spec in self._specs.items()
        }
        puts = tuple(Put(spec.pack()) for spec in self._specs.values())
        self._clients.ask(fault, partial(PutTasks, puts=puts))

    def rerun(self, fault: Fault) -> None:
        """A task is started by hand, mostly with all that come after it; now and then for an occurrence of before."""
        state = self._cluster.ledger.state
        name, key = self._name(fault), f"rerun-{fault.at_s}" if fault.other % 2 else None
        row = state.tasks.get(name)
        fire_at_us = row.last.fire_at_us if row is not None and row.last is not None and fault.much > 0.6 else None
        downstream = fault.much < 0.9
        self._clients.ask(fault, partial(Start, task=name, key=key, fire_at_us=fire_at_us, downstream=downstream))

    def _name(self, fault: Fault) -> str:
        return self._names[fault.other % len(self._names)]
