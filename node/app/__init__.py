"""One process: settings, data folder, wiring, start and stop."""
