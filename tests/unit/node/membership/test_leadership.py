"""What a leader says on its election (docs/explanation/leases-and-claims.md)."""

import asyncio
from random import Random

from node.membership.leadership import PAUSE_S, PAUSE_S_MAX, Leadership
from node.raft.errors import NoQuorum
from node.raft.ports import RaftRole
from node.state.entries import Entry
from node.state.value import RULES, Lead, Result
from tests.unit.node.loop import Naps, serving, turns, until
from tests.unit.node.membership.fake_member import FakeMember
from tests.unit.node.state.given import History, cluster, seed


class Elected:
    """Member `a`, which leads in term 3 unless a test says otherwise, and what it proposes."""

    def __init__(self, history: History, role: RaftRole | None = None) -> None:
        self.history = history
        self.role = role or RaftRole(3, "a", True, True, True)
        self.said: list[str] = []
        self.answers: list[Result | Exception] = []
        self.naps = Naps()
        self.leadership = Leadership(
            FakeMember("a", lambda: self.history.state, self._propose, lambda: self.role),
            (seed("a"), seed("b"), seed("c")),
            lambda: frozenset({"a", "b"}),  # c was left out
            Random(1),
            self.naps,
        )

    async def _propose(self, entry: Entry, timeout_s: float) -> Result:
        self.said.append(type(entry).__name__)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        return self.history.do(entry)

    async def serve(self) -> None:
        service = asyncio.create_task(self.leadership.run())
        self.leadership.wake()
        if self.role.is_leader:
            await until(lambda: self.said or not self.leadership._unannounced())
            await until(lambda: not self.leadership._unannounced())
        await turns()
        service.cancel()
        await asyncio.gather(service, return_exceptions=True)


def test_the_first_leader_founds_the_cluster_and_says_that_it_leads() -> None:
    elected = Elected(History())
    serving(elected.serve())
    assert elected.said == ["FoundCluster", "TakeLead"]
    assert list(elected.history.state.slots) == ["a", "b"]
    assert elected.history.state.lead == Lead(3, "a", RULES)


def test_a_later_leader_only_says_that_it_leads_and_once() -> None:
    elected = Elected(cluster("a", "b"))
    serving(elected.serve())
    assert elected.said == ["TakeLead"]


def test_who_does_not_lead_says_nothing() -> None:
    elected = Elected(cluster("a", "b"), RaftRole(3, "b", False, True, True))
    serving(elected.serve())
    assert elected.said == []


def test_one_that_has_been_removed_says_nothing_though_raft_still_has_it_lead() -> None:
    """It is about to hand over, and would be refused again and again."""
    elected = Elected(cluster("b", "c"))
    serving(elected.serve())
    assert elected.said == []


def test_failures_and_refusals_are_tried_again_ever_more_slowly() -> None:
    elected = Elected(cluster("a"))
    elected.answers = [NoQuorum(), *[Result("leadership")] * 8]
    serving(elected.serve())
    assert elected.naps.asked[:3] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]
    assert elected.naps.asked[-1] == PAUSE_S_MAX
    assert elected.history.state.lead == Lead(3, "a", RULES)
