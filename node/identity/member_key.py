"""The keys by which members authenticate one another, derived from their shared secret.

An eavesdropper that has a value made with a short secret can guess the secret. So no key is the secret itself: each
guess costs one `member_key`, 50 to 150 ms of a core. Each purpose has a key of its own: Raft, the heartbeats, HTTP
between members, sessions of browsers.
"""

import hashlib
from functools import lru_cache
from typing import Final

KEY_BYTES: Final = 32
_ROUNDS: Final = 100_000
_KEPT: Final = 64
"""Keys that a process keeps. A node derives four; tests make many nodes with few secrets."""


@lru_cache(maxsize=_KEPT)
def member_key(secret: str, purpose: str) -> bytes:
    """Return the key for `purpose`, a text that no other use of the secret has. The key is KEY_BYTES long.

    A process derives each key once and keeps it, so that requests do not wait for it.

    >>> member_key("a secret", "this") == member_key("a secret", "that")
    False
    """
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), f"rota: {purpose}".encode(), _ROUNDS, KEY_BYTES)
