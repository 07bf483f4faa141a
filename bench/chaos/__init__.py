"""Real nodes, real work, and faults: what is done to them, what must hold all the same, and what it looked like."""
