"""Finished runs on every member: stored, backfilled from other members, and deleted when they are old."""
