# ruff: noqa: N802 - the library's names
"""The library's connections, with limits, so that no sender can occupy Raft's thread or fill its memory.

The library reads a connection until it is empty, which a fast sender can prevent, and copies all received bytes for
each piece that arrives. It trusts the length in front of a message, and unpickles the message. Here a message is its
length, then the bytes that `messages` packed and `EncryptedChannel` sealed. The replaced methods are called
`_TcpConnection__...`, Python's mangled names of the library's private methods.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from pysyncobj import transport
from pysyncobj.monotonic import monotonic
from pysyncobj.poller import POLL_EVENT_TYPE
from pysyncobj.tcp_connection import CONNECTION_STATE, TcpConnection

from node.raft.wire import messages
from node.raft.wire.encryption import (
    NONCE_BYTES,
    CallerClaim,
    EncryptedChannel,
    NotSealed,
    RefusalCode,
    Seal,
    refusal,
)
from node.raft.wire.messages import BadMessage, Message

HANDSHAKE_BYTES: Final = 1024
"""The largest message of an unidentified caller, in bytes. A hello with two names of 128 characters takes under 400."""

READ_BYTES: Final = 1 << 20
"""About this many bytes are read from one connection before the next connection is read. The poller is level-triggered,
so it reports the rest at once."""

_NEVER_S: Final = float("-inf")
_LENGTH: Final = struct.Struct("i")
_EVERYTHING: Final = POLL_EVENT_TYPE.READ | POLL_EVENT_TYPE.WRITE | POLL_EVENT_TYPE.ERROR


class PeerConnection(TcpConnection):  # type: ignore[misc]  # the library ships no types
    """A connection that reads READ_BYTES at a time, and no message over `limit_bytes`.

    refused_s: when the last dial that got "connection refused" began; -inf before. limit_bytes: HANDSHAKE_BYTES until
    the owner has identified the other end. The dialler calls `greet`; `on_greeted` is called once messages can be sent.
    on_bad: receives the error of a message that decrypts but cannot be read by this version; without `on_bad`, such a
    message ends the connection, like one that does not decrypt. mine: this side's claim, which a dialler sends; its
    version is also sent to a refused caller. on_mismatch: called if the sides are incompatible, with the reason and the
    other side's claim.
    """

    encryptor: Seal
    mine: CallerClaim = CallerClaim()
    _TcpConnection__writeBuffer: bytes
    _TcpConnection__socket: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        self.limit_bytes = HANDSHAKE_BYTES
        self.on_greeted: Callable[[], None] = lambda: None
        self.on_bad: Callable[[BadMessage], None] | None = None
        self.on_mismatch: Callable[[RefusalCode, CallerClaim], None] = lambda _code, _claim: None
        self.refused_s = _NEVER_S
        self._dialled_s = _NEVER_S
        self._channel: EncryptedChannel | None = None
        self._dialled = "socket" not in options
        self._received = bytearray()
        super().__init__(*args, **options)

    @property
    def ready(self) -> bool:
        """Whether messages can be sent."""
        return self._channel is not None and self._channel.ready and self.state == CONNECTION_STATE.CONNECTED

    @property
    def unanswered(self) -> bool:
        """Whether a dial has succeeded, but the other end has not sent its greeting."""
        return self._channel is not None and not self._channel.ready and self._dialled

    @property
    def peer(self) -> str:
        """The IP address of the other end; empty if the connection has ended."""
        try:
            return str(self._TcpConnection__socket.getpeername()[0])
        except (AttributeError, OSError):
            return ""

    def connect(self, host: str | None, port: int) -> bool:
        """Begin to dial. Returns False if that fails. The library would raise if no file descriptor were free."""
        self._dialled_s = monotonic()
        try:
            return bool(super().connect(host, port))
        except OSError:
            return False

    def disconnect(self) -> None:
        """Close the connection, and drop partly received messages."""
        self.limit_bytes = HANDSHAKE_BYTES
        self.on_bad = None
        self._channel = None
        self._received.clear()
        super().disconnect()

    def _TcpConnection__processConnection(self, descriptor: int, event: int) -> None:
        """Handle an event of the socket. Notes if a dial was refused, since the library forgets the reason."""
        dials = descriptor == self.fileno() and self.state == CONNECTION_STATE.CONNECTING
        error = self._TcpConnection__socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if dials else 0
        if error == errno.ECONNREFUSED:
            self.refused_s = self._dialled_s
        if error:
            self.disconnect()
            return
        super()._TcpConnection__processConnection(descriptor, event)

    def greet(self) -> None:
        """Send this side's greeting, which has its nonce."""
        self._channel = self.encryptor.channel(os.urandom(NONCE_BYTES), dialled=self._dialled)
        self._write(self._channel.greeting(self.mine))

    def send(self, message: Message) -> None:
        """Send a message if the handshake is done, else drop it."""
        if self._channel is not None and self._channel.ready:
            self._write(self._channel.seal(messages.pack(message)))

    def _write(self, data: bytes) -> None:
        self._TcpConnection__writeBuffer += _LENGTH.pack(len(data)) + data
        self._TcpConnection__trySendBuffer()
        if self.getSendBufferSize():
            self._TcpConnection__poller.subscribe(self.fileno(), self._TcpConnection__processConnection, _EVERYTHING)

    def _TcpConnection__tryReadBuffer(self) -> None:
        left = min(READ_BYTES, self.limit_bytes)
        while left > 0:
            wanted = min(left, self._TcpConnection__recvBufferSize)
            try:
                data = self._TcpConnection__socket.recv(wanted)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                if self.unanswered and not self._received:
                    self.on_mismatch("no-member", CallerClaim())
                self.disconnect()
                return
            self._received += data
            left -= len(data)
            if len(data) < wanted:
                break
        self._TcpConnection__lastReadTime = monotonic()

    def _TcpConnection__processParseMessage(self) -> Message | None:
        """Return the next message, or None until one has arrived completely. Invalid bytes end the connection."""
        while (data := self._next()) is not None:
            if self._channel is None or not self._channel.ready:
                self._agree(data)
                continue
            try:
                return messages.unpack(self._channel.open(data))
            except BadMessage as error:
                if self.on_bad is None:
                    self.disconnect()
                    return None
                self.on_bad(error)
            except NotSealed as error:
                self._refuse(error)
                return None
            except (InvalidTag, ValueError):
                self.disconnect()
                return None
        return None

    def _next(self) -> bytes | None:
        """Return the bytes of the next message without its length, or None until it has arrived completely."""
        received = self._received
        if len(received) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(received)
        end = _LENGTH.size + length
        if not 0 < length <= self.limit_bytes:
            if self.unanswered:
                self.on_mismatch("no-member", CallerClaim())
            self.disconnect()
            return None
        if len(received) < end:
            return None
        with memoryview(received) as view:
            data = bytes(view[_LENGTH.size : end])
        del received[:end]
        return data

    def _agree(self, greeting: bytes) -> None:
        """Handle the other side's greeting. The called side answers with its own."""
        try:
            if self._channel is None:
                self._channel = self.encryptor.channel(os.urandom(NONCE_BYTES), dialled=False)
                self._channel.agree(greeting)
                self._write(self._channel.greeting())
            else:
                self._channel.agree(greeting)
        except NotSealed as error:
            self._refuse(error)
        else:
            self.on_greeted()

    def _refuse(self, error: NotSealed) -> None:
        """End the connection with an incompatible node. If that node called, send it the reason first."""
        if error.code is not None:
            if error.refused_here and not self._dialled:
                self._write(refusal(error.code, self.mine.version))
            self.on_mismatch(error.code, error.theirs)
        self.disconnect()


def replace_dialled_connections() -> None:
    """Make the library dial with `PeerConnection`. `Callers` uses it for incoming connections."""
    transport.TcpConnection = PeerConnection
