"""Measurements: what the figures in the README come from."""
