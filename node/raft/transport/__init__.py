"""Connections between members. Finds out which member a caller is, and that it is the only start of this member."""
