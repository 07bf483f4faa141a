"""Backfills: each occurrence once and in order, behind everything live, and without a trace in what judges a task."""

from dataclasses import replace
from typing import Any

import pytest

from node.state.attempts import Cancel, Finish
from node.state.backfill import FAILURES_KEPT, PAUSED_AFTER, BackfillRow
from node.state.backfills import (
    ENDED_KEPT,
    OPEN_MAX,
    RULES_BACKFILLS,
    AdvanceBackfill,
    ChangeBackfill,
    StartBackfill,
    what_is_over,
)
from node.state.claims import Claim
from node.state.codec import from_pieces, snapshot_pieces
from node.state.joins import RERUNS_MAX
from node.state.members import MarkDown, TakeLead
from node.state.occurrences import Enqueue, Start
from node.state.outbox import Notice
from node.state.registry import DeleteTask
from node.state.settings import ChangeSettings
from node.state.telling import PutChannel
from node.state.value import Run
from tests.unit.node.state.given import NOW_US, History, cluster, hook
from tests.unit.node.state.test_joins import MINUTE, after, pass_all

HOUR = 60 * MINUTE
FROM_US = NOW_US - HOUR


def begin(history: History, task: str = "a", **fields: Any) -> int:
    """Ask for the hour before now."""
    given = {"from_us": FROM_US, "to_us": NOW_US, "total": 60} | fields
    return int(history.must(StartBackfill(NOW_US, task, **given))["backfill"])


def row(history: History, number: int) -> BackfillRow:
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state
    return history.state.backfills[number]


def advance(history: History, number: int, minute: int, position_us: int | None = None) -> str:
    """Begin the occurrence so many minutes after the first time. Returns the code of the result."""
    position_us = history.state.backfills[number].position_us if position_us is None else position_us
    return history.do(AdvanceBackfill(NOW_US, number, position_us, FROM_US + minute * MINUTE)).code


def settle(history: History, number: int) -> str:
    return history.do(AdvanceBackfill(NOW_US, number, history.state.backfills[number].position_us)).code


def active(history: History, task: str) -> list[Run]:
    return [history.state.runs[run_id] for run_id in history.state.runs_of.get(task, ())]


def claim(history: History, run: Run, member: str = "a") -> str:
    incarnation = history.state.members[member].incarnation
    return history.do(Claim(NOW_US, run.task, run.fire_at_us, member, incarnation, run.run_id)).code


def do(history: History, task: str, end: str = "succeeded") -> None:
    """Let the oldest active run of a task run and end."""
    run = active(history, task)[0]
    assert claim(history, run) == "ok"
    history.must(Finish(NOW_US, run.run_id, history.state.runs[run.run_id].token, end))  # type: ignore[arg-type]


def test_each_occurrence_is_begun_once_in_order() -> None:
    history = after(a=[])
    number = begin(history, parallel=2)
    first = row(history, number).position_us
    assert advance(history, number, 0) == "ok"
    assert advance(history, number, 0, first) == "stale", "a second leader, or the same one again"
    assert advance(history, number, 0) == "invalid", "it was begun"
    assert advance(history, number, 60) == "invalid", "it is not of the range"
    assert advance(history, number, 1) == "ok"
    assert advance(history, number, 2) == "not-due", "two are under way"
    assert [run.fire_at_us for run in active(history, "a")] == [FROM_US, FROM_US + MINUTE]
    do(history, "a")
    assert (row(history, number).succeeded, len(row(history, number).in_flight)) == (1, 1)
    assert advance(history, number, 2) == "ok"
    do(history, "a", "failed")
    do(history, "a")
    history.must(AdvanceBackfill(NOW_US + 5, number, row(history, number).position_us, exhausted=True))
    found = row(history, number)
    assert (found.status, found.succeeded, found.failed, found.ended_us) == ("done", 2, 1, NOW_US + 5)
    assert [time_us for time_us, _ in found.failures] == [FROM_US + MINUTE]
    assert advance(history, number, 4) == "stale"
    assert not history.state.reruns


def test_the_newest_first() -> None:
    history = after(a=[])
    number = begin(history, newest_first=True, parallel=3)
    codes = [advance(history, number, minute) for minute in (59, 60, 58, 58, 0)]
    assert codes == ["ok", "invalid", "ok", "invalid", "ok"]


def test_the_tasks_after_it_join_each_occurrence() -> None:
    history = after(a=[], b=["a"], c=["a"], d=["b", "c"], e={"after": "a", "schedule": {"cron": "0 * * * *"}})
    number = begin(history, downstream=True, parallel=2)
    assert [advance(history, number, minute) for minute in (0, 1)] == ["ok", "ok"]
    assert not active(history, "e"), "it is due at times of its own"
    for _ in range(2):
        for task in "abcd":
            assert row(history, number).succeeded < 2
            do(history, task)
            assert {run.backfill for run in history.state.runs.values()} <= {number}
    assert (row(history, number).succeeded, row(history, number).in_flight) == (2, ())
    ended = [(one.run.task, one.run.fire_at_us) for one in history.ended]
    assert sorted(ended) == [(task, FROM_US + minute * MINUTE) for task in "abcd" for minute in (0, 1)]
    assert all(history.state.tasks[task].last is None for task in "abcd")


def test_a_failure_counts_for_the_occurrence_and_no_task() -> None:
    history = after(a=[], b=["a"], c=["b"], alarm=[{"task": "a", "on": "failed"}])
    history.must(PutChannel(NOW_US, "ops", hook().pack()))
    number = begin(history, downstream=True)
    advance(history, number, 0)
    do(history, "a", "failed")
    do(history, "alarm")
    pass_all(history)
    found = row(history, number)
    [(time_us, run_id)] = found.failures
    assert (found.failed, found.in_flight, time_us) == (1, (), FROM_US)
    assert run_id.startswith("a~")
    assert [(one.run.task, one.state) for one in history.ended if one.run.task in "bc"] == [
        ("b", "upstream_failed"),
        ("c", "upstream_failed"),
    ]
    for one in history.state.tasks.values():
        assert (one.last, one.failing, one.skipped, any(one.endings)) == (None, False, 0, False)
    assert not history.state.channels["ops"].notices
    advance(history, number, 1)
    for task in "abc":
        do(history, task)
    pass_all(history)
    assert row(history, number).succeeded == 1, "that nothing failed is as it should be for an alarm"


def test_it_is_paused_after_failures_in_a_row_and_resumed() -> None:
    history = after(a=[])
    number = begin(history)
    for minute in range(PAUSED_AFTER):
        assert advance(history, number, minute) == "ok"
        do(history, "a", "failed")
    assert (row(history, number).status, row(history, number).why) == ("paused", "5 occurrences in a row failed")
    assert advance(history, number, PAUSED_AFTER) == "not-due"
    history.must(ChangeBackfill(NOW_US + 7, number, "resumed"))
    assert (row(history, number).paced_us, row(history, number).paced_from) == (NOW_US + 7, PAUSED_AFTER)
    for minute in range(PAUSED_AFTER, FAILURES_KEPT + 3):
        assert advance(history, number, minute) == "ok"
        do(history, "a", "failed")
        history.do(ChangeBackfill(NOW_US, number, "resumed"))
    assert (row(history, number).failed, len(row(history, number).failures)) == (FAILURES_KEPT + 3, FAILURES_KEPT)


def paused_notices(history: History, channel: str = "ops") -> list[Notice]:
    return [one for one in history.state.channels[channel].notices if one.event == "backfill_paused"]


def test_that_it_paused_itself_is_told_once_each_time_and_a_pause_by_hand_is_not() -> None:
    history = after(a=[])
    history.put("a", labels={"team": "bi"}, retry={"attempts": 1}, overlap="allow", schedule={"every_s": 60})
    for name, fields in {"ops": {}, "bi": {"labels": {"team": "bi"}}, "other": {"labels": {"team": "x"}}}.items():
        history.must(PutChannel(NOW_US, name, hook(**fields).pack()))
    number = begin(history, parallel=3)
    history.must(ChangeBackfill(NOW_US, number, "paused"))
    history.must(ChangeBackfill(NOW_US, number, "resumed"))
    assert paused_notices(history) == []
    advance(history, number, 0), advance(history, number, 1), advance(history, number, 2)
    for minute in range(3, PAUSED_AFTER + 2):
        do(history, "a", "failed")
        assert len(paused_notices(history)) == 0
        advance(history, number, minute)
    runs = [run.run_id for run in active(history, "a")]
    for _ in runs:  # what is under way ends after the pause, and is not told again
        do(history, "a", "failed")
    [told] = paused_notices(history)
    assert (told.task, told.severity, told.run_id) == ("a", "error", runs[0])
    assert f"backfill {number} of a is paused, after 5 of 60 times: 5 occurrences in a row failed" in told.text
    assert (len(paused_notices(history, "bi")), len(paused_notices(history, "other"))) == (1, 0)
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state
    history.must(ChangeBackfill(NOW_US, number, "resumed"))
    for minute in range(PAUSED_AFTER + 2, PAUSED_AFTER * 2 + 2):
        assert advance(history, number, minute) == "ok"
        do(history, "a", "failed")
    assert len(paused_notices(history)) == 2, "it was resumed, and paused itself again"


def test_that_its_schedule_cannot_be_evaluated_is_told_and_an_earlier_leader_tells_nothing() -> None:
    history = after(a=[])
    history.must(PutChannel(NOW_US, "ops", hook().pack()))
    number = begin(history)
    history.must(ChangeBackfill(NOW_US, number, "paused", "b cannot evaluate its schedule: no zone X"))
    [told] = paused_notices(history)
    assert told.run_id == "" and "is paused, after 0 of 60 times: b cannot evaluate its schedule" in told.text
    refused = history.do(PutChannel(NOW_US, "ops", hook(events=["backfill_paused"]).pack()))
    assert refused.ok
    earlier = after(a=[])
    earlier.state = replace(earlier.state, lead=replace(earlier.state.lead, rules=9))
    assert earlier.do(PutChannel(NOW_US, "ops", hook(events=["backfill_paused"]).pack())).code == "invalid"


def test_live_runs_go_before_it_and_never_beside_it() -> None:
    history = after(a={"schedule": {"cron": "* * * * *"}, "overlap": "skip"})
    number = begin(history, parallel=3)
    for minute in (0, 1):
        advance(history, number, minute)
    first, second = active(history, "a")
    live = history.claim("a", NOW_US + MINUTE)
    assert claim(history, first) == "overlap", "a live run is active"
    history.must(Finish(NOW_US, live.run_id, live.token, "succeeded"))
    assert (claim(history, first), claim(history, second)) == ("ok", "overlap"), "one at a time"
    at_us = NOW_US + 2 * MINUTE
    assert history.do(Claim(at_us, "a", at_us, "a", 1)).code == "overlap"
    history.must(Enqueue(at_us, "a", (at_us,)))
    waits = active(history, "a")[-1]
    assert claim(history, waits) == "overlap", "the run of the backfill goes on"
    held = history.state.runs[first.run_id]
    history.must(Finish(NOW_US, held.run_id, held.token, "succeeded"))
    assert claim(history, second) == "overlap", "the one that waits goes first"
    assert claim(history, waits) == "ok"


def test_where_runs_may_overlap_all_may() -> None:
    history = after(a=[])
    number = begin(history, parallel=2)
    for minute in (0, 1):
        advance(history, number, minute)
    history.claim("a", NOW_US + MINUTE)
    assert [claim(history, run) for run in active(history, "a")[:2]] == ["ok", "ok"]


def test_a_run_by_hand_is_not_refused_for_it() -> None:
    history = after(a={"schedule": {"cron": "* * * * *"}, "overlap": "skip"})
    number = begin(history)
    advance(history, number, 0)
    assert claim(history, active(history, "a")[0]) == "ok"
    assert history.do(Start(NOW_US, "a")).ok


def test_it_takes_half_of_a_pool_and_goes_last() -> None:
    history = after()
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 4}}))
    for name in "ab":
        history.put(name, schedule={"cron": "* * * * *"}, overlap="allow", uses={"dumps": 1})
    number = begin(history, parallel=4)
    for minute in range(4):
        advance(history, number, minute)
    runs = active(history, "a")
    assert [claim(history, run) for run in runs] == ["ok", "ok", "pool", "pool"]
    assert "may use half of 4" in history.last.result.detail
    history.must(Enqueue(NOW_US + MINUTE, "b", (NOW_US + MINUTE,)))
    assert [one.task for one in history.state.pools["dumps"].queue] == ["b", "a"], "live ones first"
    assert from_pieces(list(snapshot_pieces(history.state))) == history.state
    history.must(MarkDown(NOW_US, "a", 1, "gone", 1))
    assert (history.state.pools["dumps"].backfilled, history.state.pools["dumps"].used) == (0, 0)


def test_one_run_gets_what_it_needs_of_a_pool() -> None:
    history = after()
    history.must(ChangeSettings(NOW_US, {"pools": {"dumps": 2}}))
    history.put("a", schedule={"cron": "* * * * *"}, overlap="allow", uses={"dumps": 2})
    number = begin(history)
    advance(history, number, 0)
    assert claim(history, active(history, "a")[0]) == "ok"


def notices(history: History) -> list[tuple[str, str, str]]:
    return [(one.event, one.severity, one.text) for one in history.state.channels["ops"].notices]


def test_its_end_is_told_and_none_of_its_successes() -> None:
    history = after(a=[])
    history.must(PutChannel(NOW_US, "ops", hook().pack()))
    history.must(PutChannel(NOW_US, "successes", hook(events=["run_succeeded"]).pack()))
    number = begin(history, total=2)
    advance(history, number, 0)
    do(history, "a")
    advance(history, number, 1)
    do(history, "a", "failed")
    assert notices(history) == []
    history.must(AdvanceBackfill(NOW_US, number, row(history, number).position_us, exhausted=True))
    text = f"backfill {number} of a is done: 1 of 2 occurrences succeeded, 1 failed"
    assert notices(history) == [("backfill_ended", "warning", text)]
    assert history.state.channels["successes"].notices == ()


def test_that_a_deleted_task_ended_its_backfill_is_told_by_the_labels_it_had() -> None:
    history = after(a=[])
    history.put("a", labels={"team": "bi"}, schedule={"cron": "* * * * *"})
    history.must(PutChannel(NOW_US, "ops", hook(labels={"team": "bi"}).pack()))
    number = begin(history)
    advance(history, number, 0)
    [run] = active(history, "a")
    assert claim(history, run) == "ok"
    history.must(DeleteTask(NOW_US, "a"))
    held = active(history, "a")[0]
    history.must(Finish(NOW_US, held.run_id, held.token, "cancelled"))
    settle(history, number)
    text = f"backfill {number} of a was cancelled: 0 of 60 occurrences succeeded, 1 did not run"
    assert notices(history) == [("backfill_ended", "info", text)]


def test_cancelling_it_cancels_its_runs_and_what_comes_after_them() -> None:
    history = after(a=[], b=["a"], c=[{"task": "b", "on": "ended"}])
    number = begin(history, downstream=True, parallel=3)
    for minute in range(3):
        advance(history, number, minute)
    do(history, "a")
    held, waits = active(history, "a")
    assert claim(history, held) == "ok"
    history.must(ChangeBackfill(NOW_US, number, "cancelled"))
    assert row(history, number).status == "cancelling"
    assert waits.run_id not in history.state.runs
    assert not active(history, "b"), "it waited for its member"
    history.must(Finish(NOW_US, held.run_id, history.state.runs[held.run_id].token, "cancelled"))
    pass_all(history)
    assert (row(history, number).status, row(history, number).in_flight) == ("cancelled", ())
    assert {one.state for one in history.ended if one.run.task == "c"} == {"upstream_skipped"}
    assert history.do(ChangeBackfill(NOW_US, number, "resumed")).code == "not-due"


def test_a_task_that_is_deleted_takes_its_backfills_with_it() -> None:
    history = after(a=[], b=["a"])
    number = begin(history, downstream=True, parallel=2)
    for minute in range(2):
        advance(history, number, minute)
    assert claim(history, active(history, "a")[0]) == "ok"
    history.must(DeleteTask(NOW_US, "a", with_children=True))
    assert row(history, number).cancelled
    held = active(history, "a")[0]
    history.must(Finish(NOW_US, held.run_id, held.token, "cancelled"))
    pass_all(history)
    settle(history, number)
    assert row(history, number).status == "cancelled"


def test_what_nothing_carries_on_is_ended() -> None:
    history = after(a=[], b=["a"])
    number = begin(history, downstream=True)
    advance(history, number, 0)
    history.put("b", schedule={"cron": "* * * * *"})
    assert settle(history, number) == "stale", "its first run goes on"
    do(history, "a")
    assert [rerun.unended for rerun in what_is_over(history.state, row(history, number))] == [("b",)]
    assert settle(history, number) == "ok"
    assert (row(history, number).succeeded, row(history, number).in_flight) == (1, ())


def test_a_cancelled_run_is_counted_as_skipped() -> None:
    history = after(a=[], b=["a"])
    number = begin(history, downstream=True)
    advance(history, number, 0)
    history.must(Cancel(NOW_US, active(history, "a")[0].run_id))
    pass_all(history)
    assert (row(history, number).skipped, row(history, number).ended) == (1, 1)


def test_reruns_by_hand_do_not_push_it_out() -> None:
    history = after(a=[], b=["a"])
    number = begin(history, downstream=True)
    advance(history, number, 0)
    for _ in range(RERUNS_MAX + 1):
        history.must(Start(NOW_US, "a", downstream=True))
    assert sum(not rerun.backfill for rerun in history.state.reruns.values()) == RERUNS_MAX
    do(history, "a")
    assert active(history, "b")[0].backfill == number


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"to_us": NOW_US + 1}, "times that are past"),
        ({"from_us": NOW_US}, "ends later than it begins"),
        ({"from_us": 0}, "after 1970"),
        ({"total": 100_001}, "1 to 100000 occurrences"),
        ({"total": 0}, "1 to 100000 occurrences"),
        ({"parallel": 17}, "from 1 to 16"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], why: str) -> None:
    history = after(a=[])
    result = history.do(StartBackfill(NOW_US, "a", **({"from_us": FROM_US, "to_us": NOW_US, "total": 60} | fields)))
    assert (result.code, why in result.detail) == ("invalid", True)


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        (None, "rota run x runs it now"),
        ({"at": "2030-01-01T00:00:00Z"}, "due once"),
        ({"continuous": True}, "continuous"),
    ],
)
def test_tasks_without_past_times(schedule: dict[str, Any] | None, why: str) -> None:
    history = after(root=[])
    history.put("x", schedule=schedule)
    history.put("child", after=["root"])
    for task, said in (("x", why), ("child", "backfill root with the tasks after it")):
        result = history.do(StartBackfill(NOW_US, task, FROM_US, NOW_US, 3))
        assert (result.code, said in result.detail) == ("invalid", True)


def test_so_many_may_be_open_and_none_twice() -> None:
    history = after(a=[], b=[])
    number = begin(history)
    assert history.do(StartBackfill(NOW_US, "a", FROM_US + MINUTE, NOW_US, 1)).code == "exists"
    for earlier in range(1, OPEN_MAX):
        begin(history, from_us=FROM_US - earlier * HOUR, to_us=FROM_US - (earlier - 1) * HOUR)
    assert history.do(StartBackfill(NOW_US, "b", FROM_US, NOW_US, 1)).code == "full"
    history.must(ChangeBackfill(NOW_US, number, "cancelled"))
    for _ in range(ENDED_KEPT + 1):
        history.must(ChangeBackfill(NOW_US, begin(history, "b"), "cancelled"))
    number = begin(history, "b")
    assert len(history.state.backfills) == OPEN_MAX + ENDED_KEPT
    assert history.do(ChangeBackfill(NOW_US, 1, "paused")).code == "no-such-backfill"
    assert row(history, number).status == "running"


def test_earlier_rules_know_no_backfills() -> None:
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, RULES_BACKFILLS - 1))
    history.put("a", schedule={"cron": "* * * * *"})
    assert history.do(StartBackfill(NOW_US, "a", FROM_US, NOW_US, 3)).code == "invalid"


def test_a_task_that_becomes_continuous_pauses_it() -> None:
    history = after(a=[])
    number = begin(history)
    history.put("a", schedule={"continuous": True})
    assert advance(history, number, 0) == "ok"
    assert (row(history, number).why, active(history, "a")) == ("a has become continuous", [])
