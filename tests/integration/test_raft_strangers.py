"""Callers without the secret, or at a wrong address, do not disturb Raft: real members, real connections."""

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.cli.local import wait_for
from testkit.raft.raft_cluster import Cluster, Process

pytestmark = pytest.mark.integration

BARRIERS, WAIT_S = 15, 10.0
"""A barrier takes about 10 ms, and there is one every 0.2 s, so that one falls into each time Raft is stopped."""


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one."""
    made = Cluster(tmp_path, 1)
    made.start()
    yield made
    made.close()


def goes_on(member: Process) -> None:
    """Commit one entry after the other. While Raft is stopped, one takes a second, or all of WAIT_S."""
    end_s = time.monotonic() + WAIT_S
    for done in range(BARRIERS):
        assert time.monotonic() < end_s, f"{done} of {BARRIERS} barriers in {WAIT_S:g} s"
        member.do("barrier", timeout_s=WAIT_S)
        time.sleep(0.2)


def call(cluster: Cluster, member: str) -> socket.socket:
    return socket.create_connection(cluster.addresses[member], timeout=5)


class Callers(threading.Thread):
    """`count` callers that send nothing, and call again when they are disconnected."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        super().__init__()
        self._cluster, self._count = cluster, count
        self._over = threading.Event()
        self.hung_up_on = 0

    def run(self) -> None:
        callers: list[socket.socket] = []
        while not self._over.wait(0.02):
            for caller in [caller for caller in callers if _ended(caller)]:
                caller.close()
                callers.remove(caller)
                self.hung_up_on += 1
            while len(callers) < self._count:
                callers.append(socket.socket())
                callers[-1].setblocking(False)
                callers[-1].connect_ex(self._cluster.addresses["n1"])
        for caller in callers:
            caller.close()

    def end(self) -> None:
        self._over.set()
        self.join()


def _ended(caller: socket.socket) -> bool:
    try:
        return caller.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_without_file_descriptors_raft_works_and_unidentified_callers_are_closed(alone: Cluster) -> None:
    """The library then closes its listener, and blocks its thread until it can listen again."""
    member = alone.leader()
    limit = len(list(Path(f"/proc/{member.popen.pid}/fd").iterdir())) + 8
    resource.prlimit(member.popen.pid, resource.RLIMIT_NOFILE, (limit, limit))
    callers = Callers(alone, 60)
    callers.start()
    try:
        wait_for("strangers to give way", lambda: callers.hung_up_on)
        goes_on(member)
        with call(alone, "n1") as late:
            late.sendall(b"\x07\x00\x00\x00another")
            assert late.recv(1) == b"", "the caller was accepted, and disconnected for its message"
    finally:
        callers.end()
    assert member.do("state")["failure"] == ""


def test_a_caller_that_sends_without_end_does_not_delay_raft(alone: Cluster) -> None:
    """The library reads while the caller sends, and keeps everything in memory."""
    member = alone.leader()
    over, sent = threading.Event(), threading.Event()

    def flood() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), call(alone, "n1") as caller:
                caller.sendall(b"\xff\xff\xff\x7f")
                while not over.is_set():
                    caller.sendall(bytes(1 << 18))
                    sent.set()

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        assert sent.wait(WAIT_S)
        goes_on(member)
    finally:
        over.set()
        flooding.join()


@pytest.mark.more
def test_another_member_at_the_address_of_a_dead_one_is_not_accepted_as_it(tmp_path: Path) -> None:
    """As when a container's address is given to another member while the name still resolves to it."""
    cluster = Cluster(tmp_path, 3)
    try:
        cluster.start()
        cluster.leader().do("push", start=0, count=10, window=5)
        cluster.stop()
        cluster.start("n1")
        cluster.more = {"addresses": cluster.addresses | {"n2": cluster.addresses["n1"]}}
        cluster.start("n3")
        cluster.leader().do("push", start=100, count=10, window=5)
        cluster.same(20)
        log = tmp_path / "members.log"
        wait_for("n3 to say so", lambda: "n1 answers at the address of n2" in log.read_text())
        roles = {name: len(process.roles) for name, process in cluster.running.items()}
        time.sleep(3.0)  # n3 has dialled once more
        assert roles == {name: len(process.roles) for name, process in cluster.running.items()}
        cluster.leader().do("push", start=200, count=10, window=5)
        cluster.same(30)
    finally:
        cluster.close()
