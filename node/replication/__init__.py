"""Between the domain and Raft: the state machine, proposals and what has been applied."""
