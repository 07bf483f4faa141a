"""The keys that members prove themselves with, made of the secret that they share.

A secret may be short enough to be guessed by who has heard something that was made with it. So no key is the secret
itself: each guess costs what `member_key` costs, some 50 ms of a core, and each use of the secret has a key of its own.
"""

import hashlib
from typing import Final

KEY_BYTES: Final = 32
_ROUNDS: Final = 100_000


def member_key(secret: str, purpose: str) -> bytes:
    """The key for one purpose, which is a text that no other use of the secret has. 32 bytes.

    >>> member_key("a secret", "this") == member_key("a secret", "that")
    False
    """
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), f"rota: {purpose}".encode(), _ROUNDS, KEY_BYTES)
