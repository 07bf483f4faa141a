# ruff: noqa: N802 - the library's names
"""The library's connections, mended: nobody keeps Raft's thread or fills its memory by sending.

The library reads a connection until it is empty, which somebody who sends fast enough never lets it be, and copies all
that is there for each piece that comes. It believes any length that a message says it has. What is replaced is called
`_TcpConnection__...`, Python's mangled names of the library's private parts.
"""

import struct
from typing import Any, Final

from pysyncobj import pickle, tcp_connection, transport
from pysyncobj.monotonic import monotonic
from pysyncobj.poller import POLL_EVENT_TYPE
from pysyncobj.tcp_connection import TcpConnection

HANDSHAKE_BYTES: Final = 1024
"""The largest message of somebody who has not said who it is. Two names of 128 with all around them take under 400."""

MESSAGE_BYTES: Final = 16 << 20
"""The largest message of a member. They send less than 5 MiB: a batch of entries with one beyond it, pickled."""

READ_BYTES: Final = 1 << 20
"""About so much is read before others have their turn. What is left makes the poller come back at once: it tells what
is there, not what has come."""

_LENGTH: Final = struct.Struct("i")


class Connection(TcpConnection):  # type: ignore[misc]  # the library ships no types
    """Differences: reads so much at a time, no message over `limit_bytes`; sends what is left over as soon as it can.

    `limit_bytes` is HANDSHAKE_BYTES until its owner knows who the other side is.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.limit_bytes = HANDSHAKE_BYTES
        self._received = bytearray()
        self.recvLastTimestamp = 0
        super().__init__(*args, **options)

    def connect(self, host: str | None, port: int) -> bool:
        """Begin to dial. The library raises if there is no file descriptor left: it is tried again later."""
        try:
            return bool(super().connect(host, port))
        except OSError:
            return False

    def disconnect(self) -> None:
        """Close it, and forget what was on its way."""
        self.limit_bytes = HANDSHAKE_BYTES
        self._received.clear()
        super().disconnect()

    def send(self, message: Any) -> None:
        """Send a message. The library keeps what does not go at once until it is given another one."""
        super().send(message)
        if self.getSendBufferSize():
            everything = POLL_EVENT_TYPE.READ | POLL_EVENT_TYPE.WRITE | POLL_EVENT_TYPE.ERROR
            process = self._TcpConnection__processConnection
            self._TcpConnection__poller.subscribe(self.fileno(), process, everything)

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
                self.disconnect()
                return
            self._received += data
            left -= len(data)
            if len(data) < wanted:
                break
        self._TcpConnection__lastReadTime = monotonic()

    def _TcpConnection__processParseMessage(self) -> Any:
        """The next message, None if it is not all there. Whoever sends anything else is hung up on."""
        received = self._received
        if len(received) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(received)
        end = _LENGTH.size + length
        if not 0 < length <= self.limit_bytes:
            self.disconnect()
            return None
        if len(received) < end:
            return None
        with memoryview(received) as view:
            data = bytes(view[_LENGTH.size : end])
        del received[:end]
        try:
            return self._opened(data)
        except Exception:  # noqa: BLE001 - whatever it is, it is no member's message
            self.disconnect()
            return None

    def _opened(self, data: bytes) -> Any:
        if self.encryptor:
            sealed_at = self.encryptor.extract_timestamp(data)
            if sealed_at < self.recvLastTimestamp:
                raise ValueError("sealed before the message before it")
            self.recvLastTimestamp = sealed_at
            data = self.encryptor.decrypt(data)
        message = pickle.loads(tcp_connection.zlib.decompress(data))
        if self.recvRandKey:
            key, message = message
            if key != self.recvRandKey:
                raise ValueError("not made for this connection")
        return message


def mend_dialled() -> None:
    """Have the library dial with these. `Listener` makes those of callers."""
    transport.TcpConnection = Connection
