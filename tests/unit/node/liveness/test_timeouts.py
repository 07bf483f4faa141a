"""A change of the settings takes effect after the longer of the old and new timeouts."""

import pytest

from node.liveness.timeouts import Timeouts, Times
from node.state.value import Settings

LONG = Settings(lease_s=4.0, window_s=0.5, margin_s=1.0)


@pytest.fixture
def timeouts() -> Timeouts:
    made = Timeouts()
    made.observe(Settings(), 0.0)
    return made


def test_the_first_settings_hold_at_once(timeouts: Timeouts) -> None:
    assert timeouts.to_grant(0.0) == timeouts.to_judge(0.0) == Times(2.0, 1.0, 0.5)
    assert (timeouts.to_grant(0.0).silence_s, timeouts.to_grant(0.0).whole_s) == (2.5, 3.5)


def test_a_change_leaves_the_shorter_times_to_grant_and_the_longer_to_judge(timeouts: Timeouts) -> None:
    timeouts.observe(LONG, 10.0)
    assert timeouts.to_grant(15.4) == Times(2.0, 0.5, 0.5)
    assert timeouts.to_judge(15.4) == Times(4.0, 1.0, 1.0)
    assert timeouts.to_grant(15.5) == timeouts.to_judge(15.5) == Times(4.0, 0.5, 1.0)


def test_the_same_settings_are_no_change(timeouts: Timeouts) -> None:
    timeouts.observe(Settings(history_days=7), 10.0)
    assert timeouts.to_judge(10.0) == timeouts.to_grant(10.0)


def test_changes_one_after_another_all_count(timeouts: Timeouts) -> None:
    timeouts.observe(LONG, 10.0)
    timeouts.observe(Settings(lease_s=1.0), 11.0)
    assert timeouts.to_grant(12.0).lease_s == 1.0
    assert timeouts.to_judge(12.0).lease_s == 4.0
    assert timeouts.to_judge(16.6) == timeouts.to_grant(16.6) == Times(1.0, 1.0, 0.5)


def test_an_election_prolongs_it_for_the_leader_before_may_have_learnt_later(timeouts: Timeouts) -> None:
    timeouts.observe(LONG, 10.0)
    timeouts.elected(14.0)
    assert timeouts.to_judge(19.9) == Times(4.0, 1.0, 1.0)
    assert timeouts.to_grant(20.0) == Times(4.0, 0.5, 1.0)


def test_without_settings_there_is_no_answer() -> None:
    with pytest.raises(RuntimeError, match="no settings have been observed"):
        Timeouts().to_grant(0.0)
