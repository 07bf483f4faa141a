"""Files that survive a crash, and disk space: measured, reserved, and freed before the disk is full."""
