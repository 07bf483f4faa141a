"""kill -9 at drawn moments of each kind of backup, of drills and of restores, on real nodes with real servers."""
