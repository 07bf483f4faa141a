"""Retry, failover, overlap and catch-up."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.definition.policy import (
    KEPT,
    LATENESS_S,
    DuePlan,
    after_orphaning,
    lateness_s,
    rest_s,
    retry_after_s,
    room_for_another,
    settle,
)
from tasks.definition.spec import CatchUp, Failover, Overlap, Retry

S = 1_000_000
OVERLAPS: tuple[Overlap, ...] = ("skip", "queue", "replace", "allow")
CATCH_UPS: tuple[CatchUp, ...] = ("skip", "latest", "all")


def decide(
    overlap: Overlap,
    catch_up: CatchUp,
    due_us: Sequence[int],
    *,
    active: int = 0,
    waiting: int = 0,
    late_us: int = 0,
    lost: bool = False,
) -> DuePlan:
    return settle(overlap, catch_up, due_us, more=False, active=active, waiting=waiting, late_us=late_us, lost=lost)


def test_retries_are_backoff_times_factor_apart_and_end_after_the_attempts() -> None:
    retry = Retry(attempts=5, backoff_s=10, factor=2, max_s=35)
    assert [retry_after_s(retry, failures) for failures in range(1, 6)] == [10, 20, 35, 35, None]


def test_a_single_attempt_is_not_retried() -> None:
    assert retry_after_s(Retry(attempts=1), 1) is None


def test_a_delay_too_large_for_a_float_is_the_longest_one() -> None:
    assert retry_after_s(Retry(attempts=1000, factor=100, max_s=900), 999) == 900


def test_zero_backoff_stays_zero_after_a_thousand_failures() -> None:
    retry = Retry(attempts=1000, backoff_s=0, factor=100)
    assert {retry_after_s(retry, failures) for failures in range(1, 1000)} == {0}


@pytest.mark.parametrize(("most", "orphanings"), [(0, 1), (1, 1), (3, 3), (3, 4)])
def test_after_max_orphaned_attempts_a_run_is_abandoned(most: int, orphanings: int) -> None:
    assert after_orphaning(Failover(max=most), orphanings) == "abandoned"


def test_an_orphaned_run_is_retried_until_then_unless_the_policy_abandons_it() -> None:
    assert after_orphaning(Failover(max=3), 2) == "orphaned"
    assert after_orphaning(Failover(max=3, resume="abandon"), 1) == "abandoned"


def test_a_continuous_task_waits_after_a_failure_only() -> None:
    assert rest_s(Retry(backoff_s=7), "failed") == 7
    assert rest_s(Retry(backoff_s=7), "succeeded") == rest_s(Retry(backoff_s=7), None) == 0


def test_only_overlap_allow_starts_a_run_beside_another() -> None:
    assert [room_for_another(overlap, 1) for overlap in OVERLAPS] == [False, False, False, True]
    assert all(room_for_another(overlap, 0) for overlap in OVERLAPS)


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("catch_up", CATCH_UPS)
def test_an_occurrence_in_time_with_nothing_active_is_claimed(overlap: Overlap, catch_up: CatchUp) -> None:
    assert decide(overlap, catch_up, [5]) == DuePlan(claim=5)


@pytest.mark.parametrize("catch_up", CATCH_UPS)
def test_overlap_with_one_active(catch_up: CatchUp) -> None:
    assert decide("skip", catch_up, [5], active=1) == DuePlan(skipped=(5,))
    assert decide("queue", catch_up, [5], active=1) == DuePlan(enqueue=(5,))
    assert decide("replace", catch_up, [5], active=1) == DuePlan(claim=5, replace=True)
    assert decide("allow", catch_up, [5], active=1) == DuePlan(claim=5)


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow"])
def test_after_downtime_latest_runs_the_latest_and_the_others_are_missed(overlap: Overlap) -> None:
    assert decide(overlap, "latest", [1, 2, 3]) == DuePlan(missed=(1, 2))
    assert decide(overlap, "latest", [3]) == DuePlan(claim=3)


def test_after_downtime_skip_runs_only_what_is_due_within_the_grace() -> None:
    assert decide("skip", "skip", [1, 2], late_us=3) == DuePlan(missed=(1, 2))
    assert decide("skip", "skip", [1, 2], late_us=2) == DuePlan(missed=(1,))
    assert decide("skip", "skip", [2], late_us=2) == DuePlan(claim=2)


def test_with_skip_a_late_occurrence_does_not_replace_a_running_one() -> None:
    assert decide("replace", "skip", [5], active=1, late_us=6) == DuePlan(missed=(5,))
    assert decide("replace", "skip", [5], active=1, late_us=5) == DuePlan(claim=5, replace=True)
    assert decide("replace", "latest", [5], active=1, late_us=6) == DuePlan(claim=5, replace=True)


def test_a_failover_makes_no_occurrence_late_for_any_lease_duration() -> None:
    assert lateness_s(0.5) == lateness_s(3.5) == LATENESS_S
    assert lateness_s(600.0) > 600.0 + 3.0


def test_after_downtime_all_runs_the_newest_hundred() -> None:
    due_us = list(range(1, KEPT + 51))
    assert decide("skip", "all", due_us) == DuePlan(missed=tuple(range(1, 51)))
    assert decide("skip", "all", due_us[50:]) == DuePlan(enqueue=tuple(due_us[50:]))
    assert settle("skip", "all", due_us, more=True, active=0, waiting=0, late_us=0).missed == tuple(range(1, 51))


def test_what_fell_due_while_nothing_could_run_is_run_after_the_run_that_was_active_then() -> None:
    assert decide("skip", "all", [1, 2, 9], active=1, late_us=2) == DuePlan(enqueue=(1, 2, 9)), "the first is late"
    assert decide("skip", "all", [1], active=3, waiting=2, late_us=2) == DuePlan(enqueue=(1,))
    assert decide("skip", "all", [5, 6], active=1, lost=True) == DuePlan(enqueue=(5, 6))
    assert decide("skip", "all", [5, 6], active=1, late_us=5) == DuePlan(skipped=(5, 6)), "in time, beside a run"
    due_us = list(range(1, KEPT + 51))
    assert decide("skip", "all", due_us, active=1, late_us=KEPT) == DuePlan(missed=tuple(range(1, 51)))
    for catch_up in ("skip", "latest"):
        assert decide("skip", catch_up, [1, 2], active=1, late_us=9, lost=True) == DuePlan(skipped=(1, 2))


def test_a_full_queue_accepts_no_occurrence() -> None:
    assert decide("queue", "latest", [5], active=KEPT + 1, waiting=KEPT) == DuePlan(skipped=(5,))
    assert decide("queue", "all", [5, 6], active=KEPT, waiting=KEPT - 1) == DuePlan(skipped=(5,))


def test_overlap_replace_runs_the_latest_only() -> None:
    assert decide("replace", "all", [1, 2, 3], active=1) == DuePlan(skipped=(1, 2))
    assert decide("replace", "all", [1, 2, 3]) == DuePlan(missed=(1, 2))
    assert settle("replace", "all", [1, 2], more=True, active=1, waiting=0, late_us=0) == DuePlan(skipped=(1, 2))


@given(
    st.sampled_from(OVERLAPS),
    st.sampled_from(CATCH_UPS),
    st.integers(1, 350),
    st.integers(0, 3),
    st.integers(0, KEPT),
    st.integers(0, 400 * S),
)
@settings(max_examples=100, deadline=None)
def test_repeated_decisions_settle_every_occurrence_once_and_in_order(
    overlap: Overlap, catch_up: CatchUp, count: int, held: int, waiting: int, late_us: int
) -> None:
    due_us = [1 + number * S for number in range(count)]
    left = due_us
    fates: list[int] = []
    active = held + waiting
    while left:
        window = left[:200]
        verdict = settle(
            overlap,
            catch_up,
            window,
            more=len(left) > len(window),
            active=active,
            waiting=waiting,
            late_us=late_us,
        )
        if verdict.replace:
            active = waiting = 0
            continue
        part = [*verdict.missed, *verdict.skipped, *verdict.enqueue]
        part += [] if verdict.claim is None else [verdict.claim]
        waiting += len(verdict.enqueue)
        active += len(verdict.enqueue) + (verdict.claim is not None)
        assert part, "they would wait for ever"
        assert part == left[: len(part)]
        assert waiting <= KEPT
        fates += part
        left = left[len(part) :]
    assert fates == due_us
