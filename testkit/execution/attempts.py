"""A runner in a test, with verbs, and a view of the process table."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from node.execution import process_tree
from node.execution.attempt_events import AttemptEnded, AttemptStarted, CheckpointAsked, Event
from node.execution.attempt_secrets import AttemptSecrets
from node.execution.cgroup import NOTHING_DELEGATED, Delegation
from node.execution.order import AttemptLimits, Order
from node.execution.preparation import Preparation
from node.execution.runner import Runner
from node.runtime.boottime import boottime_s
from tasks.access import NOTHING, Access
from tasks.installed_kinds import InstalledKinds, KindEntry
from tasks.secret import NOBODYS, Reference

E = TypeVar("E", bound=Event)
WAIT_S = 10.0
ACT = "testkit.execution.kinds_for_tests:Act"


class Attempts:
    """Launches attempts and waits for what becomes of them."""

    def __init__(
        self,
        folder: Path,
        limits: AttemptLimits | None = None,
        preparations: Mapping[str, Preparation] | None = None,
        access: Access = NOTHING,
        delegation: Delegation = NOTHING_DELEGATED,
    ) -> None:
        self.folder = folder
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.seen: list[Event] = []
        self.runner = Runner(folder, self._on_event, limits, preparations, access, delegation=delegation)
        self._token = 0

    def _on_event(self, event: Event) -> None:
        self.seen.append(event)
        self.events.put_nowait(event)

    def launch(self, params: Mapping[str, Any], target: str = ACT, lease_s: float = 60, **more: Any) -> Order:
        """`variables` are allowed, by their names, and set; secrets are files in `secrets_dir`."""
        self._token += 1
        run_id = f"task~{self._token}"
        deadline_s = boottime_s() + lease_s
        variables = more.pop("variables", {})
        secrets = AttemptSecrets(
            references(target, params),
            str(more.pop("secrets_dir", self.folder)),
            tuple(variables),
            variables,
            more.pop("own", NOBODYS),
        )
        values: dict[str, Any] = {"checkpoint": None, "timeout_s": None, "secrets": secrets, **more}
        order = Order(run_id, "task", "kind", target, params, 1, self._token, 0, deadline_s=deadline_s, **values)
        self.runner.launch(order)
        return order

    def act(self, what: str, **more: Any) -> Order:
        return self.launch({"what": what, **more.pop("params", {})}, **more)

    def command(self, *argv: str, **more: Any) -> Order:
        return self.launch({"argv": argv, **more.pop("params", {})}, "tasks.command.kind:Command", **more)

    async def next_event(self, wait_s: float = WAIT_S) -> Event:
        return await asyncio.wait_for(self.events.get(), wait_s)

    async def until(self, kind: type[E]) -> E:
        while True:
            event = await self.next_event()
            if isinstance(event, kind):
                return event

    async def started(self, order: Order) -> None:
        assert (await self.until(AttemptStarted)).run_id == order.run_id

    async def ended(self, order: Order) -> AttemptEnded:
        event = await self.until(AttemptEnded)
        assert (event.run_id, event.token) == (order.run_id, order.token)
        return event

    async def any_ended(self) -> AttemptEnded:
        return await self.until(AttemptEnded)

    async def asked(self) -> CheckpointAsked:
        return await self.until(CheckpointAsked)

    def log(self, order: Order) -> str:
        return (self.folder / "logs" / order.run_id / "1.log").read_text()

    async def family(self, order: Order, lease_s: float | None = None) -> list[int]:
        """The pids that `kinds_for_tests.family` wrote: the last one is the worker's.

        Until they are there the lease is renewed, for `lease_s`: it lapses after they are, however slow the machine.
        """
        path = pids_path(self.folder, order.run_id)

        def there() -> bool:
            if lease_s is not None:
                self.runner.renew(boottime_s() + lease_s)
            return written(path)

        await until(there)
        return pids(path)


def references(target: str, params: Mapping[str, Any]) -> tuple[Reference, ...]:
    """What a node computes for an order: the secrets that params name; none if they are wrong."""
    kinds = InstalledKinds({"kind": KindEntry("kind", target)})
    return tuple(kinds.references("kind", params))


@asynccontextmanager
async def attempts(
    folder: Path,
    limits: AttemptLimits | None = None,
    preparations: Mapping[str, Preparation] | None = None,
    access: Access = NOTHING,
    delegation: Delegation = NOTHING_DELEGATED,
) -> AsyncIterator[Attempts]:
    made = Attempts(folder, limits, preparations, access, delegation)
    await made.runner.start()
    nursery = made.runner.nursery_pid
    try:
        yield made
        zombies = [one for one in process_tree.processes() if one.parent == nursery and one.state == "Z"]
        await until(lambda: not any(process_tree.process(one.pid) for one in zombies))
    finally:
        await made.runner.close()
    assert not list((folder / "groups").glob("*"))
    assert not [path for path in (folder / "scratch").glob("*") if path.is_dir()]


def play(
    folder: Path,
    scene: Callable[[Attempts], Awaitable[None]],
    limits: AttemptLimits | None = None,
    preparations: Mapping[str, Preparation] | None = None,
    delegation: Delegation = NOTHING_DELEGATED,
) -> None:
    """Play a scene with a runner of its own."""

    async def run() -> None:
        async with attempts(folder, limits, preparations, delegation=delegation) as made:
            await scene(made)

    asyncio.run(run())


def pids_path(folder: Path, run_id: str) -> Path:
    return folder / "scratch" / f"{run_id}.pids"


def written(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("end\n")


def pids(path: Path) -> list[int]:
    return [int(pid) for pid in path.read_text().split()[:-1]]


async def until(condition: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    end_s = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < end_s, "waited in vain"
        await asyncio.sleep(0.005)


def states(of: list[int]) -> str:
    """The states of the processes, a letter each; those that are gone, or only not yet reaped, have none."""
    found = (process_tree.process(pid) for pid in of)
    return "".join(one.state for one in found if one is not None and one.state not in "ZX")
