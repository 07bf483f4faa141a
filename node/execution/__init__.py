"""Attempts as processes: a nursery that forks, a supervisor and a worker for each."""
