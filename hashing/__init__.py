"""Placement: who owns what. Pure; knows nothing of Raft, HTTP, processes or the clock (DESIGN.md, section 4)."""
