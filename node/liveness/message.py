"""What members say to their leader four times a second, and what it answers. Clocks are CLOCK_BOOTTIME, in seconds."""

from dataclasses import dataclass

BEAT_S = 0.25
"""Every member, the leader too, heartbeats this often (section 7)."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat. `sent_s` is the member's own clock.

    `echo_s` is the leader's clock as it stood in the last answer that the member got in this term, or None.
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
    `wall_us` is what most members' wall clocks say at `now_s`, None where that is not known.
    """

    leader: str
    leader_incarnation: int
    incarnation: int
    term: int
    sent_s: float
    now_s: float
    lease_s: float | None
    wall_us: int | None = None
