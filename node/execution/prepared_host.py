"""The supervisor of a prepared process, until its attempt comes.

It watches the lease and the node as for an attempt: the processes are frozen while the lease has lapsed, and are killed
when the node is gone. The preparation's output waits in the worker's pipe, and becomes the start of the attempt's log.
"""

import os
import resource
import select
import signal
import socket
from pathlib import Path
from typing import Final

from node.execution import attempt_life, domain, frames, leftovers, process_tree
from node.execution.attempt_life import AttemptLife
from node.execution.cgroup import AttemptGroup
from node.execution.forked_worker import ForkedWorker
from node.execution.linux import Timer
from node.execution.order import Brief
from node.execution.preparation import PreparationBrief, read_brief
from node.runtime.boottime import boottime_s
from node.runtime.descriptors import below_own
from node.storage.removal import remove_tree

WITHOUT_LEASE_S: Final = 60.0
"""How long the lease must have lapsed until a prepared process ends: by then another member has taken over the task."""


class PreparedHost:
    """Has the worker prepare itself, and waits for an attempt on the channel `node`. `cgroup` is the worker's own."""

    def __init__(
        self,
        node: socket.socket,
        brief: PreparationBrief,
        worker: ForkedWorker,
        cgroup: AttemptGroup | None = None,
    ) -> None:
        self._node = node
        self._brief = brief
        self._worker = worker
        self._cgroup = cgroup
        self._life = AttemptLife(brief.deadline_s, None, brief.limits)
        self._stopped: set[int] = set()
        self._assigned: Brief | None = None
        self._over = False
        self._timer = Timer()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self) -> Brief | None:
        """Wait for the attempt, and return its brief. Returns None after an end without an attempt and full cleanup."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._node.setblocking(False)
        self._worker.channel.setblocking(False)
        try:
            self._say(frames.PreparingFrame(os.getpid()))
            self._brief.scratch.mkdir(parents=True)
            record = self._worker.record()
            leftovers.write_record(Path(self._brief.folder), record, self._brief.mark, self._cgroup)
            if self._cgroup is not None:
                self._cgroup.bound(self._brief.limits.most)
            resource.prlimit(self._worker.pid, resource.RLIMIT_NOFILE, below_own())
            self._send_go()
            self._watch()
        except OSError as error:
            self._say(frames.PreparedFrame(f"cannot prepare a process: {error}"))
            self._over = True
        if self._stopped:
            process_tree.thaw(os.getpid(), self._worker.pid, self._stopped)
        if self._assigned is None:
            self._end()
            return None
        # If the worker has ended by now, the attempt's supervisor reports that the attempt did not start.
        signal.set_wakeup_fd(-1)
        for descriptor in (self._wake_read, self._wake_write):
            os.close(descriptor)
        self._timer.close()
        return self._assigned

    def _send_go(self) -> None:
        if version := self._brief.limits.landlock:
            ruleset = domain.of_preparation(self._brief.access, self._brief.scratch, version).ruleset
            self._worker.send_go(frames.GoFrame(), [ruleset.descriptor])
            ruleset.close()
        else:
            self._worker.send_go(frames.GoFrame())

    def _watch(self) -> None:
        poll = select.poll()
        for end in (self._node, self._worker.channel, self._wake_read, self._timer):
            poll.register(end, select.POLLIN)
        while not self._over and self._assigned is None:
            self._act()
            self._timer.set(attempt_life.wake_s(self._life))
            ready = dict(poll.poll())
            if self._timer.fileno() in ready:
                self._timer.clear()
            if self._worker.channel.fileno() in ready:
                self._hear_worker()
            if self._node.fileno() in ready:
                self._hear_node()
            if self._wake_read in ready:
                self._reap()

    def _act(self) -> None:
        now_s = boottime_s()
        self._life, acts = attempt_life.step(self._life, now_s)
        if attempt_life.Act.FREEZE in acts:
            self._stopped |= process_tree.freeze(os.getpid(), self._worker.pid)
        if attempt_life.Act.THAW in acts:
            process_tree.thaw(os.getpid(), self._worker.pid, self._stopped)
            self._stopped.clear()
        if now_s >= self._life.deadline_s + WITHOUT_LEASE_S:
            self._over = True

    def _hear_node(self) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._node, frames.FRAME_BYTES_MAX, 2)
            frame = frames.from_packet(packet) if packet else frames.KillFrame()
        except BlockingIOError:
            return
        except (OSError, frames.BadFrame):
            frame = frames.KillFrame()
        match frame:
            case frames.RenewFrame(deadline_s=deadline_s):
                self._life = attempt_life.renewed(self._life, deadline_s)
            case frames.AttemptFrame():
                self._worker.hand_brief(descriptors[0])
                brief = read_brief(*descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                assert isinstance(brief, Brief)
                self._assigned = brief
            case frames.KillFrame():
                self._over = True

    def _hear_worker(self) -> None:
        try:
            frame = frames.receive(self._worker.channel)
        except BlockingIOError:
            return
        except (OSError, frames.BadFrame):
            frame = None
        match frame:
            case frames.PreparedFrame():
                self._say(frame)
            case _:
                self._over = True

    def _reap(self) -> None:
        os.read(self._wake_read, 4096)
        # SIGCHLD also comes for orphans that this process has adopted. Only the end of the worker matters.
        if os.waitid(os.P_PID, self._worker.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            self._over = True

    def _say(self, frame: frames.Frame) -> None:
        try:
            self._node.send(frames.to_packet(frame), socket.MSG_NOSIGNAL)
        except OSError:
            self._over = True  # the node is gone, or does not read

    def _end(self) -> None:
        process_tree.end_children(self._worker.pid)
        if self._cgroup is not None:
            self._cgroup.end()
        remove_tree(self._brief.scratch)
        leftovers.record_path(Path(self._brief.folder), os.getpid()).unlink(missing_ok=True)
