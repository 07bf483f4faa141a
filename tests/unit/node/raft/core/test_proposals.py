"""Group commit, retries under one id, and the errors of callers, with the time given."""

from concurrent.futures import Future

import pytest

from node.raft.core.proposals import Barriers, Proposals, WaitingProposal
from node.raft.errors import NoQuorum, OutcomeUnknown, Overloaded
from node.state.attempts import Cancel
from node.state.entries import Proposal, ProposalId
from node.state.value import Result


def waiting(sequence: int, deadline_s: float = 100.0, size: int = 10) -> WaitingProposal:
    return WaitingProposal(Proposal(ProposalId("n1", 1, sequence), Cancel(0, "run")), bytes(size), deadline_s)


def queue(batch_bytes: int = 50, flights: int = 2) -> Proposals:
    return Proposals(batch_bytes=batch_bytes, waiting_bytes=1_000, resend_s=2.0, flights=flights)


def sequences(batch: list[WaitingProposal]) -> list[int]:
    return [each.proposal.id.sequence for each in batch]


def test_proposals_made_during_replication_share_the_next_entry() -> None:
    proposals = queue()
    proposals.add(waiting(1))
    assert sequences(proposals.take(0)) == [1]
    proposals.add(waiting(2))
    assert sequences(proposals.take(0)) == [2]
    for sequence in range(3, 10):
        proposals.add(waiting(sequence))
    assert proposals.take(0) == []
    proposals.applied([(ProposalId("n1", 1, 1), Result("ok"))])
    assert sequences(proposals.take(0)) == [3, 4, 5, 6, 7]


def test_a_result_reaches_exactly_the_callers_that_wait_for_its_id() -> None:
    proposals = queue()
    first, second, other = waiting(1), waiting(1), waiting(2)
    for each in (first, second, other):
        proposals.add(each)
    proposals.take(0)
    results = [(ProposalId("n2", 1, 1), Result("ok")), (ProposalId("n1", 1, 1), Result("ok"))]
    assert [each for each, _ in proposals.applied(results)] == [first, second]
    assert proposals.applied(results) == []
    assert len(proposals) == 1


def test_unanswered_proposals_are_resent_first_under_the_same_id() -> None:
    proposals = queue()
    proposals.add(waiting(1))
    proposals.add(waiting(2))
    proposals.take(0)
    proposals.add(waiting(3))
    proposals.applied([(ProposalId("n1", 1, 1), Result("ok"))])
    proposals.send_again(1.9, all_of_them=False)
    assert sequences(proposals.take(1.9)) == [3]
    proposals.send_again(2.1, all_of_them=False)
    assert sequences(proposals.take(2.1)) == [2]
    proposals.send_again(2.2, all_of_them=True)
    assert sorted(sequences(proposals.take(2.2))) == [2, 3]


def test_the_deadline_error_says_whether_the_request_was_proposed() -> None:
    proposals = queue(batch_bytes=1, flights=1)
    proposals.add(waiting(1, deadline_s=5))
    proposals.add(waiting(2, deadline_s=5))
    proposals.take(0)
    assert proposals.expire(4.9) == []
    told = {each.proposal.id.sequence: type(error) for each, error in proposals.expire(5.0)}
    assert told == {1: OutcomeUnknown, 2: NoQuorum}
    assert proposals.take(6.0) == []


def test_waiting_bytes_are_bounded() -> None:
    proposals = queue()
    for sequence in range(100):
        proposals.add(waiting(sequence))
    with pytest.raises(Overloaded):
        proposals.add(waiting(100))
    proposals.take(0)
    proposals.applied([(ProposalId("n1", 1, 0), Result("ok"))])
    proposals.add(waiting(100))
    assert len(proposals.give_up()) == 100


def test_waiting_barriers_share_a_no_op_proposed_after_them() -> None:
    barriers = Barriers(resend_s=2.0)
    first, late, last = (Future[None]() for _ in range(3))
    barriers.add(first, 10)
    mark = barriers.take(0)
    assert mark is not None
    barriers.add(late, 10)
    assert barriers.take(0) is None
    assert barriers.applied(b"another's") == []
    assert barriers.applied(mark) == [first]
    second = barriers.take(0)
    assert second is not None
    barriers.send_again(3, all_of_them=False)
    third = barriers.take(3)
    assert third is not None
    assert barriers.applied(third) == [late]
    barriers.add(last, 4)
    assert [(future, type(error)) for future, error in barriers.expire(4)] == [(last, NoQuorum)]
