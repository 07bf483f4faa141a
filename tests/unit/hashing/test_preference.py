from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from hashing.placement import place, standbys
from hashing.preference import because, preference
from hashing.succession import succession
from hashing.view import Slot, Task
from tests.oracle import placement as oracle
from tests.unit.hashing.clusters import OFFERS_ALL, alike, clusters, slacks, task_lists


@settings(max_examples=30, deadline=None)
@given(clusters(), task_lists(most=8), slacks)
def test_order_standbys_and_reasons_are_the_naive_ones(slots: list[Slot], tasks: list[Task], slack: int | None) -> None:
    owners = place(slots, tasks, slack).owners
    for task, owner in zip(tasks, owners, strict=True):
        assert preference(slots, task) == oracle.preference(slots, task)
        assert standbys(slots, task, owner) == oracle.standbys(slots, task, owner)
        assert [tuple(reason) for reason in because(slots, task, owner)] == oracle.because(slots, task, owner)


def test_pin_then_incumbent_then_succession_each_once() -> None:
    slots = alike(4)
    first, second, third, fourth = succession(12345, 4)
    task = Task("t", 12345, "backup", pin=f"node-{third}", incumbent=f"node-{fourth}")
    assert preference(slots, task) == [third, fourth, first, second]
    assert preference(slots, task._replace(incumbent=task.pin)) == [third, first, second, fourth]


def test_the_walk_says_what_stood_in_the_way_of_each() -> None:
    # `because` walks pin, incumbent, succession
    order = list(succession(99, 6))
    slots = [Slot(f"node-{number}", labels=(("disk", "ssd"),), kinds=OFFERS_ALL) for number in range(6)]
    slots[order[0]] = replace(slots[order[0]], status="down")
    slots[order[1]] = replace(slots[order[1]], status="draining")
    slots[order[2]] = Slot(None)
    slots[order[3]] = replace(slots[order[3]], labels=())
    slots[order[4]] = replace(slots[order[4]], kinds=frozenset())
    task = Task("t", 99, "backup", (("disk", "ssd"),))
    found = because(slots, task, order[5])
    assert [reason.verdict for reason in found] == ["down", "draining", "vacant", "group", "kind", "chosen"]
    assert [reason.member for reason in found] == [slots[slot].member for slot in order]


def test_an_eligible_member_that_was_passed_over_was_full() -> None:
    slots, tasks = alike(2), [Task(f"t{number}", 7, "backup") for number in range(2)]
    placement = place(slots, tasks, 0)
    first, second = succession(7, 2)
    assert placement.owners == (first, second)
    assert because(slots, tasks[1], second) == [(f"node-{first}", "full"), (f"node-{second}", "chosen")]


def test_a_pin_that_is_no_member_any_more_is_named_as_vacant() -> None:
    slots, task = alike(1), Task("t", 1, "backup", pin="node-9")
    assert because(slots, task, 0) == [("node-9", "vacant"), ("node-0", "chosen")]


def test_a_task_that_no_member_may_run_gives_the_whole_walk() -> None:
    slots, task = alike(3), Task("t", 1, "etl", standbys=2)
    assert place(slots, [task], 0).owners == (None,)
    assert [reason.verdict for reason in because(slots, task, None)] == ["kind"] * 3
    assert standbys(slots, task, None) == []


def test_standbys_take_one_zone_at_a_time_while_there_are_new_ones() -> None:
    order = list(succession(5, 6))
    zones = ["a", "a", "b", "b", None, "c"]  # by preference: the owner in zone a, then the others
    slots = alike(6)
    for slot, zone in zip(order, zones, strict=True):
        slots[slot] = replace(slots[slot], labels=(("zone", zone),) if zone else ())
    task = Task("t", 5, "backup", standbys=5)
    expected = [order[2], order[5], order[1], order[3], order[4]]
    assert standbys(slots, task, order[0]) == expected
    assert standbys(slots, task._replace(standbys=2), order[0]) == expected[:2]


@given(st.integers(0, 2**64 - 1), st.integers(2, 6))
def test_without_zones_the_standbys_are_the_next_names(key: int, members: int) -> None:
    task = Task("t", key, "backup", standbys=2)
    order = list(succession(key, members))
    assert standbys(alike(members), task, order[0]) == order[1:3]
