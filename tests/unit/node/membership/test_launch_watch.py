"""Where nothing can be started, what is due is for others: a member stands aside, and comes back."""

import asyncio
import resource
from collections.abc import Callable, Coroutine
from typing import Any

from node.membership.launch_watch import AFTER, REST_S, REST_S_MAX, LaunchWatch, shortage
from node.state.members import MarkDown
from tests.unit.node.loop import Naps, serving, turns, until
from tests.unit.node.state.given import NOW_US, cluster


class Node:
    """Member `b` of a and b. `wants` is what it has too little of; `aside` why it stands aside."""

    def __init__(self) -> None:
        self.history = cluster("a", "b")
        self.naps = Naps(held=True)
        self.wants: str | None = "Too many open files"
        self.told: list[str | None] = []
        self.watch = LaunchWatch("b", lambda: self.history.state, self._drain, lambda: self.wants, self.naps)

    @property
    def aside(self) -> str | None:
        return self.told[-1] if self.told else None

    def _drain(self, why: str | None) -> None:
        self.told.append(why)

    def fail(self, times: int = AFTER) -> None:
        for _ in range(times):
            self.watch.cannot_start("Too many open files")


def _with(scenario: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        node = Node()
        running = asyncio.create_task(node.watch.run())
        await scenario(node)
        running.cancel()

    serving(run())


async def _wakes(node: Node) -> None:
    slept = len(node.naps.asked)
    node.naps.wake()
    for _ in range(2000):  # it asks in a thread of its own
        if len(node.naps.asked) > slept or node.aside is None:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not look again")


def test_it_stands_aside_and_is_back_when_there_is_enough_again() -> None:
    async def scenario(node: Node) -> None:
        node.fail(AFTER - 1)
        await turns()
        assert not node.told, "once may be chance"
        node.fail(1)
        await until(lambda: node.aside is not None)
        assert node.aside == "attempts cannot be started here (Too many open files)"
        for _ in range(2):
            await _wakes(node)
        assert node.aside is not None
        assert node.naps.asked == [REST_S, 2 * REST_S, 4 * REST_S]
        node.wants = None
        await _wakes(node)
        assert node.aside is None

    _with(scenario)


def test_where_it_is_in_vain_the_next_failure_is_enough_and_the_rest_is_longer() -> None:
    async def scenario(node: Node) -> None:
        node.wants = None
        for rest_s in (REST_S, 2 * REST_S, 4 * REST_S):
            node.fail(AFTER if rest_s == REST_S else 1)
            await until(lambda: node.aside is not None)
            assert node.naps.asked[-1] == rest_s <= REST_S_MAX
            await _wakes(node)
            await turns()
        node.watch.started()
        node.fail(AFTER)
        await until(lambda: node.aside is not None)
        assert node.naps.asked[-1] == REST_S

    _with(scenario)


def test_an_attempt_that_works_takes_back_what_failed_before() -> None:
    async def scenario(node: Node) -> None:
        for _ in range(5):
            node.fail(AFTER - 1)
            node.watch.started()
        await turns()
        assert node.aside is None

    _with(scenario)


def test_where_nobody_else_is_up_it_goes_on_trying() -> None:
    async def scenario(node: Node) -> None:
        node.history.must(MarkDown(NOW_US, "a", 1, "stopped", 0))
        node.fail()
        await turns()
        assert node.aside is None
        node.history.back("a")
        node.fail(1)
        await until(lambda: node.aside is not None)
        node.history.must(MarkDown(NOW_US, "a", 2, "stopped", 0))
        await _wakes(node)
        assert node.aside is None, "nobody else is left to take what is due"

    _with(scenario)


def test_want_of_descriptors_is_seen() -> None:
    assert shortage() is None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, hard))
    try:
        assert shortage() == "Too many open files"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
