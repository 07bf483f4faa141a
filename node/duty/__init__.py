"""The control loop's decisions: state and time in, entries and orders out. Pure."""
