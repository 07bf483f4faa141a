"""One attempt's supervisor: a small process between the node and the work.

It enforces the lease's deadline and carries out the decisions of `attempt_life`, whether or not the node answers: while
the work runs, its loop waits only for descriptors and one timer. When its channel to the node is closed, the node is
dead, and the supervisor kills the work.
"""

import contextlib
import os
import resource
import select
import signal
import socket
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Final

from node.execution import account, attempt_life, domain, frames, leftovers, limits, process_tree
from node.execution.attempt_secrets import SecretAnswers
from node.execution.cgroup import AttemptGroup
from node.execution.domain import MadeAhead
from node.execution.forked_worker import ForkedWorker
from node.execution.limit_watch import LimitWatch
from node.execution.limits import Amounts, Refused, Watched
from node.execution.linux import Timer
from node.execution.log_pump import LogPump
from node.execution.order import CHECKPOINT_BYTES_MAX, Brief, log_path, scratch_path
from node.execution.shared_objects import remove_shared
from node.runtime.boottime import boottime_s
from node.runtime.descriptors import below_own
from node.storage.disk_full import is_full
from node.storage.removal import remove_tree
from tasks.landlock import CannotConfine

OUTBOX_MAX: Final = 64
"""The limit of frames that are kept for a node that does not read. At the limit no frame of the worker is read."""

REST_MAX: Final = 4096
"""The most frames that are read from a worker that has ended: more than its channel holds, for the last is its report.

A channel of 208 KiB (`net.core.wmem_default`) holds about 280 small frames.
"""

EXIT_S: Final = 1.0
"""How long a worker may take to exit after it has reported its end."""


class Supervisor:
    """The loop of one attempt.

    `worker` has the `brief` and waits to begin; an `OSError` if it could not be forked. `prepared` is the folder of a
    prepared worker, which is removed with the scratch folder. `cgroup` is the worker's own group, if any. `ahead` is a
    domain that was made before the attempt came.
    """

    def __init__(
        self,
        node: socket.socket,
        brief: Brief,
        worker: ForkedWorker | OSError,
        prepared: Path | None = None,
        cgroup: AttemptGroup | None = None,
        ahead: MadeAhead | None = None,
    ) -> None:
        self._node = node
        self._brief = brief
        self._worker = worker
        self._prepared = prepared
        self._cgroup = cgroup
        self._ahead = ahead
        self._cgroup_killed = False
        self._watched: Watched | None = None
        self._limit_watch: LimitWatch | None = None
        self._folder = Path(brief.folder)
        order = brief.order
        self._run_mark = f"{order.run_id}:{order.token}"
        self._scratch = scratch_path(self._folder, order, prepared)
        self._life = attempt_life.AttemptLife(order.deadline_s, None, brief.limits)
        self._outbox: deque[frames.Frame] = deque()
        self._ending: frames.EndedFrame | None = None
        self._orphaned = False
        self._taken = False
        self._begun = False
        self._reported = False
        self._committing = 0
        self._protocol_error: str | None = None
        self._worker_pid = 0 if isinstance(worker, OSError) else worker.pid
        self._worker_status: int | None = None
        self._stopped: set[int] = set()
        self._out_of_reach: set[int] = set()
        self._frozen = False
        self._childless = False
        self._log: LogPump | None = None
        self._remarks: list[str] = []
        self._account: account.Account | None = None
        self._timer = Timer()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        """Run the attempt, from its beginning to the removal of its scratch folder."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._node.setblocking(False)
        self._say(frames.HelloFrame(os.getpid()))
        if self._begin():
            self._watch()
        else:
            self._dismiss_worker()
        self._finish()

    # -- the beginning

    def _begin(self) -> bool:
        order = self._brief.order
        self._files = below_own()
        may = limits.settled(order.limits, self._brief.limits.most, order.node, self._files[1])
        if isinstance(may, Refused):
            self._ending = frames.EndedFrame("failed", None, may.error, False, None)
            return False
        self._watched = Watched(may, order.limits, order.node)
        try:
            self._log = self._open_log(may)
            self._scratch.mkdir(parents=True)
            self._account = account.account_for(self._brief.order, self._scratch)
        except account.RefusedUser as error:
            self._ending = frames.EndedFrame("failed", None, str(error), False, None)
            return False
        except OSError as error:
            # A full disk is not the run's fault: another member starts the attempt, or this member does later.
            end = "not_started" if is_full(error) else "failed"
            self._ending = frames.EndedFrame(end, None, f"cannot prepare the attempt: {error}", True, None)
            return False
        self._hear_node()
        if self._life.why == "cancelled":
            self._ending = frames.EndedFrame("cancelled", None, None, True, None)
            return False
        if self._orphaned or self._life.why is not None or boottime_s() >= self._life.deadline_s:
            # An attempt that was claimed before the lease lapsed must not start afterwards: its claim is given back.
            self._ending = frames.EndedFrame("not_started", None, "the lease or the claim was over", True, None)
            return False
        if isinstance(self._worker, OSError):
            why = f"cannot fork a worker: {self._worker.strerror}"
            self._ending = frames.EndedFrame("not_started", None, why, True, None, starved=True)
            return False
        return self._start(self._worker, self._log, self._watched)

    def _open_log(self, may: Amounts) -> LogPump:
        order = self._brief.order
        path = log_path(self._folder, order.run_id, order.attempt)
        whose = "this node's limit (ROTA_LOG_BYTES)" if order.limits.log is None else "the task's limit (limits.log)"
        return LogPump(path, may.log or 0, whose)

    def _start(self, worker: ForkedWorker, log: LogPump, watched: Watched) -> bool:
        """Tell the worker to begin. From now on the supervisor waits for the worker's end, whatever happens."""
        self._work = worker.channel
        self._work.setblocking(False)
        try:
            return self._let_begin(worker, log, watched)
        finally:
            # Last, since a thread takes time to start. Until then the pipe holds the worker's output.
            log.start(worker.output, self._wake)

    def _let_begin(self, worker: ForkedWorker, log: LogPump, watched: Watched) -> bool:
        self._secrets = SecretAnswers(self._brief.order.secrets, log.learn, self._wake)
        try:
            leftovers.write_record(self._folder, worker.record(), self._run_mark, self._cgroup)
            self._bound(worker.pid, watched.may)
        except OSError as error:
            end = "not_started" if is_full(error) else "failed"
            self._ending = frames.EndedFrame(end, None, f"cannot record the attempt: {error}", True, None)
            self._kill()
            return True
        timeout_s = self._brief.order.timeout_s
        if timeout_s is not None:
            self._life = replace(self._life, timeout_at_s=boottime_s() + timeout_s)
        try:
            self._send_go(worker, self._ruleset())
        except CannotConfine as error:
            self._ending = frames.EndedFrame("failed", None, f"the attempt cannot be confined: {error}", True, None)
            self._kill()
            return True
        except ConnectionError:
            # The worker was killed before its attempt came (for want of memory?).
            self._kill()
            self._reap()
            return True
        except OSError as error:
            why = f"cannot hand the attempt to its worker: {error.strerror}"
            self._ending = frames.EndedFrame("not_started", None, why, True, None, starved=True)
            self._kill()
            return True
        self._limit_watch = LimitWatch(watched, os.getpid(), self._cgroup)
        self._limit_watch.start(self._wake)
        return True

    def _send_go(self, worker: ForkedWorker, ruleset: list[int]) -> None:
        """Tell the worker to begin, in the domain of `ruleset`. Closes the descriptors in it. Raises `OSError`."""
        become = b"" if self._account is None else self._account.pack()
        try:
            worker.send_go(frames.GoFrame("\n".join(self._remarks), become), ruleset)
        finally:
            for descriptor in ruleset:
                os.close(descriptor)

    def _bound(self, worker: int, may: Amounts) -> None:
        """Have the kernel enforce limits of the worker and of the processes that it has prepared. Raises `OSError`."""
        if self._cgroup is not None:
            self._cgroup.bound(may)
        files = self._files if may.files is None else (may.files, may.files)
        for pid in (worker, *(process_tree.below(worker) if self._prepared is not None else ())):
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, files)

    def _ruleset(self) -> list[int]:
        """Make the worker's ruleset, and return its descriptor; empty if no ruleset applies. Raises `OSError`."""
        order, limits_of_all = self._brief.order, self._brief.limits
        abi = limits_of_all.landlock
        if self._prepared is not None or not order.needs.confined or not abi:
            return []
        umask: int | None = limits_of_all.umask
        environ = dict(os.environ)
        if self._account is not None:
            umask = None  # the worker itself makes missing folders, as its user
            environ |= account.environment(self._account)
        made = domain.of_attempt(order.needs, order.access, order.task, self._scratch, umask, abi, environ, self._ahead)
        self._remarks = made.remarks
        return [made.ruleset.descriptor]

    def _dismiss_worker(self) -> None:
        """End the worker, which has not begun its brief, and the processes that it has prepared."""
        if not isinstance(self._worker, OSError):
            process_tree.end_children(self._worker.pid)

    # -- the loop

    def _watch(self) -> None:
        """Loop until no process of the attempt is left: orphans become children, so until no child is left."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.register(self._timer, select.POLLIN)
        while not self._childless:
            self._act()
            self._timer.set(attempt_life.wake_s(self._life))
            if not self._orphaned:
                poll.register(self._node, select.POLLIN | (select.POLLOUT if self._outbox else 0))
            if self._work.fileno() >= 0:
                poll.register(self._work, select.POLLIN if self._takes_frames() else 0)
            ready = dict(poll.poll())
            if self._node.fileno() in ready:
                self._hear_node()
                self._send()
                if self._orphaned:
                    poll.unregister(self._node)
                    self._kill()
            if self._timer.fileno() in ready:
                self._timer.clear()
            if self._work.fileno() in ready and not self._hear_worker():
                poll.unregister(self._work)
                self._work.close()
            if self._wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                if (answer := self._secrets.take()) is not None:
                    self._tell_worker(answer)
                self._reap()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b".")

    def _act(self) -> None:
        if self._limit_watch is not None and self._limit_watch.exceeded is not None:
            self._life = attempt_life.failed_by_node(self._life, self._limit_watch.exceeded, boottime_s())
        self._life, acts = attempt_life.step(self._life, boottime_s())
        for act in acts:
            match act:
                case attempt_life.Act.FREEZE:
                    stopped = process_tree.freeze(os.getpid(), self._group())
                    self._stopped |= stopped
                    self._tell_of_reach(stopped)
                    if not self._frozen:
                        self._frozen = True
                        self._say(frames.FrozenFrame())
                case attempt_life.Act.THAW:
                    process_tree.thaw(os.getpid(), self._group(), self._stopped)
                    self._stopped.clear()
                    self._frozen = False
                    self._say(frames.ThawedFrame())
                case attempt_life.Act.ASK:
                    self._tell_worker(frames.StopFrame(str(self._life.why)))
                case attempt_life.Act.KILL:
                    self._kill_processes()

    def _group(self) -> int | None:
        # Once the worker is reaped, the kernel may reuse its number for another group.
        return self._worker_pid if self._worker_status is None else None

    def _kill(self) -> None:
        self._life = attempt_life.killing(self._life, boottime_s())
        self._kill_processes()

    def _kill_processes(self) -> None:
        dying = self._cgroup is not None and not self._cgroup_killed
        if self._cgroup is not None and dying:
            self._cgroup_killed = True
            self._cgroup.kill()
        found = process_tree.kill(os.getpid(), self._group())
        if not dying:  # processes that the kernel is killing may still be listed, but are in reach
            self._tell_of_reach(found)

    def _tell_of_reach(self, pids: set[int]) -> None:
        """Report to the node, once for each process, those that cannot be signalled, because only root can end them."""
        beyond = process_tree.out_of_reach(pids - self._out_of_reach)
        if beyond:
            self._out_of_reach.update(beyond)
            self._say(frames.OutOfReachFrame(" ".join(map(str, beyond))))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return
            if pid == 0:
                break
            if pid == self._worker_pid:
                self._worker_status = os.waitstatus_to_exitcode(status)
                self._hear_the_rest()
        if self._worker_status is not None and not self._life.killed:
            # The work is over: kill the processes that it left running.
            self._kill()

    # -- frames from and to the node

    def _hear_node(self) -> None:
        while True:
            try:
                frame = frames.receive(self._node)
            except BlockingIOError:
                return
            except OSError:
                frame = None
            match frame:
                case None:
                    self._orphaned = True
                    return
                case frames.RenewFrame(deadline_s=deadline_s):
                    self._life = attempt_life.renewed(self._life, deadline_s)
                case frames.StopFrame(why="cancelled" | "handed_over" as why):
                    self._life = attempt_life.told_to_stop(self._life, why, boottime_s())
                case frames.KillFrame():
                    self._life = attempt_life.told_to_stop(self._life, "killed", boottime_s())
                case frames.FailFrame(error=error):
                    self._life = attempt_life.failed_by_node(self._life, error, boottime_s())
                case frames.CheckpointDoneFrame(code=code):
                    self._committing = max(0, self._committing - 1)
                    if code == "fenced":
                        self._life = attempt_life.told_to_stop(self._life, "fenced", boottime_s())
                    self._tell_worker(frame)

    def _say(self, frame: frames.Frame) -> None:
        if (
            isinstance(frame, frames.ProgressFrame)
            and self._outbox
            and isinstance(self._outbox[-1], frames.ProgressFrame)
        ):
            self._outbox.pop()
        self._outbox.append(frame)
        self._send()

    def _send(self) -> None:
        while self._outbox and not self._orphaned:
            try:
                self._node.send(frames.to_packet(self._outbox[0]), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:
                self._orphaned = True
                return
            self._outbox.popleft()

    # -- frames from and to the worker

    def _hear_worker(self) -> bool:
        """Read one frame of the worker. Returns False once its end is closed, or after an invalid frame."""
        try:
            frame = frames.receive(self._work)
            if frame is not None:
                self._take(frame)
        except BlockingIOError:
            return True
        except OSError:
            return False
        except frames.BadFrame as error:
            # Trust no other frame from this worker. The caller closes the channel, and the worker then exits.
            self._protocol_error = f"the worker sent an invalid frame: {error}"
            self._life = replace(self._life, kill_at_s=boottime_s() + EXIT_S)
            return False
        return frame is not None

    def _take(self, frame: frames.Frame) -> None:
        """Handle a frame from the worker. It may be any frame: the task's code may send it. Raises `BadFrame`."""
        if self._reported:
            return  # frames after the report of the end are ignored
        match frame:
            case frames.TakenFrame():
                self._taken = True
            case frames.PreparedFrame() if self._prepared is not None and not self._taken:
                self._say(frame)
            case frames.StartedFrame() if not self._begun:
                self._begun = True
                self._say(frame)
            case frames.ProgressFrame():
                if fault := frames.progress_fault(frame):
                    raise frames.BadFrame(fault)
                self._say(frame)
            case frames.SecretAskFrame():
                self._secrets.ask(frame)
            case frames.CheckpointAskFrame(data=data):
                if len(data) > CHECKPOINT_BYTES_MAX:
                    raise frames.BadFrame(f"a checkpoint of {len(data)} bytes")
                self._committing += 1
                self._say(frame)
            case frames.DoneFrame() | frames.FailedFrame():
                self._report(frame)

    def _takes_frames(self) -> bool:
        """Whether to read the worker's next frame: False while the node does not read, or commits a checkpoint.

        Meanwhile the worker's frames wait in the channel, not in the supervisor's memory.
        """
        return len(self._outbox) < OUTBOX_MAX and not self._committing

    def _hear_the_rest(self) -> None:
        """Read the rest of the worker's frames, up to a limit, because processes that it started may go on sending."""
        for _ in range(REST_MAX):
            if self._work.fileno() < 0 or not select.select([self._work], [], [], 0)[0] or not self._hear_worker():
                return

    def _report(self, report: frames.DoneFrame | frames.FailedFrame) -> None:
        now_s = boottime_s()
        self._reported = True
        if self._ending is None:
            self._ending = attempt_life.conclude(self._life, report, None, self._brief.order.timeout_s)
        self._life = replace(self._life, timeout_at_s=None, kill_at_s=now_s + EXIT_S)

    def _tell_worker(self, frame: frames.Frame) -> None:
        # A worker is sent few frames, and reads them in a thread of its own. If it does not read, it is killed at its
        # deadline; if it has ended, it is reaped.
        with contextlib.suppress(OSError):
            self._work.send(frames.to_packet(frame), socket.MSG_NOSIGNAL)

    # -- the end

    def _finish(self) -> None:
        ending = self._ending
        if ending is None:
            ending = attempt_life.conclude(self._life, None, self._worker_status, self._brief.order.timeout_s)
            if self._life.why == "killed" and not self._begun:
                ending = replace(ending, end="not_started")
            elif self._life.why is None and not self._taken:
                ending = self._never_taken()
            if self._protocol_error is not None and ending.end == "failed":
                ending = replace(ending, error=f"{self._protocol_error}; {ending.error}")
        if self._limit_watch is not None:
            self._limit_watch.close()
        if self._cgroup is not None:
            if ending.end == "failed" and self._watched is not None and self._cgroup.out_of_memory():
                ending = replace(ending, error=limits.out_of_memory(self._watched))
            self._cgroup.end()
        if self._log is not None:
            self._log.close()
            ending = replace(ending, log_error=self._log.error)
        self._node.setblocking(True)
        self._say(ending)
        self._remove_shared()
        remove_tree(self._scratch)
        if self._prepared is not None:
            remove_tree(self._prepared)
        leftovers.record_path(self._folder, os.getpid()).unlink(missing_ok=True)

    def _never_taken(self) -> frames.EndedFrame:
        """Return the end of an attempt whose worker ended before it had the brief: the claim is given back."""
        why = f"its worker ended before it had the attempt: {attempt_life.death(self._worker_status)}"
        if self._prepared is not None:
            self._say(frames.PreparedFrame(why))
        return frames.EndedFrame("not_started", None, why, True, None, starved=self._worker_status == -signal.SIGKILL)

    def _remove_shared(self) -> None:
        """Remove the shared memory of an attempt that had a user id of its own. Its processes have ended."""
        uid = self._brief.order.uid
        if uid is not None and self._account is not None:
            with contextlib.suppress(OSError):  # the next attempt with this user id removes it
                remove_shared(range(uid, uid + 1))
