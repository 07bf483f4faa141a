"""The network between the nodes: cut, one way, lossy, slow, standing still. Who watches still reaches every node."""

from collections.abc import Callable

from bench.chaos.cluster import HarmedCluster
from bench.chaos.faults.fault import Draw, Fault
from testkit.faults.namespaces import BOTH, Spaces


def cut_one(draw: Draw) -> Fault:
    """One cut off from all others."""
    victim = draw.rng.choice([name for name in draw.names if name != draw.leader] or list(draw.names))
    return _cut("cut off one", draw, (victim,))


def cut_leader(draw: Draw) -> Fault:
    """The leader alone."""
    return _cut("cut off the leader", draw, (draw.leader,))


def cut_two(draw: Draw) -> Fault:
    """Two that still see one another: the smaller side of a split."""
    return _cut("cut off two", draw, draw.two())


def deaf(draw: Draw) -> Fault:
    """One way: it hears nobody, and is heard."""
    return _cut("cut one way: deaf", draw, (draw.victim(),), ("INPUT",))


def dumb(draw: Draw) -> Fault:
    """One way: it hears all, and is not heard."""
    return _cut("cut one way: dumb", draw, (draw.victim(),), ("OUTPUT",))


def loss(draw: Draw) -> Fault:
    """A share of the packets is lost, either way."""
    victim, hold_s, share = draw.victim(), _hold_s(draw), draw.rng.uniform(0.05, 0.4)
    said = f"{draw.called(victim)} loses {share:.0%} of its packets for {hold_s:.1f} s"
    return _harmed("packets lost", said, (victim,), hold_s, lambda net, name, rest: net.lose(name, rest, share))


def delay(draw: Draw) -> Fault:
    """Every packet comes late, and in another order."""
    victim, hold_s = draw.victim(), _hold_s(draw)
    least_s = draw.rng.choice((0.01, 0.1, 0.4))
    most_s = 2 * least_s
    said = f"packets of {draw.called(victim)} are {least_s:g} to {most_s:g} s late for {hold_s:.1f} s"
    return _harmed(
        "packets delayed", said, (victim,), hold_s, lambda net, name, rest: net.hold(name, rest, least_s, most_s)
    )


def freeze(draw: Draw) -> Fault:
    """Nothing is lost: all that was sent meanwhile arrives at the end, at once."""
    victim, hold_s = draw.victim(), draw.rng.choice((0.7, 2.2, draw.rng.uniform(2.0, 8.0)))
    said = f"packets of {draw.called(victim)} are frozen for {hold_s:.1f} s"
    # The holder lets all go when it is ended.
    return _harmed("packets frozen", said, (victim,), hold_s, lambda net, name, rest: net.hold(name, rest, 3600, 3600))


def _hold_s(draw: Draw) -> float:
    return draw.rng.uniform(3.0, 12.0)


def _cut(kind: str, draw: Draw, victims: tuple[str, ...], ways: tuple[str, ...] = BOTH) -> Fault:
    hold_s = _hold_s(draw)
    said = f"{kind}: {draw.called(*victims)} for {hold_s:.1f} s"
    return _harmed(kind, said, victims, hold_s, lambda net, name, rest: net.cut(name, rest, ways))


def _harmed(
    kind: str, said: str, victims: tuple[str, ...], hold_s: float, harm: Callable[[Spaces, str, list[str]], None]
) -> Fault:
    def strike(cluster: HarmedCluster) -> None:
        for victim in victims:
            harm(_spaces(cluster), victim, cluster.rest(*victims))

    return Fault(kind, said, victims, hold_s, strike, lambda cluster: _spaces(cluster).heal(*victims))


def _spaces(cluster: HarmedCluster) -> Spaces:
    assert cluster.spaces is not None, "faults of the network are drawn only where there are namespaces"
    return cluster.spaces
