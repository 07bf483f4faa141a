"""Three Heartbeats in processes of their own, over loopback; the test says who leads."""

import contextlib
import json
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.liveness.heartbeat import Heartbeat, HeartbeatSettings
from node.liveness.server import PortInUseError
from node.liveness.view import View
from node.runtime.boottime import boottime_s
from node.state.value import Settings
from testkit.raft.heartbeat_process import Owner

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
DEADLINE_S = 20.0


class Process:
    """One Heartbeat in a process."""

    def __init__(self, name: str, secret: str, cluster: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", "testkit.raft.heartbeat_process", name, secret, cluster],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.told: list[dict[str, Any]] = []
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))

    def observe(self, view: dict[str, Any]) -> None:
        """What it is to know."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(view) + "\n")
        self.process.stdin.flush()

    def wait(self, what: str, after_s: float = 0.0, **fields: object) -> dict[str, Any]:
        """The next event of that kind, told after that time, with those fields."""
        end_s = boottime_s() + DEADLINE_S
        while (left_s := end_s - boottime_s()) > 0:
            try:
                event = self._lines.get(timeout=left_s)
            except queue.Empty:
                break
            self.told.append(event)
            fits = event["is"] == what and event["t"] > after_s
            if fits and all(event[key] == value for key, value in fields.items()):
                return event
        raise AssertionError(f"{self.name} told no {what} {fields}; it told {self.told[-5:]}")

    def leases_since(self, at_s: float) -> list[dict[str, Any]]:
        """The leases it has told so far that were live when they came."""
        while not self._lines.empty():
            self.told.append(self._lines.get())
        leases = [told for told in self.told if told["is"] == "lease" and told["deadline_s"] > told["t"]]
        return [lease for lease in leases if lease["t"] > at_s]

    def close(self) -> None:
        """Asks it to end in good order."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> str:
        """Ends it, whatever it does, and gives what it wrote to standard error."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdin is not None and self.process.stdout is not None and self.process.stderr is not None
        errors = self.process.stderr.read()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()
        return errors


class Trio:
    """Three of them, and what they know."""

    def __init__(
        self, secrets: tuple[str, str, str] = ("s", "s", "s"), clusters: tuple[str, str, str] = ("x", "x", "x")
    ) -> None:
        names = ("a", "b", "c")
        self.processes = {
            name: Process(name, secret, cluster) for name, secret, cluster in zip(names, secrets, clusters, strict=True)
        }
        self.status = dict.fromkeys(names, "up")
        self.ports = {name: process.wait("port")["port"] for name, process in self.processes.items()}
        self.settings = {"lease_s": 1.2, "window_s": 0.6, "margin_s": 0.4}

    def lead(self, leader: str, term: int) -> None:
        """Make that one the leader, known to all."""
        peers = {name: [1, self.status[name], "127.0.0.1", port] for name, port in self.ports.items()}
        for name, process in self.processes.items():
            if process.process.poll() is None:
                view = {"incarnation": 1, "term": term, "leader": leader, "lead_applied": name == leader}
                process.observe(view | {"peers": peers, "settings": self.settings})

    def end(self) -> dict[str, str]:
        """Ends them all, and gives what they wrote to standard error."""
        return {name: process.end() for name, process in self.processes.items()}

    def __getitem__(self, name: str) -> Process:
        return self.processes[name]


@pytest.fixture
def trio() -> Iterator[Trio]:
    three = Trio()
    yield three
    three.end()


def _working(trio: Trio) -> Trio:
    """With `a` as leader, and a lease on each."""
    trio.lead("a", 1)
    for process in trio.processes.values():
        process.wait("lease")
    return trio


def _verdict(process: Process) -> tuple[str, str, int, int]:
    told = process.wait("verdict")
    return told["member"], told["reason"], told["incarnation"], told["term"]


def test_a_killed_follower_is_gone(trio: Trio) -> None:
    _working(trio)["c"].process.kill()
    assert _verdict(trio["a"]) == ("c", "gone", 1, 1)


def test_a_killed_leader_is_gone_for_the_next_one(trio: Trio) -> None:
    """The next one was a client of it: that connection has ended too."""
    _working(trio)["a"].process.kill()
    trio["a"].process.wait()
    trio.lead("b", 2)
    assert _verdict(trio["b"]) == ("a", "gone", 1, 2)
    trio["c"].wait("lease", after_s=trio["b"].told[-1]["t"])


def test_a_stopped_follower_is_silent_never_gone_and_gets_no_lease_when_it_wakes(trio: Trio) -> None:
    _working(trio)["c"].process.send_signal(signal.SIGSTOP)
    assert _verdict(trio["a"]) == ("c", "silent", 1, 1)
    assert _verdict(trio["a"]) == ("c", "silent", 1, 1)  # again, while the state does not show it
    trio["c"].process.send_signal(signal.SIGCONT)
    trio.status["c"] = "down"
    trio.lead("a", 1)
    woken_s = boottime_s()
    trio["b"].wait("lease", after_s=woken_s)
    assert trio["c"].leases_since(woken_s) == []


def test_a_stopped_follower_that_is_killed_then_is_gone(trio: Trio) -> None:
    _working(trio)["c"].process.send_signal(signal.SIGSTOP)
    trio["c"].process.kill()
    assert _verdict(trio["a"]) == ("c", "gone", 1, 1)


def test_marked_down_drops_the_lease_at_once(trio: Trio) -> None:
    _working(trio).status["c"] = "down"
    trio.lead("a", 1)
    while (lease := trio["c"].wait("lease"))["deadline_s"] > lease["t"]:
        pass


def test_something_else_on_its_port_is_not_death(trio: Trio) -> None:
    _working(trio)["c"].process.kill()
    trio["c"].process.wait()
    with socket.create_server(("127.0.0.1", trio.ports["c"]), backlog=128):
        assert _verdict(trio["a"]) == ("c", "silent", 1, 1)


def test_another_process_at_a_members_address_is_not_taken_for_it(trio: Trio) -> None:
    """As when its container's address has been given to another member's."""
    _working(trio)["c"].process.kill()
    trio["c"].process.wait()
    trio.ports["c"] = trio.ports["a"]
    trio.lead("c", 2)
    time.sleep(0.3)  # what was under way has come
    since_s = boottime_s()
    time.sleep(1.5)
    assert trio["b"].leases_since(since_s) == [], "from a, as if it were c"
    trio.lead("a", 3)
    assert _verdict(trio["a"]) == ("c", "silent", 1, 3), "not gone: a process answers there"
    trio["b"].wait("lease", after_s=since_s)


def test_an_end_in_good_order_is_not_death(trio: Trio) -> None:
    """It says goodbye, and refuses connections while its workers may still be ending."""
    _working(trio)["c"].close()
    trio["c"].wait("stopped")
    assert _verdict(trio["a"]) == ("c", "silent", 1, 1)


def test_a_wrong_secret_is_refused() -> None:
    trio = Trio(("s", "s", "another"))
    try:
        trio.lead("a", 1)
        trio["a"].wait("lease")
        trio["b"].wait("lease")
        assert _verdict(trio["a"]) == ("c", "silent", 1, 1)
        assert trio["c"].leases_since(0) == []
    finally:
        errors = trio.end()
    assert "refused: it has another secret: ROTA_SECRET must be the same on all members" in errors["a"]
    assert "refused: it says that this node has another secret" in errors["c"]


def test_a_member_of_another_cluster_gets_no_lease_and_each_side_names_both() -> None:
    trio = Trio(clusters=("x", "x", "y"))
    try:
        trio.lead("a", 1)
        trio["a"].wait("lease")
        trio["b"].wait("lease")
        assert _verdict(trio["a"]) == ("c", "silent", 1, 1)
        assert trio["c"].leases_since(0) == []
    finally:
        errors = trio.end()
    assert errors["a"].count("c belongs to cluster y, this node to cluster x") == 1
    assert errors["c"].count("a belongs to cluster x, this node to cluster y") == 1


def test_an_unknown_client_is_closed_and_does_no_harm(trio: Trio) -> None:
    _working(trio)
    with socket.create_connection(("127.0.0.1", trio.ports["a"]), timeout=DEADLINE_S) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        while client.recv(1024):
            pass
    trio["c"].wait("lease", after_s=boottime_s())


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"127.0.0.1:{port}"):
            Heartbeat(HeartbeatSettings("a", "127.0.0.1", port, "s"), Owner())


def test_observing_after_the_end_does_no_harm() -> None:
    """Raft ends after the heartbeats, and says once more how things are."""
    ended = Heartbeat(HeartbeatSettings("a", "127.0.0.1", 0, "s"), Owner())
    ended.start()
    ended.stop()
    ended.observe(View("a", 1, 1, None, False, {}, Settings()))
