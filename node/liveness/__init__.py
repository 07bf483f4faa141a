"""Who is alive: heartbeats, leases and the verdicts on those who are not (DESIGN.md, section 7)."""
