"""A process for one attempt, forked by the nursery: it forks the worker, waits for the attempt, and supervises it.

Of an attempt's start, the two forks and the first use of their memory take the most time. Both are over before the
attempt comes, if there was time (`spares`).
"""

import os
import signal
import socket
from typing import NoReturn

from node.execution import process_tree, rehearsal
from node.execution.cgroup import AttemptGroup, Delegation
from node.execution.domain import Commands
from node.execution.forked_worker import ForkedWorker, fork_worker
from node.execution.linux import adopt_orphans
from node.execution.preparation import PreparationBrief, read_brief
from node.execution.prepared_host import PreparedHost
from node.execution.supervisor import Supervisor


def host(delegation: Delegation, commands: Commands, nursery: socket.socket, spare: bool) -> NoReturn:
    """Host what comes on the channel `nursery`: an attempt, or a preparation and later its attempt. Then exit.

    `spare`: the attempt comes later, or never. The worker gets a cgroup of its own below what is delegated. `commands`
    is what the domain of a command is made of.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A service manager may signal every process of a service. The node decides what happens to the work.
        signal.signal(number, signal.SIG_IGN)
    adopt_orphans()
    worker: ForkedWorker | OSError
    cgroup = None
    try:
        worker = fork_worker(rehearses=spare)
        cgroup = _grouped(worker, delegation)
    except OSError as error:
        worker = error
    ahead = rehearsal.of_supervisor(commands) if spare else None
    packet, descriptors, _, _ = socket.recv_fds(nursery, 16, 3)
    if not packet:
        if cgroup is not None and isinstance(worker, ForkedWorker):
            process_tree.end_children(worker.pid)
            cgroup.end()
        os._exit(0)  # and the worker with it: the nursery is gone, or needs no spare any more
    nursery.close()
    channel, *files = descriptors
    if isinstance(worker, ForkedWorker):
        worker.hand_brief(files[0])  # the worker reads it while this process prepares the attempt
    node, brief = socket.socket(fileno=channel), read_brief(*files)
    for descriptor in files:
        os.close(descriptor)
    prepared = None
    if isinstance(brief, PreparationBrief):
        assigned = None
        if isinstance(worker, ForkedWorker):
            assigned = PreparedHost(node, brief, worker, cgroup).wait()
        if assigned is None:
            os._exit(0)
        prepared = brief.scratch
        brief = assigned
    Supervisor(node, brief, worker, prepared, cgroup, ahead).run()
    os._exit(0)


def _grouped(worker: ForkedWorker, delegation: Delegation) -> AttemptGroup | None:
    """The worker's cgroup, if it gets one. Raises `OSError`; then the worker is ended."""
    try:
        return AttemptGroup.made(delegation, worker.pid)
    except OSError:
        process_tree.end_children(worker.pid)
        raise
