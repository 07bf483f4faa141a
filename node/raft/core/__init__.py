"""A member's part in the consensus: elections, messages of other members, callers' requests, and applied entries.

`parts` has the protocols through which these parts use one another; `node.raft.consensus` combines them.
"""
