"""A node whose list names a running cluster that does not know it asks to be let in, or says what lets it in."""

import asyncio
import logging
from dataclasses import asdict
from typing import Any

import pytest

from node.client import ApiProblem, Unreachable
from node.membership.auto_join import PAUSE_S, PAUSE_S_MAX, REFUSED_S, AutoJoin
from node.raft.founding.founding import ClusterElsewhere, FoundingWait, Outlook
from node.state.entries import Seed

ME = Seed("node-4", "node-4", 7101, 8101)
LISTED = (*(Seed(f"node-{number}", f"host-{number}", 7101, 8101) for number in (1, 2, 3)), ME)
THERE = ClusterElsewhere("c0ffee", "node-1", ("node-1", "node-3"), knows_me=False)
BUSY = ApiProblem(
    409, "urn:rota:problem:conflict", "Not now", "the change of node-5 is not finished: ask again in a moment"
)
OTHER_SECRET = ApiProblem(401, "urn:rota:problem:unauthorized", "Who are you?", "")


class Newcomer:
    """Runs an admission until there is nothing more to look at, and notes what it did."""

    def __init__(self, *outlooks: Outlook, asks: bool = True, answers: tuple[Exception | None, ...] = ()) -> None:
        self.outlooks, self.answers = list(outlooks), list(answers)
        self.asked: list[tuple[list[str], Any]] = []
        self.naps: list[float] = []
        self.shown: list[str] = []
        self.admission = AutoJoin(ME, LISTED, asks, lambda: self.outlooks[0], self.cluster, self.sleep)

    def run(self) -> "Newcomer":
        with pytest.raises(IndexError):
            asyncio.run(self.admission.run())
        return self

    def cluster(self, urls: list[str]) -> "Newcomer":
        self.urls = urls
        return self

    def call(self, method: str, path: str, *, body: Any) -> None:
        assert (method, path) == ("POST", "/peer/members")
        self.asked.append((self.urls, body))
        if self.answers and (error := self.answers.pop(0)) is not None:
            raise error

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.shown.append(str(self.admission.outlook))
        del self.outlooks[0]


def test_it_asks_the_members_that_have_been_heard_until_it_is_let_in(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    known = ClusterElsewhere("c0ffee", "node-1", ("node-1", "node-3"), knows_me=True)
    answers = (BUSY, Unreachable("nobody answers"), None)
    newcomer = Newcomer(FoundingWait(("node-1",)), THERE, THERE, THERE, known, None, answers=answers).run()
    assert newcomer.asked == [(["http://host-1:8101", "http://host-3:8101"], asdict(ME))] * 3
    assert PAUSE_S < newcomer.naps[2] < newcomer.naps[3] <= 1.25 * PAUSE_S_MAX, (
        "it leaves the others more and more time"
    )
    assert "the change of node-5 is not finished" in newcomer.shown[1]
    assert caplog.text.count("the change of node-5 is not finished") == 1
    assert caplog.text.count("node-4 has been added to the cluster") == 1


def test_it_says_the_one_command_that_is_lacking_and_goes_on_once_that_was_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    newcomer = Newcomer(THERE, THERE, None, asks=False).run()
    command = "rota join http://host-1:8101 --id node-4 --at node-4:7101:8101"
    assert newcomer.asked == []
    assert all(command in said for said in newcomer.shown[:2])
    assert caplog.text.count(command) == 1


def test_a_member_whose_folder_was_lost_and_one_that_no_member_has_answered_ask_for_nothing() -> None:
    lost = ClusterElsewhere("c0ffee", "node-1", ("node-1",), knows_me=True)
    unsure = ClusterElsewhere("c0ffee", "node-1", (), knows_me=None)
    assert Newcomer(lost, unsure, FoundingWait(("node-2",))).run().asked == []


def test_an_answer_that_stays_the_same_is_said_and_not_asked_for_all_the_time() -> None:
    newcomer = Newcomer(THERE, answers=(OTHER_SECRET,)).run()
    assert newcomer.naps == [REFUSED_S]
    assert "was refused: Who are you?" in newcomer.shown[0]


def test_where_the_list_does_not_say_where_a_member_is_the_command_is_said() -> None:
    newcomer = Newcomer(ClusterElsewhere("c0ffee", "node-9", ("node-9",), knows_me=False)).run()
    assert newcomer.asked == []
    assert "rota join URL-OF-A-MEMBER --id node-4 --at node-4:7101:8101" in newcomer.shown[0]
