"""Sessions of browsers: a signed, expiring statement of a role in a cookie, which every member accepts.

No member stores sessions. The signature covers the cluster, the role, the time of expiry, a random id and the hash of
the token that was shown at sign-in: if that token is changed or withdrawn, its sessions end. A guest has shown no
token; its session exists so that the form for signing in has a CSRF token, too. Pure: time and randomness are given.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from node.identity.member_key import member_key

Role = Literal["operator", "reader", "guest"]
"""What a client may do: everything; read only; sign in only."""

SESSION_S: Final = 12 * 3600
"""How long a session lasts after it was last used, in seconds: a working day."""

ENDS_S: Final = 7 * 24 * 3600
"""How long after the sign-in a session ends even if it is in use, in seconds: it limits the use of a copied cookie."""

RENEWED_S: Final = 3600
"""A session is renewed only if that prolongs it by this many seconds, so that not each response sets a cookie."""

ID_HEX: Final = 32
"""Hexadecimal digits of a session's id."""

_COOKIE: Final = re.compile(r"(operator|reader|guest)\.([0-9]{1,12})\.([0-9]{1,12})\.([0-9a-f]{32})\.([0-9a-f]{64})")


class SessionRejected(Exception):
    """The cookie is no valid session of this cluster. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser's role, and when its session expires (`expires_s`), which use puts off until `ends_s` at most.

    Times are seconds since the epoch.
    """

    role: Role
    expires_s: int
    id: str
    ends_s: int = 0

    def renewed(self, now_s: float) -> "BrowserSession | None":
        """Return the session prolonged because it is used now; None for a guest, or if it gains under `RENEWED_S`."""
        expires_s = min(int(now_s) + SESSION_S, self.ends_s)
        if self.role == "guest" or expires_s < self.expires_s + RENEWED_S:
            return None
        return replace(self, expires_s=expires_s)


class SessionSigner:
    """Signs and checks the sessions of one cluster's browsers.

    `secret` is the members' secret; `tokens` the token of each role that has one.
    """

    def __init__(self, secret: str, tokens: Mapping[Role, str]) -> None:
        self._key = member_key(secret, "sessions of browsers")
        self._digests = {role: hashlib.sha256(_bytes(token)).hexdigest() for role, token in tokens.items()}

    def cookie(self, session: BrowserSession, cluster: str) -> str:
        """Return the cookie that states `session`. Raises `KeyError` for a role without a token."""
        return f"{session.role}.{session.expires_s}.{session.ends_s}.{session.id}.{self._mac(session, cluster)}"

    def read(self, cookie: str, cluster: str, now_s: float) -> BrowserSession:
        """Return the session that a cookie states. Raises `SessionRejected`."""
        found = _COOKIE.fullmatch(cookie)
        if found is None:
            raise SessionRejected("the session cookie cannot be read: sign in again")
        role: Role = found[1]  # type: ignore[assignment]  # the pattern allows no other text
        session = BrowserSession(role, int(found[2]), found[4], int(found[3]))
        if role != "guest" and role not in self._digests:
            raise SessionRejected(f"the token of the role {role} was withdrawn: sign in with another one")
        if not hmac.compare_digest(found[5], self._mac(session, cluster)):
            raise SessionRejected("the session is of another cluster, or its token was changed: sign in again")
        if session.expires_s <= now_s:
            raise SessionRejected("the session has expired: sign in again")
        return session

    def csrf(self, session: BrowserSession) -> str:
        """Return the CSRF token of a session's forms. Each session has a different one."""
        return hmac.digest(self._key, f"form\n{session.id}".encode(), "sha256").hex()

    def csrf_matches(self, session: BrowserSession, shown: str) -> bool:
        """Return whether a form with this token is of that session. Compares in constant time."""
        return hmac.compare_digest(_bytes(shown), self.csrf(session).encode())

    def _mac(self, session: BrowserSession, cluster: str) -> str:
        # No part can hold a line break, so no two sessions are signed as the same text.
        parts = ("session", cluster, session.role, str(session.expires_s), str(session.ends_s), session.id)
        digest = "" if session.role == "guest" else self._digests[session.role]
        return hmac.digest(self._key, "\n".join((*parts, digest)).encode(), "sha256").hex()


def cookie_name(cluster: str) -> str:
    """Return the cookie's name: one for each cluster, because browsers keep cookies by host name without the port.

    >>> cookie_name("c-1") == cookie_name("c-2")
    False
    """
    return f"rota_{hashlib.sha256(cluster.encode()).hexdigest()[:8]}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
