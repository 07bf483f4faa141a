"""How long a run without a holder waits: never longer than its policy, whatever the clocks."""

from dataclasses import replace

import pytest

from node.state.run_times import APART_S, due_us
from node.state.value import Run
from tasks.definition.run import RunState
from tests.unit.node.duty.given import NOW, S, run, task


def waiting(state: RunState, due: int) -> Run:
    one = task("t", failover={"grace_s": 10}, retry={"attempts": 3, "backoff_s": 20})
    return replace(run(one, state, due_us=due), failures=1)


@pytest.mark.parametrize(("state", "wait_s"), [("orphaned", 10), ("waiting", 20)])
def test_it_waits_as_long_as_its_policy_says(state: RunState, wait_s: int) -> None:
    due = NOW + wait_s * S
    assert due_us(waiting(state, due), NOW) == due
    assert due_us(waiting(state, due), NOW - round(APART_S * S)) == due, "clocks differ a little"
    assert due_us(waiting(state, due), due + S) == due


@pytest.mark.parametrize(("state", "wait_s"), [("orphaned", 10), ("waiting", 20)])
def test_what_a_clock_that_was_ahead_has_put_off_is_due_at_once(state: RunState, wait_s: int) -> None:
    due = NOW + (3600 + wait_s) * S
    assert due_us(waiting(state, due), NOW) == 0
