"""Attempts when leases lapse and processes die."""

import asyncio
import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from node.execution import frames, process_tree, runner
from node.execution.attempt_events import AttemptFrozen, AttemptStarted, AttemptThawed
from node.execution.cgroup import NOTHING_DELEGATED
from node.execution.domain import Commands
from node.execution.leftovers import LeftoversRemain, kill_attempt, kill_leftovers, record_path
from node.execution.nursery_link import Handout, NurseryLink
from node.execution.order import scratch_path
from node.runtime.boottime import boottime_s
from testkit.execution.attempts import Attempts, attempts, pids, pids_path, play, states, until, written

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("kinds_for_tests")]

ROOT = Path(__file__).parents[2]


def test_a_lease_lapse_freezes_all_attempts_and_a_renewal_thaws_them(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("family")
        family = await made.family(order)
        made.runner.renew(boottime_s())  # does not shorten the deadline
        assert "T" not in states(family)

        lapsing = made.act("family", lease_s=0.4)
        its_family = await made.family(lapsing, lease_s=0.4)
        assert (await made.until(AttemptFrozen)).run_id == lapsing.run_id
        # Each is stopped before its next instruction; the table shows it once it has had a processor for that.
        await until(lambda: states(its_family) == "TTTTTT")
        assert "T" not in states(family), "each attempt has a deadline of its own until it is renewed"
        made.runner.renew(boottime_s() + 60)
        assert (await made.until(AttemptThawed)).run_id == lapsing.run_id
        await until(lambda: "T" not in states(its_family))
        assert len(states(its_family)) == 6

    play(tmp_path, scene)


def test_a_frozen_attempt_can_be_killed(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("family", lease_s=0.4)
        family = await made.family(order, lease_s=0.4)
        await made.until(AttemptFrozen)
        made.runner.kill(order.run_id, order.token)
        assert (await made.ended(order)).end == "handed_over"
        assert states(family) == ""

    play(tmp_path, scene)


def test_a_claim_whose_lease_is_over_is_not_started(tmp_path: Path) -> None:
    """Section 6: it is given back."""

    async def scene(made: Attempts) -> None:
        assert (await made.ended(made.act("see", lease_s=0))).end == "not_started"

    play(tmp_path, scene)


def test_the_deadline_holds_while_the_node_hangs_with_a_full_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def narrow() -> tuple[socket.socket, socket.socket]:
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the smallest buffer: a few small frames
        return ends

    async def scene(made: Attempts) -> None:
        monkeypatch.setattr(frames, "new_channel", narrow)
        made.act("says_on", lease_s=2)

        def begun() -> bool:
            made.runner.renew(boottime_s() + 2)
            return any(isinstance(event, AttemptStarted) for event in made.seen)

        await until(begun)
        worker = next(
            one.pid for one in process_tree.processes() if one.group == one.pid == one.session and _is_below(one, made)
        )
        hang_until(lambda: states([worker]) == "T")

    play(tmp_path, scene)


def hang_until(condition: Callable[[], bool]) -> None:
    """The event loop is blocked meanwhile, as in a node that hangs."""
    end_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end_s, "the condition did not become true in time"
        time.sleep(0.01)


def _is_below(one: process_tree.Process, made: Attempts) -> bool:
    parent = process_tree.process(one.parent)
    return parent is not None and parent.parent == made.runner.nursery_pid


@contextmanager
def a_node(folder: Path, lease_s: float) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A node process with one attempt that has child processes, and its nursery's pid."""
    node = subprocess.Popen(
        [sys.executable, str(ROOT / "testkit/execution/node_for_tests.py"), str(folder), str(lease_s)],
        stdout=subprocess.PIPE,
    )
    try:
        assert node.stdout is not None
        own, nursery = map(int, node.stdout.readline().split())
        assert own == node.pid
        asyncio.run(until(lambda: written(pids_path(folder, "task~1"))))
        yield node, nursery
    finally:
        node.kill()
        node.wait()
        assert node.stdout is not None
        node.stdout.close()
        kill_leftovers(folder)


def test_an_attempt_failed_by_its_node_ends_and_its_scratch_folder_is_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with attempts(tmp_path) as here:
            order = here.act("deaf", lease_s=0.5)
            await here.family(order, lease_s=60)
            here.runner.fail(order.run_id, order.token, "no room on node-2")
            ended = await here.ended(order)
            assert (ended.end, ended.error, ended.retry) == ("failed", "no room on node-2", True)
            await until(lambda: not scratch_path(tmp_path, order).exists())

    asyncio.run(scenario())


def test_a_killed_nodes_processes_all_end(tmp_path: Path) -> None:
    """Including processes that left the group or session, or cleared their environment: a JVM, a daemon."""
    with a_node(tmp_path, 60) as (node, nursery):
        family = pids(pids_path(tmp_path, "task~1"))
        assert len(states(family)) == 6
        node.kill()
        asyncio.run(until(lambda: states([*family, nursery]) == ""))


def test_work_of_a_stopped_node_freezes_at_the_deadline(tmp_path: Path) -> None:
    with a_node(tmp_path, 0.6) as (node, _):
        family = pids(pids_path(tmp_path, "task~1"))
        node.send_signal(signal.SIGSTOP)
        asyncio.run(until(lambda: states(family) == "TTTTTT"))
        node.send_signal(signal.SIGCONT)
        asyncio.run(until(lambda: len(states(family)) == 6 and "T" not in states(family)))


def test_processes_without_a_supervisor_are_killed_at_the_next_start(tmp_path: Path) -> None:
    with a_node(tmp_path, 60) as (node, nursery):
        family = pids(pids_path(tmp_path, "task~1"))
        supervisor = process_tree.process(family[-1])
        assert supervisor is not None
        # Both are stopped first, so that neither can clean up before it is killed.
        for pid in (nursery, supervisor.parent):
            os.kill(pid, signal.SIGSTOP)
        for pid in (supervisor.parent, node.pid):
            os.kill(pid, signal.SIGKILL)
        asyncio.run(until(lambda: states([nursery, family[-1]]) == ""))
        shed = family[4]
        assert len(states(family)) >= 4, "the shells and their children are still running"
        assert kill_leftovers(tmp_path) >= 4
        assert states(family[:4]) == ""
        assert not (tmp_path / "groups").exists()
        # The one process that cannot be found: no environment, session or parent of the attempt.
        with contextlib.suppress(ProcessLookupError):
            os.kill(shed, signal.SIGKILL)
    assert kill_leftovers(tmp_path) == 0


def test_killing_a_supervisor_ends_its_attempt(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("family")
        family = await made.family(order)
        worker = process_tree.process(family[-1])
        assert worker is not None
        os.kill(worker.parent, signal.SIGKILL)
        ended = await made.ended(order)
        assert (ended.end, ended.error) == ("failed", "its supervisor was killed")
        await until(lambda: states(family) == "")

    play(tmp_path, scene)


def test_an_attempt_with_a_killed_supervisor_ends_despite_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its run would never end. Another attempt's record vanishes, and file descriptors run out once."""
    refused: list[OSError] = [OSError(errno.EMFILE, "Too many open files")]

    def clear(*words: Any, **more: Any) -> int:
        if refused:
            raise refused.pop()
        return kill_attempt(*words, **more)

    async def scene(made: Attempts) -> None:
        monkeypatch.setattr(runner, "kill_attempt", clear)
        order = made.act("family")
        family = await made.family(order)
        gone = record_path(tmp_path, 1)
        gone.symlink_to(tmp_path / "gone")  # listed, but unreadable
        worker = process_tree.process(family[-1])
        assert worker is not None
        os.kill(worker.parent, signal.SIGKILL)
        assert (await made.ended(order)).error == "its supervisor was killed"
        assert not refused
        await until(lambda: states(family) == "")
        gone.unlink()

    play(tmp_path, scene)


def test_a_dead_nursery_is_replaced_and_running_attempts_continue(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("stops")
        await made.started(order)
        before = made.runner.nursery_pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        await until(lambda: made.runner.nursery_pid not in {None, before})
        assert (await made.ended(made.command("true"))).end == "succeeded"
        made.runner.cancel(order.run_id, order.token)
        assert (await made.ended(order)).end == "cancelled"

    play(tmp_path, scene)


def test_a_claim_is_launched_once_and_unknown_claims_are_ignored(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("stops")
        with pytest.raises(ValueError, match="runs already"):
            made.runner.launch(order)
        made.runner.cancel(order.run_id, order.token + 1)
        made.runner.kill("nobody", 1)
        made.runner.kill(order.run_id, order.token)
        assert (await made.ended(order)).end in {"not_started", "handed_over"}

    play(tmp_path, scene)


class Refusal(Handout):
    """An attempt that the kernel refuses to send, for a time: too many descriptors are under way."""

    over = False

    def __init__(self) -> None:
        self.sent = 0

    def send(self, nursery: socket.socket) -> None:
        if not self.over:
            raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))
        self.sent += 1

    def drop(self) -> None:
        raise AssertionError("it was given up")


def test_attempts_that_cannot_be_sent_wait_for_one_look_in_a_second(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each had a timer of its own, and a line in the log."""
    waiting = [Refusal() for _ in range(100)]

    async def scene() -> None:
        link = NurseryLink(tmp_path, lambda why: None, Commands((), (), 0), NOTHING_DELEGATED)
        await link.start()
        try:
            for each in waiting:
                link.launch(each)
            assert caplog.text.count("sent too many descriptors, not received yet") == 1
            monkeypatch.setattr(Refusal, "over", True)
            await until(lambda: all(each.sent for each in waiting))
            assert {each.sent for each in waiting} == {1}
        finally:
            await link.close()

    asyncio.run(scene())


def test_equally_named_attempts_of_another_cluster_are_not_touched(tmp_path: Path) -> None:
    ours, theirs = (
        subprocess.Popen(
            ["sleep", "60"], env={**os.environ, "NURSERY_OF": str((tmp_path / of).resolve()), "NURSERY_RUN": "task~1.1"}
        )
        for of in ("ours", "theirs")
    )
    try:
        assert kill_attempt(tmp_path / "ours", 1, "task~1.1", tmp_path / "scratch") == 1
        assert (ours.wait(), theirs.poll()) == (-signal.SIGKILL, None)
    finally:
        for one in (ours, theirs):
            one.kill()
            one.wait()


def test_leftover_processes_that_do_not_end_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NURSERY_OF", str(tmp_path.resolve()))
    child = subprocess.Popen(["sleep", "60"])
    monkeypatch.setattr(process_tree, "send", lambda pid, number: True)
    with pytest.raises(LeftoversRemain, match=str(child.pid)):
        kill_leftovers(tmp_path, wait_s=0)
    child.kill()
    child.wait()
