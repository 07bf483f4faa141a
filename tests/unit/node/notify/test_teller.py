"""What a member does to tell: asks for permission, sends under its lease, and reports."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from node.duty.step import LeaseView
from node.duty.telling import Send, sender
from node.notify import teller
from node.notify.teller import NotSent, Teller
from node.raft.errors import NoQuorum
from node.state.entries import Entry
from node.state.members import MarkDown, TakeLead
from node.state.telling import PutChannel, Told
from node.state.value import RULES, Result, State
from tests.unit.node.state.given import NOW_US, History, cluster, hook


def history() -> History:
    """Something is to be told on the channel `ops`."""
    made = cluster("a", "b", "c")
    made.must(TakeLead(NOW_US, "a", 1, RULES))
    made.must(PutChannel(NOW_US, "ops", hook(group_s=0).pack()))
    made.must(MarkDown(NOW_US, "c", 1, "silent", 1))
    return made


@dataclass
class Port:
    """The member that sends for `ops`, and the network: each message meets the next of `answers`, then is accepted."""

    history: History = field(default_factory=history)
    lease: LeaseView | None = field(default_factory=lambda: LeaseView(1, 1))
    answers: list[Exception] = field(default_factory=list)
    refusing: int = 0
    sent: list[Send] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    shift_us: int = 0

    @property
    def me(self) -> str:
        return sender(self.history.state, "ops", 0) or ""

    def state(self) -> State:
        return self.history.state

    def now_us(self) -> int:
        self.shift_us += 400_000_000  # each look finds the pause after a failure over
        return NOW_US + self.shift_us

    def lease_now(self) -> LeaseView | None:
        return self.lease

    async def propose(self, entry: Entry, timeout_s: float) -> Result:
        if self.refusing:
            self.refusing -= 1
            raise NoQuorum("there is no quorum")
        return self.history.do(entry)

    async def insist(self, entry: Entry, worth: Callable[[], bool]) -> Result | None:
        assert isinstance(entry, Told)
        self.told.append(entry)
        return self.history.do(entry) if worth() else None

    async def send(self, cluster_id: str, message: Send) -> str:
        self.sent.append(message)
        if self.answers:
            raise self.answers.pop(0)
        return "200"

    def run(self, steps: int = 20, *, rests: bool = False) -> None:
        async def serve() -> None:
            made = Teller(self, self, lambda _: asyncio.sleep(0))
            if rests:
                await made.rest()
            task = asyncio.create_task(made.run())
            for _ in range(steps):
                made.wake()
                await asyncio.sleep(0)
            task.cancel()

        asyncio.run(serve())

    @property
    def waiting(self) -> int:
        return len(self.history.state.channels["ops"].notices)


def test_it_sends_what_is_to_be_told_once() -> None:
    port = Port()
    port.run()
    assert ([len(send.notices) for send in port.sent], port.waiting) == ([2], 0)
    assert [told.end for told in port.told] == ["accepted"]


def test_without_a_lease_nothing_is_sent() -> None:
    port = Port(lease=None)
    port.run()
    assert (port.sent, port.waiting) == ([], 2)


def test_a_permission_that_cannot_be_had_now_is_asked_for_again() -> None:
    port = Port(refusing=2)
    port.run(40)
    assert (len(port.sent), port.waiting) == (1, 0)


@pytest.mark.parametrize("error", [NotSent("it said \udc80 no"), KeyError("a bug")])
def test_what_fails_is_reported_and_left_to_the_next(error: Exception) -> None:
    port = Port(answers=[error])
    port.run()
    row = port.history.state.channels["ops"]
    assert (len(port.sent), port.waiting, row.tries, row.sending) == (1, 2, 1, None)
    assert row.last is not None
    assert row.last.error


def test_a_member_that_rests_begins_nothing_new() -> None:
    port = Port()
    port.run(rests=True)
    assert port.sent == []


def test_an_error_in_a_decision_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no such zone")

    port = Port()
    monkeypatch.setattr(teller, "telling_step", fails)
    port.run()
    assert port.sent == []
