"""Adds, joins, drains and removes members, lets them rejoin after they were marked down, and takes the leadership."""
