"""A server's log while the node that archives it is killed, frozen and cut off, and restores."""
