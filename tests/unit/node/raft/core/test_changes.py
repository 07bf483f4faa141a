"""Members are added and removed one at a time (Ongaro 2014, section 4.1)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pysyncobj.config import FAIL_REASON

from node.raft.core.changes import Changes, MembershipChange
from node.raft.log import membership
from node.raft.transport.unlisted import UNLISTED_MAX
from testkit.raft.wired import Wired, World
from tests.unit.node.raft.callers import call, hello
from tests.unit.node.raft.conftest import agreed


def part(world: World, side: set[str]) -> None:
    """Disconnect these members from the others."""
    for one in side:
        for other in set(world.names) - side:
            world.cut(one, other)


def ask(leader: Wired, what: str, member: str) -> list[int]:
    """Propose a change. Returns the list that gets its outcome."""
    answers: list[int] = []
    assert what in ("add", "rem")
    packed = (
        membership.change_command("rem", member)
        if what == "rem"
        else membership.change_command("add", f"{member} 127.0.0.1 1")
    )
    leader.consensus.change(packed, lambda _result, reason: answers.append(reason))
    return answers


def test_a_second_change_is_refused_until_the_first_is_committed(five: World) -> None:
    """Otherwise two of the five could be a majority of three, while the other three are a majority of five."""
    leader: Wired = five.until(five.leader)
    others = [name for name in five.names if name != leader.me]
    with_it, let_go = others[0], others[1:]
    part(five, {leader.me, with_it})
    first, second = (ask(leader, "rem", name) for name in let_go[:2])
    leader.tick()
    assert (first, second) == ([], [FAIL_REASON.REQUEST_DENIED])
    leader.consensus.put(b"here")
    five.run(3)
    new: Wired = five.until(five.leader)
    assert new.me in let_go
    five.agree(b"there", of=let_go)
    part_of_five = five.running[with_it]
    assert (leader.applied, part_of_five.applied) == ([b"before"], [b"before"])
    if new.me == let_go[0]:
        new.consensus.transferLeadership()  # The two refuse it; nor could it stay leader, being no member.
        five.run(1)
    five.connect_all()
    five.run(3)
    assert all(member.applied == [b"before", b"there"] for member in five.running.values())
    assert all(member.consensus.members() == set(five.names) for member in five.running.values())


def test_a_change_is_accepted_once_the_previous_one_is_committed(five: World) -> None:
    leader: Wired = five.until(five.leader)
    one, other, *_ = (name for name in five.names if name != leader.me)
    for gone in (one, other):
        answers = ask(leader, "rem", gone)
        five.until(answers.copy)
        assert answers == [FAIL_REASON.SUCCESS]
    assert leader.consensus.members() == set(five.names) - {one, other}


def test_an_addition_is_refused_until_enough_members_know_the_configuration(five: World) -> None:
    """Three of four would have to vote, the newcomer has no vote yet, and a disconnected member may not know a
    candidate added meanwhile: every member would run, but none could be elected (seed 61709 of the simulation).
    """
    leader: Wired = five.until(five.leader)
    behind, one, other, _ = (name for name in five.names if name != leader.me)
    part(five, {behind})
    for gone in (one, other):
        five.until(ask(leader, "rem", gone).copy)
    refused = ask(leader, "add", "f")
    leader.tick()
    assert refused == [FAIL_REASON.REQUEST_DENIED]
    five.connect(leader.me, behind)
    five.run(0.5)
    assert ask(leader, "add", "f") == []
    leader.tick()
    assert "f" in leader.consensus.members()


def test_a_new_leader_refuses_changes_until_an_entry_of_its_term_is_committed(five: World) -> None:
    """A change of an earlier leader that it lacks may still be committed beside its own (Ongaro, 2015)."""
    before: Wired = five.until(five.leader)
    five.crash(before.me)
    leader: Wired = five.until(five.leader)
    part(five, {leader.me})
    gone = next(name for name in five.running if name != leader.me)
    refused = ask(leader, "rem", gone)
    leader.tick()
    assert leader.consensus.is_leader
    assert leader.consensus.raftCommitIndex < leader.consensus.journal.last_index, "its first entry"
    assert refused == [FAIL_REASON.REQUEST_DENIED]
    assert gone in leader.consensus.members()


def test_a_refused_membership_change_is_retried_until_it_is_committed(five: World) -> None:
    leader: Wired = five.until(five.leader)
    one, other, gone, also = (five.running[name] for name in five.names if name != leader.me)
    asking = {one.me: (Changes(), gone.me), other.me: (Changes(), also.me)}
    changes = {name: MembershipChange("rem", member, member, five.now_s + 10) for name, (_, member) in asking.items()}
    for name, (queue, _) in asking.items():
        queue.add(changes[name])
        queue.step(five.running[name].consensus, five.now_s)
    denied = False
    while not all(change.future.done() for change in changes.values()):
        five.run(0.01)
        for name, (queue, _) in asking.items():
            queue.step(five.running[name].consensus, five.now_s)
        denied = denied or any(change.denied for change in changes.values())
    assert denied, "both changes were requested at the same time"
    assert [change.future.exception() for change in changes.values()] == [None, None]
    assert leader.consensus.members() == {leader.me, one.me, other.me}


def grown(world: World) -> tuple[Wired, list[str], list[str]]:
    """Add a fifth member, `f`, to four, of which two do not learn of it. Returns `f`, those that do, and the others."""
    world.found("one")
    leader: Wired = world.until(world.leader)
    other, *unaware = (name for name in world.names if name != leader.me)
    part(world, set(unaware))
    added = ask(leader, "add", "f")
    leader.tick()
    newcomer = world.running["f"] = Wired(world, "f", [*world.names, "f"], world.timing)
    world.found("one")
    world.connect(leader.me, "f")
    world.connect(other, "f")
    world.connect(unaware[0], "f")  # A newcomer takes part once three others have told it the state of the cluster.
    world.until(lambda: added and newcomer.consensus.recovery.votes)
    assert added == [FAIL_REASON.SUCCESS]
    return newcomer, [leader.me, other], unaware


@pytest.fixture
def four(tmp_path: Path) -> Iterator[World]:
    with agreed(tmp_path, "abcd") as made:
        yield made


def test_members_elect_and_follow_a_newcomer_missing_from_their_logs(four: World) -> None:
    """Of the three that know of all five, two are lost. The log of the third is the longest: it alone can be elected,
    by members whose log does not name it (Ongaro 2014, section 4.1).
    """
    newcomer, aware, unaware = grown(four)
    for name in aware:
        four.crash(name)
    for name in unaware:
        four.connect(name, "f")
        assert four.running[name].consensus.members() == set(four.names)
    four.until(lambda: newcomer.consensus.is_leader)
    four.agree(b"after", of=["f", *unaware])
    assert all(four.running[name].consensus.members() == {*four.names, "f"} for name in unaware)
    assert all(not four.running[name].transport.unlisted for name in unaware)


def test_only_appends_and_vote_requests_of_an_unlisted_member_are_accepted(four: World) -> None:
    """Its answers are dropped: it was asked nothing, and the library has no place to store them."""
    newcomer, _, unaware = grown(four)
    here = four.running[unaware[0]]
    taken: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(here.transport, "pass_to_library", lambda _node, message: taken.append(message["type"]))
        term = newcomer.consensus.raftCurrentTerm
        for kind in ("next_node_idx", "response_vote", "timeout_now", "apply_command", "pre_vote_answer", "late_term"):
            here.take("f", {"type": kind, "term": term + 1})
        here.take("f", {"type": "append_entries", "term": term, "commit_index": 0, "serialized": None})
    assert taken == ["append_entries"]


def test_a_caller_that_the_log_does_not_name_is_told_from_one_that_it_removes(
    four: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A removed member calls again as long as its own log names the others: it is no newcomer."""
    caplog.set_level("INFO", "node.raft.transport.unlisted")
    four.found("one")
    leader: Wired = four.until(four.leader)
    gone, here, _ = (name for name in four.names if name != leader.me)
    part(four, {gone})
    four.until(ask(leader, "rem", gone).copy)
    four.until(lambda: gone not in four.running[here].consensus.members())
    assert four.running[gone].consensus.members() == set(four.names), "it has not learnt of its removal"
    for member in (here, leader.me):
        four.connect(member, gone)
        assert four.running[member].node(gone) in four.running[member].transport.unlisted
    assert caplog.messages == [f"{gone} has connected, but has no vote: this member's log removes it"] * 2
    caplog.clear()
    assert leader.transport.accept_unlisted("f", "one") is not None
    assert "although this log does not list it yet" in caplog.text


def test_a_member_that_is_added_again_is_not_removed() -> None:
    log = [
        (b"\x02" + membership.change_command("rem", "a"), 1, 1),
        (b"\x02" + membership.change_command("rem", "b"), 2, 1),
    ]
    assert membership.removed(log) == {"a", "b"}
    log.append((b"\x02" + membership.change_command("add", "b host 1"), 3, 1))
    assert membership.removed(log) == {"a"}


def test_an_unlisted_member_that_hangs_up_while_it_is_answered_is_forgotten(
    four: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library looks its connection up once more, after the answer: a KeyError in the step of the Raft thread."""
    four.found("one")
    here = four.running["a"]
    caller = call(here)
    here.transport._onIncomingMessageReceived(caller, {**hello("f", "a"), "cluster": "one"})
    [node] = here.transport.unlisted
    monkeypatch.setattr(caller, "send", lambda _message: caller.disconnect())
    assert not here.transport.send(node, {"type": "pre_vote_answer", "number": 1, "granted": False, "term": 1})
    assert not here.transport.unlisted
    assert not here.transport.send(node, {"type": "pre_vote_answer", "number": 1, "granted": False, "term": 1})


def test_an_unlisted_caller_without_the_cluster_id_is_refused(four: World) -> None:
    member = four.running["a"]
    assert member.transport.accept_unlisted("f", "") is None
    names = [f"g{number}" for number in range(UNLISTED_MAX + 1)]
    let_in = [member.transport.accept_unlisted(name, "one") for name in names]
    assert [node is not None for node in let_in] == [True] * UNLISTED_MAX + [False]
