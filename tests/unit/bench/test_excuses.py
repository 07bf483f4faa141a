"""What excuses, and for how long: by what the observer saw, not by what was done."""

import pytest

from bench.chaos.checker.excuses import (
    RECOVERY_S,
    TAKEOVER_S,
    excused,
    hung_disks,
    stalled,
    troubles,
    unexcused_s,
)
from bench.chaos.faults.machines import HUNG
from bench.chaos.observer import LOOK_S
from bench.chaos.recovery import Struck
from node.liveness.pulse import STILL_S
from tests.unit.bench.sighted import Away, dense, sights

BEGIN_S, END_S = 1000.0, 1060.0
ALL = [(BEGIN_S - 100, END_S + 100)]
"""A fault was held all the while."""

EDGE_S = LOOK_S + 0.01
"""So exactly does the observer know when something was."""


def spans(away: Away = (), leaderless: list[tuple[float, float]] | None = None) -> list[tuple[float, float]]:
    seen = sights(BEGIN_S, END_S, away, leaderless or [])
    # What is before the first sight and after the last is not what is asked here.
    return [span for span in excused(seen, ALL, BEGIN_S, END_S - LOOK_S) if span[0] > BEGIN_S]


def test_a_whole_cluster_excuses_nothing() -> None:
    assert spans() == []


@pytest.mark.parametrize(
    ("away", "until_s"),
    [
        # Marked down after a second: it is not waited for any longer, however long it stays away.
        ([("node-3", 1010.0, 1050.0, 1011.0)], 1011.0),
        # Back before that.
        ([("node-3", 1010.0, 1012.0, 1099.0)], 1012.0),
        # Nobody marks it down, who should have.
        ([("node-3", 1010.0, 1050.0, 1099.0)], 1010.0 + RECOVERY_S),
    ],
)
def test_a_member_excuses_until_it_is_marked_down_or_back_or_should_have_been(away: Away, until_s: float) -> None:
    [(from_s, to_s)] = spans(away)
    assert 1010.0 - EDGE_S <= from_s <= 1010.0
    assert until_s - EDGE_S <= to_s - TAKEOVER_S <= until_s + EDGE_S


def test_no_leader_excuses_as_long_as_there_is_none() -> None:
    [(from_s, to_s)] = spans(leaderless=[(1010.0, 1040.0)])
    assert 1010.0 - EDGE_S <= from_s <= 1010.0
    assert 1040.0 <= to_s - TAKEOVER_S <= 1040.0 + EDGE_S


def test_no_majority_excuses_whoever_says_that_it_leads() -> None:
    away = [(name, 1010.0, 1040.0, 1011.0) for name in ("node-3", "node-4", "node-5")]
    [(_, to_s)] = spans(away)
    assert 1040.0 <= to_s - TAKEOVER_S <= 1040.0 + EDGE_S


def test_who_should_have_been_marked_down_is_waited_for_only_while_there_is_somebody_to_do_it() -> None:
    [(_, to_s)] = spans([("node-3", 1010.0, 1055.0, 1099.0)], [(1010.0, 1030.0)])
    assert 1030.0 + RECOVERY_S - EDGE_S <= to_s - TAKEOVER_S <= 1030.0 + RECOVERY_S + 2 * EDGE_S


def test_two_answers_that_are_far_apart_say_nothing_of_the_time_between() -> None:
    seen = sights(BEGIN_S, END_S)
    seen["node-3"] = [sight for sight in seen["node-3"] if not 1010.0 < sight.at_s < 1012.0]
    found = [span for span in excused(seen, ALL, BEGIN_S, END_S - LOOK_S) if span[0] > BEGIN_S]
    assert found == [(1010.0, 1012.0 + TAKEOVER_S)]


def test_who_was_not_observed_is_excused_no_longer_than_who_was() -> None:
    seen = sights(BEGIN_S, END_S)
    seen["node-3"] = []
    assert unexcused_s(BEGIN_S + RECOVERY_S + 5, END_S - 5, excused(seen, ALL, BEGIN_S, END_S)) > 30


def test_most_of_a_trial_as_dense_as_a_real_one_is_not_excused() -> None:
    found = excused(dense(1000.0, 30), [(1000.0, 2800.0)], 1000.0, 2800.0)
    assert unexcused_s(1000.0, 2800.0, found) > 900


def test_what_nothing_was_done_to_has_no_excuse() -> None:
    seen = sights(BEGIN_S, END_S, leaderless=[(1010.0, 1050.0)])
    fault = Struck(1, "kill -9 one", "", ("node-1",), 1009.0, 1010.0, 1012.0)
    [(_, to_s)] = excused(seen, troubles([fault], END_S), BEGIN_S, END_S - LOOK_S)
    assert to_s == 1012.0 + RECOVERY_S
    assert excused(seen, [], BEGIN_S, END_S) == []


def test_a_disk_that_hangs_excuses_until_its_node_should_have_been_succeeded() -> None:
    struck = [Struck(1, HUNG, "", ("node-5",), 1010.0, 1040.0), Struck(2, "full disk", "", ("node-5",), 1050.0, 1055.0)]
    assert hung_disks(struck) == [(1010.0, 1010.0 + STILL_S + RECOVERY_S + TAKEOVER_S)]


def test_a_disk_that_all_share_excuses_while_it_stood_still() -> None:
    spans = stalled([(1010.0, 1012.0), (1012.2, 1012.6)])
    assert spans == [(1010.0, 1012.6 + TAKEOVER_S)]
    assert unexcused_s(1000.0, 1020.0, spans) == pytest.approx(20.0 - 2.6 - TAKEOVER_S)
