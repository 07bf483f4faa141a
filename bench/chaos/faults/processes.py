"""Processes killed and stopped."""

import time

from bench.chaos.cluster import HarmedCluster
from bench.chaos.faults.fault import Act, Draw, Fault, nothing


def kill_one(draw: Draw) -> Fault:
    """One, started again after a while, or at once."""
    return _killed("kill -9 one", draw, (draw.victim(),), draw.rng.choice((0.0, draw.hold_s())))


def kill_leader(draw: Draw) -> Fault:
    """The leader."""
    return _killed("kill -9 the leader", draw, (draw.leader,), draw.hold_s())


def kill_two(draw: Draw) -> Fault:
    """Two at once."""
    return _killed("kill -9 two", draw, draw.two(), draw.hold_s())


def kill_all(draw: Draw) -> Fault:
    """All at once."""
    return _killed("kill -9 all", draw, draw.names, draw.hold_s())


def kill_in_turn(draw: Draw) -> Fault:
    """One, and another while the first comes back."""
    one, other = draw.two()
    between_s = draw.rng.uniform(0.1, 2.6)

    def strike(cluster: HarmedCluster) -> None:
        cluster.kill(one)
        cluster.start(one)
        time.sleep(between_s)
        cluster.kill(other)
        cluster.start(other)

    said = f"kill -9 {draw.called(one)}, then {draw.called(other)} while it comes back"
    return Fault("kill -9 in turn", said, (one, other), 0, strike, nothing)


def stop_1(draw: Draw) -> Fault:
    """SIGSTOP for less than a lease."""
    return _stopped("SIGSTOP 1 s", draw, (draw.victim(),), 1)


def stop_10(draw: Draw) -> Fault:
    """SIGSTOP until it is marked down."""
    return _stopped("SIGSTOP 10 s", draw, (draw.victim(),), 10)


def stop_60(draw: Draw) -> Fault:
    """SIGSTOP until nobody thinks of it any more."""
    return _stopped("SIGSTOP 60 s", draw, (draw.victim(),), 60)


def stop_two(draw: Draw) -> Fault:
    """Two stopped."""
    return _stopped("SIGSTOP two", draw, draw.two(), draw.hold_s())


def stop_again(draw: Draw) -> Fault:
    """Stopped again and again, around the length of a lease."""
    victim = draw.victim()
    times = [draw.rng.uniform(0.1, 2.6) for _ in range(4)]

    def strike(cluster: HarmedCluster) -> None:
        for hold_s in times:
            cluster.pause(victim)
            time.sleep(hold_s)
            cluster.resume(victim)
            time.sleep(hold_s / 4)

    return Fault("SIGSTOP again and again", f"SIGSTOP {draw.called(victim)} four times", (victim,), 0, strike, nothing)


def stop_dead(draw: Draw) -> Fault:
    """Stopped, and killed while it is."""
    victim = draw.victim()

    def mend(cluster: HarmedCluster) -> None:
        cluster.kill(victim)
        cluster.start(victim)

    hold_s = draw.hold_s()
    said = f"SIGSTOP, then kill -9 {draw.called(victim)} after {hold_s:.1f} s"
    return Fault("SIGSTOP, then kill -9", said, (victim,), hold_s, _pause((victim,)), mend)


def kill_and_stop(draw: Draw) -> Fault:
    """One killed, another stopped."""
    one, other = draw.two()
    hold_s = draw.hold_s()

    def strike(cluster: HarmedCluster) -> None:
        cluster.pause(other)
        cluster.kill(one)

    def mend(cluster: HarmedCluster) -> None:
        cluster.resume(other)
        cluster.start(one)

    said = f"kill -9 {draw.called(one)}, SIGSTOP {draw.called(other)} for {hold_s:.1f} s"
    return Fault("kill -9 one, SIGSTOP another", said, (one, other), hold_s, strike, mend)


def _killed(kind: str, draw: Draw, victims: tuple[str, ...], hold_s: float) -> Fault:
    whom = "all" if victims == draw.names else draw.called(*victims)
    said = f"kill -9 {whom}, start after {hold_s:.1f} s"
    return Fault(kind, said, victims, hold_s, _kill(victims), lambda cluster: cluster.start(*victims))


def _stopped(kind: str, draw: Draw, victims: tuple[str, ...], hold_s: float) -> Fault:
    said = f"SIGSTOP {draw.called(*victims)} for {hold_s:.1f} s"
    return Fault(kind, said, victims, hold_s, _pause(victims), _resume(victims))


def _kill(victims: tuple[str, ...]) -> Act:
    def act(cluster: HarmedCluster) -> None:
        for victim in victims:
            cluster.kill(victim)

    return act


def _pause(victims: tuple[str, ...]) -> Act:
    def act(cluster: HarmedCluster) -> None:
        for victim in victims:
            cluster.pause(victim)

    return act


def _resume(victims: tuple[str, ...]) -> Act:
    def act(cluster: HarmedCluster) -> None:
        for victim in victims:
            cluster.resume(victim)

    return act
