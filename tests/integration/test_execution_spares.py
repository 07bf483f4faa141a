"""Processes that are forked before there is an attempt for them."""

import os
import signal
from pathlib import Path

import pytest

from node.execution import process_tree, spares
from testkit.execution.attempts import Attempts, play, states, until

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("kinds_for_tests")]


def hosts(made: Attempts) -> list[int]:
    return [one.pid for one in process_tree.processes() if one.parent == made.runner.nursery_pid and one.state != "Z"]


def workers(of: list[int]) -> list[int]:
    return [one.pid for one in process_tree.processes() if one.parent in of and one.state != "Z"]


async def spare_ones(made: Attempts) -> list[int]:
    """The spare supervisors, once each has its worker and is warmed up: all of them wait in the kernel."""
    made.runner.expect()
    await until(lambda: len(hosts(made)) == spares.SPARES)
    there = hosts(made)
    await until(lambda: len(workers(there)) == spares.SPARES and set(states([*there, *workers(there)])) == {"S"})
    return there


def test_an_attempt_starts_in_a_spare_and_the_spare_is_replaced(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        assert hosts(made) == [], "no attempt is due"
        there = await spare_ones(made)
        order = made.act("family")
        worker = process_tree.process((await made.family(order))[-1])
        assert worker is not None
        assert worker.parent in there
        await until(lambda: len(hosts(made)) == spares.SPARES + 1)
        made.runner.kill(order.run_id, order.token)
        await made.ended(order)
        assert (await made.ended(made.command("true"))).end == "succeeded"

    play(tmp_path, scene)


def test_more_attempts_than_spares_all_start(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        await spare_ones(made)
        orders = [made.command("true") for _ in range(spares.SPARES + 3)]
        ends = {(event.run_id, event.end) for event in [await made.any_ended() for _ in orders]}
        assert ends == {(order.run_id, "succeeded") for order in orders}

    play(tmp_path, scene)


def test_a_spare_that_was_killed_is_not_used(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        there = await spare_ones(made)
        for pid in there:
            os.kill(pid, signal.SIGKILL)
        # Reaped: the nursery knows that they are gone.
        await until(lambda: not any(process_tree.process(pid) for pid in there))
        assert (await made.ended(made.command("true"))).end == "succeeded"

    play(tmp_path, scene)


def test_an_attempt_whose_spare_worker_was_killed_has_not_started(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        killed = workers(await spare_ones(made))
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: states(killed) == "")
        ended = await made.ended(made.command("true"))
        assert (ended.end, ended.starved) == ("not_started", True), ended

    play(tmp_path, scene)


def test_spares_end_when_their_nursery_is_killed(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        there = await spare_ones(made)
        below = workers(there)
        assert made.runner.nursery_pid is not None
        os.kill(made.runner.nursery_pid, signal.SIGKILL)
        await until(lambda: states([*there, *below]) == "")

    play(tmp_path, scene)
