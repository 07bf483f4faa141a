"""Members come and go in the state and in Raft: in the end in both, whoever dies in between."""

import asyncio
from concurrent.futures import Future

from node.membership.changes import MembershipChanges
from node.raft.errors import ChangeRefused
from node.raft.ports import RaftRole
from node.state.entries import Entry, Seed
from node.state.members import AddMember, MarkDown, RemoveMember, TakeLead
from node.state.value import Result
from tests.unit.node.loop import Naps, serving, turns, until
from tests.unit.node.membership.fake_member import FakeMember
from tests.unit.node.state.given import NOW_US, cluster, seed


class Raft:
    """Whom Raft has as members. `refuses` changes, while a test says so."""

    def __init__(self, *members: str) -> None:
        self.members = frozenset(members)
        self.refuses = False
        self.yielded = 0

    def hand_over(self) -> None:
        self.yielded += 1

    def add_member(self, member: str, address: tuple[str, int], timeout_s: float) -> "Future[None]":
        return self._changed(self.members | {member})

    def remove_member(self, member: str, timeout_s: float) -> "Future[None]":
        return self._changed(self.members - {member})

    def _changed(self, members: frozenset[str]) -> "Future[None]":
        future: Future[None] = Future()
        if self.refuses:
            future.set_exception(ChangeRefused("another one is under way"))
        else:
            self.members = members
            future.set_result(None)
        return future


class Here:
    """Member `a` of a, b and c, which leads."""

    def __init__(self, *members: str) -> None:
        members = members or ("a", "b", "c")
        self.history = cluster(*members)
        self.history.must(TakeLead(NOW_US, "a", 1))
        self.raft = Raft(*members)
        self.role = RaftRole(1, "a", True, True, True)
        self.naps = Naps(held=True)
        self.membership = MembershipChanges(
            FakeMember("a", lambda: self.history.state, self._propose, lambda: self.role),
            self.raft,
            self._wait,
            self.naps,
            self._connect,
        )
        self.listening: set[str] = set()

    @property
    def members(self) -> set[str]:
        return set(self.history.state.members)

    async def _propose(self, entry: Entry, timeout_s: float) -> Result:
        return self.history.do(entry)

    async def _connect(self, host: str, port: int) -> tuple[None, "Here"]:
        if host.removesuffix(".example") not in self.listening:
            raise ConnectionRefusedError
        return None, self

    def close(self) -> None:
        """The connection, which is not needed any more."""

    async def _wait(self, index: int, timeout_s: float) -> bool:
        await asyncio.sleep(0)
        return False


D = seed("d")


def test_a_new_member_is_one_in_the_state_and_in_raft() -> None:
    async def scenario() -> None:
        here = Here()
        assert (await here.membership.add(D, 1)).ok
        assert here.members == here.raft.members == {"a", "b", "c", "d"}

    serving(scenario())


def test_one_that_raft_cannot_take_now_is_taken_later() -> None:
    """Somebody else may have asked for it as well, and been told that it is a member (seed 40174 of the simulation)."""

    async def scenario() -> None:
        here = Here()
        here.raft.refuses = True
        assert (await here.membership.add(D, 1)).code == "busy"
        here.raft.refuses = False
        assert (await here.membership.add(D, 1)).ok
        assert here.members == here.raft.members == {"a", "b", "c", "d"}

    serving(scenario())


def test_who_was_let_in_by_half_can_be_let_in_again_and_nobody_else_under_the_name() -> None:
    async def scenario() -> None:
        here = Here()
        here.history.must(AddMember(NOW_US, D))
        assert (await here.membership.add(Seed("d", "elsewhere", 1, 2), 1)).code == "exists"
        assert (await here.membership.add(D, 1)).ok
        assert here.raft.members == {"a", "b", "c", "d"}
        here.history.back("d")
        assert (await here.membership.add(D, 1)).code == "exists"

    serving(scenario())


def test_a_member_that_is_down_goes_at_once() -> None:
    async def scenario() -> None:
        here = Here()
        here.history.must(MarkDown(NOW_US, "b", 1, "gone", 1))
        assert (await here.membership.remove("b", 1)).ok
        assert here.members == here.raft.members == {"a", "c"}

    serving(scenario())


def test_a_member_that_works_goes_once_it_has_handed_over() -> None:
    async def scenario() -> None:
        here = Here()
        removing = asyncio.ensure_future(here.membership.remove("b", 60))
        await until(lambda: here.history.state.members["b"].leaving)
        await turns()
        assert "b" in here.raft.members  # its vote may be needed
        here.history.must(MarkDown(NOW_US, "b", 1, "stopped", 0))
        assert (await removing).ok
        assert here.members == here.raft.members == {"a", "c"}

    serving(scenario())


def test_one_that_does_not_hand_over_in_time_is_told_of() -> None:
    async def scenario() -> None:
        here = Here()
        assert (await here.membership.remove("b", 0)).code == "busy"
        assert "b" in here.raft.members

    serving(scenario())


def test_nobody_is_let_in_where_a_majority_would_need_its_vote() -> None:
    """Two of three take part: with a fourth, which has no vote before it has caught up, they are no majority."""

    async def scenario() -> None:
        here = Here()
        here.listening = {"d"}
        here.history.must(MarkDown(NOW_US, "b", 1, "gone", 1))
        refused = await here.membership.add(D, 1)
        assert (refused.code, "b, d would not take part" in refused.detail) == ("busy", True)
        assert "d" not in here.members
        assert (await here.membership.remove("b", 1)).ok
        assert (await here.membership.add(D, 1)).ok

    serving(scenario())


def test_nobody_is_let_go_whose_absence_would_leave_no_majority() -> None:
    async def scenario() -> None:
        here = Here()
        here.history.must(MarkDown(NOW_US, "b", 1, "gone", 1))
        refused = await here.membership.remove("c", 1)
        assert (refused.code, "of the 2 members that there would be, b would" in refused.detail) == ("busy", True)
        assert not here.history.state.members["c"].leaving
        assert (await here.membership.remove("b", 1)).ok

    serving(scenario())


def test_nobody_removes_itself_and_where_to_ask_is_said() -> None:
    async def scenario() -> None:
        here = Here()
        here.history.must(MarkDown(NOW_US, "b", 1, "gone", 1))
        refused, c = await here.membership.remove("a", 1), here.history.state.members["c"]
        assert refused.code == "self"
        assert f"ask another one (ROTA_URL=http://{c.host}:{c.http_port})" in refused.detail, "b is down"

    serving(scenario())


def test_the_leader_finishes_what_others_have_begun_after_leaving_them_time() -> None:
    async def scenario() -> None:
        here = Here()
        here.history.must(MarkDown(NOW_US, "b", 1, "gone", 1))
        here.history.must(RemoveMember(NOW_US, "b"))
        here.history.must(AddMember(NOW_US, D))
        service = asyncio.create_task(here.membership.run())
        here.membership.wake()
        await until(lambda: here.naps.asked)
        assert here.raft.members == {"a", "b", "c"}
        here.naps.held = False
        here.naps.wake()
        await until(lambda: here.raft.members == {"a", "c", "d"})
        service.cancel()

    serving(scenario())


def test_only_who_leads_finishes_it() -> None:
    async def scenario() -> None:
        for role in (
            RaftRole(1, "b", False, True, True),
            RaftRole(2, "a", True, True, True),
            RaftRole(1, "a", True, True, False),
        ):
            here = Here()
            here.role = role
            here.history.must(AddMember(NOW_US, D))
            service = asyncio.create_task(here.membership.run())
            here.membership.wake()
            await turns()
            assert here.naps.asked == []
            service.cancel()

    serving(scenario())


def test_one_change_is_finished_in_both_before_the_next_begins() -> None:
    """Of two that were removed from the state alone, both would still count for Raft's majority, and soon be gone."""

    async def scenario() -> None:
        here = Here()
        here.history.must(MarkDown(NOW_US, "b", 1, "gone", 1))
        here.history.must(RemoveMember(NOW_US, "b"))
        refused = await here.membership.add(D, 1)
        assert (refused.code, "the change of b is not finished" in refused.detail) == ("busy", True)
        assert (await here.membership.remove("c", 1)).code == "busy"
        assert not here.history.state.members["c"].leaving

    serving(scenario())


def test_who_is_let_in_by_half_does_not_keep_a_lost_member_from_going() -> None:
    """Raft may not take the one before the other has gone (`node.raft.log.membership.may_follow`)."""

    async def scenario() -> None:
        here = Here()
        here.raft.refuses = True
        assert (await here.membership.add(D, 1)).code == "busy"
        here.raft.refuses = False
        here.history.must(MarkDown(NOW_US, "b", 1, "gone", 1))
        assert (await here.membership.remove("b", 1)).ok
        assert here.raft.members == {"a", "c"}
        assert (await here.membership.add(D, 1)).ok
        assert here.members == here.raft.members == {"a", "c", "d"}

    serving(scenario())


def test_the_second_of_a_cluster_of_one_may_be_let_in_again_and_again() -> None:
    async def scenario() -> None:
        here = Here("a")
        assert (await here.membership.add(D, 1)).code == "busy"
        here.listening, here.raft.refuses = {"d"}, True
        assert (await here.membership.add(D, 1)).code == "busy"
        here.raft.refuses = False
        assert (await here.membership.add(D, 1)).ok
        assert here.raft.members == {"a", "d"}

    serving(scenario())


def test_a_leader_that_is_no_member_any_more_lets_another_lead() -> None:
    """Only who leads and is a member may finish its removal; of two, the other could do nothing once it has ended."""

    async def scenario() -> None:
        here = Here()
        here.history.must(MarkDown(NOW_US, "a", 1, "stopped", 0))
        here.history.must(RemoveMember(NOW_US, "a"))
        here.naps.held = False
        service = asyncio.create_task(here.membership.run())
        here.membership.wake()
        await until(lambda: here.raft.yielded)
        assert "a" in here.raft.members
        service.cancel()

    serving(scenario())
