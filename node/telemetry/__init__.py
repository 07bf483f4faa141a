"""A node's observations of itself: late threads, a lost lease, a blocked Raft thread."""
