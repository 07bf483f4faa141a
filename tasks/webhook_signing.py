"""Signatures as the Standard Webhooks specification (1.0.0) defines them (pure)."""

import base64
import binascii
import hmac
from collections.abc import Sequence
from typing import Final

PREFIX: Final = "whsec_"
_BYTES: Final = range(24, 65)


def signing_keys(secret: str) -> list[bytes]:
    """Return the keys in a secret: one, or two for a rotation. Raises `ValueError`, which does not quote the secret.

    >>> [len(key) for key in signing_keys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    [24]
    """
    keys = []
    for each in secret.split():
        try:
            key = base64.b64decode(each.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            key = b""
        if not each.startswith(PREFIX) or len(key) not in _BYTES:
            raise ValueError(f"a signing secret is {PREFIX} and 24 to 64 bytes in base64")
        keys.append(key)
    if not keys:
        raise ValueError("the signing secret is empty")
    return keys


def signature(keys: Sequence[bytes], message_id: str, timestamp_s: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`: one signature for each key.

    >>> keys = signing_keys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    >>> signature(keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return " ".join(f"v1,{base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()}" for key in keys)
