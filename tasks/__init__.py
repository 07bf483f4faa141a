"""What a task is, and how each kind does its work. Imports neither `node` nor `hashing`."""
