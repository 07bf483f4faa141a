"""What an owner proposes for its tasks."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from node.duty import decide
from node.duty.duty import TASKS_A_STEP
from node.duty.flight import PAUSE_US
from node.duty.step import LeaseView, WaitsForRoom
from node.state.attempts import Cancel
from node.state.claims import Claim
from node.state.occurrences import Enqueue, SkipOccurrences
from node.state.value import Outcome, Result
from tasks.definition.schedule import occurrences
from tests.unit.node.duty.given import LEASE, NOW, Owners, S, duty, first_step, run, task, world

EVERY = {"every_s": 10}


def test_an_occurrence_that_is_due_is_claimed_by_its_owner_with_its_incarnation() -> None:
    step = first_step(world(task("t", since_us=NOW - 10 * S, schedule=EVERY)))
    assert step.entries == (Claim(NOW, "t", NOW, "a", 1),)


def test_nothing_is_proposed_before_it_is_due_and_the_step_says_when_that_is() -> None:
    step = first_step(world(task("t", schedule=EVERY), task("u", schedule={"every_s": 7})))
    assert step.entries == ()
    assert step.wake_us == NOW + 7 * S


def test_without_a_lease_nothing_is_proposed() -> None:
    one = duty(world(task("t", since_us=NOW - 10 * S, schedule=EVERY)))
    assert one.step(NOW, None, {}, 8).entries == ()
    assert len(one.step(NOW, LEASE, {}, 8).entries) == 1


@pytest.mark.parametrize("change", [{"status": "draining"}, {"status": "down"}, {"incarnation": 2}])
def test_a_member_that_is_not_up_in_this_incarnation_claims_nothing(change: dict[str, object]) -> None:
    state = world(task("t", since_us=NOW - 10 * S, schedule=EVERY))
    state = replace(state, members=state.members.set("a", replace(state.members["a"], **change)))  # type: ignore[arg-type]
    assert first_step(state).entries == ()


@pytest.mark.parametrize("spec", [{"enabled": False}, {"schedule": None}])
def test_a_disabled_or_unscheduled_task_is_not_due(spec: dict[str, object]) -> None:
    row = task("t", **{"since_us": NOW - 10 * S, "schedule": EVERY, **spec})  # type: ignore[arg-type]
    assert first_step(world(row)).entries == ()


def test_a_paused_task_is_not_due_and_what_was_started_by_hand_is_claimed() -> None:
    row = task("t", since_us=NOW - 10 * S, schedule=EVERY, paused=True)
    assert first_step(world(row)).entries == ()
    step = first_step(world(row, run(row, "waiting")))
    assert step.entries == (Claim(NOW, "t", NOW + 1, "a", 1, "t~1"),)


def test_under_catch_up_all_what_fell_due_while_nothing_could_run_waits_behind_what_was_active() -> None:
    row = task("t", since_us=NOW - 60 * S, schedule=EVERY, catch_up="all")
    due_us = tuple(range(NOW - 50 * S, NOW + 1, 10 * S))
    handed_over = first_step(world(row, run(row, "waiting", number=-59 * S)))
    assert Enqueue(NOW, "t", due_us) in handed_over.entries
    recent = replace(row, through_us=NOW - 10 * S)
    assert Enqueue(NOW, "t", (NOW,)) in first_step(world(recent, run(recent, "orphaned"))).entries
    held = first_step(world(recent, run(recent, "running")))
    assert SkipOccurrences(NOW, "t", "skipped", (NOW, NOW), 1) in held.entries, "in time, beside a run"


def test_the_tasks_of_others_and_of_nobody_are_left_to_them_until_ownership_changes() -> None:
    state = world(*(task(name, since_us=NOW - 10 * S, schedule=EVERY) for name in "tuv"))
    one = duty(state, Owners({"t": "b", "u": None}))
    assert [entry.task for entry in one.step(NOW, LEASE, {}, 8).entries if isinstance(entry, Claim)] == ["v"]
    one.observe(state, Owners({"v": "b"}), ())
    assert {entry.task for entry in one.step(NOW, LEASE, {}, 8).entries if isinstance(entry, Claim)} == {"t", "u"}


def test_each_entry_is_in_flight_once_and_proposed_again_a_pause_after_an_unknown_outcome() -> None:
    one = duty(world(task("t", since_us=NOW - 10 * S, schedule=EVERY)))
    (claim,) = one.step(NOW, LEASE, {}, 8).entries
    assert one.step(NOW + 1, LEASE, {}, 8).entries == ()
    one.answered(claim, None, NOW + 1)
    waits = one.step(NOW + 1, LEASE, {}, 8)
    assert (waits.entries, waits.wake_us) == ((), NOW + 1 + PAUSE_US)
    assert len(one.step(NOW + 1 + PAUSE_US, LEASE, {}, 8).entries) == 1


def test_a_refused_entry_is_not_proposed_in_a_hurry() -> None:
    one = duty(world(task("t", since_us=NOW - 10 * S, schedule=EVERY)))
    (claim,) = one.step(NOW, LEASE, {}, 8).entries
    one.answered(claim, Result("occurrence-taken"), NOW)
    assert one.step(NOW, LEASE, {}, 8).entries == ()


def test_after_an_answer_the_task_is_decided_on_again() -> None:
    state = world(task("t", since_us=NOW - 30 * S, schedule=EVERY))
    one = duty(state)
    (passed,) = one.step(NOW, LEASE, {}, 8).entries
    assert passed == SkipOccurrences(NOW, "t", "missed", (NOW - 20 * S, NOW - 10 * S), 2)
    after = world(task("t", since_us=NOW - 30 * S, through_us=NOW - 10 * S, schedule=EVERY))
    one.observe(after, Owners(), {"t"})
    assert one.step(NOW, LEASE, {}, 8).entries == (), "one decision about a schedule at a time"
    one.answered(passed, Result("ok"), NOW)
    assert one.step(NOW, LEASE, {}, 8).entries == (Claim(NOW, "t", NOW, "a", 1),)


def test_an_answer_that_comes_before_the_state_it_speaks_of_repeats_nothing() -> None:
    one = duty(world(task("t", since_us=NOW - 20 * S, schedule=EVERY)))
    (passed,) = one.step(NOW, LEASE, {}, 8).entries
    one.answered(passed, Result("ok"), NOW)
    assert one.step(NOW, LEASE, {}, 8).entries == ()
    one.observe(world(task("t", since_us=NOW - 20 * S, through_us=NOW - 10 * S, schedule=EVERY)), Owners(), {"t"})
    assert one.step(NOW, LEASE, {}, 8).entries == (Claim(NOW, "t", NOW, "a", 1),)


def test_an_acceptance_that_changed_nothing_does_not_block_the_task() -> None:
    one = duty(world(task("t", since_us=NOW - 20 * S, schedule=EVERY)))
    (passed,) = one.step(NOW, LEASE, {}, 8).entries
    one.answered(passed, Result("ok"), NOW)
    assert one.step(NOW + PAUSE_US, LEASE, {}, 8).entries == (replace(passed, at_us=NOW + PAUSE_US),)


def test_without_a_place_nothing_is_claimed_and_the_step_says_what_waits() -> None:
    first, second = (task(name, since_us=NOW - due * S, schedule=EVERY) for name, due in (("t", 10), ("u", 11)))
    waiting = task("w")
    one = duty(world(first, second, waiting, run(waiting, "waiting")))
    step = one.step(NOW, LEASE, {}, 0)
    assert step.entries == ()
    assert set(step.waiting_for_room) == {
        WaitsForRoom("t", None, NOW),
        WaitsForRoom("u", None, NOW - S),
        WaitsForRoom("w", "w~1", NOW + 1),
    }
    assert one.step(NOW, LEASE, {}, 1).entries == (Claim(NOW, "u", NOW - S, "a", 1),), "the longest due goes first"
    assert one.step(NOW, LEASE, {}, 1).entries == (), "a claim under way needs the place"


def test_what_finds_no_place_and_may_not_come_late_is_queued_before_it_is_late() -> None:
    row = task("t", since_us=NOW - 10 * S, schedule={"at": "1970-01-12T13:46:40Z"}, catch_up="skip")
    one = duty(world(row))
    step = one.step(NOW, LEASE, {}, 0)
    assert (step.entries, step.wake_us) == ((), NOW + 5 * S)
    assert one.step(NOW + 5 * S, LEASE, {}, 0).entries == (Enqueue(NOW + 5 * S, "t", (NOW,)),)


def test_what_may_come_late_waits_for_a_place_as_it_is() -> None:
    row = task("t", since_us=NOW - 10 * S, schedule={"at": "1970-01-12T13:46:40Z"}, catch_up="latest")
    one = duty(world(row))
    assert one.step(NOW, LEASE, {}, 0).entries == ()
    step = one.step(NOW + 60 * S, LEASE, {}, 0)
    assert (step.entries, step.waiting_for_room) == ((), (WaitsForRoom("t", None, NOW),))


def test_what_is_late_by_a_failover_under_long_leases_is_run() -> None:
    row = task("t", since_us=NOW - 70 * S, schedule={"every_s": 50}, catch_up="skip")
    state = world(row)
    assert first_step(state).entries == (SkipOccurrences(NOW, "t", "missed", (NOW - 20 * S, NOW - 20 * S), 1),)
    state = replace(state, settings=replace(state.settings, lease_s=15.0))
    assert first_step(state).entries == (Claim(NOW, "t", NOW - 20 * S, "a", 1),)


def test_a_lost_members_runs_come_before_what_else_is_due() -> None:
    orphan = task("z")
    rows = [task(name, since_us=NOW - 15 * S, schedule=EVERY) for name in "bcd"]
    step = first_step(world(*rows, orphan, run(orphan, "orphaned")), room=1)
    assert step.entries == (Claim(NOW, "z", NOW + 1, "a", 1, "z~1"),)


def test_an_orphaned_run_waits_for_its_grace() -> None:
    row = task("t", failover={"grace_s": 5})
    step = first_step(world(row, run(row, "orphaned", due_us=NOW + 5 * S)))
    assert (step.entries, step.wake_us) == ((), NOW + 5 * S)


def test_a_grace_that_a_clock_an_hour_ahead_has_stamped_is_over() -> None:
    row = task("t", failover={"grace_s": 5})
    step = first_step(world(row, run(row, "orphaned", due_us=NOW + 3605 * S)))
    assert step.entries == (Claim(NOW, "t", NOW + 1, "a", 1, "t~1"),)


def test_a_queue_is_taken_from_its_head_also_while_that_waits_for_its_retry() -> None:
    row = task("t", overlap="queue")
    waiting = [run(row, "waiting", number) for number in (1, 2)]
    assert first_step(world(row, *waiting)).entries == (Claim(NOW, "t", NOW + 1, "a", 1, "t~1"),)
    waiting[0] = replace(waiting[0], due_us=NOW + S)
    step = first_step(world(row, *waiting))
    assert (step.entries, step.wake_us) == ((), NOW + S)


def test_allow_claims_all_that_wait_and_the_occurrence_beside_them() -> None:
    row = task("t", since_us=NOW - 10 * S, schedule=EVERY, overlap="allow")
    step = first_step(world(row, run(row, "waiting", 1), run(row, "waiting", 2), run(row, "running", 3, node="b")))
    assert {entry.run_id for entry in step.entries if isinstance(entry, Claim)} == {"t~1", "t~2", None}


def test_overlap_skip_and_queue_pass_over_or_keep_what_is_due_beside_a_run() -> None:
    for overlap, expected in (
        ("skip", SkipOccurrences(NOW, "t", "skipped", (NOW, NOW), 1)),
        ("queue", Enqueue(NOW, "t", (NOW,))),
    ):
        row = task("t", since_us=NOW - 10 * S, schedule=EVERY, overlap=overlap)
        assert first_step(world(row, run(row, "running"))).entries[-1] == expected


def test_replace_cancels_what_is_active_first_and_takes_nothing_of_it_up() -> None:
    row = task("t", since_us=NOW - 10 * S, schedule=EVERY, overlap="replace")
    assert first_step(world(row, run(row, "running", node="b"))).entries == (Cancel(NOW, "t~1", "replaced"),)
    assert first_step(world(row, run(row, "waiting"))).entries == (Cancel(NOW, "t~1", "replaced"),)
    assert first_step(world(row, run(row, "running", node="b", cancelling="asked"))).entries == ()


def test_what_waited_for_the_end_of_what_it_replaces_is_not_late() -> None:
    row = task("t", since_us=NOW - 30 * S, schedule={"every_s": 18}, overlap="replace", catch_up="skip")
    passed = (SkipOccurrences(NOW, "t", "missed", (NOW - 12 * S, NOW - 12 * S), 1),)
    assert first_step(world(row, run(row, "running", node="b"))).entries == passed, "nothing is ended for what is late"
    dying = run(row, "running", node="b", cancelling="replaced")
    assert first_step(world(row, dying)).entries == ()
    for ended_us, expected in (
        (NOW - S, (Claim(NOW, "t", NOW - 12 * S, "a", 1),)),
        (NOW - 11 * S, passed),
    ):
        for state in ("cancelled", "succeeded"):  # it may have ended before it heard that it was to
            ended = replace(row, last=Outcome("t~1", state, NOW - 90 * S, ended_us))
            assert first_step(world(ended)).entries == expected


def test_thousands_of_missed_occurrences_are_passed_over_in_bounded_entries() -> None:
    step = first_step(world(task("t", since_us=NOW - 5000 * S, schedule={"every_s": 1})))
    (entry,) = step.entries
    assert isinstance(entry, SkipOccurrences)
    assert (entry.fire_at_us, entry.count) == ((NOW - 4999 * S, NOW - 4000 * S), 1000)


def test_a_continuous_task_is_claimed_by_the_name_of_what_made_it_due() -> None:
    row = task("t", since_us=NOW - 50, through_us=NOW - 90, schedule={"continuous": True})
    assert first_step(world(row)).entries == (Claim(NOW, "t", NOW - 50, "a", 1),)
    assert first_step(world(row, run(row, "running"))).entries[1:] == ()


def test_a_continuous_task_rests_after_a_failure_before_it_begins_again() -> None:
    row = task("t", since_us=NOW, through_us=NOW - 90, schedule={"continuous": True}, retry={"backoff_s": 4})
    row = replace(row, last=Outcome("t~0", "failed", NOW - 90, NOW))
    step = first_step(world(row))
    assert (step.entries, step.wake_us) == ((), NOW + 4 * S)
    assert first_step(world(row), now_us=NOW + 4 * S).entries == (Claim(NOW + 4 * S, "t", NOW, "a", 1),)


def test_a_task_that_is_deleted_is_no_longer_decided_on() -> None:
    one = duty(world(task("t", since_us=NOW - 10 * S, schedule=EVERY)))
    one.observe(world(), Owners(), {"t"})
    assert one.step(NOW, LEASE, {}, 8) == first_step(world())


def test_many_tasks_due_at_once_are_decided_on_over_several_steps() -> None:
    one = duty(world(*(task(f"t{number}", since_us=NOW - 10 * S, schedule=EVERY) for number in range(600))))
    claimed = 0
    for _ in range(600 // TASKS_A_STEP + 1):
        step = one.step(NOW, LeaseView(1, 1), {}, 1000)
        assert len(step.entries) <= TASKS_A_STEP
        claimed += len(step.entries)
    assert claimed == 600


def test_a_clock_that_is_put_back_puts_nothing_off() -> None:
    """What was refused while the clock was an hour ahead is not left until it gets there again."""
    one = duty(world(task("t", since_us=NOW - 10 * S, schedule=EVERY)))
    [claim] = one.step(NOW + 3_600 * S, LEASE, {}, 8).entries
    one.answered(claim, Result("overlap"), NOW + 3_600 * S)
    assert one.step(NOW + 3_600 * S, LEASE, {}, 8).entries == ()
    assert one.step(NOW, LEASE, {}, 8).entries == (Claim(NOW, "t", NOW, "a", 1),)


def test_no_more_due_times_are_worked_out_than_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand of a cron line's took fifteen milliseconds for each occurrence that fell due."""
    worked_out: list[int] = []

    def counted(*args: Any) -> Iterator[int]:
        for fire_at_us in occurrences(*args):
            worked_out.append(fire_at_us)
            yield fire_at_us

    monkeypatch.setattr(decide, "occurrences", counted)
    assert len(first_step(world(task("t", since_us=NOW - 10 * S, schedule=EVERY))).entries) == 1
    assert worked_out == [NOW, NOW + 10 * S]


def test_an_action_is_claimed_beside_a_run_and_does_not_keep_an_occurrence_from_its_time() -> None:
    row = task("t", schedule={"every_s": 60}, overlap="skip")
    action = run(row, "waiting", 7, action="preview", due_us=0)
    step = first_step(world(row, run(row, "running"), action))
    assert [entry.run_id for entry in step.entries if isinstance(entry, Claim)] == [action.run_id]
    held = run(row, "running", 7, action="preview")
    step = first_step(world(row, held), now_us=NOW + 61 * S)
    assert [entry for entry in step.entries if isinstance(entry, Claim)] == [
        Claim(NOW + 61 * S, "t", NOW + 60 * S, "a", 1)
    ]
