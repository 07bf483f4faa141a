"""The node's side of the nursery: starts it, sends it attempts, restarts it when it ends."""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

from node.execution import frames
from node.execution.cgroup import Delegation
from node.execution.domain import Commands
from node.execution.leftovers import mark_of
from node.execution.nursery import COMMANDS, EXPECT, FORK
from node.execution.order import Brief
from node.execution.preparation import PreparationBrief, brief_files
from tasks.processes import MARK

RESTART_S: Final = 0.1
RESTART_S_MAX: Final = 5.0
HAND_OUT_AGAIN_S: Final = 1.0
READY_S: Final = 30.0
EXPECT_AGAIN_S: Final = 1.0
"""The shortest time between two `EXPECT` messages to the nursery."""

log = logging.getLogger(__name__)


class NurseryFailed(Exception):
    """The nursery process did not start."""


def send_attempt(supervisor: socket.socket, brief: Brief) -> None:
    """Send an attempt to the supervisor of a prepared process. Raises `OSError`."""
    descriptors = brief_files(brief)
    try:
        socket.send_fds(supervisor, [frames.to_packet(frames.AttemptFrame())], descriptors, socket.MSG_NOSIGNAL)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


class Handout:
    """An attempt to be sent to the nursery: the supervisor's end of its channel, and the files of its brief."""

    def __init__(self, channel: socket.socket, brief: Brief | PreparationBrief) -> None:
        self._channel = channel
        self._files = brief_files(brief)

    def send(self, nursery: socket.socket) -> None:
        """Send the descriptors to the nursery, and close them here. Raises the errors of `socket.send_fds`."""
        socket.send_fds(nursery, [FORK], [self._channel.fileno(), *self._files])
        self.drop()

    def drop(self) -> None:
        """Close the descriptors. If they were not sent, the runner learns by this that the attempt did not start."""
        self._channel.close()
        for descriptor in self._files:
            os.close(descriptor)


class NurseryLink:
    """Keeps one nursery running, as a child of the event loop's thread.

    `on_give_up` is called with the reason when attempts that wait for a nursery are dropped. The nursery makes domains
    for commands ahead, from `commands`, and makes the cgroups of attempts below `delegation`.
    """

    def __init__(
        self, folder: Path, on_give_up: Callable[[str], None], commands: Commands, delegation: Delegation
    ) -> None:
        self._folder = folder
        self._commands = commands
        self._delegation = delegation
        self._on_give_up = on_give_up
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._ready: asyncio.Future[None] | None = None
        self._waiting: deque[Handout] = deque()
        self._delay_s = RESTART_S
        self._restart: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None
        self._expect_again_s = 0.0
        self._closing = False

    @property
    def pid(self) -> int | None:
        """The nursery's process id; None while there is no nursery."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the nursery, and wait until it can fork. Raises `NurseryFailed`."""
        self._spawn()
        assert self._ready is not None
        try:
            async with asyncio.timeout(READY_S):
                await asyncio.shield(self._ready)
        except TimeoutError:
            raise NurseryFailed(f"the nursery process was not ready within {READY_S:g} s") from None

    def launch(self, handout: Handout) -> None:
        """Have the nursery fork a supervisor. If it is busy or being restarted, the request waits."""
        self._waiting.append(handout)
        self._hand_out()

    def expect(self) -> None:
        """Tell the nursery that an attempt is expected soon. If the message is lost, the attempt begins a bit later."""
        now_s = asyncio.get_running_loop().time()
        if self._socket is None or self._ready is None or not self._ready.done():
            return
        if now_s >= self._expect_again_s:
            self._expect_again_s = now_s + EXPECT_AGAIN_S
            with contextlib.suppress(OSError):
                self._socket.send(EXPECT)

    async def close(self) -> None:
        """End the nursery. Running supervisors continue until their own channels are closed."""
        self._closing = True
        for timer in (self._restart, self._again):
            if timer is not None:
                timer.cancel()
        self._drop_waiting()
        process = self._process
        self._disconnect()
        if process is not None:
            await asyncio.get_running_loop().run_in_executor(None, process.wait)

    def _spawn(self) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = frames.new_channel()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
        program = [sys.executable, "-P", "-m", "node.execution.nursery"]
        arguments = [*program, str(theirs.fileno()), str(os.getpid()), *self._delegation.words()]
        with theirs:
            # In its own session, so that Ctrl-C in the node's terminal reaches the node only.
            self._process = subprocess.Popen(
                arguments,
                env={**environment, MARK: mark_of(self._folder), COMMANDS: self._commands.word()},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        ours.setblocking(False)
        self._socket = ours
        self._ready = loop.create_future()
        loop.add_reader(ours.fileno(), self._hear)

    def _hear(self) -> None:
        assert self._socket is not None
        assert self._ready is not None
        try:
            frame = frames.receive(self._socket)
        except BlockingIOError:
            return
        except OSError:
            frame = None
        if isinstance(frame, frames.ReadyFrame):
            self._ready.set_result(None)
            self._hand_out()
        elif frame is None:
            self._ended()

    def _hand_out(self) -> None:
        if self._socket is None or self._ready is None or not self._ready.done() or self._again is not None:
            return
        loop = asyncio.get_running_loop()
        while self._waiting:
            try:
                self._waiting[0].send(self._socket)
            except BlockingIOError:
                loop.add_writer(self._socket.fileno(), self._hand_out)
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:
                    # The kernel limits each user's descriptors in transit: a task sends many that no process receives.
                    log.warning(
                        "attempts wait: processes of the node's user have sent too many descriptors, not received yet"
                    )
                    loop.remove_writer(self._socket.fileno())
                    self._again = loop.call_later(HAND_OUT_AGAIN_S, self._hand_out_again)
                # Otherwise the nursery has just ended. The reader notices this, and the next nursery gets the requests.
                return
            self._delay_s = RESTART_S
            self._waiting.popleft()
        loop.remove_writer(self._socket.fileno())

    def _hand_out_again(self) -> None:
        self._again = None
        self._hand_out()

    def _ended(self) -> None:
        process, was_ready = self._process, self._ready is not None and self._ready.done()
        self._disconnect()
        if self._closing:
            return
        loop = asyncio.get_running_loop()
        if process is not None:
            process.kill()
            loop.run_in_executor(None, process.wait)
        log.warning("the nursery process ended; restarting it in %.1f s", self._delay_s)
        if not was_ready:
            # This nursery never got ready. The attempts that wait are given back, so that another member runs them.
            self._drop_waiting()
            self._on_give_up("the nursery process does not start")
        self._start_again()

    def _start_again(self) -> None:
        self._restart = asyncio.get_running_loop().call_later(self._delay_s, self._respawn)
        self._delay_s = min(self._delay_s * 2, RESTART_S_MAX)

    def _respawn(self) -> None:
        try:
            self._spawn()
        except OSError as error:
            log.error("the nursery process cannot be started: %s; retrying", error)  # noqa: TRY400  no traceback needed
            self._drop_waiting()
            self._start_again()

    def _disconnect(self) -> None:
        if self._socket is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket.fileno())
            loop.remove_writer(self._socket.fileno())
            self._socket.close()
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(NurseryFailed("the nursery process ended before it was ready; see its output"))
            self._ready.exception()  # marks it as retrieved, also if no coroutine waits for it
        self._socket = self._ready = self._process = None

    def _drop_waiting(self) -> None:
        while self._waiting:
            self._waiting.popleft().drop()
