"""Tasks that come after others at times of their own: for what they wait, and what becomes of it."""

from typing import Any

import pytest

from node.duty.decide import needs
from node.duty.joins import JoinKeeper
from node.duty.latest import latest_times
from node.state.attempts import Cancel
from node.state.awaiting import AwaitParents, SettleLate
from node.state.claims import Claim
from node.state.codec import from_pieces, snapshot_pieces
from node.state.deadlines import Breached
from node.state.draft import PAST_ENDS_MAX
from node.state.joins import JOINS_MAX, TOLD_AT_ONCE, SettleJoin
from node.state.members import TakeLead
from node.state.occurrences import Enqueue, SkipOccurrences, Start
from node.state.registry import DeleteTask, Pause, Put, PutTasks
from node.state.telling import PutChannel
from node.state.value import RULES
from tests.unit.node.state.given import NOW_US, History, cluster, hook, packed
from tests.unit.node.state.test_joins import CRON, MINUTE, ONCE, S, do, finish, outcome, pass_all, waiting

NIGHTLY = {"every_s": 600}


def family(parents: tuple[str, ...] = ("a",), **fields: Any) -> History:
    """Parents that are due each minute, and `child`, which is due each ten minutes after them."""
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    for name in parents:
        history.put(name, retry=ONCE, overlap="allow", schedule=CRON)
    history.put("child", **({"retry": ONCE, "overlap": "allow", "schedule": NIGHTLY, "after": [*parents]} | fields))
    return history


def awaiting(history: History, minute: int, *times: int, task: str = "child", parents: str = "a") -> str:
    """The occurrence of this minute waits for its parents' of those minutes (0: none). Returns the answer's code."""
    named = tuple((name, NOW_US + one * MINUTE if one else 0) for name, one in zip(parents, times, strict=True))
    return history.do(AwaitParents(NOW_US + minute * MINUTE, task, NOW_US + minute * MINUTE, named)).code


def test_it_waits_for_the_occurrence_that_its_owner_names() -> None:
    history = family()
    assert awaiting(history, 10, 9) == "ok"
    (join,) = history.state.joins["child"]
    assert (join.times, join.until_us) == ((("a", NOW_US + 9 * MINUTE),), NOW_US + 10 * MINUTE + 86_400 * S)
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state
    do(history, "a", 8)
    assert waiting(history, "child") == []
    do(history, "a", 9)
    assert waiting(history, "child") == [10] and not history.state.joins
    assert awaiting(history, 10, 9) == "occurrence-taken", "two owners may propose it"
    (run_id,) = history.state.runs_of["child"]
    finish(history, history.claim("child", 0, run_id=run_id))
    assert outcome(history, "child") == ("succeeded", None)


@pytest.mark.parametrize(
    ("end", "found"), [("succeeded", None), ("failed", ("upstream_failed", "a failed")), ("cancelled", "skipped")]
)
def test_it_is_decided_at_once_if_its_parents_have_ended_before(end: str, found: Any) -> None:
    history = family()
    do(history, "a", 7, end)
    do(history, "a", 8)
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state
    assert awaiting(history, 10, 7) == "ok"
    known = ("upstream_skipped", "a did not run") if found == "skipped" else found
    assert (waiting(history, "child"), outcome(history, "child")) == ([] if known else [10], known)


def test_parents_keep_their_latest_ends_only_for_those_that_need_them() -> None:
    history = family(("a", "b"), after=["a"])
    history.put("other", after=["b"])
    for minute in range(1, PAST_ENDS_MAX + 6):
        do(history, "a", minute)
        do(history, "b", minute)
    assert set(history.state.past_ends) == {"a"}
    kept = [(end.nominal_us - NOW_US) // MINUTE for end in history.state.past_ends["a"]]
    assert kept == list(range(6, PAST_ENDS_MAX + 6))
    history.put("child", after=["b"], schedule=NIGHTLY)
    assert [len(history.state.past_ends[name]) for name in history.state.past_ends] == [1], "the last one is known of b"
    history.must(DeleteTask(NOW_US, "child"))
    assert not history.state.past_ends


def test_a_parent_without_such_an_occurrence_did_not_run() -> None:
    history = family()
    assert awaiting(history, 10, 0) == "ok"
    assert outcome(history, "child") == ("upstream_skipped", "a did not run")


def test_a_parent_that_is_paused_or_changed_is_not_waited_for() -> None:
    history = family()
    awaiting(history, 10, 10)
    history.must(Pause(NOW_US + 10 * MINUTE, "a", on=True))
    settle = SettleJoin(NOW_US + 10 * MINUTE, "child", NOW_US + 10 * MINUTE)
    assert JoinKeeper(history.state).step(NOW_US)[0] == [SettleJoin(NOW_US, "child", NOW_US + 10 * MINUTE)], (
        "the leader finds it"
    )
    history.must(settle)
    assert outcome(history, "child") == ("upstream_skipped", "a did not run") and not history.state.joins
    assert history.do(settle).code == "stale"
    assert awaiting(history, 20, 20) == "ok", "it is paused already"
    assert waiting(history, "child") == [] and not history.state.joins


def test_what_may_still_end_is_not_settled() -> None:
    history = family()
    awaiting(history, 10, 10)
    settle = SettleJoin(NOW_US, "child", NOW_US + 10 * MINUTE)
    assert history.do(settle).code == "not-due"
    run = history.claim("a", NOW_US + 10 * MINUTE)
    assert history.do(settle).code == "not-due"
    history.must(Cancel(NOW_US, run.run_id))
    finish(history, run, "cancelled")
    assert outcome(history, "child") == ("upstream_skipped", "a did not run")


def test_its_wait_ends_and_that_counts_as_a_failure_and_is_told() -> None:
    history = family(wait_s=60)
    history.put("alarm", after=[{"task": "child", "on": "failed"}])
    history.must(PutChannel(NOW_US, "ops", hook().pack()))
    awaiting(history, 10, 10)
    at_us = NOW_US + 11 * MINUTE
    late = SettleLate(at_us, "child", NOW_US + 10 * MINUTE)
    keeper = JoinKeeper(history.state)
    assert keeper.step(at_us - 1)[0] == []
    assert keeper.step(at_us + 2 * S)[0] == [SettleLate(at_us + 2 * S, "child", NOW_US + 10 * MINUTE)]
    assert history.do(SettleLate(at_us - 1, "child", NOW_US + 10 * MINUTE)).code == "not-due"
    history.must(late)
    assert outcome(history, "child") == ("upstream_late", "a had not ended 60 s after it was due")
    assert history.do(late).code == "stale"
    do(history, "a", 10)
    assert waiting(history, "child") == [], "that is final"
    assert waiting(history, "alarm") == [10]
    assert history.state.tasks["child"].failing and history.state.endings[-1] == 1
    (notice,) = history.state.channels["ops"].notices
    assert notice.text == "child did not run: a had not ended 60 s after it was due"


def test_many_that_wait_for_one_time_are_decided_in_portions() -> None:
    history = family(schedule=CRON)
    history.put("second", after=["a"], schedule=CRON, overlap="allow")
    for minute in range(1, JOINS_MAX + 1):
        awaiting(history, minute, 1)
        awaiting(history, minute, 1, task="second")
    do(history, "a", 1)
    left = [join for task in sorted(history.state.joins) for join in history.state.joins[task]]
    assert len(left) == 2 * JOINS_MAX - (TOLD_AT_ONCE - 2)
    for entry in JoinKeeper(history.state).step(NOW_US)[0]:
        history.must(entry)
    assert len(waiting(history, "second")) > TOLD_AT_ONCE - JOINS_MAX


def test_too_many_that_wait() -> None:
    history = family()
    for number in range(JOINS_MAX + 1):
        awaiting(history, 10 + number, 1)
    assert len(history.state.joins["child"]) == JOINS_MAX
    assert outcome(history, "child") == ("upstream_skipped", f"{JOINS_MAX} later occurrences wait, too")


def test_once_due_it_meets_its_overlap() -> None:
    history = family(overlap="skip")
    awaiting(history, 10, 9)
    history.must(Start(NOW_US, "child"))
    do(history, "a", 9)
    assert history.state.tasks["child"].skipped == 1


def test_it_is_paused_or_its_parents_are_changed_while_it_waits() -> None:
    history = family(("a", "b"), after=["a"])
    awaiting(history, 10, 9)
    history.must(Pause(NOW_US, "child", on=True))
    assert outcome(history, "child") == ("upstream_skipped", "paused")
    assert awaiting(history, 20, 9) == "not-due"
    history.must(Pause(NOW_US + 20 * MINUTE, "child", on=False))
    awaiting(history, 30, 9)
    history.put("child", at_us=NOW_US + 31 * MINUTE, after=["b"], schedule=NIGHTLY)
    assert outcome(history, "child") == ("upstream_skipped", "changed")
    assert awaiting(history, 40, 9) == "stale", "its owner has worked that out from the earlier definition"
    assert awaiting(history, 40, 39, parents="b") == "ok"
    history.put("child", at_us=NOW_US + 41 * MINUTE, after=["b"])
    assert not history.state.joins and not history.state.past_ends, "without a schedule it shares its parent's times"
    do(history, "b", 39)
    do(history, "b", 42)
    assert waiting(history, "child") == [42]


def test_only_so_does_one_of_its_occurrences_begin() -> None:
    history = family()
    at_us = NOW_US + 10 * MINUTE
    assert history.do(Claim(at_us, "child", at_us, "a", 1)).code == "not-due"
    assert history.do(Enqueue(at_us, "child", (at_us,))).code == "not-due"
    history.must(SkipOccurrences(at_us, "child", "missed", (at_us, at_us), 1))
    assert history.state.tasks["child"].missed == 1


@pytest.mark.parametrize("minutes", [(11,), (9, 9)])
def test_an_entry_that_makes_no_sense_is_refused(minutes: tuple[int, ...]) -> None:
    history = family()
    assert awaiting(history, 10, *minutes, parents="ab"[: len(minutes)]) in ("invalid", "stale")
    early = AwaitParents(NOW_US, "child", NOW_US + 10 * MINUTE, (("a", NOW_US),))
    assert history.do(early).code == "not-due"
    assert history.do(AwaitParents(NOW_US + MINUTE, "a", NOW_US + MINUTE, ())).code == "stale"


def test_tasks_below_share_the_times_of_a_task_with_a_schedule() -> None:
    history = family()
    history.put("below", after=["child"], overlap="allow")
    history.put("daily", after=["child"], schedule={"every_s": 3600}, overlap="allow")
    awaiting(history, 10, 9)
    assert awaiting(history, 12, 10, task="daily", parents=["child"]) == "ok"  # type: ignore[arg-type]
    assert history.do(SettleJoin(NOW_US, "daily", NOW_US + 12 * MINUTE)).code == "not-due", "its parent waits itself"
    do(history, "a", 9, "failed")
    pass_all(history)
    assert outcome(history, "below") == ("upstream_failed", "child failed") == outcome(history, "daily")


def test_a_rerun_goes_through_it_as_through_all() -> None:
    history = family()
    history.must(Start(NOW_US, "a", downstream=True))
    (run_id,) = history.state.runs_of["a"]
    finish(history, history.claim("a", 0, run_id=run_id))
    (run_id,) = history.state.runs_of["child"]
    finish(history, history.claim("child", 0, run_id=run_id))
    assert not history.state.reruns and not history.state.joins


@pytest.mark.parametrize(
    ("parent", "fault"),
    [
        ({}, "child has a schedule and comes after a, but it has none"),
        ({"schedule": {"continuous": True}}, "which is continuous"),
    ],
)
def test_a_parent_without_times_is_refused(parent: dict[str, Any], fault: str) -> None:
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    history.put("a", **parent)
    put = PutTasks(NOW_US, (Put(packed("child", after=["a"], schedule=CRON)),))
    assert fault in history.do(put).detail
    history.put("a", schedule=CRON)
    history.must(put)
    assert "child has a schedule" in history.do(PutTasks(NOW_US, (Put(packed("a")),))).detail


def test_a_deadline_counts_from_its_own_time_while_it_waits() -> None:
    history = family(deadlines={"finish_within_s": 60, "start_within_s": 30})
    awaiting(history, 10, 10)
    due_us = NOW_US + 10 * MINUTE
    assert history.do(Breached(due_us + 90 * S, "child", "start_within", due_us)).code == "not-due"
    history.must(Breached(due_us + MINUTE, "child", "finish_within", due_us))
    do(history, "a", 10)
    assert [one.deadline for one in history.state.tasks["child"].breaches] == ["finish_within"], "it has not run yet"
    (run_id,) = history.state.runs_of["child"]
    finish(history, history.claim("child", 0, run_id=run_id))
    assert not history.state.tasks["child"].breaches


def test_its_owner_names_the_latest_occurrences() -> None:
    history = family(("a", "b"), schedule={"cron": "*/10 * * * *"})
    state, me = history.state, history.state.members["a"]
    row = state.tasks["child"]
    [due_us] = [NOW_US + minute * MINUTE for minute in range(1, 11) if (NOW_US // MINUTE + minute) % 10 == 0]
    assert needs(state, "child", me, due_us - 1).look_us == due_us
    entries = needs(state, "child", me, due_us).entries
    assert entries == (AwaitParents(due_us, "child", due_us, (("a", due_us), ("b", due_us))),)
    assert latest_times(state, row, due_us + 59 * S) == (("a", due_us), ("b", due_us))
    history.must(Pause(NOW_US, "b", on=True))
    history.must(Pause(due_us + S, "b", on=False))
    assert latest_times(history.state, row, due_us + S) == (("a", due_us), ("b", 0)), "b had none in its pause"


def test_the_latest_occurrence_of_a_task_that_descends_from_others() -> None:
    history = family(("a", "b"))
    history.put("middle", after=["a", "b"])
    history.put("late", after=["middle"], schedule={"every_s": 90})
    row = history.state.tasks["late"]
    assert latest_times(history.state, row, NOW_US + 90 * S) == (("middle", NOW_US + MINUTE),)
    history.put("middle", at_us=NOW_US + 65 * S, after=["b"])
    assert latest_times(history.state, row, NOW_US + 90 * S) == (("middle", 0),), "since it was changed"
    assert latest_times(history.state, row, NOW_US + 180 * S) == (("middle", NOW_US + 3 * MINUTE),)


def test_a_parent_that_is_to_be_told_of_an_end_is_waited_for() -> None:
    history = family()
    for name, parent in (("b", "a"), ("c", "b"), ("d", "c")):
        history.put(name, after=[parent])
    history.put("late", after=["d"], schedule={"every_s": 90}, overlap="allow")
    do(history, "a", 1, "failed")
    assert history.state.ends, "c, and so d, are still to be told that b does not run"
    awaiting(history, 2, 1, task="late", parents="d")
    assert history.do(SettleJoin(NOW_US, "late", NOW_US + 2 * MINUTE)).code == "not-due"
    pass_all(history)
    assert outcome(history, "late") == ("upstream_failed", "d failed")
