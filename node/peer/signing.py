"""Questions between members are signed, one by one, with a key derived from the cluster's secret; so are the answers.

A signature covers the method, the path with its query, a hash of the body, who asks, whom it asks, the asker's
cluster, a challenge of the one that is asked, and a nonce. What somebody heard or was sent is therefore worth nothing:
at another member the target and the challenge are wrong, at the same one the nonce has been used or the challenge is
over. Challenges are counted on the clock of the member that gives them, and on no other: wall clocks may be wrong.

An answer is signed over the signature of its question, so that it is the answer to that one, of somebody who knows the
secret.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final

SCHEME: Final = "Rota"
"""The scheme of the Authorization header."""

CHALLENGE: Final = "Rota-Challenge"
"""The header of an answer with the challenge that the next question to that member must bear."""

SIGNED: Final = "Rota-Signed"
"""The header of an answer with its signature."""

ANY_MEMBER: Final = ""
"""The target of a newcomer's question: it knows an address, and not whose. Good for joining only."""

PERIOD_S: Final = 30.0
"""A challenge is good for this long, and for as long again, on the clock of the member that gave it."""

NONCES_MAX: Final = 100_000
"""How many questions one period may bring; more are refused until the next one."""

_HEADER: Final = re.compile(
    r"Rota ([A-Za-z0-9._-]{0,128});([A-Za-z0-9._-]{0,128});([0-9a-f-]{0,80});([0-9a-f]{32});"
    r"([0-9a-f]{64});([0-9a-f]{64})"
)


def member_key(secret: str) -> bytes:
    """The key that members sign with over HTTP: derived from the cluster's secret, and not it."""
    return hmac.digest(secret.encode(), b"rota: members over http, 2", "sha256")


def digest(body: bytes) -> str:
    """A body's hash."""
    return hashlib.sha256(body).hexdigest()


@dataclass(frozen=True, slots=True)
class Question:
    """What is signed of a request: `target` is the id of the member that is asked, `path` bears its query."""

    method: str
    path: str
    body_digest: str
    sender: str
    target: str
    cluster: str
    challenge: str
    nonce: str

    def mac(self, key: bytes) -> str:
        """Its signature."""
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
        """The Authorization header."""
        parts = (self.sender, self.target, self.challenge, self.nonce, self.body_digest, self.mac(key))
        return f"{SCHEME} {';'.join(parts)}"


def asked(
    method: str, path: str, body: bytes, sender: str, target: str, cluster: str, challenge: str | None
) -> Question:
    """A question, with a nonce of its own. Without a known `challenge` it is refused, and told one."""
    return Question(method, path, digest(body), sender, target, cluster, challenge or "", secrets.token_hex(16))


def answer_mac(key: bytes, question_mac: str, status: int, body: bytes | None) -> str:
    """The signature of an answer; `body` None: it is streamed, and not covered."""
    return _mac(key, "answer", question_mac, str(status), "streamed" if body is None else digest(body))


def same_mac(shown: str, expected: str) -> bool:
    """Whether two signatures are equal, in a time that does not tell how much of them is."""
    return hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), expected.encode())


class Unsigned(Exception):
    """A question is not to be answered. The message says why; whoever knows the secret may ask again, as told."""


class Receiver:
    """Checks the questions that `me` is asked. Every `now_s` is of one monotonic clock."""

    def __init__(self, key: bytes, me: str) -> None:
        self._key = key
        self._me = me
        self._start = secrets.token_bytes(32)
        self._period = -1
        self._used: set[str] = set()
        self._used_before: set[str] = set()

    def challenge(self, now_s: float) -> str:
        """What a question must bear now."""
        return self._challenge_of(self._turn(now_s))

    def check(
        self, header: str | None, method: str, path: str, cluster: str, now_s: float, *, joining: bool
    ) -> Question:
        """The question, signed by somebody who knows the secret and asked for the first time. Raises `Unsigned`.

        Its body is still to be compared with `body_digest`. `joining`: a newcomer, who knows no target, may ask this.
        """
        found = _HEADER.fullmatch((header or "").strip())
        if found is None:
            raise Unsigned("this is for members only: it must be signed with the cluster's secret")
        sender, target, challenge, nonce, body_digest, mac = found.groups()
        question = Question(method, path, body_digest, sender, target, cluster, challenge, nonce)
        if not same_mac(mac, question.mac(self._key)):
            raise Unsigned("the signature is not right: the secrets differ (ROTA_SECRET), or the request was changed")
        if target != self._me and not (joining and target == ANY_MEMBER):
            raise Unsigned(f"this was signed for {target or 'whoever is asked to let a newcomer in'}, not {self._me}")
        period = self._turn(now_s)
        if same_mac(challenge, self._challenge_of(period)):
            used = self._used
        elif same_mac(challenge, self._challenge_of(period - 1)):
            used = self._used_before
        else:
            raise Unsigned(f"the challenge is over, or another member's: sign again with that of {CHALLENGE}")
        if nonce in used:
            raise Unsigned("this very request has been made before")
        if len(used) >= NONCES_MAX:
            raise Unsigned("too many questions of members within half a minute: ask again later")
        used.add(nonce)
        return question

    def _turn(self, now_s: float) -> int:
        period = int(now_s // PERIOD_S)
        if period != self._period:
            self._used_before = self._used if period == self._period + 1 else set()
            self._used, self._period = set(), period
        return period

    def _challenge_of(self, period: int) -> str:
        return f"{period:x}-{hmac.digest(self._start, str(period).encode(), 'sha256').hex()}"


def _mac(key: bytes, *parts: str) -> str:
    # Each with its length: no two lists of parts give the same bytes.
    packed = b"".join(b"%d:%b" % (len(raw), raw) for raw in (part.encode("utf-8", "surrogateescape") for part in parts))
    return hmac.new(key, packed, hashlib.sha256).hexdigest()
