"""Being a member, and being one again (docs/explanation/leases-and-claims.md)."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from node.execution.leftovers import LeftoversRemain
from node.membership.joining import PAUSE_S, PAUSE_S_MAX, Joining
from node.membership.removal_watch import RemovalWatch, Removed
from node.raft.errors import NoQuorum
from node.raft.ports import RaftRole
from node.state.entries import Entry
from node.state.members import AddMember, Drain, Join, MarkDown, RemoveMember
from node.state.value import Result
from tests.unit.node.loop import Naps, serving, turns, until
from tests.unit.node.membership.fake_member import FakeMember
from tests.unit.node.state.given import NOW_US, History, cluster, joining, seed


class Newcomer:
    """Member `b`, before it has joined, and what it does."""

    def __init__(self) -> None:
        self.history: History = cluster("a")
        self.did: list[str] = []
        self.answers: list[Result | Exception] = []
        self.naps = Naps()
        self.cannot_clear: Exception | None = None
        self.role = RaftRole(1, "a", False, True, True)
        self.member = FakeMember("b", lambda: self.history.state, self._propose, lambda: self.role)
        self.joining = Joining(self.member, self._join, self._clear, self._became, self.naps)

    def added(self) -> "Newcomer":
        self.history.must(AddMember(NOW_US, seed("b")))
        return self

    def enter(self, entry: Entry) -> None:
        self.history.must(entry)
        self.joining.wake()

    @property
    def incarnation(self) -> int:
        return self.history.state.members["b"].incarnation

    async def _propose(self, entry: Entry, timeout_s: float) -> Result:
        self.did.append(type(entry).__name__)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return self.history.do(entry)

    def _join(self, at_us: int) -> Join:
        return joining("b", at_us, after=self.incarnation)

    async def _clear(self) -> None:
        self.did.append("clear")
        if self.cannot_clear is not None:
            raise self.cannot_clear

    def _became(self) -> None:
        self.did.append(f"became {self.joining.incarnation}")


def served(newcomer: Newcomer, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        service = asyncio.create_task(newcomer.joining.run())
        newcomer.joining.wake()
        try:
            await scenario()
        finally:
            service.cancel()
            await asyncio.gather(service, return_exceptions=True)

    serving(run())


def test_a_member_joins_as_soon_as_it_is_one_and_not_before() -> None:
    newcomer = Newcomer()

    async def scenario() -> None:
        await turns()
        assert newcomer.did == []  # each refusal would be an entry in the log
        newcomer.added().joining.wake()
        await until(lambda: newcomer.joining.standing)
        assert newcomer.did == ["clear", "Join", "became 1"]

    served(newcomer, scenario)


def test_one_that_was_marked_down_ends_what_runs_here_before_it_joins_again() -> None:
    newcomer = Newcomer().added()

    async def scenario() -> None:
        await until(lambda: newcomer.joining.standing)
        newcomer.did.clear()
        newcomer.enter(MarkDown(NOW_US, "b", 1, "silent", 0))
        await until(lambda: newcomer.joining.standing)
        assert newcomer.did == ["clear", "Join", "became 2"]

    served(newcomer, scenario)


def test_an_incarnation_of_another_process_is_not_this_ones() -> None:
    """The state may still hold that of the process before."""
    newcomer = Newcomer().added()
    newcomer.history.back("b")
    assert not newcomer.joining.standing

    async def scenario() -> None:
        await until(lambda: newcomer.joining.standing)
        assert newcomer.joining.incarnation == 2

    served(newcomer, scenario)


def test_a_join_of_unknown_outcome_that_was_applied_is_followed_by_another() -> None:
    newcomer = Newcomer().added()
    newcomer.answers = [NoQuorum()]

    async def scenario() -> None:
        await until(lambda: "Join" in newcomer.did)
        newcomer.history.back("b")  # after all
        await until(lambda: newcomer.joining.standing)
        assert newcomer.joining.incarnation == newcomer.incarnation == 2

    served(newcomer, scenario)


def test_where_something_cannot_be_ended_the_node_must_end_and_does_not_join() -> None:
    newcomer = Newcomer().added()
    newcomer.cannot_clear = LeftoversRemain("hangs")

    async def scenario() -> None:
        with pytest.raises(LeftoversRemain):
            await newcomer.joining.run()
        assert newcomer.did == ["clear"]

    newcomer.joining.wake()
    serving(scenario())


def test_no_majority_is_tried_again_soon_and_a_refusal_ever_more_seldom_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    newcomer = Newcomer().added()
    newcomer.answers = [*[NoQuorum()] * 3, *[Result("invalid", detail="a capacity is more")] * 8]

    async def scenario() -> None:
        with caplog.at_level(logging.ERROR, "rota.joining"):
            await until(lambda: newcomer.joining.standing)
        assert newcomer.naps.asked[:4] == [PAUSE_S] * 3 + [2 * PAUSE_S]
        assert newcomer.naps.asked[-1] == PAUSE_S_MAX
        assert [record.getMessage() for record in caplog.records] == [
            "this node's join was refused: a capacity is more; retrying"
        ]

    served(newcomer, scenario)


def test_one_that_is_being_removed_or_has_been_does_not_join_again() -> None:
    newcomer = Newcomer().added()

    async def scenario() -> None:
        await until(lambda: newcomer.joining.standing)
        newcomer.did.clear()
        newcomer.enter(RemoveMember(NOW_US, "b"))
        newcomer.enter(MarkDown(NOW_US, "b", 1, "stopped", 0))
        await turns()
        assert "b" not in newcomer.history.state.members
        assert newcomer.did == []

    served(newcomer, scenario)


def test_one_that_resigned_and_was_removed_knows_that_it_has_been_removed(caplog: pytest.LogCaptureFixture) -> None:
    """It resigns before it says that it is down, and that is what removes it."""
    newcomer = Newcomer().added()

    async def scenario() -> None:
        await until(lambda: newcomer.joining.standing)
        newcomer.enter(RemoveMember(NOW_US, "b"))
        newcomer.joining.resign()
        newcomer.enter(MarkDown(NOW_US, "b", 1, "stopped", 0))
        peers: Any = None  # none is asked: it finds its removal in its own state
        watch = RemovalWatch(newcomer.member, lambda: newcomer.joining.has_joined, peers, newcomer.naps)
        service = asyncio.create_task(watch.run())
        await turns()
        service.cancel()
        [outcome] = await asyncio.gather(service, return_exceptions=True)
        assert isinstance(outcome, Removed)
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

    served(newcomer, scenario)


def test_one_that_has_resigned_joins_in_a_new_incarnation_if_it_is_to_stay() -> None:
    """What it said of the one before may still come, and is refused then."""
    newcomer = Newcomer().added()

    async def scenario() -> None:
        await until(lambda: newcomer.joining.standing)
        newcomer.enter(RemoveMember(NOW_US, "b"))
        newcomer.joining.resign()
        assert newcomer.did[-1] == "became 0"
        assert not newcomer.joining.standing
        await turns()
        assert newcomer.incarnation == 1, "it is to leave"
        newcomer.enter(Drain(NOW_US, "b", on=False))
        await until(lambda: newcomer.joining.standing)
        late = newcomer.history.do(MarkDown(NOW_US, "b", 1, "stopped", 0))
        assert (newcomer.incarnation, late.code) == (2, "incarnation")

    served(newcomer, scenario)
