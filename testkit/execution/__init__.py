"""Attempts in real processes: a runner with verbs, kinds that behave well or badly, and attackers."""
