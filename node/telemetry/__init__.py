"""What a node observes of itself and reports: late threads, a lost lease, a blocked Raft thread."""
