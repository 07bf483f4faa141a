"""Heartbeats and their answers. Clocks are CLOCK_BOOTTIME, in seconds."""

from dataclasses import dataclass

BEAT_S = 0.25
"""The period of every member's heartbeats, the leader's too."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat. `sent_s` is the member's own clock.

    `echo_s` is the leader's clock in the last answer that the member got in this term, or None.
    `wall_us` is the machine's wall clock, which may be wrong.
    """

    member: str
    incarnation: int
    term: int
    sent_s: float
    echo_s: float | None
    wall_us: int | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The leader's answer to one heartbeat, whose incarnation, term and `sent_s` it repeats.

    `now_s` is the leader's clock. `lease_s` is how long the lease is, counted from `sent_s`; None: no lease.
    `wall_us` is the wall clock that most members agree on at `now_s`; None if there is no agreement.
    """

    leader: str
    leader_incarnation: int
    incarnation: int
    term: int
    sent_s: float
    now_s: float
    lease_s: float | None
    wall_us: int | None = None
