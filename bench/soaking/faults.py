"""What is done to the nodes: drawn from a seed, one fault a round, and mended at its end."""

import random
import time
from collections.abc import Callable
from typing import Any, Final

from node.cli.local import LocalCluster, wait_for
from node.client import path

STOP_S: Final = 15.0


class DidNotStop(Exception):
    """A node that was asked to stop in good order did not."""


def draw(rng: random.Random, names: list[str], leader: str) -> tuple[str, Callable[[LocalCluster], None]]:
    """A fault: what it is, and what does it. When that returns, all nodes run again.

    What does it raises `DidNotStop`, and `NotInTime` where the cluster does not do as it is asked.
    """
    others = [name for name in names if name != leader]
    victim = leader if rng.random() < 0.4 else rng.choice(others)
    other = rng.choice([name for name in names if name != victim])
    hold_s = rng.choice((rng.uniform(0.2, 2.0), rng.uniform(2.0, 7.0)))
    said = f"{victim}{' (leader)' if victim == leader else ''}"
    times = [rng.uniform(0.1, 2.6) for _ in range(4)]
    lease_s = rng.choice((1.0, 1.5, 2.0, 3.0))
    return rng.choice(
        [
            (f"kill -9 {said}, start after {hold_s:.1f} s", lambda cluster: _kill(cluster, [victim], hold_s)),
            (f"kill -9 {said}, start at once", lambda cluster: _kill(cluster, [victim], 0)),
            (f"SIGSTOP {said} for {hold_s:.1f} s", lambda cluster: _pause(cluster, [victim], hold_s)),
            (f"SIGSTOP {said} again and again", lambda cluster: _flicker(cluster, victim, times)),
            (f"restart {said}, {hold_s:.1f} s between", lambda cluster: _restart(cluster, [victim], hold_s)),
            (
                f"kill -9 {said} and {other}, start after {hold_s:.1f} s",
                lambda cluster: _kill(cluster, [victim, other], hold_s),
            ),
            (
                f"SIGSTOP {said} and {other} for {hold_s:.1f} s",
                lambda cluster: _pause(cluster, [victim, other], hold_s),
            ),
            (
                f"kill -9 {said}, SIGSTOP {other} for {hold_s:.1f} s",
                lambda cluster: _kill_and_pause(cluster, victim, other, hold_s),
            ),
            (
                f"kill -9 {said}, then {other} while it comes back",
                lambda cluster: _kill_in_turn(cluster, victim, other, times[0]),
            ),
            (f"SIGSTOP, then kill -9 {said} after {hold_s:.1f} s", lambda cluster: _stop_dead(cluster, victim, hold_s)),
            (
                f"drain {said}, kill -9 {other} for {hold_s:.1f} s",
                lambda cluster: _drain_and_kill(cluster, victim, other, hold_s),
            ),
            (
                f"lease_s to {lease_s}, SIGSTOP {said} for {hold_s:.1f} s",
                lambda cluster: _lease_and_pause(cluster, lease_s, victim, hold_s),
            ),
            (f"stop all, start after {hold_s:.1f} s", lambda cluster: _restart(cluster, names, hold_s)),
            (f"kill -9 all, start after {hold_s:.1f} s", lambda cluster: _kill(cluster, names, hold_s)),
        ]
    )


def _kill(cluster: LocalCluster, victims: list[str], hold_s: float) -> None:
    for victim in victims:
        cluster.kill(victim)
    time.sleep(hold_s)
    cluster.start(*victims)


def _pause(cluster: LocalCluster, victims: list[str], hold_s: float) -> None:
    for victim in victims:
        cluster.pause(victim)
    time.sleep(hold_s)
    for victim in victims:
        cluster.resume(victim)


def _flicker(cluster: LocalCluster, victim: str, times: list[float]) -> None:
    for hold_s in times:
        _pause(cluster, [victim], hold_s)
        time.sleep(hold_s / 4)


def _restart(cluster: LocalCluster, victims: list[str], hold_s: float) -> None:
    cluster.stop(*victims, deadline_s=STOP_S)
    for victim in victims:
        if (code := cluster.exit_code(victim)) != 0:
            cluster.start(*victims)
            raise DidNotStop(f"{victim} was asked to stop and ended with {code} (-9: killed after {STOP_S:g} s)")
    time.sleep(hold_s)
    cluster.start(*victims)


def _kill_and_pause(cluster: LocalCluster, victim: str, other: str, hold_s: float) -> None:
    cluster.pause(other)
    cluster.kill(victim)
    time.sleep(hold_s)
    cluster.resume(other)
    cluster.start(victim)


def _drain_and_kill(cluster: LocalCluster, victim: str, other: str, hold_s: float) -> None:
    _ask(cluster, "POST", path("v1", "members", victim, "drain"))
    _kill(cluster, [other], hold_s)
    _ask(cluster, "POST", path("v1", "members", victim, "undrain"))


def _lease_and_pause(cluster: LocalCluster, lease_s: float, victim: str, hold_s: float) -> None:
    _ask(cluster, "PATCH", "/v1/settings", {"lease_s": lease_s})
    _pause(cluster, [victim], hold_s)


def _ask(cluster: LocalCluster, method: str, target: str, body: Any = None) -> None:
    """Have it done, however often it takes. Raises `NotInTime`."""
    wait_for(f"{method} {target}", lambda: cluster.client.call(method, target, body=body), STOP_S)


def _kill_in_turn(cluster: LocalCluster, victim: str, other: str, between_s: float) -> None:
    cluster.kill(victim)
    cluster.start(victim)
    time.sleep(between_s)
    cluster.kill(other)
    cluster.start(other)


def _stop_dead(cluster: LocalCluster, victim: str, hold_s: float) -> None:
    cluster.pause(victim)
    time.sleep(hold_s)
    cluster.kill(victim)
    cluster.start(victim)
