"""Real members of a Raft cluster, and of heartbeats, as processes that a test drives and traces."""
