"""Connections between members: who calls, which member it is, and whether it is the one start of that member."""
