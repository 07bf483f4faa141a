"""What a node observes of itself and reports: late threads, a lost lease, a Raft thread that stands still."""
