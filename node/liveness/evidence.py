"""Evidence that a silent member's process has ended, so that it can be marked down before its lease expires. Pure.

A process counts as dead when it has been silent for half a second, its port has refused two connection attempts 250 ms
apart, and the other side ended the heartbeat connection of that incarnation. Its workers die with it, at most
`margin_s` after the end of the connection. Every member gathers evidence about the members that it was connected with:
the next leader was a client of the last one, and has the evidence by the time it is elected. A dead incarnation stays
dead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from node.liveness.view import Peer

SILENCE_S = 0.5
APART_S = 0.25


@dataclass(slots=True)
class _Trail:
    """The evidence about one member, in the latest incarnation that was heard."""

    incarnation: int
    heard_s: float
    links: set[int] = field(default_factory=set)
    ended_s: float | None = None
    probing: bool = False
    next_probe_s: float = 0.0
    refused_s: float | None = None
    dead: bool = False


class Evidence:
    """The evidence about all members. A `link` is any number that names one connection."""

    def __init__(self) -> None:
        self._trails: dict[str, _Trail] = {}

    def heard(self, member: str, incarnation: int, link: int, now_s: float) -> None:
        """Note a message from the member, in that incarnation, over that connection."""
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
        """Note that the other side ended that connection without a goodbye: by end of file or a reset."""
        for trail in self._trails.values():
            if link in trail.links:
                trail.links.remove(link)
                if not trail.links:
                    trail.ended_s, trail.next_probe_s = now_s, now_s

    def parted(self, link: int) -> None:
        """Forget a connection whose end is no evidence: it timed out, or was closed by this side or with a goodbye."""
        for trail in self._trails.values():
            trail.links.discard(link)

    def probes_due(self, peers: Mapping[str, Peer], now_s: float) -> list[str]:
        """Return the members whose ports to probe now. For each, call `probed` with the result."""
        due = [member for member, at_s in self._due(peers) if at_s <= now_s]
        for member in due:
            self._trails[member].probing = True
        return due

    def next_s(self, peers: Mapping[str, Peer]) -> float | None:
        """Return when the next probe is due."""
        return min((at_s for _, at_s in self._due(peers)), default=None)

    def probed(self, member: str, incarnation: int, refused: bool, now_s: float) -> None:
        """Note a probe's result. Only a refusal counts; a timeout, an answer or an unknown host name does not."""
        trail = self._trails.get(member)
        if trail is None or trail.incarnation != incarnation:
            return
        trail.probing = False
        trail.next_probe_s = now_s + APART_S
        if trail.ended_s is None or not refused:
            trail.refused_s = None
        elif trail.refused_s is None:
            trail.refused_s = now_s
        elif now_s - trail.refused_s >= APART_S:
            trail.dead = True

    def dead_at(self, member: str, incarnation: int, margin_s: float) -> float | None:
        """Return the time from which that incarnation's process and its workers count as dead; None if they do not."""
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
            if trail.ended_s is not None and not trail.dead and not trail.probing:
                due.append((member, max(trail.next_probe_s, trail.heard_s + SILENCE_S)))
        return due
