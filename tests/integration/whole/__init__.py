"""Tests of a whole cluster, as a stranger relying on the contract would write them."""
