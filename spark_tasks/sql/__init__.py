"""Decides which SQL of a task may run in Spark: Spark parses it, and each part must be on a list of allowed parts."""
