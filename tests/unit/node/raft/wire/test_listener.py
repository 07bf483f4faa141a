"""A connection that cannot be accepted does not stop Raft (docs/explanation/raft.md)."""

import errno
import socket
from typing import Any

import pytest
from pysyncobj.poller import POLL_EVENT_TYPE

from node.raft.wire.listener import REST_S, RaftListener


class Socket:
    """A listening or an accepted socket."""

    def __init__(self, *_: object) -> None:
        self.calls: list[object] = []
        self.closed = False

    def fileno(self) -> int:
        return 5

    def accept(self) -> tuple[object, object]:
        call = self.calls.pop(0) if self.calls else BlockingIOError()
        if isinstance(call, Exception):
            raise call
        return call, ("somewhere", 1)

    def close(self) -> None:
        self.closed = True

    def ignored(self, *_: object) -> None:
        pass

    setsockopt = setblocking = bind = listen = ignored


class Port:
    """A listener without sockets, on a clock that stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.made: list[Socket] = []
        self.heard: dict[int, Any] = {}
        self.calls: list[object] = []
        self.strangers = 0
        monkeypatch.setattr(socket, "socket", self._socket)
        self.listener = RaftListener(self, "127.0.0.1:1", 1 << 18, self, lambda: self.now_s)
        self.listener.bind()

    def _socket(self, *_: object) -> Socket:
        self.made.append(Socket())
        return self.made[-1]

    def called(self, caller: socket.socket) -> None:
        self.calls.append(caller)

    def make_room(self) -> bool:
        self.strangers -= 1
        return self.strangers >= 0

    def subscribe(self, descriptor: int, callback: Any, _events: int) -> None:
        self.heard[descriptor] = callback

    def unsubscribe(self, descriptor: int) -> None:
        self.heard.pop(descriptor, None)

    def call(self, *calls: object, event: int = POLL_EVENT_TYPE.READ) -> None:
        """Let connections arrive, as the poller reports them."""
        self.made[-1].calls += calls
        self.heard[5](5, event)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Port:
    return Port(monkeypatch)


def full() -> OSError:
    return OSError(errno.EMFILE, "too many open files")


def test_without_file_descriptors_the_listener_pauses_and_stays_open(
    port: Port, caplog: pytest.LogCaptureFixture
) -> None:
    """The library closes it, and its thread then blocks until it can listen again."""
    for _ in range(3):
        port.call(full())
        assert port.heard == {}, "otherwise the poller would report the connection in a busy loop"
        port.listener.attend()
        assert port.heard == {}
        port.now_s += REST_S
        port.listener.attend()
    caller = Socket()
    port.call(caller)
    assert port.calls == [caller]
    assert (len(port.made), port.made[0].closed) == (1, False)
    assert caplog.text.count("cannot accept connections of members") == 1


def test_without_file_descriptors_an_unidentified_connection_is_closed_for_a_new_one(port: Port) -> None:
    port.strangers = 1
    caller = Socket()
    port.call(full(), caller)
    assert (port.strangers, list(port.heard)) == (0, [5])
    port.call()
    assert port.calls == [caller]
    port.call(full())
    assert port.heard == {}, "no unidentified connection is left to close"


@pytest.mark.parametrize("error", [BlockingIOError(), ConnectionAbortedError()])
def test_a_connection_aborted_before_accept_is_skipped(port: Port, error: OSError) -> None:
    port.call(error)
    assert list(port.heard) == [5]


def test_a_listening_socket_that_has_failed_is_replaced(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    port.call(event=POLL_EVENT_TYPE.ERROR)
    assert port.made[0].closed
    with monkeypatch.context() as patch:
        patch.setattr(Socket, "bind", lambda *_: (_ for _ in ()).throw(full()))
        port.now_s += REST_S
        port.listener.attend()
        assert port.heard == {}
    port.now_s += REST_S
    port.listener.attend()
    assert list(port.heard) == [5]
    port.listener.unbind()
    assert port.made[-1].closed
    port.now_s += REST_S
    port.listener.attend()
    assert port.heard == {}
