"""What seals the messages between members: AES-GCM-SIV (RFC 8452), in the place of the library's Fernet.

Fernet encodes, signs, checks and decrypts in many steps of Python, and the library has it check each message twice: a
tenth of what it takes to commit an entry. Here each is one call of the same package. RFC 8452 is made for nonces
that are drawn at random for as long as the secret is kept: one that comes twice tells no more than that two messages
were the same.
"""

import os
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from pysyncobj import syncobj

_SALT: Final = b"rota: messages between members"
_ROUNDS: Final = 100_000
_NONCE_BYTES: Final = 12
_HEADER_BYTES: Final = _NONCE_BYTES + 8


class Seal:
    """What the library calls an encryptor. Used in one thread.

    A sealed message is a nonce, the time that it was sealed at (both in the clear, the time checked with the rest),
    and what RFC 8452 makes of the message.
    """

    def __init__(self, secret: str) -> None:
        key = PBKDF2HMAC(SHA256(), 32, _SALT, _ROUNDS).derive(secret.encode())
        self._cipher = AESGCMSIV(key)

    def encrypt_at_time(self, data: bytes, current_time: int) -> bytes:
        """A message, sealed. The time is the library's, in whole seconds."""
        nonce, time = os.urandom(_NONCE_BYTES), current_time.to_bytes(8, "big")
        return b"".join((nonce, time, self._cipher.encrypt(nonce, data, time)))

    def extract_timestamp(self, token: bytes) -> int:
        """The time that a message says it was sealed at. `decrypt`, which follows, tells whether that is true."""
        return int.from_bytes(token[_NONCE_BYTES:_HEADER_BYTES], "big")

    def decrypt(self, token: bytes) -> bytes:
        """The message. Raises `InvalidTag` or `ValueError` if it was not sealed so, with this secret."""
        time = token[_NONCE_BYTES:_HEADER_BYTES]
        return self._cipher.decrypt(token[:_NONCE_BYTES], token[_HEADER_BYTES:], time)


def mend_encryptor() -> None:
    """Have the library make its encryptors so."""
    syncobj.getEncryptor = Seal
