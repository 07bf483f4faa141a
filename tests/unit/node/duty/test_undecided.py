"""A task that cannot be decided on, which is a bug in Rota, keeps no other from being done."""

from collections.abc import Iterable
from dataclasses import replace

import msgpack
import pytest

from node.duty.duty import TASKS_A_STEP, UNDECIDED_US, Duty
from node.duty.step import Step
from node.state.claims import Claim
from node.state.value import State, TaskRow
from tests.unit.node.duty.given import LEASE, NOW, Owners, S, duty, task, world

EVERY = {"every_s": 10}
NAMES = [f"t-{number:02}" for number in range(TASKS_A_STEP - 1)]
AGAIN = NOW + UNDECIDED_US
SLIP: dict[str, object] = {"overlap": "no such policy"}
"""What raises when the task is decided on."""
WORSE: dict[str, object] = {"schedule": {"every_s": "soon"}}
"""What raises already when the task is looked at."""


def due(name: str) -> TaskRow:
    return task(name, since_us=NOW - 10 * S, schedule=EVERY)


def spoilt(wrong: dict[str, object], *others: str) -> State:
    """These tasks, which are due, and `x`, which is too, with something in it that no member would have accepted."""
    state, row = world(*map(due, others)), due("x")
    packed = msgpack.packb(msgpack.unpackb(row.spec_packed) | wrong)
    return replace(state, tasks=state.tasks.set("x", replace(row, spec_packed=packed)))


def claimed(steps: Iterable[Step]) -> list[str]:
    return sorted(entry.task for step in steps for entry in step.entries if isinstance(entry, Claim))


def undecided(step: Step) -> list[str]:
    return [name for name, _ in step.undecided]


@pytest.mark.parametrize("wrong", [SLIP, WORSE])
def test_the_others_that_are_due_are_claimed_and_the_one_is_named(wrong: dict[str, object]) -> None:
    one = duty(spoilt(wrong, *NAMES))
    first, second = (one.step(NOW, LEASE, {}, 100) for _ in range(2))
    assert claimed([first, second]) == NAMES
    for step in (first, second):
        [(name, error)] = step.undecided
        assert name == "x"
        assert isinstance(error, ValueError)
        assert error.__traceback__ is not None


def test_it_is_tried_again_after_a_moment_and_after_the_next() -> None:
    one = duty(spoilt(SLIP))
    first = one.step(NOW, LEASE, {}, 100)
    assert first.wake_us == AGAIN
    assert undecided(one.step(AGAIN - 1, LEASE, {}, 100)) == ["x"]
    again = one.step(AGAIN, LEASE, {}, 100)
    assert (undecided(again), again.wake_us) == (["x"], AGAIN + UNDECIDED_US)


def test_it_is_tried_at_once_when_it_has_changed_though_nothing_of_it_is_due() -> None:
    one = duty(spoilt(SLIP))
    one.step(NOW, LEASE, {}, 100)
    one.observe(world(task("x", since_us=NOW, schedule=EVERY)), Owners(), {"x"})
    step = one.step(NOW, LEASE, {}, 100)
    assert (undecided(step), step.wake_us) == ([], NOW + 10 * S)


@pytest.mark.parametrize(
    ("state", "owners"),
    [(world(), Owners({"x": None})), (spoilt(SLIP), Owners({"x": "b"}))],
    ids=["deleted", "another's"],
)
def test_it_does_not_count_any_more_when_it_is_not_this_members(state: State, owners: Owners) -> None:
    one: Duty = duty(spoilt(SLIP))
    assert undecided(one.step(NOW, LEASE, {}, 100)) == ["x"]
    one.observe(state, owners, {"x"})
    assert undecided(one.step(NOW, LEASE, {}, 100)) == []


def test_a_member_that_drains_decides_on_none() -> None:
    state = spoilt(SLIP)
    one = duty(state)
    assert undecided(one.step(NOW, LEASE, {}, 100)) == ["x"]
    assert undecided(one.step(NOW, None, {}, 100)) == ["x"], "a lapse says nothing of it"
    draining = replace(state, members=state.members.set("a", replace(state.members["a"], status="draining")))
    one.observe(draining, Owners(), ())
    assert undecided(one.step(AGAIN, LEASE, {}, 100)) == []
    one.observe(state, Owners(), ())
    assert undecided(one.step(AGAIN, LEASE, {}, 100)) == ["x"]
