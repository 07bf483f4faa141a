"""When deadlines of tasks are breached, and when they are no more, by all members alike."""

from typing import Any

import pytest

from node.state.attempts import Began, Cancel, Finish
from node.state.codec import from_pieces, snapshot_pieces
from node.state.deadlines import RULES_ANEW, RULES_JUDGED, Breached
from node.state.members import TakeLead
from node.state.occurrences import SkipOccurrences, Start
from node.state.registry import DeleteTask, Pause
from node.state.restoring import RestoreTasks
from node.state.saved import Kept
from node.state.value import RULES, Breach, Run, TaskRow
from tests.unit.node.state.given import NOW_US, History, cluster

S = 1_000_000
DUE_US = NOW_US + 60 * S
EVERY = {"every_s": 60}
HASTY = {"attempts": 1}


def judged(**fields: Any) -> History:
    """A cluster with the task "a", due every minute, whose deadlines are judged."""
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    history.put("a", **({"schedule": EVERY, "retry": HASTY} | fields))
    return history


def row(history: History) -> TaskRow:
    return history.state.tasks["a"]


def begun(history: History, due_us: int, at_us: int) -> Run:
    run = history.claim("a", due_us)
    history.must(Began(at_us, run.run_id, run.token))
    return run


def events(history: History) -> list[str]:
    """What the last entry did to deadlines."""
    return [one.change for one in history.last.deadlines]


def test_an_occurrence_that_nobody_begins_is_breached_once_and_met_when_it_begins() -> None:
    history = judged(deadlines={"start_within_s": 10})
    late_us = DUE_US + 10 * S
    assert not history.do(Breached(late_us - 1, "a", "start_within", DUE_US, True)).ok, "its time has not come"
    history.must(Breached(late_us + S, "a", "start_within", DUE_US, True))
    assert row(history).breaches == (Breach("start_within", DUE_US, late_us, undecided=True),)
    assert [(one.task, one.at_us, one.change) for one in history.last.deadlines] == [("a", late_us + S, "breached")]
    assert history.do(Breached(late_us + 2 * S, "a", "start_within", DUE_US, True)).code == "exists"

    assert from_pieces(snapshot_pieces(history.state)) == history.state
    run = history.claim("a", DUE_US)
    assert row(history).breaches, "a claim begins nothing yet"
    history.must(Began(late_us + 5 * S, run.run_id, run.token))
    assert (row(history).breaches, events(history)) == ((), ["met"])
    assert not history.do(Breached(late_us + 6 * S, "a", "start_within", DUE_US, True)).ok


def test_a_run_by_hand_is_due_when_it_is_asked_for() -> None:
    history = judged(deadlines={"start_within_s": 10})
    asked_us = NOW_US + 500 * S
    history.must(Start(asked_us, "a", fire_at_us=NOW_US))
    assert not history.do(Breached(asked_us + 9 * S, "a", "start_within", NOW_US)).ok
    history.must(Breached(asked_us + 10 * S, "a", "start_within", asked_us))
    [run] = history.state.runs.values()
    history.must(Cancel(asked_us + 11 * S, run.run_id))
    assert events(history) == ["dropped"], "there is nothing late any more, and it was not met either"
    late_word = Breached(asked_us + 12 * S, "a", "start_within", asked_us)
    assert not history.do(late_word).ok, "also of a task with a schedule"


def test_a_run_that_fails_is_not_in_time_and_a_later_one_may_succeed_in_its_place() -> None:
    history = judged(deadlines={"finish_within_s": 90})
    first = begun(history, DUE_US, DUE_US)
    history.must(Finish(DUE_US + S, first.run_id, first.token, "failed"))
    history.must(Breached(DUE_US + 90 * S, "a", "finish_within", DUE_US))
    second = begun(history, DUE_US + 120 * S, DUE_US + 120 * S)
    assert row(history).breaches
    history.must(Finish(DUE_US + 121 * S, second.run_id, second.token, "failed"))
    assert row(history).unmet_us == DUE_US, "the oldest counts"
    third = begun(history, DUE_US + 180 * S, DUE_US + 180 * S)
    history.must(Finish(DUE_US + 181 * S, third.run_id, third.token, "succeeded"))
    assert (row(history).breaches, row(history).unmet_us, events(history)) == ((), None, ["met"])


def test_a_run_that_works_for_too_long_is_late_while_it_works() -> None:
    history = judged(deadlines={"finish_within_s": 30})
    run = begun(history, DUE_US, DUE_US)
    history.must(Breached(DUE_US + 31 * S, "a", "finish_within", DUE_US))
    history.must(Finish(DUE_US + 40 * S, run.run_id, run.token, "succeeded"))
    assert events(history) == ["met"]


def test_a_deadline_stays_breached_while_another_run_is_late() -> None:
    history = judged(overlap="allow", deadlines={"finish_within_s": 70})
    first, second = begun(history, DUE_US, DUE_US), begun(history, DUE_US + 60 * S, DUE_US + 60 * S)
    history.must(Breached(DUE_US + 71 * S, "a", "finish_within", DUE_US))
    since_us = row(history).breaches[0].since_us
    history.must(Finish(DUE_US + 140 * S, first.run_id, first.token, "succeeded"))
    assert row(history).breaches == (Breach("finish_within", DUE_US + 60 * S, since_us),)
    assert events(history) == []
    history.must(Finish(DUE_US + 141 * S, second.run_id, second.token, "succeeded"))
    assert events(history) == ["met"]


def test_without_any_success_for_too_long() -> None:
    history = judged(deadlines={"success_every_s": 600})
    history.must(Breached(NOW_US + 600 * S, "a", "success_every", NOW_US))
    run = begun(history, NOW_US + 660 * S, NOW_US + 660 * S)
    ended_us = NOW_US + 661 * S
    history.must(Finish(ended_us, run.run_id, run.token, "succeeded"))
    assert events(history) == ["met"]
    assert not history.do(Breached(NOW_US + 700 * S, "a", "success_every", NOW_US)).ok
    history.must(Breached(ended_us + 600 * S, "a", "success_every", ended_us))


def test_what_is_passed_over_is_late_no_more() -> None:
    history = judged(deadlines={"start_within_s": 10})
    history.must(Breached(DUE_US + 70 * S, "a", "start_within", DUE_US, True))
    history.must(SkipOccurrences(DUE_US + 71 * S, "a", "missed", (DUE_US, DUE_US), 1))
    assert (row(history).breaches, events(history)) == ((), ["dropped"])


def test_a_paused_task_is_not_judged_and_counts_anew() -> None:
    history = judged(deadlines={"start_within_s": 10, "success_every_s": 100})
    history.must(Start(NOW_US, "a"))
    history.must(Breached(NOW_US + 100 * S, "a", "success_every", NOW_US))
    history.must(Breached(NOW_US + 100 * S, "a", "start_within", NOW_US))
    history.must(Pause(NOW_US + 200 * S, "a", on=True))
    assert (row(history).breaches, events(history)) == ((), ["dropped", "dropped"])
    assert not history.do(Breached(NOW_US + 300 * S, "a", "start_within", NOW_US)).ok
    history.must(Pause(NOW_US + 400 * S, "a", on=False))
    assert not history.do(Breached(NOW_US + 409 * S, "a", "start_within", NOW_US)).ok, "also for a run from before"
    history.must(Breached(NOW_US + 410 * S, "a", "start_within", NOW_US))
    history.must(DeleteTask(NOW_US + 420 * S, "a"))
    assert events(history) == ["dropped"]


def test_a_saved_task_is_judged_from_when_it_is_restored() -> None:
    history = judged(deadlines={"success_every_s": 600})
    history.must(Breached(NOW_US + 600 * S, "a", "success_every", NOW_US))
    kept = Kept(row(history).spec_packed, 1, 1, NOW_US, NOW_US, NOW_US)
    other = cluster("a")
    other.must(TakeLead(NOW_US, "a", 1, RULES))
    other.must(RestoreTasks(NOW_US + 900 * S, 0, 1, 1, {}, (kept,)))
    assert (row(other).judged_us, row(other).breaches) == (NOW_US + 900 * S, ())


@pytest.mark.parametrize("deadlines", [{}, {"start_within_s": 20}], ids=["dropped", "another"])
def test_a_deadline_that_is_changed_is_judged_anew(deadlines: dict[str, int]) -> None:
    history = judged(deadlines={"start_within_s": 10})
    history.must(Breached(DUE_US + 70 * S, "a", "start_within", DUE_US, True))
    history.put("a", DUE_US + 80 * S, schedule=EVERY, retry=HASTY, weight=2, deadlines={"start_within_s": 10})
    assert row(history).breaches
    history.put("a", DUE_US + 80 * S, schedule=EVERY, retry=HASTY, deadlines=deadlines)
    assert (row(history).breaches, events(history)) == ((), ["dropped"])
    assert bool(row(history).judged_us) == bool(deadlines)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [(EVERY, {"every_s": 45}), (EVERY, {"cron": "0 3 1 1 *"}), ({"cron": "* * * * *"}, {"cron": "0 3 1 1 *"})],
    ids=["every", "cron", "cron-to-cron"],
)
@pytest.mark.parametrize(("rules", "stays"), [(RULES, False), (RULES_ANEW - 1, True)])
def test_an_occurrence_is_late_no_more_once_its_schedule_is_another_whatever_the_clock_of_who_changed_it(
    earlier: dict[str, Any], later: dict[str, Any], rules: int, stays: bool
) -> None:
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 1, rules))
    history.put("a", schedule=earlier, deadlines={"start_within_s": 10})
    history.must(Breached(DUE_US + 11 * S, "a", "start_within", DUE_US, True))
    history.put("a", NOW_US + S, schedule=later, deadlines={"start_within_s": 10})
    assert (bool(row(history).breaches), events(history)) == (stays, [] if stays else ["dropped"])


@pytest.mark.parametrize("later", [{"every_s": 45}, {"cron": "0 3 1 1 *"}], ids=["every", "cron"])
@pytest.mark.parametrize(("rules", "taken"), [(RULES, False), (RULES_ANEW - 1, True)])
def test_an_occurrence_of_the_schedule_of_before_is_not_breached_by_a_late_word(
    later: dict[str, Any], rules: int, taken: bool
) -> None:
    history, start_us = cluster("a", "b"), NOW_US + 1
    history.must(TakeLead(NOW_US, "a", 1, rules))
    history.put("a", start_us, schedule=EVERY, deadlines={"start_within_s": 10})
    history.put("a", start_us + S, schedule=later, deadlines={"start_within_s": 10})
    due_us = start_us + 60 * S
    assert history.do(Breached(due_us + 11 * S, "a", "start_within", due_us, True)).ok == taken


def test_a_continuous_task_is_not_late_while_it_rests_after_a_failure() -> None:
    schedule, retry = {"continuous": True}, {"attempts": 1, "backoff_s": 60}
    history = judged(schedule=schedule, retry=retry, deadlines={"start_within_s": 10})
    history.must(Breached(NOW_US + 10 * S, "a", "start_within", NOW_US, True))
    run = history.claim("a", NOW_US)
    history.must(Finish(NOW_US + 20 * S, run.run_id, run.token, "failed"))
    due_us = row(history).since_us
    assert not history.do(Breached(due_us + 69 * S, "a", "start_within", due_us, True)).ok
    history.must(Breached(due_us + 70 * S, "a", "start_within", due_us, True))
    assert not history.do(Breached(due_us + 70 * S, "a", "start_within", due_us - 1, True)).ok


def test_the_run_of_a_deleted_task_is_not_held_against_its_namesake() -> None:
    history = judged(deadlines={"finish_within_s": 90})
    run = begun(history, DUE_US, DUE_US)
    history.must(DeleteTask(DUE_US + S, "a"))
    history.put("a", DUE_US + 2 * S, schedule=EVERY, retry=HASTY, deadlines={"finish_within_s": 90})
    history.must(Finish(DUE_US + 3 * S, run.run_id, run.token, "timed_out"))
    assert row(history).unmet_us is None


def test_nothing_is_judged_by_earlier_rules() -> None:
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, RULES_JUDGED - 1))
    history.put("a", schedule=EVERY, deadlines={"success_every_s": 100})
    assert row(history).judged_us == 0
    history.must(TakeLead(NOW_US + S, "a", 2, RULES))
    assert row(history).judged_us == NOW_US + S
    assert history.last.touched == {"a"}
