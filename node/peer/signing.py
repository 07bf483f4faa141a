"""Signatures of the HTTP requests between members and of their responses, with a key derived from the cluster's secret.

The signature of a request covers the method, the path with its query, a hash of the body, the sender, the target, the
sender's cluster, a challenge from the target, and a nonce. A captured request cannot be replayed: at another member the
target and the challenge are wrong, and at the same member the nonce is used or the challenge has expired. Challenges
expire by the monotonic clock of the member that issued them, because wall clocks may be wrong.

The signature of a response covers the signature of its request, so it proves that the response answers this request,
and comes from a process that knows the secret.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final

from node.identity.member_key import member_key
from node.identity.mismatches import ONE_BUILD

SCHEME: Final = "Rota"
"""The scheme of the Authorization header."""

FORM: Final = "3"
"""The version of the computation of signatures and their key. Each header and each challenge names it, so that members
of two builds report that the builds differ, and not that the secrets do. Change it when the computation changes. Builds
before version 3 do not name their version."""

CHALLENGE: Final = "Rota-Challenge"
"""The response header with the challenge for the next request to that member."""

SIGNED: Final = "Rota-Signed"
"""The response header with the signature of the response."""

ANY_MEMBER: Final = ""
"""The target in a request of a joining node, which knows an address but not the member's id. Valid for joining only."""

PERIOD_S: Final = 30.0
"""Seconds of a period. A challenge is valid in the period in which it was issued, and in the next period."""

NONCES_MAX: Final = 100_000
"""How many requests are accepted in one period; more are refused until the next one."""

_HEADER: Final = re.compile(
    rf"{SCHEME} {FORM};([A-Za-z0-9._-]{{0,128}});([A-Za-z0-9._-]{{0,128}});([0-9a-f-]{{0,80}});([0-9a-f]{{32}});"
    r"([0-9a-f]{64});([0-9a-f]{64})"
)
_OTHER_HEADER: Final = re.compile(rf"{SCHEME} [A-Za-z0-9._;-]{{0,512}};[0-9a-f]{{64}};[0-9a-f]{{64}}")
_CHALLENGE: Final = re.compile(rf"{FORM}-[0-9a-f]+-[0-9a-f]{{64}}")


def signing_key(secret: str) -> bytes:
    """Return the key with which members sign HTTP requests and responses, derived from the cluster's secret."""
    return member_key(secret, "requests between members over http")


def is_of_this_form(challenge: str) -> bool:
    """Return whether the issuer of a challenge signs as this build does. If not, it refuses all requests."""
    return _CHALLENGE.fullmatch(challenge) is not None


def digest(body: bytes) -> str:
    """Return the SHA-256 hash of a body, in hex."""
    return hashlib.sha256(body).hexdigest()


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """The signed parts of a request."""

    #: The HTTP method.
    method: str
    #: The path, with the query.
    path: str
    #: The hash of the body (`digest`).
    body_digest: str
    #: The id of the member that sends it.
    sender: str
    #: The id of the member that receives it; `ANY_MEMBER` where a joining node does not know the id.
    target: str
    #: The id of the sender's cluster.
    cluster: str
    #: The target's challenge.
    challenge: str
    #: Drawn by the sender for this request: 32 hexadecimal digits.
    nonce: str

    def mac(self, key: bytes) -> str:
        """Return the signature."""
        return _mac(
            key,
            "question",
            self.method,
            self.path,
            self.body_digest,
            self.sender,
            self.target,
            self.cluster,
            self.challenge,
            self.nonce,
        )

    def header(self, key: bytes) -> str:
        """Return the value of the Authorization header."""
        parts = (FORM, self.sender, self.target, self.challenge, self.nonce, self.body_digest, self.mac(key))
        return f"{SCHEME} {';'.join(parts)}"


def new_request(
    method: str, path: str, body: bytes, sender: str, target: str, cluster: str, challenge: str | None
) -> PeerRequest:
    """Make a request with a new nonce. Without a valid `challenge` it is refused, and the response has a new one."""
    return PeerRequest(
        method=method,
        path=path,
        body_digest=digest(body),
        sender=sender,
        target=target,
        cluster=cluster,
        challenge=challenge or "",
        nonce=secrets.token_hex(16),
    )


def response_mac(key: bytes, request_mac: str, status: int, body: bytes | None) -> str:
    """Return the signature of a response; `body` None: the body is streamed, and not covered."""
    return _mac(key, "answer", request_mac, str(status), "streamed" if body is None else digest(body))


def macs_equal(shown: str, expected: str) -> bool:
    """Return whether two signatures are equal, compared in constant time."""
    return hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), expected.encode())


class SignatureRejected(Exception):
    """A request is not signed correctly. The message says why, and what to do."""


class SignatureVerifier:
    """Verifies the requests to the member `me`. Every `now_s` is of one monotonic clock."""

    def __init__(self, key: bytes, me: str, nonces_max: int = NONCES_MAX) -> None:
        self._key = key
        self._me = me
        self._nonces_max = nonces_max
        self._start = secrets.token_bytes(32)
        self._period = -1
        self._used: set[str] = set()
        self._used_before: set[str] = set()

    def challenge(self, now_s: float) -> str:
        """Return the challenge that is issued now."""
        return self._challenge_of(self._enter_period(now_s))

    def check(
        self, header: str | None, method: str, path: str, cluster: str, now_s: float, *, joining: bool
    ) -> PeerRequest:
        """Return the request, once its signature, target, challenge and nonce are verified. Raises `SignatureRejected`.

        The caller compares the body with `body_digest`. `joining`: the target may be `ANY_MEMBER`.
        """
        shown = (header or "").strip()
        found = _HEADER.fullmatch(shown)
        if found is None and _OTHER_HEADER.fullmatch(shown) is not None:
            raise SignatureRejected(
                f"the sender runs another build, which signs requests in another form than {FORM}: {ONE_BUILD}"
            )
        if found is None:
            raise SignatureRejected("only members may send this: it must be signed with the cluster's secret")
        sender, target, challenge, nonce, body_digest, mac = found.groups()
        request = PeerRequest(
            method=method,
            path=path,
            body_digest=body_digest,
            sender=sender,
            target=target,
            cluster=cluster,
            challenge=challenge,
            nonce=nonce,
        )
        if not macs_equal(mac, request.mac(self._key)):
            raise SignatureRejected(
                "the signature is wrong: the secrets (ROTA_SECRET) differ, or the request was changed on its way"
            )
        if target != self._me and not (joining and target == ANY_MEMBER):
            raise SignatureRejected(f"this was signed for {target or 'a join request to any member'}, not {self._me}")
        period = self._enter_period(now_s)
        if macs_equal(challenge, self._challenge_of(period)):
            used = self._used
        elif macs_equal(challenge, self._challenge_of(period - 1)):
            used = self._used_before
        else:
            raise SignatureRejected(
                f"the challenge has expired, or is another member's: sign again with the one in {CHALLENGE}"
            )
        if nonce in used:
            raise SignatureRejected("this request was received before")
        if len(used) >= self._nonces_max:
            raise SignatureRejected("too many requests of members within half a minute: retry later")
        used.add(nonce)
        return request

    def _enter_period(self, now_s: float) -> int:
        period = int(now_s // PERIOD_S)
        if period != self._period:
            self._used_before = self._used if period == self._period + 1 else set()
            self._used, self._period = set(), period
        return period

    def _challenge_of(self, period: int) -> str:
        return f"{FORM}-{period:x}-{hmac.digest(self._start, str(period).encode(), 'sha256').hex()}"


def _mac(key: bytes, *parts: str) -> str:
    # Each part has its length in front, so that no two lists of parts give the same bytes.
    packed = b"".join(b"%d:%b" % (len(raw), raw) for raw in (part.encode("utf-8", "surrogateescape") for part in parts))
    return hmac.new(key, packed, hashlib.sha256).hexdigest()
