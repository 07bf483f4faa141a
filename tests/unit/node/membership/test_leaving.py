"""An orderly stop, and a removal (docs/explanation/leases-and-claims.md)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from node.membership.leaving import Leaving
from node.raft.errors import NoQuorum
from node.state.entries import Entry
from node.state.members import AddMember, Drain, MarkDown, RemoveMember
from node.state.value import Result
from tests.unit.node.loop import Naps, serving, turns, until
from tests.unit.node.membership.fake_member import FakeMember
from tests.unit.node.state.given import NOW_US, cluster, seed


class Runs:
    """Are handed over, or cannot be."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.clear = True

    async def hand_over_all(self, patience_s: float, dying_s: float) -> bool:
        self.did.append("hand over")
        return self.clear

    def go_on(self) -> None:
        self.did.append("go on")


class Node:
    """Member `b` of a and b, in incarnation 1."""

    def __init__(self) -> None:
        self.history = cluster("a", "b")
        self.controller = Runs()
        self.trouble: list[Exception] = []
        self.said: list[MarkDown] = []
        self.naps = Naps()
        self.resigned = False
        member = FakeMember("b", lambda: self.history.state, self._propose, standing=self._standing)
        self.leaving = Leaving(member, self._resign, self.controller, self.naps)

    def _resign(self) -> None:
        self.controller.did.append("resign")
        self.resigned = True

    def _standing(self) -> int | None:
        member = self.history.state.members.get("b")
        return 1 if not self.resigned and member is not None and member.status != "down" else None

    async def _propose(self, entry: Entry, timeout_s: float) -> Result:
        if isinstance(entry, Drain):
            self.controller.did.append("drain")
            return self.history.do(entry)
        assert isinstance(entry, MarkDown)
        self.said.append(entry)
        if self.trouble:
            raise self.trouble.pop(0)
        return self.history.do(entry)

    def enter(self, entry: Entry) -> None:
        self.history.must(entry)
        self.leaving.wake()


def served(node: Node, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        service = asyncio.create_task(node.leaving.run())
        try:
            await scenario()
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)

    serving(run())


def test_who_stops_stands_aside_hands_over_and_then_says_that_it_is_down() -> None:
    node = Node()
    serving(node.leaving.leave())
    assert node.controller.did == ["drain", "hand over", "resign"], "a late MarkDown must find no incarnation"
    member = node.history.state.members["b"]
    assert (member.status, member.reason) == ("down", "stopped")
    node.history.back("b")
    assert node.history.state.members["b"].status == "up", "nobody has drained it"


def test_one_that_was_drained_is_so_still_when_it_is_back() -> None:
    node = Node()
    node.history.must(Drain(NOW_US, "b", on=True))
    serving(node.leaving.leave())
    assert node.controller.did == ["hand over", "resign"]
    node.history.back("b")
    assert node.history.state.members["b"].status == "draining"


def test_who_cannot_end_what_runs_says_nothing() -> None:
    """The others then wait until its lease is over (invariant 4)."""
    node = Node()
    node.controller.clear = False
    serving(node.leaving.leave())
    assert node.said == []
    assert "resign" not in node.controller.did


def test_without_a_majority_it_stops_all_the_same() -> None:
    node = Node()
    node.trouble = [NoQuorum()]
    serving(node.leaving.leave())
    assert len(node.said) == 1


def test_who_has_been_marked_down_already_says_nothing() -> None:
    node = Node()
    node.history.must(MarkDown(NOW_US, "b", 1, "silent", 0))
    serving(node.leaving.leave())
    assert node.said == []


def test_a_member_that_is_being_removed_leaves_and_tries_until_it_is_known() -> None:
    node = Node()
    node.trouble = [NoQuorum()]

    async def scenario() -> None:
        node.enter(RemoveMember(NOW_US, "b"))
        await until(lambda: "b" not in node.history.state.members)
        await turns()
        assert len(node.said) == 2
        assert "go on" not in node.controller.did

    served(node, scenario)


def test_one_that_is_undrained_before_it_has_gone_goes_on() -> None:
    node = Node()
    node.controller.clear = False
    node.naps.held = True

    async def scenario() -> None:
        node.enter(RemoveMember(NOW_US, "b"))
        await until(lambda: node.naps.asked)
        node.enter(Drain(NOW_US, "b", on=False))
        node.naps.wake()
        await until(lambda: node.controller.did[-1] == "go on")
        assert node.history.state.members["b"].status == "up"

    served(node, scenario)


def test_one_that_was_removed_and_is_let_in_again_works_again() -> None:
    """The same process: nobody has to start it anew."""
    node = Node()

    async def scenario() -> None:
        node.enter(RemoveMember(NOW_US, "b"))
        await until(lambda: "b" not in node.history.state.members)
        await turns()
        assert "go on" not in node.controller.did
        node.enter(AddMember(NOW_US, seed("b")))
        await until(lambda: node.controller.did[-1] == "go on")

    served(node, scenario)


def test_a_member_that_stays_is_left_alone() -> None:
    node = Node()

    async def scenario() -> None:
        node.enter(Drain(NOW_US, "b", on=True))
        await turns()
        assert node.controller.did == []

    served(node, scenario)
