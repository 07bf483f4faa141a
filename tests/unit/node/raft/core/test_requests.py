"""What callers wait for, from the request to its result, without a thread or a socket."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from node.raft.core.changes import MembershipChange
from node.raft.core.requests import BARRIER, PROPOSALS, Requests
from node.raft.errors import EntryTooLarge, NoQuorum, OutcomeUnknown, RaftStopped
from node.raft.ports import RaftTiming
from node.replication.state_machine import StateMachine
from node.state.attempts import Cancel
from node.state.codec import pack_batch
from node.state.entries import Proposal, ProposalId
from node.state.value import Result

NOW_S = 100.0
TIMING = RaftTiming(entry_bytes=50)


class Consensus:
    """Keeps what is proposed. There is no leader for changes of membership."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.inquiry = SimpleNamespace(leave_out=lambda members: f"not without {', '.join(sorted(members))}")

    def put(self, data: bytes) -> None:
        self.entries.append(data)

    def leader_node(self) -> None:
        return None


def proposal(number: int, text: str = "") -> Proposal:
    return Proposal(ProposalId("a", 1, number), Cancel(0, text or f"run {number}"))


def closed(wake: Callable[[], None] = lambda: None) -> Requests:
    return Requests(TIMING, StateMachine(lambda _change: None), lambda: NOW_S, wake)


@pytest.fixture
def requests() -> Requests:
    made = closed()
    made.open()
    return made


@pytest.fixture
def consensus() -> Any:
    return Consensus()


def test_waiting_requests_are_proposed_as_one_entry_and_answered_when_applied(
    requests: Requests, consensus: Any
) -> None:
    futures = [requests.propose(proposal(number), 1) for number in (1, 2)]
    barrier = requests.barrier(1)
    requests.send(consensus, NOW_S)
    mark, batch = consensus.entries
    assert (mark[:1], batch) == (BARRIER, PROPOSALS + pack_batch([proposal(1), proposal(2)]))
    requests.barrier_applied(mark[1:])
    requests.applied([(ProposalId("a", 1, number), Result("ok")) for number in (1, 2, 9)])
    assert [future.result(0) for future in futures] == [Result("ok"), Result("ok")]
    assert barrier.result(0) is None


def test_a_timed_out_request_reports_whether_it_was_proposed(requests: Requests, consensus: Any) -> None:
    sent = requests.propose(proposal(1), 1)
    requests.send(consensus, NOW_S)
    waits = requests.propose(proposal(2), 1)
    barrier = requests.barrier(1)
    requests.step(consensus, NOW_S + 1)
    errors = [type(future.exception(0)) for future in (sent, waits, barrier)]
    assert errors == [OutcomeUnknown, NoQuorum, NoQuorum]


def test_unfinished_requests_are_proposed_again_under_a_new_leader(requests: Requests, consensus: Any) -> None:
    requests.propose(proposal(1), 1)
    requests.send(consensus, NOW_S)
    requests.send(consensus, NOW_S)
    assert len(consensus.entries) == 1
    requests.leader_changed(NOW_S)
    requests.send(consensus, NOW_S)
    assert consensus.entries == [PROPOSALS + pack_batch([proposal(1)])] * 2


def test_a_proposal_that_is_too_large_is_refused(requests: Requests) -> None:
    with pytest.raises(EntryTooLarge, match="at most 50"):
        requests.propose(proposal(1, "x" * 51), 1)


def test_a_manual_founding_is_answered_in_the_raft_thread(requests: Requests, consensus: Any) -> None:
    refused = requests.leave_out(frozenset("cb"))
    assert not refused.done()
    requests.found_without(consensus)
    assert refused.result(0) == "not without b, c"


def every_kind(requests: Requests) -> list[Any]:
    return [
        requests.propose(proposal(9), 1),
        requests.barrier(1),
        requests.change(MembershipChange("rem", "c", "c", NOW_S + 1)),
        requests.leave_out(frozenset("c")),
    ]


def test_a_stopping_member_fails_all_requests_and_says_which_may_be_committed(
    requests: Requests, consensus: Any
) -> None:
    sent = requests.propose(proposal(1), 1)
    requests.send(consensus, NOW_S)
    others = every_kind(requests)
    requests.give_up()
    assert type(sent.exception(0)) is OutcomeUnknown
    assert {type(future.exception(0)) for future in others} == {RaftStopped}


def test_requests_fail_at_once_before_opening_and_after_refusal(requests: Requests, consensus: Any) -> None:
    requests.refuse()
    for one in (closed(), requests):
        assert {type(future.exception(0)) for future in every_kind(one)} == {RaftStopped}
        one.send(consensus, NOW_S)
    assert consensus.entries == []


def test_each_request_has_the_thread_of_raft_turn_soon() -> None:
    woken: list[None] = []
    requests = closed(lambda: woken.append(None))
    requests.open()
    assert len(every_kind(requests)) == len(woken)
