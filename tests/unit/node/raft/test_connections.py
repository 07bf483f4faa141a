"""What PySyncObj 0.3.17 reads, and for how long, and what is done here instead (node/DESIGN.md)."""

import errno
import inspect
import os
from typing import Any

import pytest
from pysyncobj import tcp_connection, transport
from pysyncobj.poller import POLL_EVENT_TYPE
from pysyncobj.tcp_connection import CONNECTION_STATE, TcpConnection

from node.raft.connections import HANDSHAKE_BYTES, MESSAGE_BYTES, READ_BYTES, Connection
from node.raft.consensus import BATCH_BYTES
from node.raft.machine import Timing
from node.raft.sealing import Seal
from node.raft.snapshots import PIECE_BYTES

SEAL = Seal("the secret")
ANYTHING = bytes(256 << 10)


class Poller:
    """Tells what is subscribed to."""

    def __init__(self) -> None:
        self.events: dict[int, int] = {}

    def subscribe(self, descriptor: int, _callback: Any, events: int) -> None:
        self.events[descriptor] = events

    def unsubscribe(self, descriptor: int) -> None:
        self.events.pop(descriptor, None)


class Socket:
    """A socket on which so much has come, or anything without end; it takes `room` bytes."""

    def __init__(self, incoming: bytes | None, room: int = 1 << 30) -> None:
        self.incoming, self.room = incoming, room
        self.ended = False
        self.read_bytes = 0
        self.sent = b""

    def fileno(self) -> int:
        return 7

    def getsockopt(self, *_: int) -> int:
        return 0

    def recv(self, size: int) -> bytes:
        data = ANYTHING[:size] if self.incoming is None else self.incoming[:size]
        if self.incoming is not None:
            self.incoming = self.incoming[size:]
        self.read_bytes += len(data)
        assert self.read_bytes < 64 << 20, "it reads on for as long as somebody sends"
        if not data and not self.ended:
            raise BlockingIOError(errno.EAGAIN, "nothing there")
        return data

    def send(self, data: bytes) -> int:
        if not self.room:
            raise BlockingIOError(errno.EAGAIN, "full")
        taken = data[: self.room]
        self.room -= len(taken)
        self.sent += taken
        return len(taken)

    def close(self) -> None:
        pass


class End:
    """A connection that has been accepted, and what came over it."""

    def __init__(self, sock: Socket) -> None:
        self.socket, self.poller = sock, Poller()
        self.connection = Connection(self.poller, socket=sock, recvBufferSize=256 << 10)
        self.connection.encryptor = SEAL
        self.came: list[Any] = []
        self.connection.setOnMessageReceivedCallback(self.came.append)

    def ready(self) -> None:
        """What the poller calls when something has come."""
        self.connection._TcpConnection__processConnection(7, POLL_EVENT_TYPE.READ)

    @property
    def open(self) -> bool:
        return bool(self.connection.state == CONNECTION_STATE.CONNECTED)


def on_the_wire(*messages: object) -> bytes:
    """The bytes that these messages are sent as."""
    end = End(Socket(b""))
    for message in messages:
        end.connection.send(message)
    return end.socket.sent


def test_whoever_has_not_said_who_it_is_is_read_no_further_than_a_handshake() -> None:
    """The library reads for as long as something comes, and keeps it all."""
    stranger = End(Socket(None))
    stranger.ready()
    assert stranger.socket.read_bytes <= HANDSHAKE_BYTES
    assert not stranger.open


def test_others_have_their_turn_while_a_member_goes_on_sending() -> None:
    """The library's thread was held by one that sends faster than it reads."""
    messages = [os.urandom(4 << 20), b"more"]
    stream = on_the_wire(*messages)
    member = End(Socket(stream))
    member.connection.limit_bytes = MESSAGE_BYTES
    for turn in range(1, len(stream) // READ_BYTES + 1):
        member.ready()
        assert member.socket.read_bytes == turn * READ_BYTES
    assert member.came == []
    member.ready()
    assert member.came == messages


@pytest.mark.parametrize("limit", [HANDSHAKE_BYTES, MESSAGE_BYTES])
@pytest.mark.parametrize("length", [0, -1, -(1 << 31), None, (1 << 31) - 1])
def test_a_length_that_no_message_has_ends_the_connection_at_once(limit: int, length: int | None) -> None:
    """The library waits for as much as it is told of."""
    sent = limit + 1 if length is None else length
    end = End(Socket(sent.to_bytes(4, "little", signed=True)))
    end.connection.limit_bytes = limit
    end.ready()
    assert not end.open
    largest = End(Socket(limit.to_bytes(4, "little", signed=True)))
    largest.connection.limit_bytes = limit
    largest.ready()
    assert largest.open


def test_the_limits_are_above_what_members_send() -> None:
    key, name = os.urandom(32), "n" * 128
    introduction = on_the_wire((key, f"{name} {'c' * 16} {name}"))
    answer = on_the_wire((key, {"type": "cluster", "id": "c" * 16, "member": name}))
    assert max(len(introduction), len(answer), len(on_the_wire(key))) < HANDSHAKE_BYTES
    entries = [
        (os.urandom(Timing().entry_bytes), number, 1) for number in range(BATCH_BYTES // Timing().entry_bytes + 1)
    ]
    assert sum(len(entry) for entry, *_ in entries) > BATCH_BYTES > PIECE_BYTES
    assert 2 * len(on_the_wire((key, {"type": "append_entries", "entries": entries}))) < MESSAGE_BYTES


def test_messages_arrive_whole_and_in_order_however_they_are_cut() -> None:
    messages = [b"first", list(range(100)), os.urandom(70_000), "last"]
    stream = on_the_wire(*messages)
    for size in (1, 3, 1000, len(stream)):
        end = End(Socket(b""))
        end.connection.limit_bytes = MESSAGE_BYTES
        step = max(size, len(stream) // 500)
        for start in range(0, len(stream), step):
            end.socket.incoming = stream[start : start + step]
            end.ready()
        assert end.came == messages


def test_what_was_sent_before_the_end_is_taken() -> None:
    """The library leaves it out if it finds both at once."""
    end = End(Socket(on_the_wire("farewell")))
    end.socket.ended = True
    end.ready()
    assert (end.came, end.open) == (["farewell"], True)
    end.ready()
    assert not end.open


def test_a_message_that_is_not_sealed_so_or_of_another_connection_ends_it() -> None:
    stream = bytearray(on_the_wire("a message"))
    stream[-1] ^= 1
    changed = End(Socket(bytes(stream)))
    changed.ready()
    assert (changed.came, changed.open) == ([], False)
    another = End(Socket(on_the_wire((b"the key of another", "a message"))))
    another.connection.recvRandKey = b"its key"
    another.ready()
    assert (another.came, another.open) == ([], False)


def test_what_does_not_go_at_once_goes_as_soon_as_there_is_room() -> None:
    """The library keeps it until the next message, which may be a ping a second later."""
    end = End(Socket(b""))
    end.connection._TcpConnection__processConnection(7, POLL_EVENT_TYPE.WRITE)
    assert not end.poller.events[7] & POLL_EVENT_TYPE.WRITE
    end.connection.send("small")
    assert not end.poller.events[7] & POLL_EVENT_TYPE.WRITE
    end.socket.room = 1000
    end.connection.send(os.urandom(5000))
    assert end.poller.events[7] == POLL_EVENT_TYPE.READ | POLL_EVENT_TYPE.WRITE | POLL_EVENT_TYPE.ERROR
    end.socket.room = 1 << 20
    end.connection._TcpConnection__processConnection(7, POLL_EVENT_TYPE.WRITE)
    assert end.connection.getSendBufferSize() == 0
    assert not end.poller.events[7] & POLL_EVENT_TYPE.WRITE


def test_a_dial_without_a_file_descriptor_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library raises, and what else was to be done in that tick is not."""

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(tcp_connection.socket, "socket", none_left)
    dialled = Connection(Poller())
    assert not dialled.connect("127.0.0.1", 1)
    assert dialled.state == CONNECTION_STATE.DISCONNECTED


def test_the_librarys_connections_are_these() -> None:
    assert transport.TcpConnection is Connection
    source = inspect.getsource(TcpConnection)
    for name in ("__tryReadBuffer(self)", "__processParseMessage(self)", "__processConnection(self"):
        assert f"def {name}" in source
    for name in ("__recvBufferSize", "__socket", "__poller", "__lastReadTime"):
        assert f"self.{name} = " in source
    assert "self.__tryReadBuffer()" in source
    assert "self.__processParseMessage()" in source
