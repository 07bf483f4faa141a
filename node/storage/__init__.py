"""Room on the disk: how much is left, what is kept back, and what is stopped before it is gone."""
