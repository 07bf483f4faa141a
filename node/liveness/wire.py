"""The protocol of a heartbeat connection, without the socket: authenticated frames of msgpack.

Each side opens with a magic word and a nonce of its own. The connection's key is derived from both nonces and a key
made of the members' secret. Every later frame carries a keyed BLAKE2b over its direction, number and content. So a
frame proves that its sender has the secret, and no frame can be replayed, reflected, dropped or changed unnoticed.
Frames are not encrypted. The first frame of each side names its cluster and member; frames of another cluster are
refused.

The dialler authenticates first: until its first frame has arrived, the listener sends nothing that is made with the
secret, so that a client of the port gets no material for guessing it. A dialler that fails to authenticate gets a
refusal without a tag, so that its node can log the reason.

    greeting:  magic (8 bytes) | nonce (16)
    frame:     length of the content (2, big-endian) | content (msgpack) | tag (16)
    refusal:   another magic word (8), in place of a frame
"""

import hashlib
import hmac
from typing import Final

import msgpack

from node.identity.cluster_id import ClusterId
from node.liveness.message import Beat, HeartbeatAnswer

MAGIC: Final = b"rota/hb3"
REFUSAL: Final = b"rota/no3"
"""Begins like a frame that is too long, so that it cannot be mistaken for a frame."""

NONCE_BYTES: Final = 16
TAG_BYTES: Final = 16
CONTENT_BYTES_MAX: Final = 1024

_UNLIKE: Final = "has another secret: ROTA_SECRET must be the same on all members"
_GREETING_BYTES: Final = len(MAGIC) + NONCE_BYTES


class Bye:
    """The sender closes the connection deliberately, so the close is no evidence that its process died."""


Message = Beat | HeartbeatAnswer | Bye


class BadPeerError(Exception):
    """The other side does not speak this protocol, or has a different secret."""


class ForeignClusterError(BadPeerError):
    """The other side belongs to another cluster. `ClusterId` has logged it."""


class HeartbeatChannel:
    """One end of a connection: bytes in, messages out, and vice versa.

    `key` is derived from the members' secret (`node.identity.member_key`). `me` is a member of `cluster`. `dialled`:
    whether this end made the connection. `nonce`: NONCE_BYTES of fresh randomness. `start` identifies this start of the
    member's process; `their_start` identifies that of the other side.
    """

    def __init__(
        self, key: bytes, me: str, cluster: ClusterId, nonce: bytes, *, dialled: bool, start: str = ""
    ) -> None:
        self._secret, self._me, self._cluster = key, me, cluster
        self._nonce, self._dialled, self._start = nonce, dialled, start
        self.their_start = ""
        self._introduced = False
        self._key: bytes | None = None
        self._buffer = bytearray()
        self._sent = self._received = 0

    @property
    def ready(self) -> bool:
        """Whether messages can be packed: the greeting has arrived, and, from a dialler, its first frame too."""
        return self._key is not None and (self._dialled or self._introduced)

    def greeting(self) -> bytes:
        """Return the first bytes to send."""
        return MAGIC + self._nonce

    def introduction(self) -> bytes:
        """Return the first frame, which the caller sends as soon as the channel is ready."""
        return self._frame(["from", self._me, self._cluster.known, self._start])

    def farewell(self, error: BadPeerError) -> bytes:
        """Return the bytes that give the other side the reason for the close. For a stranger they have no tag."""
        if self._dialled or self._key is None or self._introduced:
            return b""
        return self.introduction() if isinstance(error, ForeignClusterError) else REFUSAL

    def pack(self, message: Message) -> bytes:
        """Pack a message as a frame. The channel must be ready."""
        assert self.ready, "the other side has not authenticated itself yet"
        return self._frame(_to_list(message))

    def _frame(self, fields: list[object]) -> bytes:
        content: bytes = msgpack.packb(fields)
        tag = self._tag(self._dialled, self._sent, content)
        self._sent += 1
        return len(content).to_bytes(2, "big") + content + tag

    def feed(self, data: bytes) -> list[Message]:
        """Handle received bytes, and return the complete messages.

        Raises BadPeerError if they are not of this protocol or are made with a different secret, ForeignClusterError if
        they are from another cluster.
        """
        self._buffer += data
        if self._key is None:
            if not self._buffer.startswith(MAGIC[: len(self._buffer)]):
                raise BadPeerError("it is not a member: it does not speak the heartbeat protocol")
            if len(self._buffer) < _GREETING_BYTES:
                return []
            self._agree(bytes(self._buffer[len(MAGIC) : _GREETING_BYTES]))
            del self._buffer[:_GREETING_BYTES]
        messages = []
        while (content := self._next()) is not None:
            fields = _unpacked(content)
            if self._introduced:
                messages.append(_message(fields))
            else:
                self._meet(fields)
        return messages

    def _meet(self, fields: object) -> None:
        match fields:
            case ["from", str(member), str(cluster), str(start)]:
                if (why := self._cluster.stranger(member, cluster)) is not None:
                    raise ForeignClusterError(why)
                self._introduced, self.their_start = True, start
            case _:
                raise BadPeerError("its first frame does not name its cluster")

    def _agree(self, nonce: bytes) -> None:
        nonces = self._nonce + nonce if self._dialled else nonce + self._nonce
        self._key = hmac.digest(self._secret, b"rota heartbeat" + nonces, "sha256")

    def _next(self) -> bytes | None:
        if len(self._buffer) < 2:
            return None
        if self._dialled and not self._introduced and self._buffer.startswith(REFUSAL[: len(self._buffer)]):
            if len(self._buffer) < len(REFUSAL):
                return None
            raise BadPeerError("it says that this node " + _UNLIKE)
        size = int.from_bytes(self._buffer[:2], "big")
        if size > CONTENT_BYTES_MAX:
            raise BadPeerError("it sent a frame that is too long")
        end = 2 + size + TAG_BYTES
        if len(self._buffer) < end:
            return None
        content, tag = bytes(self._buffer[2 : 2 + size]), bytes(self._buffer[2 + size : end])
        if not hmac.compare_digest(tag, self._tag(not self._dialled, self._received, content)):
            raise BadPeerError("it " + _UNLIKE)
        self._received += 1
        del self._buffer[:end]
        return content

    def _tag(self, dialled: bool, number: int, content: bytes) -> bytes:
        assert self._key is not None, "the other side's greeting has not come yet"
        person = b"dialler" if dialled else b"listener"
        header = number.to_bytes(8, "big")
        return hashlib.blake2b(header + content, digest_size=TAG_BYTES, key=self._key, person=person).digest()


def _to_list(message: Message) -> list[object]:
    match message:
        case Beat(member, incarnation, term, sent_s, echo_s, wall_us):
            return ["beat", member, incarnation, term, sent_s, echo_s, wall_us]
        case HeartbeatAnswer(leader, leader_incarnation, incarnation, term, sent_s, now_s, lease_s, wall_us):
            return ["answer", leader, leader_incarnation, incarnation, term, sent_s, now_s, lease_s, wall_us]
        case Bye():
            return ["bye"]


def _unpacked(content: bytes) -> object:
    try:
        return msgpack.unpackb(content)
    except (ValueError, msgpack.UnpackException) as error:
        raise BadPeerError(f"it sent a frame that is not msgpack: {error}") from error


def _message(fields: object) -> Message:
    match fields:
        case [
            "beat",
            str(member),
            int(incarnation),
            int(term),
            float(sent_s),
            float() | None as echo_s,
            int() | None as wall_us,
        ]:
            return Beat(
                member=member, incarnation=incarnation, term=term, sent_s=sent_s, echo_s=echo_s, wall_us=wall_us
            )
        case [
            "answer",
            str(leader),
            int(leader_incarnation),
            int(incarnation),
            int(term),
            float(sent_s),
            float(now_s),
            float() | int() | None as lease_s,
            int() | None as wall_us,
        ]:
            return HeartbeatAnswer(
                leader=leader,
                leader_incarnation=leader_incarnation,
                incarnation=incarnation,
                term=term,
                sent_s=sent_s,
                now_s=now_s,
                lease_s=lease_s,
                wall_us=wall_us,
            )
        case ["bye"]:
            return Bye()
        case _:
            raise BadPeerError("it sent a message that this version does not know")
