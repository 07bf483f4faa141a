"""Encryption of the messages between members, in place of the library's Fernet.

Each side opens a connection with a nonce of its own, in the clear. The members' secret and both nonces make the keys of
this one connection, one for each direction (HKDF, RFC 5869). What follows is encrypted with AES-GCM, whose nonce is the
number of the message: one that was repeated, dropped, overtaken or sent on another connection is refused.

The first message of each side also carries a proof that it has the secret. It has to come first because AES-GCM does
not commit to its key: a stranger could make one message that decrypts under many keys, and guess many secrets at once.
The dialler proves itself first; a caller without the secret gets nothing that was made with it.
"""

import hmac
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pysyncobj import syncobj

from node.identity.member_key import KEY_BYTES, member_key

MAGIC: Final = b"rota/rf2"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
_PURPOSE: Final = "messages between members, 2"


class NotSealed(Exception):
    """What has arrived is not the next message of a member on this connection."""


class Seal:
    """The library's "encryptor": makes a channel for each connection."""

    def __init__(self, secret: str) -> None:
        self._key = member_key(secret, _PURPOSE)

    def channel(self, nonce: bytes, *, dialled: bool) -> "EncryptedChannel":
        """One end of a connection. nonce: NONCE_BYTES, random and used once. dialled: whether this end has dialled."""
        return EncryptedChannel(self._key, nonce, dialled=dialled)


class EncryptedChannel:
    """One end of a connection. What the other end seals is opened here once, in order. Used in one thread."""

    def __init__(self, key: bytes, nonce: bytes, *, dialled: bool) -> None:
        self._key, self._nonce, self._dialled = key, nonce, dialled
        self._sealed = self._opened = 0
        self._out: AESGCM | None = None
        self._in: AESGCM | None = None
        self._proof = self._their_proof = b""

    @property
    def ready(self) -> bool:
        """Whether the other side's greeting has arrived, so that messages can be sealed."""
        return self._out is not None

    @property
    def proved(self) -> bool:
        """Whether the other side has shown that it has the secret."""
        return self._opened > 0

    def greeting(self) -> bytes:
        """The first thing to send."""
        return MAGIC + self._nonce

    def agree(self, greeting: bytes) -> None:
        """Take the other side's greeting. Raises `NotSealed`."""
        if len(greeting) != len(MAGIC) + NONCE_BYTES or not greeting.startswith(MAGIC):
            raise NotSealed("its greeting is not that of a member of this version")
        theirs = greeting[len(MAGIC) :]
        nonces = self._nonce + theirs if self._dialled else theirs + self._nonce
        keys = HKDF(SHA256(), 2 * KEY_BYTES + 2 * PROOF_BYTES, nonces, MAGIC).derive(self._key)
        dialler = keys[:KEY_BYTES], keys[2 * KEY_BYTES : 2 * KEY_BYTES + PROOF_BYTES]
        listener = keys[KEY_BYTES : 2 * KEY_BYTES], keys[2 * KEY_BYTES + PROOF_BYTES :]
        mine, its = (dialler, listener) if self._dialled else (listener, dialler)
        self._out, self._proof = AESGCM(mine[0]), mine[1]
        self._in, self._their_proof = AESGCM(its[0]), its[1]

    def seal(self, data: bytes) -> bytes:
        """A message, encrypted as the next one of this side."""
        assert self._out is not None, "the other side's greeting has not come yet"
        sealed = self._out.encrypt(self._sealed.to_bytes(12, "big"), data, None)
        self._sealed += 1
        return sealed if self._sealed > 1 else self._proof + sealed

    def open(self, sealed: bytes) -> bytes:
        """The decrypted message. Raises `NotSealed` or `InvalidTag` (of cryptography) if it is not the next one."""
        assert self._in is not None, "the other side's greeting has not come yet"
        if not self._opened:
            proof, sealed = sealed[:PROOF_BYTES], sealed[PROOF_BYTES:]
            if not hmac.compare_digest(proof, self._their_proof):
                raise NotSealed("it has another secret")
        data = self._in.decrypt(self._opened.to_bytes(12, "big"), sealed, None)
        self._opened += 1
        return data


def replace_encryptor() -> None:
    """Let the library use `Seal` as its encryptor."""
    syncobj.getEncryptor = Seal
