"""Finished runs on every member: stored, filled up from other members, and deleted when they are old."""
