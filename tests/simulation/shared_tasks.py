"""Tasks that many members may begin, due at the same moments: more than their owners have places for."""

import random
from functools import partial
from typing import Any, Final

from node.state.occurrences import Start
from node.state.registry import DeleteTask, Pause, Put, PutTasks
from tasks.definition.spec import Spec
from tests.simulation.clients import Clients
from tests.simulation.plan import Fault

TASKS: Final = 18
OVERLAPS: Final = ("skip", "skip", "queue", "replace", "allow")


class SharedTasks:
    """The tasks `s0`... of a history. They are drawn from a stream of their own."""

    def __init__(self, clients: Clients, seed: int) -> None:
        self._clients = clients
        self._rng = rng = random.Random(f"shared {seed}")
        self._names = [f"s{number}" for number in range(TASKS)]
        self._overlap = {name: rng.choice(OVERLAPS) for name in self._names}
        self._specs = {name: self._spec(name) for name in self._names}

    def _spec(self, name: str, **changed: Any) -> Spec:
        pick = self._rng.choice
        return Spec.model_validate(
            {
                "name": name,
                "kind": "command",
                "schedule": {"every_s": pick((3, 3, 6))},
                "params": {"brief": pick((True, False))},
                "retry": {"attempts": pick((1, 2)), "backoff_s": pick((0, 1))},
                "failover": {"grace_s": pick((0, 0, 2)), "max": pick((1, 3))},
                "timeout_s": pick((None, 4.0)),
                "overlap": self._overlap[name],
                "key": pick((None, None, None, None, "one")),
                "sticky": pick((False, False, False, True)),
                **changed,
            }
        )

    def begin(self) -> None:
        """Register the tasks, as soon as that can be done."""
        specs = list(self._specs.values())
        self._clients.insist(lambda at_us: PutTasks(at_us, tuple(Put(spec.pack()) for spec in specs)), 20)

    # -- what a plan names

    def start_shared(self, fault: Fault) -> None:
        """Several runs by hand, at once."""
        for step in range(1 + int(6 * fault.much)):
            name = self._names[(fault.other + step) % len(self._names)]
            self._clients.ask(fault, partial(Start, task=name))

    def change_shared(self, fault: Fault) -> None:
        """A task may be offered from now on, or no more."""
        name = self._names[fault.other % len(self._names)]
        self._specs[name] = changed = self._spec(name)
        self._clients.ask(fault, lambda at_us: PutTasks(at_us, (Put(changed.pack()),)))

    def pause_shared(self, fault: Fault) -> None:
        """Nothing of a task falls due; or again."""
        name = self._names[fault.other % len(self._names)]
        self._clients.ask(fault, partial(Pause, task=name, on=fault.much < 0.4))

    def delete_shared(self, fault: Fault) -> None:
        """A task goes, and comes again."""
        name = self._names[fault.other % len(self._names)]
        self._clients.ask(fault, partial(DeleteTask, task=name))
        self._clients.ask(fault, partial(PutTasks, puts=(Put(self._specs[name].pack()),)))
