"""What the heartbeat thread decides of itself; what it hands on is tested where it is decided."""

import pytest

from node.liveness.detector import Detector, LivenessVerdict
from node.liveness.evidence import Evidence
from node.liveness.lease import Lease, LeaseNow
from node.liveness.message import BEAT_S, Beat
from node.liveness.pulse import STILL_S, Pulse
from node.liveness.view import Peer
from tests.unit.node.liveness.views import peer, view

BEATS = round(STILL_S / BEAT_S)


class Wires:
    """What a pulse does, written down."""

    def __init__(self) -> None:
        self.turns = 1
        self.sent: list[Beat] = []
        self.leases: list[LeaseNow] = []
        self.followed: list[Peer | None] = []

    def follow(self, leader: Peer | None, now_s: float) -> None:
        self.followed.append(leader)

    def send(self, beat: Beat, leader: str | None) -> None:
        self.sent.append(beat)

    def knock(self, member: str, peer: Peer, now_s: float) -> None:
        pass

    def wall_us(self) -> int:
        return 0

    def raft_turns(self) -> int:
        return self.turns

    def on_lease(self, lease: LeaseNow) -> None:
        self.leases.append(lease)

    def on_verdict(self, verdict: LivenessVerdict) -> None:
        pass

    def on_clock(self, agreed_us: int, sent_s: float, now_s: float) -> None:
        pass


@pytest.fixture
def wires() -> Wires:
    return Wires()


def pulse(wires: Wires, me: str) -> Pulse:
    evidence = Evidence()
    made = Pulse(wires, Lease(), Detector(evidence), evidence)
    made.look(view(me))
    return made


def test_who_stands_still_for_long_falls_silent_and_is_heard_again_when_he_goes_on(wires: Wires) -> None:
    """Its disk hangs: a member that says that it lives, and can do nothing, keeps its work from everybody for ever."""
    still = pulse(wires, "b")
    for beat in range(2 * BEATS):
        still.turn(100.0 + beat * BEAT_S)
    assert len(wires.sent) == BEATS
    wires.turns += 1
    still.turn(100.0 + 2 * BEATS * BEAT_S)
    assert len(wires.sent) == BEATS + 1


def test_who_comes_round_now_and_then_is_merely_slow(wires: Wires) -> None:
    slow = pulse(wires, "b")
    for beat in range(2 * BEATS):
        wires.turns += beat % (BEATS - 1) == 0
        slow.turn(100.0 + beat * BEAT_S)
    assert len(wires.sent) == 2 * BEATS


def test_a_process_that_was_suspended_has_not_stood_still(wires: Wires) -> None:
    """It may be woken at the heartbeat first, and Raft's thread has had no time to come round."""
    woken = pulse(wires, "b")
    woken.turn(100.0)
    woken.turn(100.0 + 10 * STILL_S)
    assert len(wires.sent) == 2


def test_a_leader_that_stands_still_gives_itself_no_lease(wires: Wires) -> None:
    leader = pulse(wires, "a")
    # With another's echo there is a majority behind the leader's own.
    for beat in range(2 * BEATS):
        now_s = 100.0 + beat * BEAT_S
        leader.turn(now_s)
        leader.heard_beat(Beat("b", 1, 1, now_s, now_s), 1, now_s + 0.01)
    assert wires.leases
    assert wires.leases[-1].deadline_s <= 100.0 + BEATS * BEAT_S + 2.0


def test_the_connection_with_a_leader_is_not_closed_before_there_is_another(wires: Wires) -> None:
    """Raft sees first that a leader was killed. Who hung up then would not see the end of its heartbeats, and take it
    for silent after seconds, not for dead after half a second."""
    follower = pulse(wires, "b")
    follower.turn(100.0)
    follower.look(view("b", leader=None))
    follower.turn(100.01)
    assert wires.followed == [peer()]
    follower.look(view("b", leader="c", term=2))
    follower.turn(100.2)
    follower.look(view("b", leader="b", term=3))
    follower.turn(100.3)
    assert wires.followed == [peer(), peer(), None]
