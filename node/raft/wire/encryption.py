"""Encryption of the messages between members, in place of the library's Fernet.

Each side begins a connection with a nonce of its own, in the clear. The keys of this connection, one for each
direction, are derived from the members' secret and both nonces (HKDF, RFC 5869). All later messages are encrypted with
AES-GCM. Its nonce is the number of the message, so a message that was repeated, dropped, overtaken or sent on another
connection is refused.

The first message of each side also carries a proof that the side has the secret. The proof is checked before the
message is decrypted, because AES-GCM does not commit to its key: a stranger could make one message that decrypts under
many keys, and test many guessed secrets at once. The dialler proves itself first, so a caller without the secret gets
no bytes that depend on it.

To let both sides report why they are incompatible, a dialler's greeting ends with a claim (its name and its build), and
a listener refuses a caller with a refusal (the reason and the listener's build). Neither is authenticated. Their form
is the same in all builds, whatever else changes:

    greeting:  "rota/" | protocol (3 bytes) | nonce (32) | the claim of a dialler: msgpack ["member", "version"]
    refusal:   "rota/no1" | msgpack ["code", "version"]
"""

import hmac
from dataclasses import dataclass
from typing import Final, Literal

import msgpack
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pysyncobj import syncobj

from node.identity.member_key import KEY_BYTES, member_key
from node.runtime.plain_text import plain_line

FAMILY: Final = b"rota/"
MAGIC: Final = FAMILY + b"rf3"
"""Identifies the wire format. Change it with every change that another build would not understand."""
REFUSAL: Final = FAMILY + b"no1"
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
CLAIM_BYTES_MAX: Final = 256
VERSION_CHARS_MAX: Final = 64
_NAME_CHARS_MAX: Final = 128
_PURPOSE: Final = "messages between members, 2"

RefusalCode = Literal["build", "secret", "no-member"]
"""Why one side refuses the other. `no-member`: the received bytes are not from a member of any build."""


@dataclass(frozen=True, slots=True)
class CallerClaim:
    """A caller's unauthenticated claim about itself: short printable texts, which may be empty."""

    member: str = ""
    version: str = ""

    def pack(self) -> bytes:
        """Return the bytes at the end of a dialler's greeting."""
        packed: bytes = msgpack.packb([self.member, self.version])
        return packed


class NotSealed(Exception):
    """The received bytes are not the next message of a member on this connection.

    `refused_here`: this side refuses the other side, and has to notify it. False: the other side has refused this one.
    `theirs`: the other side's claim.
    """

    def __init__(
        self,
        why: str,
        code: RefusalCode | None = None,
        theirs: CallerClaim = CallerClaim(),
        *,
        refused_here: bool = False,
    ) -> None:
        super().__init__(why)
        self.code, self.theirs, self.refused_here = code, theirs, refused_here


class Seal:
    """The library's "encryptor", which makes a channel for each connection."""

    def __init__(self, secret: str) -> None:
        self._key = member_key(secret, _PURPOSE)

    def channel(self, nonce: bytes, *, dialled: bool) -> "EncryptedChannel":
        """Make one end of a connection. nonce: NONCE_BYTES random bytes, used once. dialled: this end has dialled."""
        return EncryptedChannel(self._key, nonce, dialled=dialled)


class EncryptedChannel:
    """One end of a connection. It opens the messages that the other end has sealed, each once and in order.

    Used in one thread. `theirs`: the claim in the other side's greeting.
    """

    def __init__(self, key: bytes, nonce: bytes, *, dialled: bool) -> None:
        self._key, self._nonce, self._dialled = key, nonce, dialled
        self.theirs = CallerClaim()
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

    def greeting(self, mine: CallerClaim | None = None) -> bytes:
        """Return the first bytes to send. `mine`: a dialler's claim; None: a listener, which sends no claim."""
        return MAGIC + self._nonce + (mine.pack() if mine is not None else b"")

    def agree(self, greeting: bytes) -> None:
        """Derive the keys from the other side's greeting. Raises `NotSealed`."""
        if self._dialled and greeting.startswith(REFUSAL):
            raise _refusal(greeting)
        size = len(MAGIC) + NONCE_BYTES
        if not greeting.startswith(FAMILY) or not size <= len(greeting) <= size + CLAIM_BYTES_MAX:
            raise NotSealed("the greeting is not that of a member", "no-member")
        self.theirs = _claim(greeting[size:])
        if not greeting.startswith(MAGIC):
            raise NotSealed("the other side's wire format is another build's", "build", self.theirs, refused_here=True)
        theirs = greeting[len(MAGIC) : size]
        nonces = self._nonce + theirs if self._dialled else theirs + self._nonce
        keys = HKDF(SHA256(), 2 * KEY_BYTES + 2 * PROOF_BYTES, nonces, MAGIC).derive(self._key)
        dialler = keys[:KEY_BYTES], keys[2 * KEY_BYTES : 2 * KEY_BYTES + PROOF_BYTES]
        listener = keys[KEY_BYTES : 2 * KEY_BYTES], keys[2 * KEY_BYTES + PROOF_BYTES :]
        mine, its = (dialler, listener) if self._dialled else (listener, dialler)
        self._out, self._proof = AESGCM(mine[0]), mine[1]
        self._in, self._their_proof = AESGCM(its[0]), its[1]

    def seal(self, data: bytes) -> bytes:
        """Encrypt `data` as this side's next message."""
        assert self._out is not None, "the other side's greeting has not come yet"
        sealed = self._out.encrypt(self._sealed.to_bytes(12, "big"), data, None)
        self._sealed += 1
        return sealed if self._sealed > 1 else self._proof + sealed

    def open(self, sealed: bytes) -> bytes:
        """Decrypt the other side's next message. Raises `NotSealed` or cryptography's `InvalidTag` for other bytes."""
        assert self._in is not None, "the other side's greeting has not come yet"
        if not self._opened:
            if self._dialled and sealed.startswith(REFUSAL):
                raise _refusal(sealed)
            proof, sealed = sealed[:PROOF_BYTES], sealed[PROOF_BYTES:]
            if not hmac.compare_digest(proof, self._their_proof):
                raise NotSealed("the other side has another secret", "secret", self.theirs, refused_here=True)
        data = self._in.decrypt(self._opened.to_bytes(12, "big"), sealed, None)
        self._opened += 1
        return data


def refusal(code: RefusalCode, version: str) -> bytes:
    """Pack the message that refuses a caller: the reason, and this side's build."""
    packed: bytes = msgpack.packb([code, version])
    return REFUSAL + packed


def _refusal(data: bytes) -> NotSealed:
    """Return the error for a refusal that the other side has sent."""
    said = _two_texts(data[len(REFUSAL) :])
    code: RefusalCode = "secret" if said[0] == "secret" else "build"
    theirs = CallerClaim("", said[1][:VERSION_CHARS_MAX])
    return NotSealed(f"the other side says that this node has another {code}", code, theirs)


def _claim(packed: bytes) -> CallerClaim:
    member, version = _two_texts(packed)
    return CallerClaim(member[:_NAME_CHARS_MAX], version[:VERSION_CHARS_MAX])


def _two_texts(packed: bytes) -> tuple[str, str]:
    """Unpack two texts, with unprintable characters escaped; two empty texts for any other bytes."""
    try:
        match msgpack.unpackb(packed) if len(packed) <= CLAIM_BYTES_MAX else None:
            case [str(one), str(other)]:
                return plain_line(one), plain_line(other)
    except (ValueError, msgpack.UnpackException):
        pass
    return "", ""


def replace_encryptor() -> None:
    """Make the library use `Seal` as its encryptor."""
    syncobj.getEncryptor = Seal
