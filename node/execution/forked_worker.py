"""The worker as its supervisor forks it: before there is an attempt for it."""

import os
import socket
from dataclasses import dataclass

from node.execution import frames, worker


@dataclass(frozen=True, slots=True)
class ForkedWorker:
    """A worker that waits for its attempt: the supervisor's end of the channel, and the pipe that brings its output."""

    pid: int
    channel: socket.socket
    output: int


def fork_worker(*, rehearses: bool) -> ForkedWorker:
    """Fork this process's worker. `rehearses`: it has time before its attempt comes. Raises `OSError`."""
    output_read, output_write = os.pipe2(os.O_CLOEXEC)
    ours, theirs = frames.channel()
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
