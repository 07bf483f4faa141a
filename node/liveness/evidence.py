"""Is a silent member's process gone? (design, section 7, the short cut.) Pure.

A process is taken for dead when it has been silent for half a second, a knock at its port was refused twice,
250 ms apart, and the heartbeat connection of that incarnation with this node was ended by the other side.
Its workers die with it; they get `margin_s` from the end of the connection for that. Every member gathers this
about whom it was connected with: the next leader was a client of the last one, and has the evidence by the
time it is elected. What has been established of an incarnation stays true.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from node.liveness.view import Peer

SILENCE_S = 0.5
APART_S = 0.25


@dataclass(slots=True)
class _Trail:
    """What is known of one member, in the latest incarnation heard from."""

    incarnation: int
    heard_s: float
    links: set[int] = field(default_factory=set)
    ended_s: float | None = None
    knocking: bool = False
    next_knock_s: float = 0.0
    refused_s: float | None = None
    dead: bool = False


class Evidence:
    """What speaks for a member's process being gone. A `link` is any number that names one connection."""

    def __init__(self) -> None:
        self._trails: dict[str, _Trail] = {}

    def heard(self, member: str, incarnation: int, link: int, now_s: float) -> None:
        """Something came from the member, in that incarnation, over that connection."""
        trail = self._trails.get(member)
        if trail is None or incarnation != trail.incarnation:
            if trail is not None and incarnation < trail.incarnation:
                return
            trail = self._trails[member] = _Trail(incarnation, now_s)
        trail.links.add(link)
        trail.heard_s = now_s
        trail.ended_s = trail.refused_s = None
        trail.dead = False

    def ended(self, link: int, now_s: float) -> None:
        """The other side ended that connection without a word: end of file or a reset."""
        for trail in self._trails.values():
            if link in trail.links:
                trail.links.remove(link)
                if not trail.links:
                    trail.ended_s, trail.next_knock_s = now_s, now_s

    def parted(self, link: int) -> None:
        """That connection was closed by this side, or by the other with a goodbye, or timed out: says nothing."""
        for trail in self._trails.values():
            trail.links.discard(link)

    def to_knock(self, peers: Mapping[str, Peer], now_s: float) -> list[str]:
        """At whose ports to knock now. Each is to be answered by `knocked`."""
        due = [member for member, at_s in self._due(peers) if at_s <= now_s]
        for member in due:
            self._trails[member].knocking = True
        return due

    def next_s(self, peers: Mapping[str, Peer]) -> float | None:
        """When the next knock is due."""
        return min((at_s for _, at_s in self._due(peers)), default=None)

    def knocked(self, member: str, incarnation: int, refused: bool, now_s: float) -> None:
        """How a knock went. Only a refusal counts: a time-out, an answer or a name that does not resolve does not."""
        trail = self._trails.get(member)
        if trail is None or trail.incarnation != incarnation:
            return
        trail.knocking = False
        trail.next_knock_s = now_s + APART_S
        if trail.ended_s is None or not refused:
            trail.refused_s = None
        elif trail.refused_s is None:
            trail.refused_s = now_s
        elif now_s - trail.refused_s >= APART_S:
            trail.dead = True

    def dead_at(self, member: str, incarnation: int, margin_s: float) -> float | None:
        """From when on that incarnation's process, and its workers, count as dead; None if that is not established."""
        trail = self._trails.get(member)
        if trail is None or trail.incarnation != incarnation or not trail.dead or trail.ended_s is None:
            return None
        return trail.ended_s + margin_s

    def _due(self, peers: Mapping[str, Peer]) -> list[tuple[str, float]]:
        due = []
        for member, trail in self._trails.items():
            peer = peers.get(member)
            if peer is None or peer.status == "down" or peer.incarnation != trail.incarnation:
                continue
            if trail.ended_s is not None and not trail.dead and not trail.knocking:
                due.append((member, max(trail.next_knock_s, trail.heard_s + SILENCE_S)))
        return due
