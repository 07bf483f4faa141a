"""How much a client of the API may send, and how long each part of an answer may take, in seconds."""

from dataclasses import dataclass

from node.raft.ports import RaftTiming


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of requests.

    Sizes: `body_bytes` of a body, `stranger_bytes` of one whose sender is not known, `entry_bytes` of a log entry.
    Seconds: `body_s` until a body has arrived, `write_s` until a proposal is committed, `index_s` until an index is
    applied (`Rota-Index`), `placement_s` until a placement is computed, `peer_s` until a member answers, `peer_log_s`
    until it sends more of a log, `attempt_s` until a followed run has an attempt, `poll_log_s` between two reads of a
    followed log, `ping_s` between two comments in an idle event stream. `streams`: how many may be open at once.
    """

    body_bytes: int = 1024 * 1024
    stranger_bytes: int = 4096
    entry_bytes: int = RaftTiming().entry_bytes
    body_s: float = 20.0
    write_s: float = 5.0
    index_s: float = 5.0
    placement_s: float = 2.0
    peer_s: float = 0.5
    peer_log_s: float = 2.0
    attempt_s: float = 5.0
    poll_log_s: float = 0.15
    ping_s: float = 10.0
    streams: int = 256
