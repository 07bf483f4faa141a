"""A member's heartbeat thread: the real `Pulse` on a simulated network, where `node.liveness.heartbeat` has sockets."""

from collections.abc import Callable
from itertools import count

from node.liveness.clocks import Correction
from node.liveness.detector import Detector, LivenessVerdict
from node.liveness.evidence import Evidence
from node.liveness.lease import Lease, LeaseNow
from node.liveness.message import Beat, HeartbeatAnswer
from node.liveness.pulse import Pulse
from node.liveness.view import Peer, View
from tests.simulation.world import World

PROBE_S = 1.0
"""How long a probe waits that is not answered."""

TURN_S = 0.001
"""Between two turns at least."""


class Beats:
    """One process's. `link` names its connections; `on_lease` and `on_verdict` are called in the lane "beat"."""

    def __init__(
        self,
        me: str,
        link: int,
        world: World,
        peer: Callable[[str], "Beats"],
        on_lease: Callable[[LeaseNow], None],
        on_verdict: Callable[[LivenessVerdict], None],
        correction: Correction,
        lease: type[Lease],
        detector: type[Detector],
    ) -> None:
        self.me, self.link = me, link
        self.on_lease, self.on_verdict, self.on_clock = on_lease, on_verdict, correction.agree
        evidence = Evidence()
        self._pulse = Pulse(self, lease(), detector(evidence), evidence)
        self._world, self._peer = world, peer
        self._due_at_s = float("inf")
        self._turns = count(1)

    def start(self) -> None:
        """Begin."""
        self._turn()

    def observe(self, view: View) -> None:
        """Set the view that counts from the moment this returns. Called in Raft's thread or the loop."""
        if self._pulse.observe(view):
            self._wake_at(self._now_s)

    # messages

    def heard_beat(self, beat: Beat, link: int) -> None:
        """A member's heartbeat has come."""
        answer, mine, to = self._pulse.heard_beat(beat, link, self._now_s), self.link, self._peer
        if answer is not None:
            self._world.send(self.me, beat.member, "beat", lambda: to(beat.member).heard_answer(answer, mine))

    def heard_answer(self, answer: HeartbeatAnswer, link: int) -> None:
        """The leader's answer has come."""
        self._pulse.heard_answer(answer, link, self._now_s)
        self._wake_at(self._pulse.due_s(self._now_s))

    def ended(self, link: int) -> None:
        """A process has ended, and its connections with it."""
        self._pulse.evidence.ended(link, self._now_s)

    def parted(self, link: int) -> None:
        """A process has said goodbye."""
        self._pulse.evidence.parted(link)

    # what a pulse has done

    def follow(self, leader: Peer | None, now_s: float) -> None:
        """There are no connections to be opened here."""

    def send(self, beat: Beat, leader: str | None) -> None:
        """A heartbeat for the leader."""
        if leader is not None:
            link, to = self.link, self._peer
            self._world.send(self.me, leader, "beat", lambda: to(leader).heard_beat(beat, link))

    def probe(self, member: str, peer: Peer, _now_s: float) -> None:
        """Is a member's process there?"""
        world, machine = self._world, self._world.machines[member]
        away = world.is_cut(self.me, member)
        refused = not away and not machine.running
        after_s = PROBE_S if away else world.rng.uniform(0.001, 0.02)
        incarnation = peer.incarnation
        world.within(
            self.me,
            "beat",
            after_s,
            lambda: self._pulse.evidence.probed(member, incarnation, refused, self._now_s),
        )

    def wall_us(self) -> int:
        """This machine's wall clock."""
        return self._world.wall_us(self.me)

    def raft_turns(self) -> int:
        """A disk here is slow, or its machine is paused with it: it is never silent alone."""
        return next(self._turns)

    # the thread

    def _turn(self) -> None:
        self._due_at_s = float("inf")
        self._pulse.turn(self._now_s)
        self._wake_at(max(self._now_s + TURN_S, self._pulse.due_s(self._now_s)))

    def _wake_at(self, clock_s: float) -> None:
        if clock_s >= self._due_at_s:
            return
        self._due_at_s = clock_s

        def due() -> None:
            if self._due_at_s == clock_s:
                self._turn()

        wait_s = max(0.0, self._world.when_s(self.me, clock_s) - self._world.now_s)
        self._world.within(self.me, "beat", wait_s, due, last=True)

    @property
    def _now_s(self) -> float:
        return self._world.clock_s(self.me)
