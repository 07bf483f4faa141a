"""Leaving off: what runs is handed over or killed, what was about to begin is given back, and nothing is forgotten.

Section 7: a member that stops in good order hands over at once.
"""

import asyncio

import pytest

from node.state.claims import Claim
from tests.unit.node.loop import Naps, serving, turns, until
from tests.unit.node.working import Work, ended


def test_leaving_off_asks_what_runs_to_stop_and_begins_nothing_new() -> None:
    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        leaving = asyncio.ensure_future(work.controller.hand_over_all(1, 1))
        await until(lambda: work.runner.told)
        assert work.runner.told == [("hand over", order.token)]
        work.due("next")
        work.ends(order, "handed_over")
        assert await leaving
        assert work.run(order).state == "waiting"
        await turns()
        assert len(work.runner.launched) == 1

    serving(scenario())


def test_what_does_not_leave_off_is_killed_and_if_that_fails_it_is_said() -> None:
    """Then the others must not begin: they have to wait until the lease is over (invariant 4)."""

    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        assert not await work.controller.hand_over_all(0, 0)
        assert work.runner.told == [("hand over", order.token), ("kill", order.token)]

    serving(scenario())


def test_what_has_ended_and_cannot_be_committed_works_no_more() -> None:
    async def scenario() -> None:
        work = Work(naps=Naps(held=True))
        await work.launch_and_end_uncommitted(100)
        assert await work.controller.hand_over_all(0, 0)

    serving(scenario())


def test_a_claim_that_is_accepted_while_leaving_off_is_given_back() -> None:
    """Else it would count as lost with the member, and wait for the grace of a failover."""

    async def scenario() -> None:
        work = Work()
        work.slow = {Claim}
        run_id = work.due()
        await until(lambda: work.waiting)
        work.slow.clear()
        leaving = asyncio.ensure_future(work.controller.hand_over_all(1, 1))
        await turns()
        work.answer()
        assert await leaving
        run = work.history.state.runs[run_id]
        assert (run.state, run.orphanings, work.runner.launched) == ("waiting", 0, [])

    serving(scenario())


@pytest.mark.parametrize(
    ("end", "retry", "state"),
    [("failed", True, "waiting"), ("failed", False, "failed"), ("timed_out", True, "timed_out")],
)
def test_work_that_fails_of_being_stopped_with_the_node_goes_on_elsewhere(end: str, retry: bool, state: str) -> None:
    """A service manager that stops a node signals all of its processes. Other ends are what they are."""

    async def scenario() -> None:
        work = Work()
        order = await work.launch(retry={"attempts": 1})
        await work.controller.hand_over_all(0, 0)
        work.ends(order, end, retry=retry)  # type: ignore[arg-type]
        await until(lambda: not work.controller.held)
        assert state == (work.run(order).state if order.run_id in work.history.state.runs else ended(work)[0])

    serving(scenario())


def test_work_that_ended_as_its_node_stopped_is_shown_as_handed_over_and_not_as_a_failure() -> None:
    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        await work.controller.hand_over_all(0, 0)
        work.ends(order, "failed", error="CommandFailed: 'sh' was ended by SIGTERM")
        await until(lambda: not work.controller.held)
        attempt = work.run(order).attempts[-1]
        assert (attempt.state, attempt.error) == ("waiting", "handed over to the task's owner")

    serving(scenario())


def test_a_member_that_is_to_stay_after_all_goes_on() -> None:
    async def scenario() -> None:
        work = Work()
        assert await work.controller.hand_over_all(0, 0)
        work.due()
        await turns()
        assert work.entries == []
        work.controller.go_on()
        await until(lambda: work.runner.launched)

    serving(scenario())


# Mistakes
