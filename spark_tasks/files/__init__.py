"""Files as a source: which there are, which are new, and their rows."""
