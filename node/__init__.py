"""The member: state, liveness, duty, Raft, execution, HTTP and the command line. `node.app` wires them."""
