"""What goes wrong while a duty is done: what cannot be decided, launched or kept."""

import errno
import logging
from dataclasses import replace

import pytest

from node.control.attempt_reporter import NOT_STARTED_S
from node.control.controller import AFTER_FAULT_S
from node.liveness.wall_clock import now_us
from node.state.attempts import Began, Finish
from node.state.occurrences import Start
from tests.unit.node.loop import serving, turns, until
from tests.unit.node.working import Work, ended


def failing(work: Work) -> bool:
    return work.controller.failing


def test_an_outcome_that_cannot_be_kept_fails_the_run_and_says_why() -> None:
    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        work.too_large = lambda entry: isinstance(entry, Finish) and entry.result is not None
        work.ends(order, result={"everything": "..."})
        await until(lambda: work.history.ended)
        assert ended(work) == ["failed"]
        assert "cannot be kept: 1234567 bytes" in (work.history.ended[0].error or "")

    serving(scenario())


def test_an_attempt_that_cannot_be_launched_is_given_back_after_a_moment() -> None:
    """Out of file descriptors, say: not a loop of claims as fast as they commit."""

    async def scenario() -> None:
        work = Work()
        work.runner.broken = OSError(24, "Too many open files")
        work.due()
        await until(lambda: work.runner.launched)
        assert [finish.end for finish in work.of(Finish)] == ["not_started"]
        assert NOT_STARTED_S in work.naps.asked

    serving(scenario())


def test_a_step_that_fails_is_logged_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        work = Work()
        await turns()
        work.fault = ZeroDivisionError()
        with caplog.at_level(logging.ERROR, "rota.controller"):
            for _ in range(3):
                work.controller.wake()
                await turns(3)
        assert failing(work)
        assert work.controller._timer is not None
        assert len(caplog.records) == 1
        work.fault = None
        work.due()
        await until(lambda: work.runner.launched)
        assert not failing(work)
        await work.controller.close()

    assert AFTER_FAULT_S > 0
    serving(scenario())


def test_a_task_that_cannot_be_decided_on_is_said_once_and_the_others_are_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        work = Work()
        for name in ("before", "wrong", "zebra"):
            work.history.put(name)
            work.history.must(Start(now_us(), name))
        state = work.history.state
        row = state.tasks["wrong"]
        spoilt = replace(row, spec_packed=row.spec_packed.replace(b"\xa4skip", b"\xa4what"))
        work.history.state = replace(state, tasks=state.tasks.set("wrong", spoilt))
        with caplog.at_level(logging.ERROR, "rota.controller"):
            work.controller.observe(work.history.state, work.owners, None)
            await until(lambda: len(work.runner.launched) == 2)
            assert {order.task for order in work.runner.launched} == {"before", "zebra"}
            for _ in range(2):
                work.controller.observe(work.history.state, work.owners, frozenset({"wrong"}))
                await turns(3)
                assert failing(work), "it owns what it does not do"
        [record] = caplog.records
        assert record.getMessage() == "wrong: its next step cannot be decided, which is a bug in Rota"
        assert record.exc_info
        work.history.state = replace(work.history.state, tasks=work.history.state.tasks.set("wrong", row))
        work.controller.observe(work.history.state, work.owners, frozenset({"wrong"}))
        await until(lambda: len(work.runner.launched) == 3)
        assert not failing(work)
        await work.controller.close()

    serving(scenario())


def test_an_attempt_whose_words_cannot_be_taken_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        work = Work()
        order = await work.launch()
        work.trouble = {Began: [ZeroDivisionError()]}
        work.starts(order)
        await until(lambda: work.runner.told)
        assert work.runner.told == [("kill", order.token)]
        work.ends(order, "handed_over")
        await until(lambda: not work.controller.held)

    serving(scenario())


def test_a_task_whose_time_zone_is_not_known_here_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        work = Work()
        work.history.put("far", schedule={"cron": "0 3 * * *", "timezone": "UTC"})
        row = work.history.state.tasks["far"]
        packed = row.spec_packed.replace(b"\xa3UTC", b"\xa3XYZ")
        tasks = work.history.state.tasks.set("far", replace(row, spec_packed=packed))
        work.history.state = replace(work.history.state, tasks=tasks)
        with caplog.at_level(logging.ERROR, "rota.controller"):
            for _ in range(2):
                work.controller.observe(work.history.state, work.owners, frozenset({"far"}))
        assert [record.getMessage() for record in caplog.records if "far" in record.getMessage()] == [
            "far never falls due on this member: 'XYZ' is not a time zone of the IANA database, such as Europe/Paris "
            "or UTC; install a newer tzdata here"
        ]
        work.due()
        await until(lambda: work.runner.launched)

    serving(scenario())


def test_who_cannot_start_attempts_for_want_of_something_is_told_so_and_of_each_that_works() -> None:
    async def scenario() -> None:
        work = Work()
        work.runner.broken = OSError(errno.EMFILE, "Too many open files")
        order = await work.launch()
        assert work.ability.heard == ["[Errno 24] Too many open files"]
        work.ends(order, "not_started", error="cannot fork a supervisor", starved=True)
        await until(lambda: len(work.runner.launched) == 2)
        work.starts(work.runner.launched[-1])
        assert work.ability.heard[1:] == ["cannot fork a supervisor", "started"]
        work.runner.broken = ValueError("of no matter to others")
        await work.launch("other")
        assert len(work.ability.heard) == 3

    serving(scenario())
