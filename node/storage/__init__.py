"""Files that survive a crash, and disk space: how much is free, what is reserved, what is stopped before it is full."""
