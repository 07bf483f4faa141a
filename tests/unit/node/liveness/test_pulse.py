"""What the heartbeat thread decides itself. The decisions of its parts are tested with those."""

import pytest

from node.liveness.detector import Detector, LivenessVerdict
from node.liveness.evidence import Evidence
from node.liveness.lease import Lease, LeaseNow
from node.liveness.message import BEAT_S, Beat
from node.liveness.pulse import EARLY_S, STILL_S, Pulse
from node.liveness.view import Peer
from tests.unit.node.liveness.views import peer, view

BEATS = round(STILL_S / BEAT_S)


class FakePort:
    """Records the effects of a pulse."""

    def __init__(self) -> None:
        self.turns = 1
        self.sent: list[Beat] = []
        self.leases: list[LeaseNow] = []
        self.followed: list[Peer | None] = []

    def follow(self, leader: Peer | None, now_s: float) -> None:
        self.followed.append(leader)

    def send(self, beat: Beat, leader: str | None) -> None:
        self.sent.append(beat)

    def probe(self, member: str, peer: Peer, now_s: float) -> None:
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
def port() -> FakePort:
    return FakePort()


def pulse(port: FakePort, me: str) -> Pulse:
    evidence = Evidence()
    made = Pulse(port, Lease(), Detector(evidence), evidence)
    made.observe(view(me))
    return made


def test_a_member_with_a_blocked_raft_thread_falls_silent_until_it_resumes(port: FakePort) -> None:
    """Its disk hangs: a member that is alive and can do nothing would keep its tasks from all others for ever."""
    still = pulse(port, "b")
    for beat in range(2 * BEATS):
        still.turn(100.0 + beat * BEAT_S)
    assert len(port.sent) == BEATS
    port.turns += 1
    still.turn(100.0 + 2 * BEATS * BEAT_S)
    assert len(port.sent) == BEATS + 1


def test_a_member_whose_raft_thread_turns_now_and_then_is_only_slow(port: FakePort) -> None:
    slow = pulse(port, "b")
    for beat in range(2 * BEATS):
        port.turns += beat % (BEATS - 1) == 0
        slow.turn(100.0 + beat * BEAT_S)
    assert len(port.sent) == 2 * BEATS


def test_a_leader_that_is_awake_shortly_before_its_heartbeat_takes_it_along(port: FakePort) -> None:
    leads, follows = pulse(port, "a"), pulse(port, "b")
    for member in (leads, follows):
        member.turn(100.0)
        member.turn(100.0)  # a leader's first answer to itself is echoed at once
        assert not member.turn(100.0 + BEAT_S / 2), "too early"
    assert leads.turn(100.0 + BEAT_S - EARLY_S)
    assert not follows.turn(100.0 + BEAT_S - EARLY_S), "each of its heartbeats costs the leader a wakeup"
    assert leads.due_s(100.0 + BEAT_S) == pytest.approx(100.0 + 2 * BEAT_S - EARLY_S), "never later than BEAT_S after"


def test_a_suspended_process_does_not_count_as_blocked(port: FakePort) -> None:
    """Its heartbeat thread may wake first, before Raft's thread has had time for a turn."""
    woken = pulse(port, "b")
    woken.turn(100.0)
    woken.turn(100.0 + 10 * STILL_S)
    assert len(port.sent) == 2


def test_a_leader_with_a_blocked_raft_thread_grants_itself_no_lease(port: FakePort) -> None:
    leader = pulse(port, "a")
    # With another's echo there is a majority behind the leader's own.
    for beat in range(2 * BEATS):
        now_s = 100.0 + beat * BEAT_S
        leader.turn(now_s)
        leader.heard_beat(Beat("b", 1, 1, now_s, now_s), 1, now_s + 0.01)
    assert port.leases
    assert port.leases[-1].deadline_s <= 100.0 + BEATS * BEAT_S + 2.0


def test_the_connection_with_a_leader_is_not_closed_before_there_is_another(port: FakePort) -> None:
    """Raft notices first that a leader was killed. A follower that closed its connection then would miss the evidence
    of its end, and mark it down as silent after seconds instead of as dead after half a second."""
    follower = pulse(port, "b")
    follower.turn(100.0)
    follower.observe(view("b", leader=None))
    follower.turn(100.01)
    assert port.followed == [peer()]
    follower.observe(view("b", leader="c", term=2))
    follower.turn(100.2)
    follower.observe(view("b", leader="b", term=3))
    follower.turn(100.3)
    assert port.followed == [peer(), peer(), None]
