"""HTTP APIs as source."""
