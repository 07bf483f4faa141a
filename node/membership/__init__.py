"""A member's life in its cluster: added, joined, marked down and back, drained, removed; and which member leads."""
