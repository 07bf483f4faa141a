"""A wall clock that is wrong is outvoted by the others', and what says little of now has no vote."""

from itertools import product

import pytest

from node.liveness.clocks import FRESH_S, ROUND_S, TOLERATED_US, Clocks, Correction

HOUR_US = 3_600_000_000
WALL_US = 1_794_000_000_000_000
FIVE = ("a", "b", "c", "d", "e")


def heard(ahead_us: dict[str, int], now_s: float = 10.0) -> Clocks:
    """What a leader knows to whom each member has said that its clock is so much ahead."""
    clocks = Clocks()
    for member, each_us in ahead_us.items():
        clocks.heard(member, WALL_US + each_us, now_s - 0.25, now_s)
    return clocks


@pytest.mark.parametrize(
    ("ahead_us", "agreed_us"),
    [
        ({"a": 0, "b": 10, "c": 20, "d": 30, "e": HOUR_US}, 20),
        ({"a": -HOUR_US, "b": 10, "c": 20, "d": 30, "e": HOUR_US}, 20),
        ({"a": HOUR_US, "b": HOUR_US, "c": 20, "d": 30, "e": 40}, 40),
        ({"a": 0, "b": 10, "c": 20}, 10),
        ({"a": 0, "b": 10}, None),
        ({"a": 0, "b": 10, "c": -HOUR_US}, None),
        ({"a": 0, "b": 10, "c": 20, "d": -HOUR_US}, 0),
        ({"a": 0, "b": TOLERATED_US + 1, "c": 2 * TOLERATED_US + 2}, None),
    ],
)
def test_the_time_is_what_most_clocks_say(ahead_us: dict[str, int], agreed_us: int | None) -> None:
    found = heard(ahead_us).agreed_us(FIVE, 10.0)
    assert found == (None if agreed_us is None else WALL_US + agreed_us)


def test_what_was_said_goes_on_with_the_leaders_own_clock_and_grows_old() -> None:
    clocks = heard(dict.fromkeys(FIVE, 0))
    assert clocks.agreed_us(FIVE, 11.5) == WALL_US + 1_500_000
    assert clocks.agreed_us(FIVE, 10.0 + FRESH_S + 0.1) is None


def test_before_an_agreement_the_own_clock_is_unverified() -> None:
    correction = Correction()
    correction.now_us(WALL_US, 1.0)
    correction.agree(WALL_US, 1.0, 1.0 + 2 * ROUND_S)  # it took too long to say anything of now
    assert not correction.agreed
    correction.agree(WALL_US, 1.0, 1.1)
    assert correction.agreed


def test_removed_members_have_no_vote() -> None:
    clocks = heard({"a": 0, "b": 0, "gone": HOUR_US, "long gone": HOUR_US, "e": HOUR_US})
    assert clocks.agreed_us(("a", "b", "e"), 10.0) == WALL_US


HALF_US = TOLERATED_US // 2
WRONG_US = (-HOUR_US, -2 * TOLERATED_US, 2 * TOLERATED_US, HOUR_US)


@pytest.mark.parametrize(
    ("count", "wrong_us"), [(1, WRONG_US), (2, WRONG_US), (3, WRONG_US), (4, WRONG_US), (5, WRONG_US[2:])]
)
def test_while_most_clocks_are_right_the_agreed_time_is_right_or_unknown_whichever_members_are_heard(
    count: int, wrong_us: tuple[int, ...]
) -> None:
    """Every cluster of up to that size, and every subset of it that is heard."""
    members = FIVE[:count]
    right_us = (-HALF_US, 0, HALF_US)
    for each_us in product(right_us + wrong_us, repeat=count):
        right = [ahead_us for ahead_us in each_us if ahead_us in right_us]
        if 2 * len(right) <= count:
            continue
        for ears in product((False, True), repeat=count):
            known = {member: us for member, us, hears in zip(members, each_us, ears, strict=True) if hears}
            found = heard(known).agreed_us(members, 10.0)
            near = found is not None and any(abs(found - WALL_US - us) <= TOLERATED_US for us in right)
            assert near or found is None, (each_us, known)
            heard_right = [us for us in known.values() if us in right_us]
            assert near or 2 * len(heard_right) <= count, "most are heard, and say the same"


@pytest.mark.parametrize("wrong_us", [-HOUR_US, HOUR_US])
def test_with_one_of_three_wrong_and_one_down_each_goes_on_with_what_was_agreed(wrong_us: int) -> None:
    three = FIVE[:3]
    clocks, right, wrong = Clocks(), Correction(), Correction()
    for second in range(10, 40):
        now_s, wall_us = float(second), WALL_US + second * 1_000_000
        told = {"a": wall_us, "b": wall_us, "c": wall_us + wrong_us}
        if second > 15:
            del told["a"]
        for member, own_us in told.items():
            clocks.heard(member, own_us, now_s - 0.25, now_s)
        agreed_us = clocks.agreed_us(three, now_s)
        assert (agreed_us is None) == (second > 15 + FRESH_S)
        if agreed_us is not None:
            for correction in (right, wrong):
                correction.agree(agreed_us, now_s, now_s)
        assert right.now_us(told["b"], now_s) == wall_us
        assert wrong.now_us(told["c"], now_s) == wall_us
    assert wrong.now_us(WALL_US + 40_000_000, 40.0) == WALL_US + 40_000_000
    assert not wrong.off, "one that is set right counts again though there is no agreement"


def test_one_that_starts_where_nothing_can_be_agreed_on_goes_by_its_own_clock() -> None:
    assert heard({"b": 0, "c": -HOUR_US}).agreed_us(FIVE[:3], 10.0) is None
    started = Correction()
    assert started.now_us(WALL_US - HOUR_US, 10.0) == WALL_US - HOUR_US
    started.agree(WALL_US + 1_000_000, 11.0, 11.0)
    assert started.now_us(WALL_US + 1_000_000 - HOUR_US, 11.0) == WALL_US + 1_000_000


def test_clocks_that_were_all_wrong_are_followed_as_soon_as_most_are_set_right() -> None:
    three = FIVE[:3]
    correction = corrected(WALL_US - HOUR_US)
    for right, agreed_us in ((0, -HOUR_US), (1, -HOUR_US), (2, 0), (3, 0)):
        known = {member: 0 if number < right else -HOUR_US for number, member in enumerate(three)}
        found = heard(known).agreed_us(three, 10.0)
        assert found == WALL_US + agreed_us
        correction.agree(found, 10.0, 10.0)
        assert correction.now_us(WALL_US, 10.0) == WALL_US + agreed_us


@pytest.mark.parametrize("echo_s", [None, 10.0 - ROUND_S - 0.01, 10.1])
def test_a_heartbeat_that_may_have_been_under_way_for_long_says_nothing_of_the_time(echo_s: float | None) -> None:
    clocks = Clocks()
    clocks.heard("a", WALL_US, echo_s, 10.0)
    assert clocks.agreed_us(("a",), 10.0) is None


def corrected(agreed_us: int = WALL_US, now_s: float = 10.0) -> Correction:
    correction = Correction()
    correction.agree(agreed_us, now_s, now_s)
    return correction


def test_a_clock_that_jumps_is_not_followed_from_the_very_moment() -> None:
    correction = corrected()
    assert correction.now_us(WALL_US + 1_000_000 + HOUR_US, 11.0) == WALL_US + 1_000_000
    assert correction.off
    assert correction.now_us(WALL_US + 2_000_000 - HOUR_US, 12.0) == WALL_US + 2_000_000
    assert correction.now_us(WALL_US + 3_000_000, 13.0) == WALL_US + 3_000_000
    assert not correction.off


def test_each_member_goes_by_its_own_clock_while_that_is_about_right() -> None:
    correction = corrected()
    for own_us in (WALL_US - TOLERATED_US, WALL_US + 17, WALL_US + TOLERATED_US):
        assert correction.now_us(own_us, 10.0) == own_us


def test_a_clock_at_the_edge_of_what_is_tolerated_is_not_chosen_anew_at_every_look() -> None:
    correction = corrected()
    assert correction.now_us(WALL_US + TOLERATED_US + 1, 10.0) == WALL_US
    assert correction.now_us(WALL_US + TOLERATED_US - 1, 10.0) == WALL_US
    assert correction.now_us(WALL_US + TOLERATED_US // 2, 10.0) == WALL_US + TOLERATED_US // 2


def test_an_answer_is_as_old_as_half_of_its_way_and_one_that_took_long_is_not_believed() -> None:
    correction = corrected()
    correction.agree(WALL_US + 30_000_000, 40.0 - ROUND_S - 0.01, 40.0)
    assert correction.now_us(0, 10.0) == WALL_US
    correction.agree(WALL_US + 30_000_000, 39.6, 40.0)
    assert correction.now_us(0, 40.0) == WALL_US + 30_200_000
