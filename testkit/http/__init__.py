"""Real HTTP servers on loopback, and their visitors, polite and hostile."""
