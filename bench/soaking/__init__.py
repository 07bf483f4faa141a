"""The parts of `bench.soak`: the work, the tasks, the faults, what clients were promised, and what must hold."""
