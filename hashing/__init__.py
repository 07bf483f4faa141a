"""Placement: which member owns each task. Pure: no Raft, no HTTP, no processes, no clock.

docs/explanation/placement.md describes the function, which other programs may implement.
"""
