"""Claims, attempts and how they end."""

from itertools import pairwise
from typing import Any

import pytest

from node.state.attempts import Began, Cancel, Checkpoint, Finish
from node.state.claims import Claim
from node.state.members import Drain, MarkDown, TakeLead
from node.state.occurrences import SkipOccurrences, Start
from node.state.value import Run
from tests.unit.node.state.given import NOW_US, History, cluster

FIRST_US = NOW_US + 1_000_000
SECOND_US = NOW_US + 2_000_000
EVERY: dict[str, Any] = {"every_s": 1}
CONTINUOUS: dict[str, Any] = {"continuous": True}


def test_of_two_claims_for_one_occurrence_one_is_refused() -> None:
    history = cluster("a", "b")
    history.put("t", schedule=EVERY, overlap="allow")
    run = history.claim("t", FIRST_US, "a")
    assert (run.token, run.state, run.node) == (1, "claimed", "a")
    assert history.do(Claim(FIRST_US, "t", FIRST_US, "b", 1)).code == "occurrence-taken"
    history.must(Finish(FIRST_US, run.run_id, 1, "succeeded"))
    assert history.do(Claim(FIRST_US, "t", FIRST_US, "b", 1)).code == "occurrence-taken"
    assert history.claim("t", SECOND_US, "b").token == 2


def test_an_occurrence_that_was_passed_over_is_not_claimed() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    history.must(SkipOccurrences(FIRST_US, "t", "missed", (FIRST_US,)))
    assert history.do(Claim(FIRST_US, "t", FIRST_US, "a", 1)).code == "occurrence-taken"


def test_a_claim_needs_a_member_that_is_up_in_that_incarnation() -> None:
    history = cluster("a", "b")
    history.put("t", schedule=EVERY)
    assert history.do(Claim(FIRST_US, "t", FIRST_US, "c", 1)).code == "no-such-member"
    assert history.do(Claim(FIRST_US, "t", FIRST_US, "b", 2)).code == "incarnation"
    history.must(Drain(FIRST_US, "b", True))
    assert history.do(Claim(FIRST_US, "t", FIRST_US, "b", 1)).code == "not-up"
    assert history.do(Claim(FIRST_US, "nothing", FIRST_US, "a", 1)).code == "no-such-task"


def test_nothing_is_claimed_before_it_is_due_by_the_clock_of_the_claimer() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    history.put("by-hand")
    assert history.do(Claim(FIRST_US - 1, "t", FIRST_US, "a", 1)).code == "not-due"
    assert history.do(Claim(FIRST_US, "by-hand", FIRST_US, "a", 1)).code == "not-due"


@pytest.mark.parametrize(("overlap", "code"), [("skip", "overlap"), ("queue", "overlap"), ("allow", "ok")])
def test_overlap_forbids_a_second_run_beside_an_active_one(overlap: str, code: str) -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY, overlap=overlap)
    history.claim("t", FIRST_US)
    assert history.do(Claim(SECOND_US, "t", SECOND_US, "a", 1)).code == code


def test_an_old_token_changes_nothing() -> None:
    history = cluster("a", "b")
    history.put("t", schedule=EVERY)
    old = history.claim("t", FIRST_US, "a")
    history.must(Checkpoint(FIRST_US, old.run_id, old.token, b"first"))
    history.back("a", FIRST_US)
    new = history.claim("t", FIRST_US, "b", old.run_id)
    assert (new.token, new.attempts[-1].attempt, new.checkpoint) == (2, 2, b"first")
    for entry in (
        Began(FIRST_US, old.run_id, old.token),
        Checkpoint(FIRST_US, old.run_id, old.token, b"late"),
        Finish(FIRST_US, old.run_id, old.token, "succeeded"),
    ):
        assert history.do(entry).code == "fenced"
    assert history.state.runs[old.run_id] == new


def test_a_run_without_a_holder_has_no_valid_token() -> None:
    history = cluster("a")
    history.put("t")
    run_id = history.must(Start(FIRST_US, "t"))["run_id"]
    assert history.do(Began(FIRST_US, run_id, 0)).code == "fenced"


def test_a_run_that_is_held_is_not_claimed_again() -> None:
    history = cluster("a", "b")
    history.put("t")
    run_id = history.must(Start(FIRST_US, "t"))["run_id"]
    history.claim("t", FIRST_US, "a", run_id)
    assert history.do(Claim(FIRST_US, "t", FIRST_US, "b", 1, run_id)).code == "held"


def test_a_checkpoint_has_64_kib_at_most() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    run = history.claim("t", FIRST_US)
    history.must(Checkpoint(FIRST_US, run.run_id, run.token, bytes(65_536)))
    assert history.do(Checkpoint(FIRST_US, run.run_id, run.token, bytes(65_537))).code == "too-large"


def test_a_failure_waits_for_its_next_attempt_until_there_is_none() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY, retry={"attempts": 2, "backoff_s": 10})
    run = history.claim("t", FIRST_US)
    history.must(Finish(FIRST_US, run.run_id, run.token, "failed", error="x" * 9_999, log_truncated=True))
    waiting = history.state.runs[run.run_id]
    assert (waiting.state, waiting.due_us, waiting.failures) == ("waiting", FIRST_US + 10_000_000, 1)
    assert history.do(Claim(FIRST_US, "t", FIRST_US, "a", 1, run.run_id)).code == "not-due"
    again = history.claim("t", FIRST_US, run_id=run.run_id)
    history.must(Finish(SECOND_US, run.run_id, again.token, "failed", error="again"))
    assert (history.ended[-1].state, history.ended[-1].error) == ("failed", "again")
    assert len(history.ended[-1].run.attempts[0].error or "") == 2000
    assert [attempt.log_truncated for attempt in history.ended[-1].run.attempts] == [True, False]


def test_a_failure_under_a_clock_that_was_ahead_does_not_wait_for_it() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY, retry={"attempts": 2, "backoff_s": 10})
    run = history.claim("t", FIRST_US)
    history.must(Finish(FIRST_US + 3_600_000_000, run.run_id, run.token, "failed"))
    history.must(Claim(FIRST_US + 1_000_000, "t", FIRST_US, "a", 1, run.run_id))


def test_a_failure_that_would_only_repeat_is_the_last() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    run = history.claim("t", FIRST_US)
    history.must(Finish(FIRST_US, run.run_id, run.token, "failed", retry=False))
    assert history.ended[-1].state == "failed"
    last = history.state.tasks["t"].last
    assert last is not None
    assert (last.run_id, last.state) == (run.run_id, "failed")


def _find_away(history: History, run: Run, at_us: int, worked_us: int = 0) -> Run:
    """The run after an attempt that found away what it needs; it was claimed as soon as it was due."""
    history.must(Began(at_us, run.run_id, run.token))
    history.must(Finish(at_us + worked_us, run.run_id, run.token, "away", error="ServerAway: refused"))
    return history.state.runs[run.run_id]


def test_what_does_not_answer_is_waited_for_without_using_up_the_retries() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY, retry={"attempts": 1})
    run, at_us, pauses_s = history.claim("t", FIRST_US), FIRST_US, []
    for _ in range(10):
        waiting = _find_away(history, run, at_us)
        assert (waiting.state, waiting.failures, waiting.attempts[-1].state) == ("waiting", 0, "failed")
        pauses_s.append((waiting.due_us - at_us) / 1e6)
        assert history.do(Claim(waiting.due_us - 1, "t", FIRST_US, "a", 1, run.run_id)).code == "not-due"
        at_us = waiting.due_us
        run = history.claim("t", FIRST_US, run_id=run.run_id)
    assert pauses_s == [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]
    waiting = _find_away(history, run, at_us, worked_us=301_000_000)
    assert waiting.aways == 1, "it had what it needs for five minutes"
    run = history.claim("t", FIRST_US, run_id=run.run_id)
    history.must(Finish(waiting.due_us, run.run_id, run.token, "failed", error="a bug"))
    assert (history.ended[-1].state, history.ended[-1].error) == ("failed", "a bug")


def test_what_does_not_answer_is_not_waited_for_for_ever() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY, retry={"attempts": 3, "away_s": 12})
    run, at_us = history.claim("t", FIRST_US), FIRST_US
    for pause_s in (5, 7):
        waiting = _find_away(history, run, at_us)
        assert waiting.due_us - at_us == pause_s * 1_000_000
        at_us = waiting.due_us
        run = history.claim("t", FIRST_US, run_id=run.run_id)
    history.must(Finish(at_us, run.run_id, run.token, "away", error="ServerAway: refused"))
    assert (history.ended[-1].state, history.ended[-1].run.failures) == ("failed", 0)


def test_a_task_may_have_what_does_not_answer_count_as_a_failure() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY, retry={"attempts": 2, "backoff_s": 1, "away_s": 0})
    waiting = _find_away(history, history.claim("t", FIRST_US), FIRST_US)
    assert (waiting.failures, waiting.aways, waiting.due_us) == (1, 0, FIRST_US + 1_000_000)


def test_a_pause_under_a_clock_that_was_ahead_is_no_longer_than_it_should_be() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    run = history.claim("t", FIRST_US)
    history.must(Finish(FIRST_US + 3_600_000_000, run.run_id, run.token, "away"))
    history.must(Claim(FIRST_US + 1_000_000, "t", FIRST_US, "a", 1, run.run_id))


def test_an_attempt_given_back_is_no_failure() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    run = history.claim("t", FIRST_US)
    history.must(Finish(FIRST_US, run.run_id, run.token, "not_started"))
    waiting = history.state.runs[run.run_id]
    assert (waiting.state, waiting.failures, waiting.due_us) == ("waiting", 0, 0)


@pytest.mark.parametrize("end", ["failed", "away", "not_started", "handed_over", "cancelled"])
def test_what_is_being_cancelled_ends_cancelled(end: str) -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    run = history.claim("t", FIRST_US)
    history.must(Cancel(FIRST_US, run.run_id, "asked"))
    assert history.state.runs[run.run_id].cancelling == "asked"
    history.must(Finish(FIRST_US, run.run_id, run.token, end))  # type: ignore[arg-type]
    assert history.ended[-1].state == "cancelled"


def test_what_is_being_cancelled_and_is_lost_is_cancelled() -> None:
    history = cluster("a", "b")
    history.put("t", schedule=EVERY)
    run = history.claim("t", FIRST_US, "b")
    history.must(Cancel(FIRST_US, run.run_id))
    history.must(MarkDown(FIRST_US, "b", 1, "stopped", 0))
    assert history.ended[-1].state == "cancelled"
    assert not history.state.runs


@pytest.mark.parametrize(
    ("failover", "states"),
    [
        ({"max": 3}, ["orphaned", "orphaned", "abandoned"]),
        ({"resume": "abandon"}, ["abandoned"]),
        ({"max": 0}, ["abandoned"]),
    ],
)
def test_after_so_many_lost_attempts_a_run_is_abandoned(failover: dict[str, object], states: list[str]) -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY, failover=failover)
    run_id = history.claim("t", FIRST_US).run_id
    for state in states:
        history.back("a", FIRST_US)
        if state == "abandoned":
            assert history.ended[-1].state == state
        else:
            assert history.state.runs[run_id].state == state
            history.claim("t", FIRST_US, run_id=run_id)


@pytest.mark.parametrize(
    ("rules", "schedule", "goes_on"), [(5, CONTINUOUS, True), (4, CONTINUOUS, False), (5, EVERY, False)]
)
def test_a_continuous_run_that_gets_on_is_not_abandoned(rules: int, schedule: dict[str, Any], goes_on: bool) -> None:
    history = cluster("a")
    history.must(TakeLead(FIRST_US, "a", 1, rules))
    history.put("t", schedule=schedule, failover={"max": 2})
    run = history.claim("t", history.state.tasks["t"].since_us if schedule is CONTINUOUS else FIRST_US)
    for number in range(5):
        history.back("a", FIRST_US)
        if history.ended:
            break
        run = history.claim("t", FIRST_US, run_id=run.run_id)
        history.must(Checkpoint(FIRST_US, run.run_id, run.token, b"%d" % number))
    assert [ended.state for ended in history.ended] == ([] if goes_on else ["abandoned"])


def test_a_restart_forgets_the_checkpoint() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY, failover={"resume": "restart"})
    run = history.claim("t", FIRST_US)
    history.must(Checkpoint(FIRST_US, run.run_id, run.token, b"there"))
    history.back("a", FIRST_US)
    assert history.state.runs[run.run_id].checkpoint is None


def test_two_orphaned_runs_do_not_keep_one_another_from_being_taken_over() -> None:
    history = cluster("a", "b")
    history.put("t", schedule=EVERY, overlap="allow")
    ids = [history.claim("t", at_us, "b").run_id for at_us in (FIRST_US, SECOND_US)]
    history.put("t", schedule=EVERY, overlap="skip")
    history.must(MarkDown(SECOND_US, "b", 1, "stopped", 0))
    history.claim("t", SECOND_US, "a", ids[0])
    assert history.do(Claim(SECOND_US, "t", SECOND_US, "a", 1, ids[1])).code == "overlap"


def test_a_continuous_task_is_due_again_when_its_run_has_ended() -> None:
    history = cluster("a")
    history.put("t", schedule={"continuous": True})
    row = history.state.tasks["t"]
    assert (row.since_us, row.through_us) == (NOW_US, 0)
    run = history.claim("t", NOW_US)
    assert history.do(Claim(FIRST_US, "t", FIRST_US, "a", 1)).code == "not-due"
    history.must(Finish(FIRST_US, run.run_id, run.token, "handed_over"))
    again = history.claim("t", FIRST_US, run_id=run.run_id)
    history.must(Finish(SECOND_US, run.run_id, again.token, "succeeded"))
    row = history.state.tasks["t"]
    assert (row.since_us, row.through_us) == (SECOND_US, NOW_US)
    assert history.claim("t", SECOND_US).fire_at_us == SECOND_US


def test_the_claimer_of_a_sticky_task_becomes_its_incumbent_and_that_bumps_the_epoch() -> None:
    history = cluster("a", "b")
    history.put("t", schedule=EVERY, sticky=True)
    epochs = [history.state.epoch]
    for at_us, member in ((FIRST_US, "b"), (SECOND_US, "b"), (SECOND_US + 1, "a")):
        run = history.claim("t", at_us, member)
        history.must(Finish(at_us, run.run_id, run.token, "succeeded"))
        assert history.state.tasks["t"].placing.incumbent == member
        epochs.append(history.state.epoch)
    assert [after - before for before, after in pairwise(epochs)] == [1, 0, 1]


def test_a_long_life_keeps_its_latest_attempts_and_goes_on_counting() -> None:
    history = cluster("a")
    history.put("t", schedule=EVERY)
    run = history.claim("t", FIRST_US)
    for _ in range(40):
        history.must(Finish(FIRST_US, run.run_id, run.token, "not_started"))
        run = history.claim("t", FIRST_US, run_id=run.run_id)
    assert (len(run.attempts), run.attempts[-1].attempt) == (32, 41)


def test_a_run_without_a_wait_may_be_claimed_at_once_whatever_clock_stamped_its_entry() -> None:
    """A failover, a run handed over or started by hand does not wait until the others' clocks get to an hour ahead."""
    ahead_us = FIRST_US + 3_600_000_000
    history = cluster("a", "b")
    history.put("t", schedule=EVERY)
    run = history.claim("t", FIRST_US)
    history.must(MarkDown(ahead_us, "a", 1, "stopped", 0))
    assert history.state.runs[run.run_id].state == "orphaned"
    taken = history.must(Claim(FIRST_US + 1, "t", run.fire_at_us, "b", 1, run.run_id))
    history.must(Finish(ahead_us, run.run_id, taken["token"], "handed_over"))
    again = history.must(Claim(FIRST_US + 2, "t", run.fire_at_us, "b", 1, run.run_id))
    history.must(Finish(FIRST_US + 3, run.run_id, again["token"], "succeeded"))
    by_hand = history.must(Start(ahead_us, "t"))["run_id"]
    history.must(Claim(FIRST_US + 4, "t", 0, "b", 1, by_hand))


def test_a_continuous_tasks_next_run_is_not_put_off_by_the_clock_that_named_it() -> None:
    ahead_us = FIRST_US + 3_600_000_000
    history = cluster("a", "b")
    history.put("t", schedule={"continuous": True})
    run = history.claim("t", history.state.tasks["t"].since_us)
    history.must(Finish(ahead_us, run.run_id, run.token, "succeeded"))
    since_us = history.state.tasks["t"].since_us
    assert since_us == ahead_us
    history.must(Claim(FIRST_US + 1, "t", since_us, "b", 1))
