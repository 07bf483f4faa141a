"""Mismatches: nodes of another build, secret or cluster than this one, at the wrong address, or silent.

They are noticed at the Raft ports. The statements of a caller that has not yet proved that it has the members' secret
are claims: anybody who reaches the port can make them. Claims are limited in length and number, and shown as claims.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final, Literal

_log = logging.getLogger("rota.members")

MismatchCode = Literal["build", "mixed", "secret", "cluster", "mistaken", "silent", "no-member"]
"""`build`: another build, whose protocol this one does not understand. `mixed`: another build that it understands.
`mistaken`: another member answers at the address. `silent`: the address accepts connections and sends nothing.
`no-member`: the process at the address does not speak the members' protocol."""

KEPT_S: Final = 20.0
"""How long a mismatch is shown after its last contact, in seconds: members call one another every few seconds."""

AGAIN_S: Final = 600.0
"""A mismatch that lasts is logged again after this time, in seconds."""

CLAIMS_MAX: Final = 8
"""At most this many claims are kept: the latest ones."""

LASTING_S: Final = 5.0
"""How long `silent` and `no-member` must last to be shown, because a starting or ending process may look like that."""

_LASTING: Final = frozenset({"silent", "no-member"})


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A node that does not match this one, and why."""

    #: The id under which this node called it; if it was the caller, the id that it gave, or "".
    member: str
    #: The address at which this node called it, or from which it called this node.
    address: str
    #: Why it does not match.
    code: MismatchCode
    #: Whether the node is a caller that has not shown that it has the members' secret.
    claimed: bool = False
    #: The version that it reports for its build; "": unknown.
    version: str = ""
    #: For `cluster`, the id of its cluster; for `mistaken`, the member that answers instead.
    other: str = ""

    def sentence(self, me: str, version: str) -> str:
        """Say what is wrong and what to do, from the view of the node `me`, of build `version`.

        >>> Mismatch("node-2", "10.0.0.2", "secret", claimed=True).sentence("a", "0.2.0")
        'a caller at 10.0.0.2 that says it is node-2 has another secret than a: ROTA_SECRET must be the same on all'
        """
        who = self._who()
        match self.code:
            case "build":
                which = f"another build, {self.version}," if self.version else "an earlier build"
                return f"{who} runs {which} which this one, {version}, does not understand: {ONE_BUILD}"
            case "mixed":
                return f"{who} runs {self.version or 'an earlier build'}, and {me} runs {version}: {ONE_BUILD}"
            case "secret":
                return f"{who} has another secret than {me}: ROTA_SECRET must be the same on all"
            case "cluster":
                return (
                    f"{who} belongs to cluster {self.other}, and {me} does not: a node joins another cluster only with "
                    "an empty data folder and ROTA_JOIN"
                )
            case "mistaken":
                return f"{self.other} answers at the address of {who}: correct ROTA_MEMBERS on the node that is wrong"
            case "silent":
                return (
                    f"{who} accepts connections and says nothing: its process is slow to start or stands still, or "
                    "another program listens on its Raft port"
                )
            case "no-member":
                return (
                    f"the process at the Raft address of {who} does not speak as a member: it runs an earlier build, "
                    "or is another program"
                )

    def _who(self) -> str:
        if not self.claimed:
            return f"{self.member} ({self.address})" if self.address else self.member
        return f"a caller at {self.address}" + (f" that says it is {self.member}" if self.member else "")


ONE_BUILD: Final = "stop all members, install one build, start all"


@dataclass(frozen=True, slots=True)
class _Met:
    mismatch: Mismatch
    since_s: float
    last_s: float
    logged_s: float = float("-inf")


class Mismatches:
    """The recent mismatches of the node `me`, of build `version`. One thread notes them, and any thread may read them.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, me: str = "", version: str = "", clock: Callable[[], float] = monotonic) -> None:
        self.me, self.version = me, version
        self._clock = clock
        self._met: dict[tuple[str, bool, str], _Met] = {}

    def note(self, mismatch: Mismatch) -> None:
        """Note a mismatch that has occurred, perhaps again. Logs it when it is new, and every `AGAIN_S`."""
        now_s = self._clock()
        kept = {key: met for key, met in self._met.items() if _is_kept(met, now_s)}
        key = (mismatch.member, mismatch.claimed, mismatch.address if mismatch.claimed else "")
        before = kept.pop(key, None)
        if before is None or before.mismatch.code != mismatch.code:
            met = _Met(mismatch, now_s, now_s)
        else:
            met = replace(before, mismatch=mismatch, last_s=now_s)
        # `ClusterId` itself logs a node of another cluster.
        if _is_told(met) and mismatch.code != "cluster" and now_s - met.logged_s >= AGAIN_S:
            met = replace(met, logged_s=now_s)
            _log.warning("does not fit: %s", mismatch.sentence(self.me, self.version))
        kept[key] = met
        claims = [key for key, met in kept.items() if met.mismatch.claimed]
        for key in claims[: max(0, len(claims) - CLAIMS_MAX)]:
            del kept[key]
        self._met = kept  # replaced, not changed: another thread may be reading it

    def clear(self, member: str, code: MismatchCode | None = None) -> None:
        """Forget the mismatches of a member, or only the one with this code."""
        gone = [
            key for key, met in self._met.items() if met.mismatch.member == member and code in (None, met.mismatch.code)
        ]
        if gone:
            self._met = {key: met for key, met in self._met.items() if key not in gone}

    def now(self) -> list[Mismatch]:
        """Return the present mismatches: members first, then claims."""
        now_s = self._clock()
        found = [met.mismatch for met in self._met.values() if _is_kept(met, now_s) and _is_told(met)]
        called = {(one.member, one.code) for one in found if not one.claimed}
        shown = [one for one in found if not one.claimed or (one.member, one.code) not in called]
        return sorted(shown, key=lambda one: (one.claimed, one.member, one.address))


def _is_kept(met: _Met, now_s: float) -> bool:
    return met.mismatch.code == "mixed" or now_s - met.last_s < KEPT_S


def _is_told(met: _Met) -> bool:
    return met.mismatch.code not in _LASTING or met.last_s - met.since_s >= LASTING_S
