"""A member's part in the consensus: elections, the messages of others, what callers propose, what is applied.

`parts` has the ports by which the parts of a member's Raft know one another; `node.raft.consensus` puts them together.
"""
