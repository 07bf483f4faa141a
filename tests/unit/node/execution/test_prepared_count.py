"""How many processes of a preparation there are, and how long before something is due."""

from node.execution.prepared_count import (
    FAILED_S,
    FAILED_S_MAX,
    GRACE_S,
    LEAD_S_MAX,
    LEAD_S_MIN,
    LEAD_S_UNKNOWN,
    PreparedCount,
)


def test_the_lead_time_follows_a_slower_preparation_at_once_and_faster_ones_slowly() -> None:
    count = PreparedCount()
    assert count.lead_s == LEAD_S_UNKNOWN
    count.took(4.0)
    assert count.lead_s == 6.0
    count.took(10.0)
    assert count.lead_s == 15.0
    count.took(5.0)
    assert count.lead_s == 13.5


def test_the_lead_time_is_bounded() -> None:
    count = PreparedCount()
    count.took(0.01)
    assert count.lead_s == LEAD_S_MIN
    count.took(1000.0)
    assert count.lead_s == LEAD_S_MAX


def test_one_that_is_needed_again_within_the_grace_is_kept() -> None:
    count = PreparedCount()
    assert count.change(1, 0, 0, 10.0) == 0
    assert count.change(1, 1, 1, 10.0 + GRACE_S / 2) == 0
    assert count.change(1, 0, 0, 10.0 + GRACE_S) == 0, "the grace begins anew"
    assert count.due(1, 10.0 + 2 * GRACE_S) == -1


def test_failures_in_a_row_are_retried_later_and_later() -> None:
    count = PreparedCount()
    now_s, waits_s = 100.0, []
    for _ in range(10):
        count.failed(now_s)
        assert count.change(0, 1, 1, now_s) == 0
        wait_s = count.wait_s(0, now_s)
        assert wait_s is not None
        waits_s.append(wait_s)
        now_s += wait_s
        assert count.due(0, now_s) == 1
    assert waits_s[:3] == [FAILED_S, 2 * FAILED_S, 4 * FAILED_S]
    assert waits_s[-1] == FAILED_S_MAX
    count.took(1.0)
    count.failed(now_s)
    assert count.wait_s(0, now_s) == FAILED_S
