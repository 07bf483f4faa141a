"""A member that finds something wrong with itself takes on nothing new, and the others know why."""

import asyncio
from collections.abc import Callable, Coroutine

from node.membership.self_drain import SelfDrain
from node.raft.errors import NoQuorum
from node.state.entries import Entry
from node.state.members import Drain
from node.state.value import Member, Result
from tests.unit.node.loop import Naps, serving, turns, until
from tests.unit.node.membership.fake_member import FakeMember
from tests.unit.node.state.given import NOW_US, cluster


class Node:
    """Member `b` of a and b, in incarnation 1."""

    def __init__(self) -> None:
        self.history = cluster("a", "b")
        self.naps = Naps()
        self.said: list[Entry] = []
        self.trouble: list[Exception] = []
        self.woken = 0
        member = FakeMember("b", lambda: self.history.state, self._propose, standing=self._standing)
        self.self_drain = SelfDrain(member, self._wake, self.naps)

    @property
    def member(self) -> Member:
        return self.history.state.members["b"]

    def _standing(self) -> int | None:
        return self.member.incarnation if self.member.status != "down" else None

    def _wake(self) -> None:
        self.woken += 1

    async def _propose(self, entry: Entry, _timeout_s: float) -> Result:
        self.said.append(entry)
        if self.trouble:
            raise self.trouble.pop(0)
        return self.history.do(entry)


def served(scenario: Callable[[Node], Coroutine[None, None, None]]) -> None:
    async def run() -> None:
        node = Node()
        service = asyncio.get_running_loop().create_task(node.self_drain.run())
        await scenario(node)
        service.cancel()

    serving(run())


def test_the_others_are_told_what_is_wrong_and_when_it_is_over() -> None:
    async def scenario(node: Node) -> None:
        node.self_drain.set("disk", "no room")
        await until(lambda: node.member.aside == "no room")
        assert (node.member.status, node.woken) == ("draining", 1)
        node.self_drain.set("disk", "no room at all")
        node.self_drain.set("start", "no processes left")
        await until(lambda: node.member.aside == "no room; no processes left")
        node.self_drain.set("disk", None)
        await until(lambda: node.member.aside == "no processes left")
        node.self_drain.set("start", None)
        await until(lambda: node.member.status == "up")
        assert node.self_drain.why == ""
        assert len(node.said) == 4

    served(scenario)


def test_it_is_said_again_where_it_could_not_be_and_after_a_join() -> None:
    async def scenario(node: Node) -> None:
        node.trouble = [NoQuorum("none")]
        node.self_drain.set("disk", "no room")
        await until(lambda: node.member.aside)
        assert len(node.said) == 2
        node.history.back("b")
        node.self_drain.wake()
        await until(lambda: node.member.aside)

    served(scenario)


def test_whoever_is_drained_stays_so() -> None:
    async def scenario(node: Node) -> None:
        node.history.must(Drain(NOW_US, "b", on=True))
        node.self_drain.set("disk", "no room")
        await until(lambda: node.member.aside)
        node.self_drain.set("disk", None)
        await until(lambda: not node.member.aside)
        assert node.member.status == "draining"
        await turns()
        assert len(node.said) == 2

    served(scenario)
