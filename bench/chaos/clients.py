"""A client of the cluster under fault: registers, changes, deletes and starts tasks, and keeps what it was promised.

An answer of success is a promise. No answer, or 503 and 504, promise nothing, either way.
"""

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.chaos.background import Background
from bench.chaos.tasks import BY_HAND, COUNTER, LONG, note
from node.client import ApiProblem, Client, Unreachable, path

PAUSE_S: Final = 0.1
TRIES: Final = 40
"""So often a run is asked for under one Idempotency-Key."""


@dataclass
class Promises:
    """What was acknowledged, and what may have been done besides."""

    there: dict[str, int] = field(default_factory=dict)
    """Tasks that were registered, each with its marker, and were not deleted since."""
    perhaps: set[str] = field(default_factory=set)
    """Tasks of which it is not known whether they are there."""
    gone: set[str] = field(default_factory=set)
    counted: int = 0
    """The counter was set to this at least."""
    tried: int = 0
    """And to this at most."""
    runs: dict[str, str] = field(default_factory=dict)
    """Runs by hand, by Idempotency-Key."""
    keys: int = 0
    """How many keys were used."""
    long: int = 0
    """How many long runs were begun."""
    broken: list[str] = field(default_factory=list)
    """What was answered and must not be."""


class Clients:
    """A thread that goes on from `start` to `stop`; then `promises` is complete. Each request goes by any client."""

    def __init__(self, clients: Sequence[Client], records: Path, rng: random.Random) -> None:
        self.promises = Promises()
        self._clients = clients
        self._records = records
        self._rng = rng
        self._number = 0
        self._thread = Background("clients", self._run)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, if it has begun; returns when what was under way has been answered."""
        self._thread.stop()

    @property
    def found(self) -> list[str]:
        """What ended the thread, if an error did: nothing was asked for since."""
        return self._thread.found

    def _run(self, over: threading.Event) -> None:
        acts = [self._register, self._register, self._count, self._count, self._run_by_hand, self._delete]
        turn = 0
        while not over.wait(PAUSE_S):
            turn += 1
            (self._long if turn % 5 == 0 else self._rng.choice(acts))()

    def _ask(self, method: str, target: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """The answer's body, or `ApiProblem`; None where it is not known what became of the request."""
        try:
            answer = self._rng.choice(self._clients).call(method, target, body=body, headers=headers, timeout_s=8)
        except Unreachable:
            return None
        except ApiProblem as problem:
            return None if problem.no_quorum else problem
        return answer.json if answer.json is not None else {}

    def _register(self) -> None:
        self._number += 1
        name, told = f"note-{self._number}", self.promises
        answer = self._ask("PUT", path("v1", "tasks", name), note(self._records, name, self._number))
        if isinstance(answer, ApiProblem):
            told.broken.append(f"PUT {name}: {answer}")
        elif answer is None:
            told.perhaps.add(name)
        else:
            told.there[name] = self._number

    def _count(self) -> None:
        told = self.promises
        told.tried += 1
        answer = self._ask("PUT", path("v1", "tasks", COUNTER), note(self._records, COUNTER, told.tried))
        if isinstance(answer, ApiProblem):
            told.broken.append(f"PUT {COUNTER}: {answer}")
        elif answer is not None:
            if answer["params"]["marker"] != told.tried:
                told.broken.append(f"PUT {COUNTER} {told.tried} was answered with {answer['params']}")
            told.counted = told.tried

    def _delete(self) -> None:
        told = self.promises
        if not told.there:
            return
        name = self._rng.choice(sorted(told.there))
        answer = self._ask("DELETE", path("v1", "tasks", name))
        if isinstance(answer, ApiProblem):
            told.broken.append(f"{name} was registered, and DELETE answered: {answer}")
            return
        del told.there[name]
        (told.perhaps if answer is None else told.gone).add(name)

    def _run_by_hand(self) -> None:
        told = self.promises
        told.keys += 1
        key = f"chaos-{told.keys}"
        for _ in range(TRIES):
            answer = self._ask("POST", path("v1", "tasks", BY_HAND, "runs"), {}, {"Idempotency-Key": key})
            if isinstance(answer, ApiProblem):
                told.broken.append(f"POST runs of {BY_HAND}: {answer}")
                return
            if answer is not None:
                told.runs[key] = answer["run_id"]
                return
            if self._thread.over.is_set():
                return
            time.sleep(PAUSE_S)

    def _long(self) -> None:
        task = self._rng.choice(LONG)
        answer = self._ask("POST", path("v1", "tasks", task, "runs"), {})
        if not isinstance(answer, ApiProblem):
            self.promises.long += answer is not None
        elif answer.status != 409:  # 409: it runs
            self.promises.broken.append(f"POST runs of {task}: {answer}")
