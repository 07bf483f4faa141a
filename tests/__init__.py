"""Rota's tests: unit, oracle, golden, simulation, integration, chaos; `cluster` is the fixture with verbs."""
