"""How much PySyncObj 0.3.17 reads and for how long, and what Rota does instead (docs/explanation/raft.md)."""

import errno
import inspect
import os
from typing import Any

import pytest
from pysyncobj import tcp_connection, transport
from pysyncobj.poller import POLL_EVENT_TYPE
from pysyncobj.tcp_connection import CONNECTION_STATE, TcpConnection

from node.raft.log import membership
from node.raft.log.snapshots import PIECE_BYTES
from node.raft.ports import RaftTiming
from node.raft.wire import messages
from node.raft.wire.connections import HANDSHAKE_BYTES, READ_BYTES, PeerConnection
from node.raft.wire.encryption import NONCE_BYTES, CallerClaim, EncryptedChannel, Seal, refusal
from node.raft.wire.library_settings import BATCH_BYTES
from node.raft.wire.messages import MESSAGE_BYTES, BadMessage, Message

SEAL = Seal("the secret")
ANYTHING = bytes(256 << 10)


class Poller:
    """Keeps the events that are subscribed to, by descriptor."""

    def __init__(self) -> None:
        self.events: dict[int, int] = {}

    def subscribe(self, descriptor: int, _callback: Any, events: int) -> None:
        self.events[descriptor] = events

    def unsubscribe(self, descriptor: int) -> None:
        self.events.pop(descriptor, None)


class Socket:
    """A socket on which these bytes have arrived, or bytes without end; it can send `room` bytes."""

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
        assert self.read_bytes < 64 << 20, "the connection reads without limit while bytes arrive"
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
    """A connection that has been accepted, and what arrived on it. `there` is the other end of its channel."""

    def __init__(self, sock: Socket, *, greeted: bool = True) -> None:
        self.socket, self.poller = sock, Poller()
        self.connection = PeerConnection(self.poller, socket=sock, recvBufferSize=256 << 10)
        self.connection.encryptor = SEAL
        self.came: list[Any] = []
        self.connection.setOnMessageReceivedCallback(self.came.append)
        self.there = EncryptedChannel(SEAL._key, b"t" * NONCE_BYTES, dialled=True)
        if greeted:
            self.greet()

    def greet(self) -> None:
        """Exchange the greetings of both sides."""
        incoming, ended = self.socket.incoming, self.socket.ended
        self.socket.incoming, self.socket.ended = framed(self.there.greeting()), False
        self.ready()
        self.there.agree(self.socket.sent[4:])
        self.socket.incoming, self.socket.ended = incoming, ended
        self.socket.read_bytes, self.socket.sent = 0, b""

    def sealed(self, *said: Message) -> bytes:
        """The bytes in which these messages arrive from the other side."""
        return b"".join(framed(self.there.seal(messages.pack(message))) for message in said)

    def ready(self) -> None:
        """Do what the poller does when bytes have arrived."""
        self.connection._TcpConnection__processConnection(7, POLL_EVENT_TYPE.READ)

    @property
    def open(self) -> bool:
        return bool(self.connection.state == CONNECTION_STATE.CONNECTED)


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def command(data: bytes) -> Message:
    """A message with these bytes in it."""
    return {"type": "apply_command", "command": membership.REGULAR + data}


def test_before_identification_at_most_a_handshake_is_read() -> None:
    """The library reads while bytes arrive, and keeps all of them."""
    stranger = End(Socket(None), greeted=False)
    stranger.ready()
    assert stranger.socket.read_bytes <= HANDSHAKE_BYTES
    assert not stranger.open


def test_a_member_that_sends_continuously_does_not_starve_the_others() -> None:
    """One member that sent faster than the library read occupied its thread."""
    entries = tuple((b"\0" + os.urandom(1 << 20), number, 1) for number in range(4))
    said = [{**append(0), "entries": entries}, command(b"more")]
    member = End(Socket(b""))
    stream = member.socket.incoming = member.sealed(*said)
    member.connection.limit_bytes = MESSAGE_BYTES
    for turn in range(1, len(stream) // READ_BYTES + 1):
        member.ready()
        assert member.socket.read_bytes == turn * READ_BYTES
    assert member.came == []
    member.ready()
    assert member.came == said


@pytest.mark.parametrize("limit", [HANDSHAKE_BYTES, MESSAGE_BYTES])
@pytest.mark.parametrize("length", [0, -1, -(1 << 31), None, (1 << 31) - 1])
def test_an_impossible_message_length_closes_the_connection(limit: int, length: int | None) -> None:
    """The library waits for any length that a message announces."""
    sent = limit + 1 if length is None else length
    end = End(Socket(b""))
    end.socket.incoming = sent.to_bytes(4, "little", signed=True)
    end.connection.limit_bytes = limit
    end.ready()
    assert not end.open
    largest = End(Socket(b""))
    largest.socket.incoming = limit.to_bytes(4, "little", signed=True)
    largest.connection.limit_bytes = limit
    largest.ready()
    assert largest.open


def append(prev: int) -> Message:
    return {
        "type": "append_entries", "term": 1, "commit_index": 0, "entries": (), "prevLogIdx": prev, "prevLogTerm": 1,
    }  # fmt: skip


def test_the_size_limits_exceed_all_messages_of_members() -> None:
    end, name = End(Socket(b"")), "n" * 128
    introduction = {
        "type": "hello", "member": name, "cluster": "c" * 16, "called": name,
        "start": "s" * 16, "port": 1, "asks": False,
    }  # fmt: skip
    answer = {"type": "cluster", "id": "c" * 16, "member": name, "start": "s" * 16, "term": 1}
    assert max(len(end.sealed(message)) for message in (introduction, answer)) < HANDSHAKE_BYTES
    entries = [
        (b"\0" + os.urandom(RaftTiming().entry_bytes), number, 1)
        for number in range(BATCH_BYTES // RaftTiming().entry_bytes + 1)
    ]
    assert sum(len(entry) for entry, *_ in entries) > BATCH_BYTES > PIECE_BYTES
    assert 2 * len(end.sealed({**append(0), "entries": entries})) < MESSAGE_BYTES


def test_messages_are_reassembled_in_order_from_any_fragments() -> None:
    said = [command(b"first"), {"type": "ping"}, command(os.urandom(70_000)), command(b"last")]
    length = len(End(Socket(b"")).sealed(*said))
    for size in (1, 3, 1000, length):
        end = End(Socket(b""))
        stream = end.sealed(*said)
        end.connection.limit_bytes = MESSAGE_BYTES
        step = max(size, len(stream) // 500)
        for start in range(0, len(stream), step):
            end.socket.incoming = stream[start : start + step]
            end.ready()
        assert end.came == said


def test_messages_received_together_with_eof_are_processed() -> None:
    """The library drops messages that arrive in one read with the end of the connection."""
    end = End(Socket(b""))
    end.socket.incoming, end.socket.ended = end.sealed(command(b"farewell")), True
    end.ready()
    assert (end.came, end.open) == ([command(b"farewell")], True)
    end.ready()
    assert not end.open


@pytest.mark.parametrize("fault", ["changed", "repeated", "another's", "not sealed"])
def test_a_message_out_of_sequence_closes_the_connection(fault: str) -> None:
    end, another = End(Socket(b"")), End(Socket(b""))
    end.socket.incoming = first = end.sealed(command(b"first"))
    end.ready()
    end.socket.incoming = {
        "changed": end.sealed(command(b"second"))[:-1] + b"x",
        "repeated": first,
        "another's": another.sealed(command(b"first"), command(b"second"))[len(first) :],
        "not sealed": framed(messages.pack(command(b"second"))),
    }[fault]
    end.ready()
    assert (end.came, end.open) == ([command(b"first")], False)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", framed(b"GET /"), framed(messages.pack({"type": "ping"}))])
def test_a_caller_without_a_greeting_is_disconnected(data: bytes) -> None:
    caller = End(Socket(data), greeted=False)
    caller.ready()
    assert (caller.came, caller.open, caller.socket.sent) == ([], False, b"")


def test_a_caller_without_proof_of_the_secret_receives_nothing_derived_from_it() -> None:
    caller = End(Socket(b""))
    caller.there._proof = bytes(32)
    caller.socket.incoming = caller.sealed({"type": "ping"})
    caller.ready()
    assert (caller.came, caller.open) == ([], False)
    assert caller.socket.sent == framed(refusal("secret", "")), "the same whatever the secret is"


def test_an_encrypted_unknown_message_is_dropped_and_reported() -> None:
    """Its sender is probably another version. From an unidentified caller it closes the connection."""
    later: Message = {"type": "of a later version", "field": 1}
    member = End(Socket(b""))
    told: list[BadMessage] = []
    member.connection.on_bad = told.append
    member.socket.incoming = member.sealed(later, command(b"known"))
    member.ready()
    assert (member.came, member.open) == ([command(b"known")], True)
    assert [str(error) for error in told] == ["'of a later version' is an unknown kind of message"]
    caller = End(Socket(b""))
    caller.socket.incoming = caller.sealed(later)
    caller.ready()
    assert not caller.open


def test_unsent_bytes_are_sent_as_soon_as_the_socket_is_writable() -> None:
    """The library keeps the bytes until the next message, which may be a ping a second later."""
    end = End(Socket(b""))
    end.connection._TcpConnection__processConnection(7, POLL_EVENT_TYPE.WRITE)
    assert not end.poller.events[7] & POLL_EVENT_TYPE.WRITE
    end.connection.send(command(b"small"))
    assert not end.poller.events[7] & POLL_EVENT_TYPE.WRITE
    end.socket.room = 1000
    end.connection.send(command(os.urandom(5000)))
    assert end.poller.events[7] == POLL_EVENT_TYPE.READ | POLL_EVENT_TYPE.WRITE | POLL_EVENT_TYPE.ERROR
    end.socket.room = 1 << 20
    end.connection._TcpConnection__processConnection(7, POLL_EVENT_TYPE.WRITE)
    assert end.connection.getSendBufferSize() == 0
    assert not end.poller.events[7] & POLL_EVENT_TYPE.WRITE


def test_without_file_descriptors_dialling_is_postponed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library raises, and the rest of that tick is skipped."""

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(tcp_connection.socket, "socket", none_left)
    dialled = PeerConnection(Poller())
    assert not dialled.connect("127.0.0.1", 1)
    assert dialled.state == CONNECTION_STATE.DISCONNECTED


def test_the_librarys_connection_class_is_replaced() -> None:
    assert transport.TcpConnection is PeerConnection
    source = inspect.getsource(TcpConnection)
    for name in ("__tryReadBuffer(self)", "__processParseMessage(self)", "__processConnection(self"):
        assert f"def {name}" in source
    for name in ("__recvBufferSize", "__socket", "__poller", "__lastReadTime"):
        assert f"self.{name} = " in source
    assert "self.__tryReadBuffer()" in source
    assert "self.__processParseMessage()" in source


def test_a_caller_of_another_build_or_secret_is_told_so_and_reported_with_what_it_claims() -> None:
    for code in ("build", "secret"):
        caller = End(Socket(b""), greeted=False)
        caller.connection.mine = CallerClaim("node-1", "0.2.0")
        told: list[tuple[str, CallerClaim]] = []
        caller.connection.on_mismatch = lambda *what, told=told: told.append(what)
        greeting = caller.there.greeting(CallerClaim("node-2", "0.3.0"))
        if code == "build":
            greeting = greeting.replace(b"rf3", b"rf4", 1)
        caller.socket.incoming = framed(greeting)
        caller.ready()
        if code == "secret":
            caller.there.agree(caller.socket.sent[4:])
            caller.there._proof, caller.socket.sent = bytes(32), b""
            caller.socket.incoming = caller.sealed({"type": "ping"})
            caller.ready()
        assert (told, caller.open) == ([(code, CallerClaim("node-2", "0.3.0"))], False)
        assert caller.socket.sent == framed(refusal(code, "0.2.0"))
