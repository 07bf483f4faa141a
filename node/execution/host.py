"""A process for one attempt, forked by the nursery: it forks the worker, waits for the attempt, and supervises it.

The two forks, and the first writes to their memory, take most of the time that an attempt needs to start. If possible,
they are done before the attempt comes (`spares`).
"""

import os
import select
import signal
import socket
from typing import Final, NoReturn

from node.execution import process_tree, rehearsal
from node.execution.cgroup import AttemptGroup, Delegation
from node.execution.domain import Commands, MadeAhead
from node.execution.forked_worker import ForkedWorker, fork_worker
from node.execution.linux import adopt_orphans
from node.execution.preparation import PreparationBrief, read_brief
from node.execution.prepared_host import PreparedHost
from node.execution.supervisor import Supervisor

REFRESH_S: Final = 0.25
"""The pause between two checks whether a domain that was made ahead is out of date. Making one takes some 6 ms."""


def host(delegation: Delegation, commands: Commands, nursery: socket.socket, spare: bool) -> NoReturn:
    """Fork a worker, run the attempt that is received on the channel `nursery`, perhaps after a preparation, and exit.

    `spare`: the attempt comes later, or never. The worker gets a cgroup of its own below `delegation`. The domain for a
    command is made ahead from `commands`.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Ignored, because a service manager may signal every process, but only the node decides when the work ends.
        signal.signal(number, signal.SIG_IGN)
    adopt_orphans()
    worker: ForkedWorker | OSError
    cgroup = None
    try:
        worker = fork_worker(rehearses=spare)
        cgroup = _grouped(worker, delegation)
    except OSError as error:
        worker = error
    ahead = None
    if spare:
        ahead = rehearsal.of_supervisor(commands)
        if isinstance(worker, ForkedWorker):
            worker.record()
    if ahead is not None:
        _keep_current(ahead, nursery)
    packet, descriptors, _, _ = socket.recv_fds(nursery, 16, 3)
    if not packet:
        if cgroup is not None and isinstance(worker, ForkedWorker):
            process_tree.end_children(worker.pid)
            cgroup.end()
        os._exit(0)  # the worker exits too: the nursery is gone, or no longer needs this spare process
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


def _keep_current(ahead: MadeAhead, nursery: socket.socket) -> None:
    """Make the domain anew whenever it is out of date, until a message or the end of the channel comes."""
    order = select.poll()
    order.register(nursery, select.POLLIN)
    while not order.poll(1000 * REFRESH_S):
        ahead.refresh()


def _grouped(worker: ForkedWorker, delegation: Delegation) -> AttemptGroup | None:
    """Make the worker's cgroup, if cgroups are delegated. If this fails, end the worker, and raise `OSError`."""
    try:
        return AttemptGroup.made(delegation, worker.pid)
    except OSError:
        process_tree.end_children(worker.pid)
        raise
