"""When the outside watcher is pinged, and when not."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from node.notify.dead_man import AGAIN_S, IDLE_S, DeadMansSwitch, withheld
from node.notify.teller import NotSent
from node.raft.ports import RaftRole
from node.state.members import StandAside, TakeLead
from node.state.settings import ChangeSettings
from node.state.value import RULES, State
from node.state.watchdog import Watchdog
from tasks.secret import Reference, SecretFile
from tests.unit.node.state.given import NOW_US, History, cluster

LEADS = RaftRole(3, "a", is_leader=True, has_quorum=True, ready=True)


def watched(**setting: object) -> History:
    history = cluster("a", "b", "c")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    history.must(ChangeSettings(NOW_US, {"watchdog": {"url": "https://watch.example/x", "every_s": 60} | setting}))
    return history


@dataclass
class Member:
    history: History = field(default_factory=watched)
    role: RaftRole = LEADS
    lease_held: bool = True
    late: list[str] = field(default_factory=list)
    pinged: list[Reference | str] = field(default_factory=list)
    refuses: str = ""

    def state(self) -> State:
        return self.history.state

    def now_us(self) -> int:
        return NOW_US

    async def late_tasks(self) -> list[str]:
        return self.late

    async def ping(self, where: Reference | str) -> str:
        self.pinged.append(where)
        if self.refuses:
            raise NotSent(self.refuses)
        return "200"

    def step(self) -> tuple[float, DeadMansSwitch]:
        switch = DeadMansSwitch(self, self.ping)
        return asyncio.run(switch.step()), switch


def test_the_leader_pings_while_all_is_well() -> None:
    member = Member()
    wait_s, switch = member.step()
    assert (wait_s, member.pinged) == (60, ["https://watch.example/x"])
    assert switch.last is not None
    assert (switch.last.withheld, switch.last.error) == (None, None)


@pytest.mark.parametrize(
    "member",
    [
        Member(role=replace(LEADS, is_leader=False)),
        Member(history=cluster("a")),
        Member(role=replace(LEADS, has_quorum=False)),
        Member(lease_held=False),
        Member(late=["nightly"]),
    ],
)
def test_nobody_else_pings_nor_when_something_is_wrong(member: Member) -> None:
    wait_s, _ = member.step()
    assert member.pinged == []
    assert wait_s <= AGAIN_S


def test_it_says_why_it_does_not_ping() -> None:
    state = watched().state
    assert withheld(state, quorum=True, overdue=[]) is None
    assert withheld(state, quorum=False, overdue=["a"]) == "there is no quorum"
    assert withheld(state, quorum=True, overdue=["a"]) == "a is overdue"
    assert withheld(state, quorum=True, overdue=["a", "b", "c", "d"]) == "a, b, c and 1 more are overdue"
    history = watched()
    history.must(StandAside(NOW_US, "b", 1, "no room on its disk"))
    assert withheld(history.state, quorum=True, overdue=[]) == "b: no room on its disk"


def test_a_ping_that_fails_is_tried_again_soon() -> None:
    member = Member(refuses="the receiver answered 500")
    wait_s, switch = member.step()
    assert wait_s == AGAIN_S
    assert switch.last is not None
    assert switch.last.error == "the receiver answered 500"


def test_another_watcher_is_pinged_soon() -> None:
    member = Member(history=watched(every_s=3600))
    slept: list[float] = []

    async def sleep(wait_s: float) -> None:
        slept.append(wait_s)
        if len(slept) == 3:
            member.history.must(ChangeSettings(NOW_US, {"watchdog": {"url": "https://watch.example/y"}}))
        if len(slept) == 4:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(DeadMansSwitch(member, member.ping, sleep).run())
    assert member.pinged == ["https://watch.example/x", "https://watch.example/y"]
    assert slept == [IDLE_S] * 4


def test_the_url_may_be_a_secret() -> None:
    member = Member(history=watched(url={"secret": "watch"}))
    member.step()
    assert member.pinged == [SecretFile(secret="watch")]
    assert member.state().settings.watchdog == Watchdog(60.0, secret="watch")
    assert Watchdog(60.0, env="WATCH").plain() == {"url": {"env": "WATCH"}, "every_s": 60.0}


@pytest.mark.parametrize("wrong", [{"url": "x"}, {"every_s": 0}, {"url": ""}, {"more": 1}])
def test_a_setting_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    history = watched()
    refused = history.do(ChangeSettings(NOW_US, {"watchdog": {"url": "https://watch.example"} | wrong}))
    assert refused.code == "invalid"
    history.must(ChangeSettings(NOW_US, {"watchdog": None}))
    assert history.state.settings.watchdog is None
