"""Processes that are prepared for a kind before there is an attempt for it."""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from node.execution import leftovers, process_tree
from node.execution.attempt_events import AttemptEnded
from node.execution.order import AttemptLimits, Order
from node.execution.preparation import Preparation
from node.runtime.boottime import boottime_s
from tasks.processes import MARK
from testkit.execution import attempts
from testkit.execution.attempts import Attempts, states, until
from testkit.execution.kinds_for_tests import SLEEP

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("kinds_for_tests")]

NAME = "testkit.execution.kinds_for_tests:prepare"
READY = "testkit.execution.kinds_for_tests:Ready"


def play(folder: Path, scene: Callable[[Attempts], Awaitable[None]], **env: str) -> None:
    attempts.play(folder, scene, AttemptLimits(), {NAME: Preparation(env)})


def launched(made: Attempts, what: str = "", preparation: str = NAME) -> Order:
    return made.launch({"what": what}, READY, preparation=preparation)


def engines(folder: Path) -> list[int]:
    """The children that preparations of this folder have started, and that run."""
    mark = f"{MARK}={leftovers.mark_of(folder)}".encode()
    return [one.pid for one in process_tree.processes() if one.state not in "ZX" and _is_engine(one.pid, mark)]


def _is_engine(pid: int, mark: bytes) -> bool:
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
        return argv == [word.encode() for word in SLEEP] and mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def folders(made: Attempts) -> list[str]:
    return sorted(path.name for path in (made.folder / "scratch").glob("prepared.*"))


def records(made: Attempts) -> list[Path]:
    return list((made.folder / "groups").glob("*.json"))


async def prepared(made: Attempts, count: int = 1, lease_s: float = 60.0) -> list[int]:
    """Have processes prepared; their engines."""
    made.runner.renew(boottime_s() + lease_s)
    made.runner.prepare(NAME, count, count)
    await until(lambda: made.runner.prepared_ready(NAME) == count)
    # A process that starts a program shows no arguments for a moment, also to the one that started it.
    await until(lambda: len(engines(made.folder)) == count)
    return engines(made.folder)


async def ended(made: Attempts) -> AttemptEnded:
    found = await made.any_ended()
    assert found.end == "succeeded", found
    return found


def test_an_attempt_finds_what_its_worker_has_prepared(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        [engine] = await prepared(made)
        assert folders(made) == ["prepared.1"]
        made.runner.prepare(NAME, 0, 1)
        order = launched(made)
        assert made.runner.prepared_folders(order.run_id, order.token) == (tmp_path / "scratch/prepared.1",)
        result = (await ended(made)).result
        assert result is not None
        assert result["child"] == engine
        assert result["nice"] == result["now"] == min(19, os.nice(0) + 10), "it is lowered once"
        assert (result["oom"], result["cwd"], result["extra"]) == (500, "True", "x")
        assert "preparing" in made.log(order)
        await until(lambda: engines(tmp_path) == [] and folders(made) == [] and records(made) == [])

        launched(made)
        assert "child" not in ((await ended(made)).result or {}), "a process serves one attempt"

    play(tmp_path, scene, EXTRA="x")


def test_an_attempt_that_comes_too_soon_waits_for_the_process_that_is_being_prepared(tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    async def scene(made: Attempts) -> None:
        made.runner.renew(boottime_s() + 60)
        made.runner.prepare(NAME, 1, 1)
        await until(lambda: len(engines(tmp_path)) == 1)
        [engine] = engines(tmp_path)
        launched(made)
        gate.touch()
        assert ((await ended(made)).result or {})["child"] == engine

    play(tmp_path, scene, GATE=str(gate))


def test_no_attempt_goes_into_a_process_that_could_not_be_confined(tmp_path: Path) -> None:
    """One did, and was confined by nothing: it was thought to be confined already."""

    async def scene(made: Attempts) -> None:
        made.runner.renew(boottime_s() + 60)
        made.runner.prepare(NAME, 1, 1)
        order = launched(made)
        assert (await made.any_ended()).end == "not_started"
        log = made.folder / "logs" / order.run_id / "1.log"
        assert not log.exists() or "preparing" not in log.read_text()  # its worker may have ended before it had a log
        assert engines(tmp_path) == []

    tools = ("testkit.execution.kinds_for_tests:no_tools",)
    attempts.play(tmp_path, scene, AttemptLimits(), {NAME: Preparation({}, tools)})


def test_an_attempt_of_another_kind_takes_no_prepared_process(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        [engine] = await prepared(made)
        launched(made, preparation="")
        assert "child" not in ((await ended(made)).result or {})
        assert engines(tmp_path) == [engine]

    play(tmp_path, scene)


def test_what_is_not_needed_after_all_is_ended(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        assert len(await prepared(made, 2)) == 2
        made.runner.prepare(NAME, 0, 1)
        await until(lambda: len(engines(tmp_path)) == 1)
        made.runner.prepare(NAME, 0, 0)
        await until(lambda: engines(tmp_path) == [] and folders(made) == [] and records(made) == [])

    play(tmp_path, scene)


def test_a_preparation_that_fails_is_not_tried_at_once_and_the_attempt_runs_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(made: Attempts) -> None:
        made.runner.renew(boottime_s() + 60)
        made.runner.prepare(NAME, 1, 1)
        await until(lambda: "no engine in here" in caplog.text)
        await until(lambda: engines(tmp_path) == [] and folders(made) == [])
        launched(made)
        assert "child" not in ((await ended(made)).result or {})

    play(tmp_path, scene, FAULT="here")


def test_a_prepared_process_is_frozen_while_there_is_no_lease(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        [engine] = await prepared(made, lease_s=3.0)
        await until(lambda: states([engine]) == "T")
        made.runner.renew(boottime_s() + 60)
        await until(lambda: states([engine]) == "S")
        made.runner.renew(boottime_s() + 60)
        launched(made)
        assert ((await ended(made)).result or {})["child"] == engine

    play(tmp_path, scene)


def test_a_prepared_process_that_was_killed_is_not_used_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        [engine] = await prepared(made)
        own = process_tree.process(engine)
        assert own is not None
        worker = process_tree.process(own.parent)
        assert worker is not None
        os.kill(worker.parent, signal.SIGKILL)
        await until(lambda: states([engine]) == "" and folders(made) == [] and records(made) == [])
        launched(made)
        assert "child" not in ((await ended(made)).result or {})

    play(tmp_path, scene)


def test_an_attempt_that_is_given_to_a_worker_that_has_just_been_killed_has_not_begun(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        [engine] = await prepared(made)
        made.runner.prepare(NAME, 0, 1)
        own = process_tree.process(engine)
        assert own is not None
        worker = process_tree.process(own.parent)
        assert worker is not None
        os.kill(worker.parent, signal.SIGSTOP)
        os.kill(worker.pid, signal.SIGKILL)
        await until(lambda: states([worker.pid]) == "")
        launched(made)
        os.kill(worker.parent, signal.SIGCONT)
        ended = await made.any_ended()
        assert ended.end == "not_started", ended
        await until(lambda: states([engine]) == "" and folders(made) == [] and records(made) == [])

    play(tmp_path, scene)


def test_an_attempt_that_is_given_to_a_worker_that_dies_while_it_prepares_has_not_begun(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was a failure of the task, though nothing of its kind had begun. The next begins without preparation."""
    gate = tmp_path / "gate"

    async def scene(made: Attempts) -> None:
        made.runner.renew(boottime_s() + 60)
        made.runner.prepare(NAME, 1, 1)
        await until(lambda: len(engines(tmp_path)) == 1)
        own = process_tree.process(engines(tmp_path)[0])
        assert own is not None
        order = launched(made)
        record = tmp_path / "groups"
        await until(lambda: any(f'"{order.run_id}:{order.token}"' in each.read_text() for each in record.glob("*")))
        os.kill(own.parent, signal.SIGKILL)
        given_back = await made.any_ended()
        assert given_back.end == "not_started", given_back
        assert str(given_back.error).startswith("its worker ended before it had the attempt: killed by SIGKILL")
        assert "attempts begin without one" in caplog.text
        made.runner.prepare(NAME, 1, 1)
        launched(made)
        assert "child" not in ((await ended(made)).result or {})

    play(tmp_path, scene, GATE=str(gate))


def test_an_attempt_that_is_given_to_a_supervisor_that_is_then_killed_has_not_begun(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        [engine] = await prepared(made)
        made.runner.prepare(NAME, 0, 1)
        own = process_tree.process(engine)
        assert own is not None
        worker = process_tree.process(own.parent)
        assert worker is not None
        os.kill(worker.parent, signal.SIGSTOP)
        launched(made)
        os.kill(worker.parent, signal.SIGKILL)
        ended = await made.any_ended()
        assert (ended.end, ended.error) == ("not_started", "the process that was prepared for it had ended")
        await until(lambda: states([engine]) == "" and folders(made) == [] and records(made) == [])

    play(tmp_path, scene)


def test_prepared_processes_end_with_their_node(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        assert len(await prepared(made, 2)) == 2

    play(tmp_path, scene)
    assert engines(tmp_path) == []


def test_a_killed_attempt_takes_what_was_prepared_for_it_along(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        [engine] = await prepared(made)
        made.runner.prepare(NAME, 0, 1)
        order = launched(made, "waits")
        pids = await made.family(order)
        made.runner.kill(order.run_id, order.token)
        assert (await made.any_ended()).end == "handed_over"
        await until(lambda: states([engine, *pids]) == "" and folders(made) == [])

    play(tmp_path, scene)


def test_a_killed_supervisor_leaves_nothing_of_a_prepared_attempt(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        [engine] = await prepared(made)
        made.runner.prepare(NAME, 0, 1)
        order = launched(made, "waits")
        pids = await made.family(order)
        worker = process_tree.process(pids[-1])
        assert worker is not None
        os.kill(worker.parent, signal.SIGKILL)
        assert (await made.any_ended()).end == "failed"
        await until(lambda: states([engine, *pids]) == "" and folders(made) == [])

    play(tmp_path, scene)
