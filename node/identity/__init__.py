"""Which cluster a node belongs to, and the keys derived from the secret that its members share."""
