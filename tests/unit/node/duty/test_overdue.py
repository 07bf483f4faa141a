"""What is due and has not begun, whoever owns it and whether or not this member may act."""

from dataclasses import replace

import pytest
from immutables import Map

from node.duty.duty import Duty
from node.duty.overdue import EXACT_MAX, Overdue
from node.state.blackout import Blackout
from node.state.value import State
from tests.unit.node.duty.given import LEASE, NOW, Owners, S, duty, run, task, world

EVERY = {"every_s": 60}
MIN = 60 * S


@pytest.mark.parametrize("owners", [Owners(), Owners({"t": "b"}), Owners({"t": None})], ids="abn")
def test_an_occurrence_that_nobody_begins_is_overdue(owners: Owners) -> None:
    one = duty(world(task("t", schedule=EVERY)), owners)
    assert _overdue(one, NOW + MIN - 1) == Overdue()
    for later_s in (2, 30, 90):
        one.step(NOW + MIN + later_s * S, LEASE, {}, 0)
        assert _overdue(one, NOW + MIN + later_s * S) == Overdue(1, later_s, frozenset({"t"})), (
            "since the first that was due"
        )


def test_it_is_told_without_a_lease_too() -> None:
    one = duty(world(task("t", schedule=EVERY), task("u", schedule={"every_s": 3600})))
    one.step(NOW + 2 * MIN, None, {}, 8)
    assert _overdue(one, NOW + 2 * MIN) == Overdue(1, 60.0, frozenset({"t"}))
    step = one.step(NOW + 2 * MIN, LEASE, {}, 8)
    assert step.entries, "it is decided on as soon as there is a lease"


def test_what_has_begun_or_is_not_to_begin_is_not() -> None:
    row = task("t", schedule=EVERY)
    one = duty(world(row))
    assert _overdue(one, NOW + 2 * MIN).tasks == 1
    for known in (
        world(replace(row, through_us=NOW + 2 * MIN), run(row, "running", node="b")),
        world(replace(row, paused=True)),
        world(),
    ):
        one.observe(known, Owners(), frozenset("t"))
        assert _overdue(one, NOW + 2 * MIN) == Overdue()


def test_what_a_blackout_holds_is_late_from_its_end_on() -> None:
    until_us = NOW + 3 * MIN
    state = replace(world(task("t", schedule=EVERY)), blackouts=Map({"b": Blackout("b", NOW, until_us)}))
    one = duty(state)
    assert _overdue(one, NOW + 2 * MIN) == Overdue()
    assert _overdue(one, until_us + 2 * S) == Overdue(1, 2.0, frozenset({"t"}))


def test_waiting_behind_another_run_or_for_a_retry_is_not() -> None:
    row = task("t", overlap="queue")
    waits = run(row, "waiting", 2, due_us=0, created_at_us=NOW)
    assert _told(world(row, run(row, "running"), waits)) == Overdue()
    assert _told(world(row, waits)) == Overdue(1, 10.0, frozenset({"t"})), "since it was asked for"
    assert _told(world(row, replace(waits, due_us=NOW + MIN))) == Overdue()
    assert _told(world(row, replace(waits, due_us=NOW + 5 * S))) == Overdue(1, 5.0, frozenset({"t"}))


def _overdue(one: Duty, now_us: int) -> Overdue:
    one.take_due(now_us)
    return one.overdue(now_us)


def _told(state: State) -> Overdue:
    one = duty(state)
    one.step(NOW, LEASE, {}, 0)
    return _overdue(one, NOW + 10 * S)


def test_very_many_at_once_take_no_work_each() -> None:
    many = 2 * EXACT_MAX
    one = Duty("a")
    one.observe(world(*(task(f"t-{number}", schedule=EVERY) for number in range(many))), Owners({}, me="b"), None)
    while one.step(NOW, LEASE, {}, 8).wake_us == NOW:
        pass
    assert one.take_due(NOW + MIN + 3 * S, 10) == 10
    some = one.overdue(NOW + MIN + 3 * S)
    assert (some.tasks, some.oldest_s, len(some.names)) == (10, 3.0, 10)
    names = frozenset(f"t-{number}" for number in range(many))
    assert _overdue(one, NOW + MIN + 3 * S) == Overdue(many, 3.0, names)
