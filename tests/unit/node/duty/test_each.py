"""What each member does for a task with `each`: the owner makes the runs, and each claims its own."""

from typing import Any

from node.duty.decide import needs
from node.duty.duty import Duty
from node.duty.forecast import STEPS
from node.duty.ownership import Ownership
from node.duty.standing import standing
from node.duty.timetable import TimeSpan, timetable
from node.duty.what_if import Supposition, suppose
from node.duty.why import why_not_running
from node.duty.why_values import WhyFacts
from node.state.claims import Claim
from node.state.fan_out import FanOut, MissRun
from node.state.members import MarkDown
from node.state.occurrences import SkipOccurrences
from tests.unit.node.duty.given import LEASE, Owners
from tests.unit.node.state.given import NOW_US, History
from tests.unit.node.state.test_each import EVERY, FIRST, S, down, fan_out, on_each, runs, take


def entries(history: History, member: str, at_us: int, *, owner: bool = False) -> list[Any]:
    me = history.state.members[member]
    found = needs(history.state, "clean", me, at_us, owner=owner)
    return [*found.entries, *(wish.claim for wish in found.wishes)]


def test_the_owner_fans_out_and_each_member_claims_its_own_run() -> None:
    history = on_each()
    assert entries(history, "a", FIRST, owner=True) == [FanOut(FIRST, "clean", FIRST)]
    assert entries(history, "b", FIRST) == []
    made = fan_out(history)
    for name in "abc":
        assert entries(history, name, FIRST, owner=name == "a") == [
            Claim(FIRST, "clean", FIRST, name, 2, made[name].run_id)
        ]
    assert needs(history.state, "clean", history.state.members["b"], FIRST, owner=False).look_us is None
    assert needs(history.state, "clean", history.state.members["a"], FIRST).look_us == FIRST + 60 * S


def test_what_was_due_before_is_missed_or_made_up_for() -> None:
    history = on_each("ab")
    late = FIRST + 120 * S
    assert entries(history, "a", late, owner=True) == [
        SkipOccurrences(late, "clean", "missed", (FIRST, FIRST + 60 * S), 2)
    ]
    history.put("clean", schedule=EVERY, each=True, catch_up="all")
    assert entries(history, "a", late, owner=True) == [FanOut(late, "clean", FIRST)]


def test_a_member_that_is_not_the_owner_decides_when_it_becomes_it() -> None:
    history = on_each("ab")
    b = Duty("b")
    b.observe(history.state, Owners(me="a"), None)
    assert b.step(FIRST, LEASE.__class__(2, 1), {}, 8).entries == ()
    b.observe(history.state, Owners(me="b"), ())
    assert b.step(FIRST, LEASE.__class__(2, 1), {}, 8).entries == (FanOut(FIRST, "clean", FIRST),)


def test_a_run_that_its_member_was_not_up_for_is_missed_by_the_owner_or_by_the_member_once_it_is_back() -> None:
    history = on_each("ab", catch_up="skip")
    down(history, "b", NOW_US)
    made = fan_out(history)
    late = FIRST + 10 * S
    found = needs(history.state, "clean", history.state.members["a"], FIRST + S)
    assert (found.entries, found.look_us) == ((), late)
    missed = MissRun(late, "clean", made["b"].run_id)
    assert missed in entries(history, "a", late, owner=True)
    history.back("b", late, labels=(("disk", "yes"),))
    assert missed not in entries(history, "b", late)
    history.must(MarkDown(late, "b", 3, "silent", 1))
    history.back("b", late + S, labels=(("disk", "yes"),))
    assert entries(history, "b", late + S) == [MissRun(late + S, "clean", made["b"].run_id)]


def test_it_burdens_no_member_and_moves_nowhere() -> None:
    history = on_each("abc")
    history.put("other", weight=5, schedule=EVERY)
    ownership = Ownership.of(history.state)
    assert sum(ownership.load().values()) == 5
    span = TimeSpan(NOW_US, NOW_US + 600 * S)
    for name in "abc":
        found = suppose(history.state, ownership, Supposition(frozenset(name)), timetable(history.state, span), span)
        assert "clean" not in {move.task for move in found.moves}
        waits = found.ahead.members[None]
        assert (waits.count, len(waits.starts)) == (10, STEPS)


def test_it_says_for_whom_a_run_waits() -> None:
    history = on_each("ab")
    down(history, "b", NOW_US)
    made = fan_out(history)
    assert take(history, made["a"]) == "ok"
    told = {one.code: one.detail for one in standing(history.state, "clean", "a", (), FIRST)}
    assert told["each"] == "it runs on each member with disk=yes: a, b"
    assert told["member_away"].endswith("@b waits for b, which is down (silent): no other member may run it")
    facts = WhyFacts("a", "a", True, "a")
    found = why_not_running(history.state, "clean", facts, FIRST)
    assert (found.code, found.member, found.run_id) == ("member_away", "b", made["b"].run_id)
    found = why_not_running(history.state, "clean", facts, FIRST, made["a"].run_id)
    assert found.code == "running"
    history.back("b", labels=(("disk", "yes"),))
    found = why_not_running(history.state, "clean", facts, FIRST)
    assert (found.code, found.member) == ("due", "b")
    assert sorted(runs(history)) == ["a", "b"]
