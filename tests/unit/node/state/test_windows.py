"""Each proposal takes effect once: DESIGN.md, section 5; Ongaro 2014, section 6.3."""

from dataclasses import replace

from immutables import Map

from node.state.apply import apply
from node.state.entries import Proposal, ProposalId, Start
from node.state.value import Result, State, Window
from node.state.windows import HEAVY, KEPT, SLACK, STALE, STRANGERS, recall, remember, weigh
from tests.unit.node.state.given import NOW_US, cluster


def cluster_with_task() -> State:
    history = cluster("a", "b")
    history.put("t", overlap="allow")
    return history.state


def test_a_repeated_proposal_gets_its_first_result_and_changes_nothing() -> None:
    state = cluster_with_task()
    proposal = Proposal(ProposalId("b", 1, 1), Start(NOW_US, "t"))
    first = apply(state, proposal)
    again = apply(first.state, proposal)
    assert again.result == first.result
    assert again.state == replace(first.state, index=first.state.index + 1)
    # What counts is the id: a refusal is repeated too, though it might be accepted by now.
    refused = apply(state, Proposal(ProposalId("b", 1, 2), Start(NOW_US, "u")))
    assert apply(refused.state, Proposal(ProposalId("b", 1, 2), Start(NOW_US, "t"))).result == refused.result


def test_a_later_session_begins_anew_and_ends_the_earlier_one() -> None:
    state = cluster_with_task()
    state = apply(state, Proposal(ProposalId("b", 1, 1), Start(NOW_US, "t"))).state
    state = apply(state, Proposal(ProposalId("b", 3, 1), Start(NOW_US, "t"))).state
    assert len(state.runs) == 2
    late = apply(state, Proposal(ProposalId("b", 1, 2), Start(NOW_US, "t")))
    assert (late.result.code, late.result.value) == ("stale", {"session": 3})
    assert late.state == replace(state, index=state.index + 1)


def test_the_newest_are_remembered_the_oldest_refused() -> None:
    state = cluster_with_task()
    count = 2 * KEPT
    for sequence in range(1, count + 1):
        state = apply(state, Proposal(ProposalId("b", 1, sequence), Start(NOW_US, "nothing"))).state
        assert len(state.windows["b"].results) <= KEPT + SLACK
    for sequence, code in ((1, "stale"), (count - KEPT - SLACK, "stale"), (count - KEPT + 1, "no-such-task")):
        assert apply(state, Proposal(ProposalId("b", 1, sequence), Start(NOW_US, "t"))).result.code == code


def test_long_lists_are_remembered_for_less_long() -> None:
    windows: Map[str, Window] = Map()
    long = Result("ok", {"tasks": [["t", 1, True]] * 1000})
    for sequence in range(1, 301):
        windows = remember(windows, ProposalId("a", 1, sequence), long)
        window = windows["a"]
        assert window.weight == weigh(window.results) <= HEAVY
        assert recall(windows, ProposalId("a", 1, sequence)) == long
    assert len(windows["a"].results) < 100
    assert recall(windows, ProposalId("a", 1, 1)) == Result("stale", detail=STALE)


def test_strangers_have_few_windows() -> None:
    state = cluster_with_task()
    codes = []
    for number in range(STRANGERS + 10):
        applied = apply(state, Proposal(ProposalId(f"stranger-{number}", 1, 1), Start(NOW_US, "t")))
        state = applied.state
        codes.append(applied.result.code)
    assert len(state.windows) <= len(state.members) + STRANGERS
    assert codes[-1] == "no-such-member"
    assert apply(state, Proposal(ProposalId("b", 1, 1), Start(NOW_US, "t"))).result.ok
