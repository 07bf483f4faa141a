"""Each proposal takes effect once (Ongaro 2014, section 6.3)."""

from dataclasses import replace

from immutables import Map

from node.state.apply import apply
from node.state.codec import from_pieces, snapshot_pieces
from node.state.entries import Entry, Proposal, ProposalId
from node.state.members import AddMember, MarkDown, RemoveMember
from node.state.occurrences import Start
from node.state.value import Result, State, Window
from node.state.windows import HEAVY, KEPT, OTHERS_MAX, SLACK, STALE, forget, recall, remember, weigh
from tests.unit.node.state.given import NOW_US, cluster, joining, seed


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


def test_proposers_that_are_not_members_get_few_windows() -> None:
    state = cluster_with_task()
    codes = []
    for number in range(OTHERS_MAX + 10):
        applied = apply(state, Proposal(ProposalId(f"other-{number}", 1, 1), Start(NOW_US, "t")))
        state = applied.state
        codes.append(applied.result.code)
    assert len(state.windows) <= len(state.members) + OTHERS_MAX
    assert codes[-1] == "no-such-member"
    assert apply(state, Proposal(ProposalId("b", 1, 1), Start(NOW_US, "t"))).result.ok


class Passing:
    """A cluster of `a` and `b` that others come to and leave, each in a session of its own: 1001, 1002 and so on."""

    def __init__(self) -> None:
        self.state = cluster_with_task()
        self._sequence = 1000

    def must(self, entry: Entry) -> None:
        self._sequence += 1
        applied = apply(self.state, Proposal(ProposalId("a", 1, self._sequence), entry))
        assert applied.result.ok, applied.result
        self.state = applied.state

    def propose(self, member: str, session: int, sequence: int, entry: Entry) -> Result:
        applied = apply(self.state, Proposal(ProposalId(member, session, sequence), entry))
        self.state = applied.state
        return applied.result

    def comes(self, number: int) -> None:
        """`m-<number>` joins, and starts a run, with its first two proposals."""
        member = f"m-{number}"
        self.must(AddMember(NOW_US, seed(member)))
        assert self.propose(member, 1000 + number, 1, joining(member)).ok
        assert self.propose(member, 1000 + number, 2, Start(NOW_US, "t")).ok

    def goes(self, number: int) -> None:
        self.must(MarkDown(NOW_US, f"m-{number}", 1, "stopped", 0))
        self.must(RemoveMember(NOW_US, f"m-{number}"))


def passed_by(count: int) -> Passing:
    passing = Passing()
    for number in range(1, count + 1):
        passing.comes(number)
        passing.goes(number)
    return passing


def test_of_the_windows_of_removed_members_the_latest_are_kept() -> None:
    state = passed_by(OTHERS_MAX + 10).state
    kept = {f"m-{number}" for number in range(11, OTHERS_MAX + 11)}
    assert set(state.windows) == {"a", *kept}, "b has proposed nothing"
    assert state.forgotten == 1010
    assert from_pieces(snapshot_pieces(state)) == state


def test_what_a_removed_member_had_applied_is_not_applied_again_after_its_window_is_forgotten() -> None:
    passing = passed_by(OTHERS_MAX + 10)
    runs = passing.state.runs
    late = ("m-1", 1001, 2, Start(NOW_US, "t"))
    stale = Result("stale", {"session": 1010, "forgotten": True}, STALE)
    assert passing.propose(*late) == stale, "there is a place for a window: b has none yet"
    assert passing.propose("b", 2000, 1, Start(NOW_US, "nothing")).code == "no-such-task"
    assert passing.propose(*late).code == "no-such-member"
    passing.must(AddMember(NOW_US, seed("m-1")))
    assert passing.propose(*late) == stale, "it is a member again"
    assert passing.state.runs == runs


def test_a_member_added_again_after_its_window_was_forgotten_continues_in_a_later_session() -> None:
    passing = passed_by(OTHERS_MAX + 10)
    passing.must(AddMember(NOW_US, seed("m-1")))
    assert passing.propose("m-1", 1010, 1, joining("m-1")).code == "stale"
    assert passing.propose("m-1", 1011, 1, joining("m-1")).ok
    assert passing.propose("m-1", 1011, 2, Start(NOW_US, "t")).ok
    late = passing.propose("m-1", 1001, 3, Start(NOW_US, "t"))
    assert (late.code, late.value) == ("stale", {"session": 1011})


def test_no_window_is_forgotten_while_few_members_were_removed() -> None:
    passing = passed_by(OTHERS_MAX)
    assert passing.state.forgotten == 0
    again = passing.propose("m-1", 1001, 2, Start(NOW_US, "t"))
    assert again.ok, "answered with its first result"
    assert len(passing.state.runs) == OTHERS_MAX


def test_the_smallest_sessions_are_forgotten_and_of_equal_ones_the_first_by_name() -> None:
    names = [f"s-{number:02}" for number in range(OTHERS_MAX + 2)]
    windows = Map({name: Window(7) for name in reversed(names)}).set("s-30", Window(6)).set("member", Window(1))
    left, greatest = forget(windows, {"member"}, 3)
    assert set(names) - set(left) == {"s-30", "s-00"}
    assert "member" in left
    assert greatest == 7
    assert forget(left, {"member"}, 9) == (left, 9)
