"""What a supervisor decides, and when."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.execution import attempt_life
from node.execution.attempt_life import Act, AttemptLife, conclude, killing, renewed, step, told_to_stop, wake_s
from node.execution.frames import DoneFrame, FailedFrame
from node.execution.order import AttemptLimits

LIMITS = AttemptLimits(stop_s=10, hand_over_s=60)
ALIVE = AttemptLife(deadline_s=2.0, timeout_at_s=None, limits=LIMITS)


def test_before_the_deadline_no_action_is_taken() -> None:
    assert step(ALIVE, 1.999) == (ALIVE, [])
    assert wake_s(ALIVE) == 2.0


def test_a_lease_lapse_freezes_and_does_not_kill() -> None:
    frozen, acts = step(ALIVE, 2.0)
    assert acts == [Act.FREEZE]
    assert frozen.frozen
    assert not frozen.killed


def test_a_frozen_attempt_is_scanned_soon_and_then_once_a_second() -> None:
    frozen, _ = step(ALIVE, 2.0)
    assert wake_s(frozen) == pytest.approx(2.1)
    assert step(frozen, 2.05)[1] == []
    again, acts = step(frozen, 2.1)
    assert acts == [Act.FREEZE]
    assert wake_s(again) == pytest.approx(3.1)


def test_a_renewal_thaws() -> None:
    frozen, _ = step(ALIVE, 2.5)
    thawed, acts = step(renewed(frozen, 4.0), 3.0)
    assert acts == [Act.THAW]
    assert not thawed.frozen
    assert wake_s(thawed) == 4.0


def test_an_expired_renewal_does_not_thaw() -> None:
    frozen, _ = step(ALIVE, 2.5)
    assert step(renewed(frozen, 2.4), 2.55)[1] == []


def test_an_older_renewal_does_not_shorten_the_deadline() -> None:
    assert renewed(renewed(ALIVE, 5.0), 3.0).deadline_s == 5.0


def test_an_attempt_asked_to_stop_is_killed_after_the_grace_period() -> None:
    asked, acts = step(told_to_stop(renewed(ALIVE, 100), "cancelled", 1.0), 1.0)
    assert acts == [Act.ASK]
    assert step(asked, 10.9)[1] == []
    killed, acts = step(asked, 11.0)
    assert acts == [Act.KILL]
    assert killed.killed


def test_a_hand_over_has_a_longer_grace_period() -> None:
    asked, _ = step(told_to_stop(renewed(ALIVE, 100), "handed_over", 1.0), 1.0)
    assert step(asked, 60.9)[1] == []
    assert step(asked, 61.0)[1] == [Act.KILL]


def test_a_kill_has_no_grace_period() -> None:
    assert step(told_to_stop(ALIVE, "killed", 1.0), 1.0)[1] == [Act.KILL]


def test_an_attempt_failed_by_its_node_ends_at_once_with_the_nodes_reason() -> None:
    taken = attempt_life.failed_by_node(told_to_stop(ALIVE, "cancelled", 0.5), "no room on node-2", 1.0)
    assert step(taken, 1.0)[1] == [Act.KILL]
    again = told_to_stop(attempt_life.failed_by_node(taken, "no room at all", 1.1), "killed", 1.2)
    for report in (None, DoneFrame("{}", True), FailedFrame("OSError", False, False)):
        ending = conclude(again, report, -9, None)
        assert (ending.end, ending.error, ending.retry) == ("failed", "no room on node-2", True)


def test_a_killed_attempt_is_scanned_until_no_process_is_left() -> None:
    killed = killing(ALIVE, 1.0)
    assert step(killed, 1.05)[1] == []
    again, acts = step(killed, 1.1)
    assert acts == [Act.KILL]
    assert wake_s(again) == pytest.approx(2.1)


def test_a_timeout_requests_a_stop() -> None:
    timed = replace(renewed(ALIVE, 100), timeout_at_s=5.0)
    assert wake_s(timed) == 5.0
    over, acts = step(timed, 5.0)
    assert acts == [Act.ASK]
    assert over.why == "timed_out"
    assert step(over, 15.0)[1] == [Act.KILL]


def test_a_lapse_during_a_stop_freezes_and_the_grace_period_still_ends() -> None:
    asked, _ = step(told_to_stop(ALIVE, "cancelled", 1.0), 1.0)
    frozen, acts = step(asked, 2.0)
    assert acts == [Act.FREEZE]
    assert step(frozen, 11.0)[1] == [Act.KILL]


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [
        ("handed_over", "cancelled", "cancelled"),
        ("cancelled", "handed_over", "cancelled"),
        ("timed_out", "cancelled", "cancelled"),
        ("cancelled", "timed_out", "cancelled"),
        ("cancelled", "killed", "killed"),
    ],
)
def test_a_stop_reason_is_replaced_by_a_stronger_one_only(
    first: attempt_life.StopReason, then: attempt_life.StopReason, why: attempt_life.StopReason
) -> None:
    assert told_to_stop(told_to_stop(ALIVE, first, 1.0), then, 2.0).why == why


def test_a_second_stop_reason_does_not_extend_the_grace_period() -> None:
    twice = told_to_stop(told_to_stop(ALIVE, "timed_out", 1.0), "cancelled", 9.0)
    assert twice.kill_at_s == 11.0


EVENTS = st.lists(
    st.tuples(
        st.floats(0, 3),
        st.sampled_from(["nothing", "renew", "cancelled", "handed_over", "fenced"]),
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_no_attempt_runs_beyond_the_deadline_under_any_events(events: list[tuple[float, str]]) -> None:
    """Invariant 4, the supervisor's part: after `step` an attempt past its deadline is frozen or killed."""
    now_s, alive = 0.0, ALIVE
    for later_s, what in events:
        now_s += later_s
        match what:
            case "renew":
                alive = renewed(alive, now_s + 2)
            case "cancelled" | "handed_over" | "fenced" as why:
                alive = told_to_stop(alive, why, now_s)
        alive, _ = step(alive, now_s)
        assert alive.killed or alive.frozen == (now_s >= alive.deadline_s)
        assert wake_s(alive) > now_s
        assert step(alive, now_s) == (alive, [])


def stopped(why: attempt_life.StopReason) -> AttemptLife:
    return told_to_stop(ALIVE, why, 1.0)


LATE: tuple[attempt_life.StopReason, ...] = ("cancelled", "handed_over", "timed_out")
KILLED_LATE = {why: replace(stopped(why), killed=True) for why in LATE}


@pytest.mark.parametrize(
    ("alive", "report", "end"),
    [
        (ALIVE, DoneFrame("{}", False), "succeeded"),
        (ALIVE, FailedFrame("E: x", True, False), "failed"),
        (ALIVE, FailedFrame("ServerAway: x", True, False, away=True), "away"),
        # It completed before it saw the request: the result counts.
        (stopped("cancelled"), DoneFrame("{}", False), "succeeded"),
        (stopped("handed_over"), DoneFrame("{}", False), "succeeded"),
        (stopped("handed_over"), FailedFrame("E: x", True, False), "failed"),
        (stopped("handed_over"), FailedFrame("ServerAway: x", True, False, away=True), "away"),
        (stopped("cancelled"), FailedFrame("ServerAway: x", True, True, away=True), "cancelled"),
        # It saw the request, and may have stopped halfway.
        (stopped("cancelled"), DoneFrame("{}", True), "cancelled"),
        (stopped("handed_over"), DoneFrame("{}", True), "handed_over"),
        (stopped("cancelled"), FailedFrame("E: x", True, True), "cancelled"),
        (stopped("timed_out"), DoneFrame("{}", False), "timed_out"),
        (stopped("timed_out"), FailedFrame("E: x", True, True), "timed_out"),
        (stopped("fenced"), FailedFrame("Fenced: x", True, False), "failed"),
        (stopped("fenced"), DoneFrame("{}", True), "succeeded"),
        (stopped("killed"), None, "handed_over"),
        (KILLED_LATE["cancelled"], None, "cancelled"),
        (KILLED_LATE["handed_over"], None, "handed_over"),
        (KILLED_LATE["timed_out"], None, "timed_out"),
    ],
)
def test_the_outcome_follows_from_exit_status_and_stop_reason(
    alive: AttemptLife, report: DoneFrame | FailedFrame | None, end: str
) -> None:
    assert conclude(alive, report, -9, 5.0).end == end


@pytest.mark.parametrize(
    ("status", "says"),
    [(-9, "killed by SIGKILL"), (-11, "killed by SIGSEGV"), (-64, "killed by SIGRTMAX"), (3, "exit code 3")],
)
def test_a_killed_workers_error_names_the_signal(status: int, says: str) -> None:
    ending = conclude(ALIVE, None, status, None)
    assert ending.end == "failed"
    assert says in str(ending.error)
    assert ending.retry


def test_how_work_ended_that_was_asked_to_stop_for_a_hand_over_is_no_error_of_the_run() -> None:
    report = FailedFrame("CommandFailed: 'sh' was ended by SIGTERM", True, True)
    assert conclude(stopped("handed_over"), report, -9, None).error is None
    assert conclude(KILLED_LATE["handed_over"], None, -9, None).error is not None


def test_an_attempt_that_did_not_stop_reports_it() -> None:
    assert "did not stop within 10 s" in str(conclude(KILLED_LATE["cancelled"], None, -9, None).error)
    assert conclude(KILLED_LATE["timed_out"], None, -9, 5.0).error == (
        "timed out after 5 s, it did not stop within 10 s and was killed"
    )
