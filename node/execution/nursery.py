"""The nursery: `python -m node.execution.nursery FD PARENT CGROUP CONTROLLERS`.

It forks a supervisor for every attempt, because starting an interpreter and importing pydantic would take 150-250 ms.
A fork of the nursery, which has done both, takes a few milliseconds, and no time if it was forked ahead (`spares`). The
nursery has one thread, so that forking it is safe. Supervisors survive the end of the nursery.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn

from node.execution import frames, process_tree
from node.execution.linux import adopt_orphans, close_memory, die_with_parent
from node.execution.spares import SpareCount

FORK: Final = b"fork"
"""The node's request to fork a supervisor, with the descriptors of its channel and of the files of its brief."""

COMMANDS: Final = "NURSERY_COMMANDS"
"""The environment variable with the member's `Commands`, as encoded by `word`. No other process inherits it."""

EXPECT: Final = b"expect"
"""The node's notice that an attempt is expected soon."""


def main(descriptor: int, parent: int, delegated: list[str]) -> None:
    """Serve the node at the other end of the channel `descriptor` until the node is gone. `parent` is the node's pid.

    `delegated` is the result of `Delegation.words`.
    """
    close_memory()
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        return
    # The orphans of a killed supervisor become children of the nursery, which kills them.
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Forks share the memory of imported modules until one writes to it, and the garbage collector would do so.
    gc.disable()
    from node.execution.cgroup import delegation_of
    from node.execution.domain import commands_of
    from node.execution.host import host
    from node.execution.worker import preload

    preload()
    gc.freeze()
    Nursery(
        socket.socket(fileno=descriptor), partial(host, delegation_of(delegated), commands_of(os.environ.pop(COMMANDS)))
    ).serve()


@dataclass(frozen=True, slots=True)
class _Host:
    """A process for one attempt, and the channel on which it receives the attempt."""

    pid: int
    channel: socket.socket


class Nursery:
    """The nursery's loop: it receives requests, forks, and reaps children.

    A fork calls `host`, which does not return. The arguments of `host` are the channel on which the fork receives its
    attempt, and whether the fork is a spare process, which may wait long for an attempt.
    """

    def __init__(self, node: socket.socket, host: Callable[[socket.socket, bool], NoReturn]) -> None:
        self._node = node
        self._host = host
        self._hosts: set[int] = set()
        self._spares: deque[_Host] = deque()
        self._count = SpareCount()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve until the node closes its end of the channel."""
        self._node.send(frames.to_packet(frames.ReadyFrame()))
        poll = select.poll()
        poll.register(self._node, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            wait_s = self._count.wait_s(len(self._spares), time.monotonic())
            ready = dict(poll.poll(None if wait_s is None else wait_s * 1000 + 1))
            if self._wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                self._reap()
            if self._node.fileno() in ready:
                if not self._take():
                    return
            else:  # only if there is no request, because attempts come first
                self._tend()

    def _take(self) -> bool:
        """Receive one request. Returns False if the node is gone."""
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._node, 16, 3)
        except ConnectionResetError:
            return False
        if packet == EXPECT:
            self._count.expect(time.monotonic())
        elif len(descriptors) >= 2:
            self._begin(descriptors)
        return bool(packet)

    def _begin(self, descriptors: list[int]) -> None:
        """Give an attempt to a spare process, or to a new one."""
        self._count.used(time.monotonic())
        try:
            while True:
                waited = bool(self._spares)
                host = self._spares.popleft() if waited else self._fork(spare=False)
                try:
                    socket.send_fds(host.channel, [FORK], descriptors)
                    break
                except OSError:
                    if not waited:
                        raise
                    # The spare was killed (for want of memory?), and is not reaped yet.
                finally:
                    host.channel.close()
        except OSError as error:
            why = f"cannot fork a supervisor: {error.strerror}"
            with socket.socket(fileno=os.dup(descriptors[0])) as attempt:
                attempt.send(frames.to_packet(frames.EndedFrame("not_started", None, why, True, None, starved=True)))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _tend(self) -> None:
        """Fork a spare process if one is missing, and end the spare processes that are no longer needed."""
        now_s = time.monotonic()
        for _ in range(self._count.surplus(len(self._spares), now_s)):
            self._spares.popleft().channel.close()
        if self._count.missing(len(self._spares), now_s):
            try:
                self._spares.append(self._fork(spare=True))
            except OSError:
                self._count.failed(now_s)

    def _fork(self, *, spare: bool) -> _Host:
        ours, theirs = frames.new_channel()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            self._become_host(ours, theirs, spare)
        theirs.close()
        self._hosts.add(pid)
        return _Host(pid, ours)

    def _become_host(self, ours: socket.socket, theirs: socket.socket, spare: bool) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            # Other spares' channels too: a spare exits once every copy of the nursery's end of its channel is closed.
            for end in (self._node, ours, *(other.channel for other in self._spares)):
                end.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._host(theirs, spare)
        except BaseException:  # noqa: BLE001  a fork must not return into its parent's loop, whatever happens
            traceback.print_exc()
            os._exit(70)

    def _reap(self) -> None:
        lost = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid in self._hosts:
                self._hosts.discard(pid)
                lost = lost or status != 0
                for spare in [spare for spare in self._spares if spare.pid == pid]:
                    self._spares.remove(spare)
                    spare.channel.close()
        if lost:
            self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill the processes that a killed supervisor left behind: all children of this process except supervisors."""
        own = os.getpid()
        table = process_tree.processes()
        orphans = [one.pid for one in table if one.parent == own and one.pid not in self._hosts]
        for one in process_tree.descendants(orphans, table):
            process_tree.send(one.pid, signal.SIGKILL)
        for pid in orphans:
            process_tree.send(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
