"""Guesses at the members' secret, made with the members' own protocols: one is answered by each connection, no more.

A guess is a key, not a secret: that a key costs `member_key` its 100,000 rounds is left out, for whoever guesses may
have made its keys before.
"""

import os
import struct
from typing import Final

from bench.doors.conversation import Address, Tally, converse
from node.identity.cluster_id import ClusterId
from node.liveness import wire
from node.raft.wire import encryption
from tasks.version import version

_LENGTH: Final = struct.Struct("i")

GREETING_OF_HEARTBEAT: Final = len(wire.MAGIC) + wire.NONCE_BYTES
GREETING_OF_RAFT: Final = _LENGTH.size + len(encryption.MAGIC) + encryption.NONCE_BYTES


async def guess_heartbeat(address: Address, tally: Tally) -> None:
    """One guess at the heartbeat port: its greeting, a first frame, and what is said to that."""
    channel = wire.HeartbeatChannel(
        os.urandom(32), "node-2", ClusterId(), os.urandom(wire.NONCE_BYTES), dialled=True, start="x"
    )

    def reply(heard: bytes) -> bytes | None:
        if len(heard) < GREETING_OF_HEARTBEAT:
            return None
        channel.feed(heard[:GREETING_OF_HEARTBEAT])
        return channel.introduction()

    heard = await converse(address, channel.greeting(), tally, reply)
    judge(tally, heard, wire.MAGIC, GREETING_OF_HEARTBEAT, wire.REFUSAL)


async def guess_raft(address: Address, tally: Tally) -> None:
    """One guess at the Raft port: its greeting, a first message with a proof, and what is said to that."""
    channel = encryption.EncryptedChannel(os.urandom(32), os.urandom(encryption.NONCE_BYTES), dialled=True)

    def packed(data: bytes) -> bytes:
        return _LENGTH.pack(len(data)) + data

    def reply(heard: bytes) -> bytes | None:
        if len(heard) < GREETING_OF_RAFT:
            return None
        channel.agree(heard[_LENGTH.size : GREETING_OF_RAFT])
        return packed(channel.seal(b"guess"))

    heard = await converse(address, packed(channel.greeting()), tally, reply)
    refused = packed(encryption.refusal("secret", version()))
    judge(tally, heard[_LENGTH.size :], encryption.MAGIC, GREETING_OF_RAFT - _LENGTH.size, refused)


def judge(tally: Tally, heard: bytes, magic: bytes, greeting_bytes: int, refusal: bytes) -> None:
    """Count a guess by all that was said to it: the greeting, and the refusal, which are made without the secret.

    >>> tally = Tally()
    >>> for heard in (b"hi12", b"hi12no", b"hi12no, but this MAC", b"h"):
    ...     judge(tally, heard, b"hi", 4, b"no")
    >>> tally.answered, tally.leaked
    (3, 1)
    """
    if len(heard) < greeting_bytes:
        tally.leaked += not magic.startswith(heard[: len(magic)])
        return
    tally.answered += 1
    tally.leaked += not heard.startswith(magic) or heard[greeting_bytes:] not in (b"", refusal)
