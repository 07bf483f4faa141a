"""Heartbeats and their answers. Clocks are CLOCK_BOOTTIME, in seconds."""

from dataclasses import dataclass

BEAT_S = 0.25
"""The period of every member's heartbeats, the leader's too."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat."""

    #: The id of the member that sends it.
    member: str
    #: The member's incarnation.
    incarnation: int
    #: The Raft term that the member is in.
    term: int
    #: When it was sent, in seconds on the member's own clock.
    sent_s: float
    #: The leader's clock, in seconds, in the last answer that the member got in this term; None: it got no answer.
    echo_s: float | None
    #: The wall clock of the member's machine, in microseconds since the epoch. It may be wrong. None: not sent.
    wall_us: int | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The leader's answer to one heartbeat."""

    #: The leader's id.
    leader: str
    #: The leader's incarnation.
    leader_incarnation: int
    #: The incarnation in the heartbeat.
    incarnation: int
    #: The Raft term in the heartbeat.
    term: int
    #: When the heartbeat was sent, in seconds on its sender's clock.
    sent_s: float
    #: The leader's clock, in seconds.
    now_s: float
    #: How long the lease is, in seconds from `sent_s`; None: no lease.
    lease_s: float | None
    #: The wall clock that most members agree on at `now_s`, in microseconds since the epoch; None: they do not agree.
    wall_us: int | None = None
