"""What the leader proposes for tasks that are due after others, and what a task that waits says."""

from node.duty.joins import AGAIN_US, LOOKED_AT_A_STEP, JoinKeeper
from node.duty.standing import schedule_standing
from node.state.joins import PassOn, SettleJoin
from node.state.registry import Pause
from tests.unit.node.state.given import NOW_US, History
from tests.unit.node.state.test_joins import MINUTE, after, do


def said(history: History, task: str) -> str:
    found = schedule_standing(history.state, task, NOW_US)
    assert found is not None and found.code == "after"
    return found.detail


def test_ends_are_passed_on_one_portion_at_a_time() -> None:
    history = after(a=[], b=["a"], c=["b"], d=["c"], e=["d"], f=["e"])
    keeper = JoinKeeper(history.state)
    assert keeper.step(NOW_US) == ([], None)
    do(history, "a", 1, "failed")
    assert keeper.observe(history.state)
    entries, again_us = keeper.step(NOW_US)
    assert (entries, again_us) == ([PassOn(NOW_US, 0)], NOW_US + AGAIN_US)
    assert keeper.step(NOW_US + 1)[0] == [], "it is under way"
    assert keeper.step(NOW_US + AGAIN_US)[0] == [PassOn(NOW_US + AGAIN_US, 0)], "it may be lost"
    assert keeper.step(NOW_US - 1)[0] == [PassOn(NOW_US - 1, 0)], "the clock was set back"
    history.must(entries[0])
    keeper.observe(history.state)
    (entry,) = keeper.step(NOW_US + AGAIN_US + 1)[0]
    history.must(entry)
    assert not history.state.ends


def test_what_waits_in_vain_is_settled_and_the_rest_is_left() -> None:
    history = after(a=[], b=[], c=["a", "b"], d=["a", "b"])
    do(history, "a", 1)
    keeper = JoinKeeper(history.state)
    assert keeper.step(NOW_US) == ([], NOW_US + AGAIN_US), "b may still be due at that time"
    history.must(Pause(NOW_US, "b", True))
    keeper.observe(history.state)
    assert keeper.step(NOW_US + 1)[0] == []
    entries, _ = keeper.step(NOW_US + AGAIN_US)
    assert entries == [SettleJoin(NOW_US + AGAIN_US, name, NOW_US + MINUTE) for name in "cd"]
    for entry in entries:
        history.must(entry)
    keeper.observe(history.state)
    assert keeper.step(NOW_US + 3 * AGAIN_US)[0] == []


def test_the_leader_steps_once_something_ends_or_waits_for_others() -> None:
    history = after(a=[], b=[], c=["a", "b"])
    keeper = JoinKeeper(history.state)
    history.must(Pause(NOW_US, "b", True))
    assert not keeper.observe(history.state)
    do(history, "a", 1)
    assert keeper.observe(history.state)
    assert not keeper.observe(history.state), "what waits is looked at by time"


def test_a_step_looks_at_some_joins() -> None:
    history = after(a=[], b=[], c=["a", "b"])
    for minute in range(1, LOOKED_AT_A_STEP + 2):
        do(history, "a", minute)
    history.must(Pause(NOW_US, "b", True))
    keeper = JoinKeeper(history.state)
    entries, again_us = keeper.step(NOW_US)
    assert (len(entries), again_us) == (LOOKED_AT_A_STEP, NOW_US)
    assert len(keeper.step(NOW_US)[0]) == 1


def test_a_task_says_what_it_waits_for() -> None:
    history = after(a=[], b=[], c=["a", {"task": "b", "on": "ended"}])
    assert said(history, "c") == "it is due once a has succeeded, b has ended"
    do(history, "a", 1)
    do(history, "a", 2)
    assert said(history, "c") == (
        "its occurrence of 2024-10-04T00:01:00Z waits for b, and a succeeded; 1 later one waits, too"
    )
