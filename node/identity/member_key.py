"""The keys by which members authenticate one another, derived from their shared secret.

A short secret can be guessed by an eavesdropper that has a value made with it. So no key is the secret itself: each
guess costs one `member_key`, about 50 ms of a core. Each purpose has a key of its own.
"""

import hashlib
from typing import Final

KEY_BYTES: Final = 32
_ROUNDS: Final = 100_000


def member_key(secret: str, purpose: str) -> bytes:
    """The key for one purpose, a text that no other use of the secret shares. 32 bytes.

    >>> member_key("a secret", "this") == member_key("a secret", "that")
    False
    """
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), f"rota: {purpose}".encode(), _ROUNDS, KEY_BYTES)
