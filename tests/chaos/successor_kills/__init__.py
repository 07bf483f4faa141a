"""kill -9 at drawn moments around the end of a run that others come after, on real nodes."""
