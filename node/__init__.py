"""The member: state, liveness, duty, Raft, execution, HTTP and the command line. `member` wires it all."""
