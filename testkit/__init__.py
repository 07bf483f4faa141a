"""What tests and benchmarks share: clusters of real nodes, faults, and what must hold afterwards."""
