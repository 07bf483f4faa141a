"""A worker that its supervisor has forked before its attempt exists."""

import os
import socket
from collections.abc import Collection
from dataclasses import dataclass

from node.execution import frames, worker
from node.execution.leftovers import Record, record_of


@dataclass(slots=True)
class ForkedWorker:
    """A worker that waits for its attempt, with the supervisor's ends of the worker's channel and output pipe."""

    #: The worker's process id.
    pid: int
    #: The supervisor's end of the channel.
    channel: socket.socket
    #: The end of the pipe from which the worker's output is read.
    output: int
    #: The error of `hand_brief`; None: it did not fail.
    unhanded: OSError | None = None
    #: The result of `record`; None: `record` was not called yet.
    recorded: Record | None = None

    def record(self) -> Record:
        """Return the record of this supervisor and its worker; it is made at the first call. Raises `OSError`."""
        if self.recorded is None:
            self.recorded = record_of(self.pid)
        return self.recorded

    def hand_brief(self, descriptor: int) -> None:
        """Send the worker the file of a brief. The worker then waits for `send_go`, which raises any error of this."""
        try:
            packet = frames.to_packet(frames.BriefFrame())
            socket.send_fds(self.channel, [packet], [descriptor], socket.MSG_NOSIGNAL)
        except OSError as error:
            self.unhanded = error

    def send_go(self, go: frames.GoFrame, ruleset: Collection[int] = ()) -> None:
        """Tell the worker to begin, and give it the ruleset to enter, if there is one. Raises `OSError`."""
        if self.unhanded is not None:
            raise self.unhanded
        socket.send_fds(self.channel, [frames.to_packet(go)], list(ruleset), socket.MSG_NOSIGNAL)


def fork_worker(*, rehearses: bool) -> ForkedWorker:
    """Fork this process's worker. `rehearses`: the worker has time to rehearse its start first. Raises `OSError`."""
    output_read, output_write = os.pipe2(os.O_CLOEXEC)
    ours, theirs = frames.new_channel()
    own = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        os.close(output_read)
        raise
    else:
        if pid == 0:
            worker.enter(own, theirs, output_write, rehearses=rehearses)
    finally:
        theirs.close()
        os.close(output_write)
    return ForkedWorker(pid, ours, output_read)
