"""A member's heartbeat thread: the real `Lease`, `Detector` and `Evidence`, wired as `node.liveness.heartbeat` does."""

from collections.abc import Callable
from dataclasses import replace

from node.liveness.clocks import Clocks, Correction
from node.liveness.detector import Detector, Verdict
from node.liveness.evidence import Evidence
from node.liveness.lease import Lease, LeaseNow
from node.liveness.message import BEAT_S, Answer, Beat
from node.liveness.view import View
from tests.simulation.world import World

KNOCK_S = 1.0
"""How long a knock that nobody answers waits."""


class Beats:
    """One process's. `link` names its connections; `on_lease` and `on_verdict` are called in the lane "beat"."""

    def __init__(
        self,
        me: str,
        link: int,
        world: World,
        peer: Callable[[str], "Beats"],
        on_lease: Callable[[LeaseNow], None],
        on_verdict: Callable[[Verdict], None],
        correction: Correction,
        lease: type[Lease],
        detector: type[Detector],
    ) -> None:
        self.me, self.link = me, link
        self.evidence = Evidence()
        self.lease = lease()
        self.detector = detector(self.evidence)
        self._clocks, self._correction = Clocks(), correction
        self._world, self._peer = world, peer
        self._on_lease, self._on_verdict = on_lease, on_verdict
        self._told: View | None = None
        self._view: View | None = None
        self._next_beat_s = 0.0
        self._due_at_s = float("inf")

    def start(self) -> None:
        """Begin."""
        self._turn()

    def look(self, view: View) -> None:
        """What the node knows now; it counts from the moment this returns. Called in Raft's thread or the loop."""
        if view != self._told:
            self._told = view
            self._wake_at(self._world.clock_s(self.me))

    # messages

    def heard_beat(self, beat: Beat, link: int) -> None:
        """A member's heartbeat has come."""
        now_s = self._world.clock_s(self.me)
        self._adopt(now_s)
        self.evidence.heard(beat.member, beat.incarnation, link, now_s)
        answer = self._answer(beat, now_s)
        if answer is not None:
            mine, to = self.link, self._peer
            self._world.send(self.me, beat.member, "beat", lambda: to(beat.member).heard_answer(answer, mine))

    def heard_answer(self, answer: Answer, link: int) -> None:
        """The leader's answer has come."""
        now_s = self._world.clock_s(self.me)
        self._adopt(now_s)
        self.evidence.heard(answer.leader, answer.leader_incarnation, link, now_s)
        self._answered(answer, now_s)

    def ended(self, link: int) -> None:
        """A process has ended, and its connections with it."""
        self.evidence.ended(link, self._world.clock_s(self.me))

    def parted(self, link: int) -> None:
        """A process has said goodbye."""
        self.evidence.parted(link)

    # the thread

    def _turn(self) -> None:
        self._due_at_s = float("inf")
        now_s = self._world.clock_s(self.me)
        self._adopt(now_s)
        if now_s >= self._next_beat_s - 1e-6:
            self._next_beat_s = max(self._next_beat_s + BEAT_S, now_s + BEAT_S / 2)
            self._beat(now_s)
        self._judge(now_s)
        self._wake_at(self._due_s(now_s))

    def _due_s(self, now_s: float) -> float:
        if self._view is None:
            return self._next_beat_s
        extra = (self.evidence.next_s(self._view.peers), self.detector.next_s(now_s))
        return max(now_s + 0.001, min([self._next_beat_s, *(at_s for at_s in extra if at_s is not None)]))

    def _wake_at(self, clock_s: float) -> None:
        if clock_s >= self._due_at_s:
            return
        self._due_at_s = clock_s

        def due() -> None:
            if self._due_at_s == clock_s:
                self._turn()

        self._world.within(
            self.me, "beat", max(0.0, self._world.when_s(self.me, clock_s) - self._world.now_s), due, last=True
        )

    def _adopt(self, now_s: float) -> None:
        """Before each message is judged: an answer in a term that this node has left must not be taken."""
        view, before = self._told, self._view
        if view is None or view is before:
            return
        self._view = view
        dropped = self.lease.look(view, now_s)
        self.detector.look(view, now_s)
        if before is None or _stance(before) != _stance(view):
            self._next_beat_s = now_s
        if dropped is not None:
            self._on_lease(dropped)

    def _beat(self, now_s: float) -> None:
        beat = self.lease.beat(now_s)
        view = self._view
        if beat is None or view is None or view.leader is None:
            return
        wall_us = self._world.wall_us(self.me)
        beat = Beat(beat.member, beat.incarnation, beat.term, beat.sent_s, beat.echo_s, wall_us)
        if view.leading:
            answer = self._answer(beat, now_s)
            if answer is not None:
                self._answered(answer, now_s)
        else:
            leader, link, to = view.leader, self.link, self._peer
            self._world.send(self.me, leader, "beat", lambda: to(leader).heard_beat(beat, link))

    def _answer(self, beat: Beat, now_s: float) -> Answer | None:
        answer = self.detector.beat(beat, now_s)
        if answer is None or self._view is None:
            return None
        if beat.wall_us is not None:
            self._clocks.heard(beat.member, beat.wall_us, beat.echo_s, now_s)
        return replace(answer, wall_us=self._clocks.agreed_us(self._view.peers, now_s))

    def _answered(self, answer: Answer, now_s: float) -> None:
        if answer.wall_us is not None:
            self._correction.agree(answer.wall_us, answer.sent_s, now_s)
        echoed = self.lease.echoed
        lease = self.lease.answered(answer, now_s)
        if lease is not None:
            self._on_lease(lease)
        if self.lease.echoed and not echoed:
            self._next_beat_s = now_s
            self._wake_at(now_s)

    def _judge(self, now_s: float) -> None:
        view = self._view
        if view is None:
            return
        for verdict in self.detector.tick(now_s):
            self._on_verdict(verdict)
        if view.settings.refusal_is_death:
            for member in self.evidence.to_knock(view.peers, now_s):
                self._knock(member, view.peers[member].incarnation)

    def _knock(self, member: str, incarnation: int) -> None:
        world, machine = self._world, self._world.machines[member]
        away = world.is_cut(self.me, member)
        refused = not away and not machine.running
        after_s = KNOCK_S if away else world.rng.uniform(0.001, 0.02)
        world.within(
            self.me,
            "beat",
            after_s,
            lambda: self.evidence.knocked(member, incarnation, refused, world.clock_s(self.me)),
        )


def _stance(view: View) -> tuple[object, ...]:
    return (view.term, view.leader, view.incarnation, view.lead_applied)
