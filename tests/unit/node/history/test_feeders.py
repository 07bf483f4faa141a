"""Who feeds a member that lacks finished runs: the same succession as that of tasks."""

from dataclasses import replace
from itertools import product

import pytest

from hashing.key import key64
from hashing.preference import preference
from hashing.view import Slot, Task
from node.history.feeders import feeders, next_feeder, why_feeder
from node.peer.bootstrap import task_of
from tests.oracle import placement as oracle

MEMBERS = [f"node-{number}" for number in range(1, 8)]
SLOTS = [Slot(member, kinds=frozenset({"bootstrap"})) for member in MEMBERS]


@pytest.mark.parametrize("me", MEMBERS)
def test_feeders_are_the_preference_order_of_a_task_over_the_other_members(me: str) -> None:
    """As `hashing.preference` and the naive implementation have it, whichever members are down."""
    task = Task(task_of(me), key64(task_of(me)), "bootstrap")
    for ups in product((True, False), repeat=len(MEMBERS)):
        slots = [replace(slot, status="up" if up else "down") for slot, up in zip(SLOTS, ups, strict=True)]
        others = [replace(slot, status="down") if slot.member == me else slot for slot in slots]
        expected = [slots[place].member for place in preference(others, task)]
        assert feeders(slots, me) == expected
        assert expected == [slots[place].member for place in oracle.preference(others, task)]


def test_the_death_of_a_feeder_moves_what_it_fed_and_nothing_else() -> None:
    before = {me: feeders(SLOTS, me) for me in MEMBERS}
    for dead in MEMBERS:
        slots = [replace(slot, status="down") if slot.member == dead else slot for slot in SLOTS]
        for me in set(MEMBERS) - {dead}:
            assert feeders(slots, me) == [member for member in before[me] if member != dead]


def test_several_members_have_different_feeders() -> None:
    assert len({feeders(SLOTS, me)[0] for me in MEMBERS}) > 2


def test_draining_members_come_last_and_vacant_slots_not_at_all() -> None:
    order = feeders(SLOTS, "node-4")
    slots = [replace(slot, status="draining") if slot.member in order[:2] else slot for slot in SLOTS]
    assert feeders(slots, "node-4") == [*order[2:], *order[:2]]
    vacant = [Slot(None) if slot.member in order[:2] else slot for slot in SLOTS]
    assert feeders(vacant, "node-4") == order[2:]
    assert [verdict for _, verdict in why_feeder(vacant, "node-4")] == ["vacant", "vacant", "chosen"]
    assert [verdict for _, verdict in why_feeder(slots, "node-4")] == ["draining", "draining", "chosen"]


def test_the_next_feeder_is_the_first_that_has_not_been_asked() -> None:
    order = feeders(SLOTS, "node-4")
    asked: list[str] = []
    while (feeder := next_feeder(SLOTS, "node-4", asked)) is not None:
        asked.append(feeder)
    assert asked == order
    assert "node-4" not in order


def test_alone_there_is_no_feeder_and_it_says_why() -> None:
    slots = [SLOTS[0], replace(SLOTS[1], status="down")]
    assert feeders(slots, "node-1") == []
    assert why_feeder(slots, "node-1") == [("node-2", "down")]
    assert why_feeder(SLOTS[:1], "node-1") == []
