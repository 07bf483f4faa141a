"""Signed HTTP requests between members, and of nodes that join."""
