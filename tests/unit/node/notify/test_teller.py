"""What a member does to tell: asks for permission, sends under its lease, and reports."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from node.duty.digests import DigestSummary, DueDigest, RunTally, digest_summary
from node.duty.step import LeaseView
from node.duty.telling import Send, sender
from node.notify import teller
from node.notify.teller import NotSent, Teller
from node.raft.errors import NoQuorum
from node.state.digest import MakeDigest
from node.state.entries import Entry
from node.state.members import MarkDown, TakeLead
from node.state.telling import PutChannel, Told
from node.state.value import RULES, Result, State
from tests.unit.node.state.given import DAY_US, NOW_US, History, cluster, hook


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
    leap_us: int = 400_000_000
    """Each look finds the pause after a failure over."""
    asked: list[DueDigest] = field(default_factory=list)
    trouble: list[Exception] = field(default_factory=list)
    gaps: int = 0

    @property
    def me(self) -> str:
        return sender(self.history.state, "ops", 0) or ""

    def state(self) -> State:
        return self.history.state

    def now_us(self) -> int:
        self.shift_us += self.leap_us
        return NOW_US + self.shift_us

    def lease_now(self) -> LeaseView | None:
        return self.lease

    async def digest_of(self, state: State, due: DueDigest) -> DigestSummary:
        self.asked.append(due)
        if self.trouble:
            raise self.trouble.pop(0)
        complete = not self.gaps
        self.gaps -= bool(self.gaps)
        tally = RunTally(state.index, {("t", "succeeded"): 2}, complete=complete)
        return digest_summary(state, due, tally, NOW_US + DAY_US)

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


# -- digests


def daily() -> History:
    """A channel with nothing but a digest, which is due: the clock of these tests leaps, and begins a day later."""
    made = cluster("a", "b", "c")
    made.must(TakeLead(NOW_US, "a", 1, RULES))
    made.must(PutChannel(NOW_US - DAY_US, "ops", hook(digest={"at": "00:00", "only": True}).pack()))
    return made


def test_a_digest_is_made_and_sent_once() -> None:
    port = Port(daily())
    port.run()
    [message] = port.sent
    [notice] = message.notices
    assert (notice.event, notice.text) == ("digest", "all 2 runs succeeded since 2024-10-03 00:00 UTC")
    assert (len(port.asked), port.waiting) == (1, 0)


def test_without_a_lease_no_digest_is_made() -> None:
    port = Port(daily(), lease=None)
    port.run()
    assert (port.asked, port.waiting) == ([], 0)


@pytest.mark.parametrize("why", ["trouble", "gaps", "refusing"])
def test_a_digest_that_cannot_be_made_now_is_made_later(why: str) -> None:
    port = Port(daily(), leap_us=100_000_000, **{why: [OSError("disk")] if why == "trouble" else 1})  # type: ignore[arg-type]
    port.run(40)
    assert (len(port.asked), len(port.sent), port.waiting) == (2, 1, 0)


def test_a_digest_waits_ten_minutes_for_runs_that_this_member_lacks() -> None:
    port = Port(daily(), leap_us=100_000_000, gaps=1000)
    port.run(100)
    [message] = port.sent
    [notice] = message.notices
    assert notice.figures is not None
    assert notice.figures["complete"] is False
    assert 1 < len(port.asked) < 5, "each look is later, and soon it waits no more"


def test_a_digest_that_another_member_made_is_not_made_again() -> None:
    port = Port(daily())
    made: list[str] = []

    async def propose(entry: Entry, timeout_s: float) -> Result:
        if isinstance(entry, MakeDigest) and not made:
            made.append(port.history.do(entry).code)  # another member was faster by this much
        return port.history.do(entry)

    port.propose = propose  # type: ignore[method-assign]
    port.run(40)
    assert (made, len(port.sent)) == (["ok"], 1)
