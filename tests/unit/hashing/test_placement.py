from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashing.columns import Columns
from hashing.key import key64
from hashing.moves import Move, load_of, moves
from hashing.placement import Placement, place
from hashing.succession import succession
from hashing.view import Slot, Task
from tests.oracle import placement as oracle
from tests.unit.hashing.clusters import OFFERS_ALL, alike, clusters, plain_tasks, slacks, task_lists


def down(slots: list[Slot], slot: int) -> list[Slot]:
    return [replace(was, status="down") if position == slot else was for position, was in enumerate(slots)]


@settings(max_examples=80, deadline=None)
@given(clusters(), task_lists(), slacks)
def test_the_owners_are_the_naive_ones(slots: list[Slot], tasks: list[Task], slack: int | None) -> None:
    # the whole placement function (docs/explanation/placement.md)
    placement = place(slots, tasks, slack)
    assert list(placement.owners) == oracle.owners(slots, tasks, slack)
    given_to: Counter[int | None] = Counter()
    for task, owner in zip(tasks, placement.owners, strict=True):
        given_to[owner] += task.weight
    assert placement.load == tuple(given_to[slot] for slot in range(len(slots)))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 7), plain_tasks, slacks, st.sets(st.integers(0, 6)))
def test_the_owners_of_plain_tasks_are_the_naive_ones_whoever_is_down(
    members: int, tasks: list[Task], slack: int | None, gone: set[int]
) -> None:
    slots = [replace(slot, status="down") if number in gone else slot for number, slot in enumerate(alike(members))]
    assert list(place(slots, tasks, slack).owners) == oracle.owners(slots, tasks, slack)


@settings(max_examples=30, deadline=None)
@given(clusters(least=1), task_lists(), st.integers(0, 6))
def test_without_room_no_task_of_a_living_member_moves(slots: list[Slot], tasks: list[Task], who: int) -> None:
    # under `null` each owner depends on nothing but the key and the members
    lost = who % len(slots)
    before, after = place(slots, tasks, None), place(down(slots, lost), tasks, None)
    assert all(then == now for now, then in zip(before.owners, after.owners, strict=True) if now != lost)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), plain_tasks, st.sets(st.integers(0, 8)))
def test_with_slack_0_the_fullest_has_at_most_one_more_than_the_emptiest(
    members: int, tasks: list[Task], gone: set[int]
) -> None:
    # unit weights, no pins, one group
    slots = [replace(slot, status="down") if number in gone else slot for number, slot in enumerate(alike(members))]
    placement = place(slots, tasks, 0)
    loads = [load for load, slot in zip(placement.load, slots, strict=True) if slot.status == "up"]
    assert not loads or max(loads) - min(loads) <= 1
    assert sum(placement.load) == (len(tasks) if loads else 0)


@settings(max_examples=30, deadline=None)
@given(clusters(least=1), task_lists(), slacks, st.integers(0, 6))
def test_whoever_comes_back_or_takes_the_slot_takes_back_its_own(
    slots: list[Slot], tasks: list[Task], slack: int | None, who: int
) -> None:
    # the next to join takes the lowest vacant slot, and with it exactly the work of the one that left
    tasks = [task._replace(pin=None, incumbent=None) for task in tasks]
    slot = who % len(slots)
    columns = Columns.of(tasks)
    before = place(slots, columns, slack)
    place(down(slots, slot), columns, slack)
    assert place(slots, columns, slack) == before
    if slots[slot].member is not None:
        vacant = [*slots[:slot], Slot(None), *slots[slot + 1 :]]
        assert slot not in place(vacant, columns, slack).owners
        taken = [*slots[:slot], replace(slots[slot], member="newcomer"), *slots[slot + 1 :]]
        assert place(taken, columns, slack) == before


@settings(max_examples=30, deadline=None)
@given(clusters(), task_lists(), slacks)
def test_kept_columns_change_nothing(slots: list[Slot], tasks: list[Task], slack: int | None) -> None:
    columns = Columns.of(tasks)
    place(slots, columns, 0)
    assert place(slots, columns, slack) == place(slots, tasks, slack)


@settings(max_examples=30, deadline=None)
@given(task_lists(), st.integers(0, 40), st.booleans())
def test_columns_followed_by_more_tasks_are_those_of_all(tasks: list[Task], known: int, changed: bool) -> None:
    before = Columns.of(tasks[:known])
    if changed:
        tasks = [tasks[0]._replace(weight=9), *tasks[1:]]
    after, anew = before.followed_by(tasks), Columns.of(tasks)
    assert after == anew
    for column in ("keys", "weights", "weight", "traits", "distinct_traits", "pins", "incumbents"):
        assert getattr(after, column) == getattr(anew, column)


def test_a_pin_is_kept_room_or_not_and_counts_before_the_others() -> None:
    slots = alike(3)
    tasks = [Task(f"t{number}", number, "backup", pin="node-1" if number >= 3 else None) for number in range(9)]
    placement = place(slots, tasks, 0)
    assert placement.owners[3:] == (1,) * 6
    assert 1 not in placement.owners[:3]


def test_room_is_compared_exactly_where_floats_would_not_do() -> None:
    # 200 / 2 * 1.15 is 115, in floats 114.99999999999999
    assert place(alike(2), [Task(f"t{number}", 0, "backup") for number in range(200)], 150).load == (115, 85)
    slots = [Slot("a", capacity=999_999, kinds=OFFERS_ALL), Slot("b", capacity=1_000_000, kinds=OFFERS_ALL)]
    tasks = [Task(f"t{number}", key64(f"t{number}"), "backup", weight=1_000_000 - number % 2) for number in range(100)]
    for slack in (0, 1, 333):
        assert list(place(slots, tasks, slack).owners) == oracle.owners(slots, tasks, slack)


def test_a_group_that_outweighs_its_members_is_spread_evenly_over_them() -> None:
    # nobody is within the limit: the smallest (load + w) / capacity decides
    slots = [Slot(f"node-{n}", labels=(("disk", "ssd"),) if n < 2 else (), kinds=OFFERS_ALL) for n in range(5)]
    tasks = [Task(f"t{number}", key64(f"t{number}"), "backup", (("disk", "ssd"),)) for number in range(101)]
    placement = place(slots, tasks, 0)
    assert sorted(placement.load) == [0, 0, 0, 50, 51]
    assert list(placement.owners) == oracle.owners(slots, tasks, 0)


def test_among_the_least_loaded_the_incumbent_comes_before_the_succession() -> None:
    # one task on two members: each may have half of it, so nobody is within the limit, and both are the least loaded
    _, second = succession(7, 2)
    assert place(alike(2), [Task("t", 7, "backup", incumbent=f"node-{second}")], 0).owners == (second,)


def test_a_task_too_heavy_for_anybody_does_not_close_the_room_for_light_ones() -> None:
    # 90 in all, 30 each: the 50 goes to the first; the others fill the second before they turn to the third
    first, second, third = succession(7, 3)
    tasks = [Task("heavy", 7, "backup", weight=50), *(Task(f"t{number}", 7, "backup") for number in range(40))]
    load = place(alike(3), tasks, 0).load
    assert (load[first], load[second], load[third]) == (50, 30, 10)


def test_nobody_and_nothing_can_be_placed() -> None:
    assert place([], [], 0) == Placement((), ())
    assert place([], [Task("t", 1, "backup")], 0) == Placement((None,), ())
    assert place([Slot(None)], [Task("t", 1, "backup", pin="node-1")], None) == Placement((None,), (0,))


def test_moves_name_the_tasks_whose_owner_changes() -> None:
    slots, tasks = alike(3), [Task(f"t{number}", key64(f"t{number}"), "backup") for number in range(12)]
    before, after = place(slots, tasks, None), place(down(slots, 2), tasks, None)
    found = moves(tasks, before, after, slots)
    assert found
    assert {move.task for move in found} == {
        task.name for task, owner in zip(tasks, before.owners, strict=True) if owner == 2
    }
    assert all(move.source == "node-2" and move.target in {"node-0", "node-1"} for move in found)
    assert moves(tasks, before, before, slots) == []
    nobody = Placement((None,) * 12, (0, 0, 0))
    assert moves(tasks[:1], Placement((0,), (1, 0, 0)), Placement((None,), (0, 0, 0)), slots) == [
        Move("t0", "node-0", None)
    ]
    assert load_of(nobody, slots) == {"node-0": 0, "node-1": 0, "node-2": 0}
    with pytest.raises(ValueError, match="zip"):
        moves(tasks[:1], before, after, slots)
