"""State and now in, what this member should do out. Pure."""
