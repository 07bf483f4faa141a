"""How much a client of the API may send, and how long each part of an answer may take."""

from dataclasses import dataclass

from node.raft.ports import RaftTiming


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How much, and how long, at most."""

    body_bytes: int = 1024 * 1024
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
