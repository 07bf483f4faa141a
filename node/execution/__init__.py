"""Attempts as processes: one nursery that forks, and for each attempt a supervisor and a worker.

docs/explanation/execution.md explains this design.
"""
