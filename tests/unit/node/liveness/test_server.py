"""Connections of processes that are not members do not disturb the members' heartbeats."""

import errno
import selectors
from typing import Any

import pytest

from node.identity.cluster_id import ClusterId
from node.liveness import server
from node.liveness.link import Credentials, Link
from node.liveness.server import ALIVE_S, CONNECTIONS_MAX, UNKNOWN_S, HeartbeatServer
from node.liveness.wire import MAGIC, NONCE_BYTES, BadPeerError, HeartbeatChannel, Message

ENDLESS = bytes(1 << 20)


class Socket:
    """One that listens for `calls`, or one on which so much has come."""

    def __init__(self, incoming: bytes = b"") -> None:
        self.incoming = incoming
        self.calls: list[Any] = []
        self.sent = b""
        self.closed = False

    def accept(self) -> tuple["Socket", object]:
        call = self.calls.pop(0) if self.calls else BlockingIOError()
        if isinstance(call, Exception):
            raise call
        assert isinstance(call, Socket)
        return call, None

    def recv(self, size: int) -> bytes:
        if not self.incoming:
            raise BlockingIOError
        data, self.incoming = self.incoming[:size], self.incoming[size:]
        return data

    def send(self, data: bytes) -> int:
        self.sent += data
        return len(data)

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    getpeername = getsockname

    def close(self) -> None:
        self.closed = True

    def ignored(self, *_: object) -> None:
        pass

    setblocking = setsockopt = ignored


class Port:
    """The callers of a node, without sockets. It is the selector and the owner of the links, too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listener = Socket()
        self.heard: dict[Any, Any] = {}
        self.links: list[Link] = []
        self.why: list[str] = []
        monkeypatch.setattr(server, "_listen", lambda *_: self.listener)
        selector: Any = self
        self.callers = HeartbeatServer("127.0.0.1", 1, selector, Credentials(b"s", "a", ClusterId()), self)
        self.callers.tick(10.0)

    def call(self, call: object) -> None:
        """A connection arrives, as the selector reports it."""
        self.listener.calls.append(call)
        self.heard[self.listener](selectors.EVENT_READ)

    def ready(self, sock: Socket) -> None:
        """Something has come."""
        self.heard[sock](selectors.EVENT_READ)

    def register(self, sock: Socket, _events: int, callback: Any) -> None:
        self.heard[sock] = callback

    modify = register

    def unregister(self, sock: Socket) -> None:
        del self.heard[sock]

    def opened(self, link: Link) -> None:
        self.links.append(link)

    def received(self, link: Link, message: Message) -> None:
        raise AssertionError((link, message))

    def ended(self, link: Link, *, by_peer: bool) -> None:
        assert not by_peer
        self.callers.ended(link)

    def refused(self, _address: str, why: str) -> None:
        self.why.append(why)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Port:
    return Port(monkeypatch)


def full() -> OSError:
    return OSError(errno.EMFILE, "too many open files")


def test_an_unknown_connection_is_closed_when_descriptors_run_out(port: Port) -> None:
    first, second, late = Socket(), Socket(), Socket()
    port.call(first)
    port.call(second)
    port.call(full())
    assert (first.closed, second.closed) == (True, False)
    port.call(late)
    assert (late.closed, port.why) == (False, [])


def test_without_a_file_descriptor_calls_wait_for_the_next_tick(port: Port) -> None:
    port.call(full())
    assert port.heard == {}, "the selector would tell of the call again and again"
    assert len(port.why) == 1
    port.callers.tick(10.25)
    assert list(port.heard) == [port.listener]


def test_of_too_many_connections_the_oldest_unknown_one_is_closed(port: Port) -> None:
    unknown = [Socket(MAGIC + bytes(16)) for _ in range(CONNECTIONS_MAX)]
    for each in unknown:
        port.call(each)
    member = HeartbeatChannel(b"s", "b", ClusterId(), bytes(NONCE_BYTES), dialled=True)
    member.feed(unknown[0].sent)
    unknown[0].incoming += member.introduction()
    port.ready(unknown[0])
    assert port.callers.is_of(port.links[0], "b")
    port.call(Socket())
    assert [each.closed for each in unknown] == [False, True] + [False] * (CONNECTIONS_MAX - 2)


def test_a_connection_that_does_not_authenticate_is_closed(port: Port) -> None:
    silent = Socket(MAGIC)
    port.call(silent)
    port.ready(silent)
    port.callers.tick(10.0 + UNKNOWN_S - 0.1)
    assert not silent.closed
    port.callers.tick(10.0 + UNKNOWN_S)
    assert silent.closed


@pytest.mark.parametrize("begins", [b"", MAGIC, MAGIC + bytes(16)])
def test_a_client_that_sends_without_end_is_read_once_and_closed(port: Port, begins: bytes) -> None:
    sender = Socket(begins + ENDLESS)
    port.call(sender)
    port.ready(sender)
    assert sender.closed
    assert len(begins + ENDLESS) - len(sender.incoming) <= 65536


def test_a_node_with_another_secret_is_told_so_for_its_log(port: Port) -> None:
    """Both logs are to name the mistake, whichever of the two reads first: the other one needs a frame for that."""
    nonce = bytes(NONCE_BYTES)
    other = HeartbeatChannel(b"another", "b", ClusterId(), nonce, dialled=True)
    greeted = Socket(MAGIC + nonce)
    port.call(greeted)
    other.feed(greeted.sent)
    at_once = Socket(MAGIC + nonce + other.introduction())
    port.call(at_once)
    port.ready(at_once)
    assert at_once.closed
    assert port.why == ["it has another secret: ROTA_SECRET must be the same on all members"]
    with pytest.raises(BadPeerError, match="another secret"):
        HeartbeatChannel(b"another", "b", ClusterId(), nonce, dialled=True).feed(at_once.sent)


def member_calls(port: Port, start: str) -> Link:
    """A member has connected, and identified itself."""
    sock = Socket(MAGIC + bytes(NONCE_BYTES))
    port.call(sock)
    channel = HeartbeatChannel(b"s", "b", ClusterId(), bytes(NONCE_BYTES), dialled=True, start=start)
    channel.feed(sock.sent)
    sock.incoming += channel.introduction()
    port.ready(sock)
    return port.links[-1]


def test_a_second_process_with_a_members_name_is_refused_while_the_first_one_is_heard(port: Port) -> None:
    """A clone would take the place of the member's connection, and be given its lease."""
    first = member_calls(port, "1")
    assert port.callers.is_of(first, "b")
    first.heard_s = 10.0
    second = member_calls(port, "2")
    assert not port.callers.is_of(second, "b")
    assert (first.closed, second.closed) == (False, True)
    assert port.why == ["another process runs as b, at 127.0.0.1, and was there first"]
    again = member_calls(port, "1")
    assert port.callers.is_of(again, "b")
    assert first.closed, "the same process has called again"


def test_a_restarted_member_takes_the_place_of_what_is_heard_no_more(port: Port) -> None:
    first = member_calls(port, "1")
    assert port.callers.is_of(first, "b")
    first.heard_s = 10.0
    port.callers.tick(10.0 + ALIVE_S)
    second = member_calls(port, "2")
    assert port.callers.is_of(second, "b")
    assert (first.closed, second.closed) == (True, False)
