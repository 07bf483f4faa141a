"""Heartbeats, leases, verdicts on members that are down, and clocks. See docs/explanation/leases-and-claims.md."""
