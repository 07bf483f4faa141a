"""Finished runs, on every member: kept, filled up from the others, and forgotten in time."""
