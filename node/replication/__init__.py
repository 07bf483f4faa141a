"""Connects the domain and Raft: the state machine, proposals, and waiting for applied entries."""
