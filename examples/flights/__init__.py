"""A month of flights in four steps: see README.md."""
