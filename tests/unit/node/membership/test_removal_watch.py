"""A removed member finds out that it is one, though nobody speaks to it any more."""

import asyncio
import logging

import pytest

from node.membership.removal_watch import FAREWELL_S, POLLS_ALONE, RemovalWatch, Removed
from node.peer.protocol import PeerAway, Roster, roster_of
from node.raft.ports import RaftRole
from node.state.members import MarkDown, RemoveMember
from node.state.value import State
from tests.unit.node.loop import Naps, serving, turns
from tests.unit.node.membership.fake_member import FakeMember
from tests.unit.node.state.given import NOW_US, cluster


class Cut:
    """Member `b` of a and b; `a` answers with a roster, or not at all."""

    def __init__(self, has_joined: bool = True) -> None:
        self.history = cluster("a", "b")
        self.known: State = self.history.state
        self.role = RaftRole(1, None, False, False, True)
        self.answer: Roster | None = None
        self.asked = 0
        self.naps = Naps()
        member = FakeMember("b", lambda: self.known, role=lambda: self.role)
        self.watch = RemovalWatch(member, lambda: has_joined, self, self.naps)

    async def roster(self, member: str, timeout_s: float) -> Roster:
        self.asked += 1
        if self.answer is None:
            raise PeerAway(member, "silent")
        return self.answer

    def remove(self) -> State:
        self.history.must(RemoveMember(NOW_US, "b"))
        self.history.must(MarkDown(NOW_US, "b", 1, "stopped", 0))
        return self.history.state

    async def removed(self) -> bool:
        service = asyncio.create_task(self.watch.run())
        await turns(100)
        service.cancel()
        return isinstance((await asyncio.gather(service, return_exceptions=True))[0], Removed)


def test_one_that_was_told_of_its_removal_votes_on_for_a_while_and_ends() -> None:
    async def scenario() -> None:
        cut = Cut()
        cut.known = cut.remove()
        assert await cut.removed()
        assert cut.naps.asked[-1] == FAREWELL_S

    serving(scenario())


def test_one_that_hears_nobody_asks_the_others_whether_it_still_belongs() -> None:
    async def scenario() -> None:
        cut = Cut()
        cut.answer = roster_of(cut.remove())
        assert await cut.removed()
        assert cut.asked == 1
        assert len(cut.naps.asked) == POLLS_ALONE + 1

    serving(scenario())


@pytest.mark.parametrize("answers", [False, True], ids=["silence", "yes"])
def test_silence_and_a_yes_are_no_removal(answers: bool) -> None:
    async def scenario() -> None:
        cut = Cut()
        cut.answer = roster_of(cut.known) if answers else None
        assert not await cut.removed()
        assert cut.asked > 0

    serving(scenario())


def test_one_that_knows_less_or_is_of_another_cluster_is_not_believed() -> None:
    async def scenario() -> None:
        cut = Cut()
        cut.answer = Roster(cut.known.cluster_id, cut.known.index - 1, ())
        assert not await cut.removed()
        cut.answer = Roster("another", cut.known.index + 100, ())
        assert not await cut.removed()

    serving(scenario())


def test_while_there_is_a_leader_nobody_is_asked() -> None:
    async def scenario() -> None:
        cut = Cut()
        cut.role = RaftRole(1, "a", False, True, True)
        assert not await cut.removed()
        assert cut.asked == 0

    serving(scenario())


def test_one_that_never_was_a_member_waits_to_become_one_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """ROTA_MEMBERS is not the same everywhere, most likely."""

    async def scenario() -> None:
        cut = Cut(has_joined=False)
        cut.known = cut.remove()
        cut.role = RaftRole(1, "a", False, True, True)
        with caplog.at_level(logging.ERROR, "rota.membership"):
            assert not await cut.removed()
        assert [record.getMessage()[:36] for record in caplog.records] == ["this cluster has no member called b;"]

    serving(scenario())
