"""Which cluster a node belongs to, and the keys derived from the members' shared secret."""
