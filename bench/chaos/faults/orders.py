"""What an operator asks for: stops in good order, rolling restarts, drains, another lease."""

import time

from bench.chaos.cluster import HarmedCluster
from bench.chaos.faults.fault import STOP_S, Act, DidNotStop, Draw, Fault, ask
from node.client import path


def restart_one(draw: Draw) -> Fault:
    """One stopped in good order."""
    victim = (draw.victim(),)
    return _stopped("stop and start one", draw.called(*victim), victim, draw.hold_s())


def restart_all(draw: Draw) -> Fault:
    """All stopped in good order, at once."""
    return _stopped("stop and start all", "all", draw.names, draw.hold_s())


def rolling(draw: Draw) -> Fault:
    """One after the other, each once the one before is ready again."""

    def strike(cluster: HarmedCluster) -> None:
        for name in draw.names:
            _stop(cluster, (name,))
            cluster.start(name)
            cluster.wait_until_ready(name, deadline_s=60)

    return Fault("rolling restart", "restart all in turn", draw.names, 0, strike, lambda _: None)


def drain(draw: Draw) -> Fault:
    """One drained for a while."""
    victim = draw.victim()
    hold_s = draw.hold_s()
    said = f"drain {draw.called(victim)}, undrain after {hold_s:.1f} s"
    return Fault("drain and undrain", said, (victim,), hold_s, _post(victim, "drain"), _post(victim, "undrain"))


def drain_and_kill(draw: Draw) -> Fault:
    """One drained, and another killed meanwhile."""
    one, other = draw.two()
    hold_s = draw.hold_s()

    def strike(cluster: HarmedCluster) -> None:
        _post(one, "drain")(cluster)
        cluster.kill(other)

    def mend(cluster: HarmedCluster) -> None:
        cluster.start(other)
        _post(one, "undrain")(cluster)

    said = f"drain {draw.called(one)}, kill -9 {draw.called(other)} for {hold_s:.1f} s"
    return Fault("drain one, kill -9 another", said, (one, other), hold_s, strike, mend)


def lease(draw: Draw) -> Fault:
    """Another lease, and a member that hangs just then."""
    victim = draw.victim()
    lease_s, hold_s = draw.rng.choice((1.0, 1.5, 2.0, 3.0)), draw.hold_s()

    def strike(cluster: HarmedCluster) -> None:
        ask(cluster, "PATCH", "/v1/settings", {"lease_s": lease_s})
        cluster.pause(victim)

    said = f"lease_s to {lease_s}, SIGSTOP {draw.called(victim)} for {hold_s:.1f} s"
    return Fault("lease changed, SIGSTOP", said, (victim,), hold_s, strike, lambda cluster: cluster.resume(victim))


def _stopped(kind: str, whom: str, victims: tuple[str, ...], hold_s: float) -> Fault:
    said = f"stop {whom}, start after {hold_s:.1f} s"
    return Fault(
        kind,
        said,
        victims,
        hold_s,
        lambda cluster: _stop(cluster, victims),
        lambda cluster: cluster.start(*victims),
    )


def _stop(cluster: HarmedCluster, victims: tuple[str, ...]) -> None:
    begun = time.monotonic()
    cluster.stop(*victims, deadline_s=2 * STOP_S)
    for victim in victims:
        if (code := cluster.exit_code(victim)) != 0:
            took_s = time.monotonic() - begun
            raise DidNotStop(f"{victim} was asked to stop and ended with {code} after {took_s:.0f} s (-9: killed then)")


def _post(name: str, what: str) -> Act:
    return lambda cluster: ask(cluster, "POST", path("v1", "members", name, what))
