"""How much a client of the API may send, and how long each part of an answer may take, in seconds."""

from dataclasses import dataclass

from node.raft.ports import RaftTiming


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of requests."""

    #: The size of a body.
    body_bytes: int = 1024 * 1024
    #: The size of a body whose sender is not known.
    stranger_bytes: int = 4096
    #: The size of a log entry.
    entry_bytes: int = RaftTiming().entry_bytes
    #: Seconds until a body has arrived.
    body_s: float = 20.0
    #: Seconds until a proposal is committed.
    write_s: float = 5.0
    #: Seconds until an index is applied (`Rota-Index`).
    index_s: float = 5.0
    #: Seconds until a placement is computed.
    placement_s: float = 2.0
    #: Seconds until a member answers.
    peer_s: float = 0.5
    #: Seconds until a member sends more of a log.
    peer_log_s: float = 2.0
    #: Seconds until a followed run has an attempt.
    attempt_s: float = 5.0
    #: Seconds between two reads of a followed log.
    poll_log_s: float = 0.15
    #: Seconds between two comments in an idle event stream.
    ping_s: float = 10.0
    #: How many streams may be open at once.
    streams: int = 256
