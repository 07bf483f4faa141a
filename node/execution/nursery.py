"""The nursery: `python -m node.execution.nursery FD PARENT`. It forks a supervisor for every attempt.

Starting an interpreter and importing pydantic takes 150-250 ms; forking a process that has done so takes a few
milliseconds. The nursery has one thread, so that forking it is safe. Supervisors survive its end.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from node.execution import frames, process_tree
from node.execution.linux import adopt_orphans, die_with_parent


def main(descriptor: int, parent: int) -> None:
    """Serve the node at the other end of the channel `descriptor` until it is gone. `parent` is the node's pid."""
    die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        return
    # The orphans of a killed supervisor become children of the nursery, which kills them.
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Forks share the pages of imported modules until one writes to them, as the garbage collector would.
    gc.disable()
    from node.execution.supervisor import supervise
    from node.execution.worker import preload

    preload()
    gc.collect()
    gc.freeze()
    Nursery(socket.socket(fileno=descriptor), supervise).serve()


class Nursery:
    """The loop: takes requests to fork, and reaps children. `supervise` is what a fork runs; it does not return."""

    def __init__(self, node: socket.socket, supervise: Callable[[socket.socket, int], NoReturn]) -> None:
        self._node = node
        self._supervise = supervise
        self._supervisors: set[int] = set()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve until the node closes its end of the channel."""
        self._node.send(frames.pack(frames.ReadyFrame()))
        poll = select.poll()
        poll.register(self._node, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                self._reap()
            if self._node.fileno() in ready and not self._take():
                return

    def _take(self) -> bool:
        """Take one request: a packet with two descriptors, the attempt's channel and its brief. False: node gone."""
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._node, 16, 2)
        except ConnectionResetError:
            return False
        if not packet:
            return False
        if len(descriptors) == 2:
            self._fork(socket.socket(fileno=descriptors[0]), descriptors[1])
        return True

    def _fork(self, channel: socket.socket, brief_fd: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            why = f"cannot fork a supervisor: {error.strerror}"
            channel.send(frames.pack(frames.EndedFrame("not_started", None, why, True, None, starved=True)))
        else:
            if pid == 0:
                self._become_supervisor(channel, brief_fd)
            self._supervisors.add(pid)
        channel.close()
        os.close(brief_fd)

    def _become_supervisor(self, channel: socket.socket, brief_fd: int) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            self._node.close()
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._supervise(channel, brief_fd)
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
            if pid in self._supervisors:
                self._supervisors.discard(pid)
                lost = lost or status != 0
        if lost:
            self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill what a killed supervisor left behind: all children of this process that are not supervisors."""
        own = os.getpid()
        table = process_tree.processes()
        orphans = [one.pid for one in table if one.parent == own and one.pid not in self._supervisors]
        for one in process_tree.descendants(orphans, table):
            process_tree.send(one.pid, signal.SIGKILL)
        for pid in orphans:
            process_tree.send(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
