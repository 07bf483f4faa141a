"""Ids, retries and limits of a member's proposals (docs/explanation/raft.md)."""

import asyncio
import logging
from concurrent.futures import Future

import pytest

from node.raft.errors import EntryTooLarge, NoQuorum, OutcomeUnknown, Overloaded
from node.replication.proposer import AGAIN_S, IN_FLIGHT_MAX, Proposer
from node.state.entries import Entry, Proposal, ProposalId
from node.state.registry import Pause
from node.state.value import Result
from tests.unit.node.loop import Naps, serving, turns

ENTRY: Entry = Pause(1, "t", on=True)
OK = Result("ok")


class Log:
    """Answers proposals as it is told, the last answer again and again; without answers they stay open."""

    def __init__(self, *answers: Result | Exception) -> None:
        self.answers = list(answers)
        self.sent: list[Proposal] = []
        self.open: list[Future[Result]] = []

    def send(self, proposal: Proposal, timeout_s: float) -> "Future[Result]":
        self.sent.append(proposal)
        future: Future[Result] = Future()
        if not self.answers:
            self.open.append(future)
        else:
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(answer, EntryTooLarge | Overloaded):
                raise answer
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
        return future

    @property
    def sequences(self) -> list[int]:
        return [proposal.id.sequence for proposal in self.sent]


def test_each_proposal_has_an_id_of_its_own() -> None:
    async def scenario() -> None:
        log = Log(OK)
        proposer = Proposer("a", 7, log.send)
        await proposer.propose(ENTRY, 1)
        await proposer.propose(ENTRY, 1)
        assert [proposal.id for proposal in log.sent] == [ProposalId("a", 7, 1), ProposalId("a", 7, 2)]

    serving(scenario())


def test_insisting_tries_again_under_one_id_until_there_is_an_answer() -> None:
    """A copy that is still under way then changes nothing when it comes, however late: what was proposed next stays."""

    async def scenario() -> None:
        log, naps = Log(OutcomeUnknown(), NoQuorum(), Overloaded(), OK), Naps()
        assert await Proposer("a", 7, log.send, naps).insist(ENTRY, lambda: True) == OK
        assert log.sequences == [1, 1, 1, 1]
        assert naps.asked == [AGAIN_S] * 3

    serving(scenario())


def test_insisting_goes_on_under_a_new_id_once_the_old_one_is_out_of_the_window() -> None:
    async def scenario() -> None:
        log = Log(OutcomeUnknown(), Result("stale"), OK)
        assert await Proposer("a", 7, log.send, Naps()).insist(ENTRY, lambda: True) == OK
        assert log.sequences == [1, 1, 2]

    serving(scenario())


def test_insisting_ends_when_it_is_not_worth_it_any_more() -> None:
    async def scenario() -> None:
        worth = [True, True, False]
        log = Log(NoQuorum())
        assert await Proposer("a", 7, log.send, Naps()).insist(ENTRY, lambda: worth.pop(0)) is None
        assert len(log.sent) == 2

    serving(scenario())


def test_a_refusal_and_an_entry_that_is_too_large_end_the_insisting() -> None:
    async def scenario() -> None:
        fenced = Proposer("a", 7, Log(Result("fenced")).send)
        assert await fenced.insist(ENTRY, lambda: True) == Result("fenced")
        with pytest.raises(EntryTooLarge):
            await Proposer("a", 7, Log(EntryTooLarge()).send).insist(ENTRY, lambda: True)

    serving(scenario())


def test_so_many_are_under_way_at_once_and_the_next_does_not_wait_for_longer_than_it_may() -> None:
    """Else what a client has given up would be written long after."""

    async def scenario() -> None:
        log = Log()
        proposer = Proposer("a", 7, log.send)
        first = [asyncio.ensure_future(proposer.propose(ENTRY, 60)) for _ in range(IN_FLIGHT_MAX)]
        await turns()
        with pytest.raises(Overloaded):
            await proposer.propose(ENTRY, 0)
        assert len(log.sent) == IN_FLIGHT_MAX
        for future in log.open:
            future.set_result(OK)
        assert await asyncio.gather(*first) == [OK] * IN_FLIGHT_MAX
        log.answers = [OK]
        assert await proposer.propose(ENTRY, 1) == OK

    serving(scenario())


def test_what_a_caller_has_given_up_keeps_its_place_until_there_is_a_result() -> None:
    async def scenario() -> None:
        log = Log()
        proposer = Proposer("a", 7, log.send)
        given_up = [asyncio.ensure_future(proposer.propose(ENTRY, 60)) for _ in range(IN_FLIGHT_MAX)]
        await turns()
        for task in given_up:
            task.cancel()
        await turns()
        with pytest.raises(Overloaded):
            await proposer.propose(ENTRY, 0)
        log.open[0].set_exception(NoQuorum())
        log.open[1].set_result(OK)
        await turns()
        log.answers = [OK]
        assert await asyncio.gather(*(proposer.propose(ENTRY, 1) for _ in range(2))) == [OK, OK]

    serving(scenario())


def test_a_fault_in_apply_is_said_loudly(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        with caplog.at_level(logging.ERROR, "rota.proposer"):
            await Proposer("a", 7, Log(Result("fault", detail="Pause failed")).send).propose(ENTRY, 1)
        assert "Pause failed" in caplog.text

    serving(scenario())


def test_a_session_that_was_never_known_gives_way_to_a_later_one() -> None:
    """The folder was lost, and the session before was named by a clock that was an hour ahead of this one."""

    async def scenario() -> None:
        log = Log(Result("stale", {"session": 3_600}), OK, Result("stale", {"session": 9_000}))
        proposer = Proposer("a", 7, log.send)
        assert (await proposer.propose(ENTRY, 1)).code == "stale"
        assert (await proposer.propose(ENTRY, 1)).ok
        # One that was known and is superseded has been followed by another process, and stays behind it.
        await proposer.propose(ENTRY, 1)
        await proposer.propose(ENTRY, 1)
        ids = [proposal.id for proposal in log.sent]
        assert [(one.session, one.sequence) for one in ids] == [(7, 1), (3_601, 1), (3_601, 2), (3_601, 3)]

    serving(scenario())


def test_a_session_that_was_forgotten_gives_way_to_a_later_one_though_it_was_known() -> None:
    """This member was removed, and let in again after so many others had come and gone."""

    async def scenario() -> None:
        gone = Result("stale", {"session": 40, "forgotten": True})
        log = Log(OK, gone, OK, gone)
        proposer = Proposer("a", 7, log.send)
        for _ in range(4):
            await proposer.propose(ENTRY, 1)
        # What else was under way in the old session is answered so too: that ends nothing of the new one.
        await proposer.propose(ENTRY, 1)
        ids = [proposal.id for proposal in log.sent]
        assert [(one.session, one.sequence) for one in ids] == [(7, 1), (7, 2), (41, 1), (41, 2), (41, 3)]

    serving(scenario())
