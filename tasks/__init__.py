"""Tasks: their definition, their schedules and policies, and the kinds that do their work.

Imports neither `node` nor `hashing`.
"""
